// A dataflow graph as SVG: nodes that the keyboard reaches, groups that open in place.

import { h, plural, svg } from "./core.js";
import { finder } from "./find.js";
import { fitting, neighbours, placed, toggled } from "./graph_layout.js";
import { pictureButtons } from "./picture.js";

/** Of each origin of a node: its tag, its colour, and its name. */
export const ORIGINS = {
  operator: ["op", "var(--group-0)", "operator"], loops: ["loop", "var(--group-1)", "loop function"],
  library: ["lib", "var(--group-2)", "library"], function: ["fn", "var(--group-3)", "graph function"],
  check: ["chk", "var(--group-6)", "run-time check"], parameter: ["in", "var(--group-9)", "parameter"],
  return: ["out", "var(--group-9)", "result"], tuple: ["", "var(--panel)", "tuple"], value: ["", "var(--panel)", "value"],
};

const path = (points) => points.map(([x, y], i) => `${i === 0 ? "M" : i % 3 === 1 ? "C" : ""}${x},${y}`).join(" ");
const ALONG = { ArrowLeft: -1, ArrowRight: 1, k: -1, j: 1 };

/** A node in a sentence, for a screen reader. */
function nodeSentence({ graph, before, after }, v) {
  const n = graph.nodes[v];
  return `${n.name}: ${n.label} (${(ORIGINS[n.origin] ?? ORIGINS.value)[2]}), ${n.type || "no type"}, reads ${before[v].length}, read by ${after[v].length}`;
}

const toggle = (p, k) => p.opened.set(toggled(p.graph, p.opened.get(), k));
const isClosed = (p, k) => k !== undefined && !p.opened.get().includes(k);

/** Chooses a node, opens its group, and moves the focus to it. */
function focusOn(p, v) {
  const k = p.owner.get(v);
  if (isClosed(p, k)) toggle(p, k);
  p.chosen.set(v);
  const g = p.elements.get(v);
  g?.focus({ preventScroll: true });
  g?.scrollIntoView?.({ block: "nearest", inline: "nearest" });
  p.said.textContent = nodeSentence(p, v);
}

/** Brings a node into sight without moving the focus; its group alone is opened for that. */
function reveal(p, v) {
  const k = p.owner.get(v);
  if (isClosed(p, k)) p.opened.set([k]);
  const g = p.elements.get(v);
  if (!g) return;
  const [box, frame] = [g.getBoundingClientRect(), p.canvas.getBoundingClientRect()];
  if (box.top < frame.top || box.bottom > frame.bottom) p.canvas.scrollTop += box.top - frame.top - frame.height / 3;
  if (box.left < frame.left || box.right > frame.right) p.canvas.scrollLeft += box.left - frame.left - frame.width / 3;
}

/** The node to which a key leads from node `v`; null for other keys. */
function keyTarget({ graph, before, after }, key, v) {
  if (key in ALONG) return Math.max(0, Math.min(graph.nodes.length - 1, v + ALONG[key]));
  return {
    ArrowUp: before[v][0] ?? v, ArrowDown: after[v][0] ?? v, Home: 0, End: graph.nodes.length - 1, Enter: v, " ": v,
  }[key] ?? null;
}

function nodeBox(p, b) {
  const n = p.graph.nodes[b.node];
  const round = n.origin === "parameter" || n.origin === "return";
  const g = svg("g", {
    class: `node ${n.origin}`, role: "button", "aria-label": nodeSentence(p, b.node), transform: `translate(${b.x},${b.y})`,
    onclick: () => focusOn(p, b.node),
    onkeydown(event) {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const to = keyTarget(p, event.key, b.node);
      if (to === null) return;
      event.preventDefault();
      event.stopPropagation();
      focusOn(p, to);
    },
  },
  svg("title", {}, `${n.name} = ${n.label}\n${n.type}`),
  svg("rect", { width: b.w, height: b.h, rx: round ? 16 : 4 }),
  svg("text", { x: b.w / 2, y: 15, "text-anchor": "middle" }, n.short[0]),
  svg("text", { x: b.w / 2, y: 29, "text-anchor": "middle", class: "small" }, n.short[1]),
  svg("text", { x: 2, y: -4, class: "tag" }));
  p.elements.set(b.node, g);
  return g;
}

function groupBox(p, b) {
  const g = p.graph.groups[b.group];
  const text = `${g.title} · ${plural(g.end - g.start, "value")}`;
  return svg("g", {
    class: `group${b.open ? " open" : ""}`, role: "button", tabindex: 0, "aria-expanded": String(Boolean(b.open)),
    "aria-label": `${text}, ${b.open ? "close" : "open"}`, transform: `translate(${b.x},${b.y})`,
    onclick: () => toggle(p, b.group),
    onkeydown(event) {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      toggle(p, b.group);
      p.canvas.querySelectorAll("g.group")[b.group]?.focus();
    },
  },
  svg("rect", { width: b.w, height: b.h, rx: 6 }),
  svg("text", { x: b.open ? 8 : b.w / 2, y: b.open ? 17 : 22, "text-anchor": b.open ? "start" : "middle" }, `${b.open ? "▾" : "▸"} ${text}`));
}

/** Makes the drawing anew: open groups below the edges, all else above them. */
function draw(p) {
  const { boxes, curves, width, height } = placed(p.graph, new Set(p.opened.get()));
  p.elements = new Map();
  const lines = curves.map((c) => {
    const line = svg("path", { d: path(c.points), class: "edge" });
    line.ends = [c.a, c.b];
    return line;
  });
  p.drawing = svg("svg", {
    viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": p.label, class: "drawing",
  }, svg("g", {}, boxes.filter((b) => b.open).map((b) => groupBox(p, b))), svg("g", {}, lines),
  boxes.filter((b) => !b.open).map((b) => (b.node === undefined ? groupBox(p, b) : nodeBox(p, b))));
  p.natural = [width, height];
  p.lines = lines;
  p.canvas.replaceChildren(p.drawing);
  scale(p, p.zoom);
  refresh(p);
}

function scale(p, zoom) {
  p.zoom = zoom;
  p.drawing.style.width = `${p.natural[0] * zoom}px`;
  p.drawing.style.height = `${p.natural[1] * zoom}px`;
  p.drawing.style.maxWidth = "none";
}

/** Paints anew what is there. */
function refresh(p) {
  const now = p.chosen.get();
  const first = p.elements.has(now) ? now : p.elements.keys().next().value; // the one tab stop
  for (const [v, g] of p.elements) {
    const [tag, fill] = ORIGINS[p.graph.nodes[v].origin] ?? ORIGINS.value;
    const own = p.paint(v) ?? { fill, tag };
    g.children[1].style.fill = own.fill;
    g.children[4].textContent = own.tag;
    g.classList.toggle("strong", Boolean(own.strong));
    g.classList.toggle("faint", Boolean(own.faint));
    g.classList.toggle("chosen", v === now);
    g.setAttribute("aria-pressed", String(v === now));
    g.setAttribute("tabindex", v === first ? "0" : "-1");
  }
  for (const line of p.lines) {
    line.classList.toggle("lit", line.ends.includes(now));
    if (line.ends.includes(now)) line.parentNode.append(line);
  }
  showMissed(p);
}

/** Fades what a search has not found. */
function showMissed(p) {
  for (const [v, g] of p.elements) g.classList.toggle("missed", Boolean(p.lookedFor) && !p.lookedFor.has(v));
}

/** The buttons above the drawing, and the search. */
function toolbar(p) {
  const zoomBy = (factor) => scale(p, Math.max(0.15, Math.min(3, p.zoom * factor)));
  const fit = () => scale(p, fitting(p.natural, [p.canvas.clientWidth, parseFloat(getComputedStyle(p.canvas).maxHeight) - 4]));
  const find = finder({
    label: "find a value", at: () => p.chosen.get(), go: (v) => focusOn(p, v),
    texts: () => p.graph.nodes.map((n) => `${n.name} ${n.label} ${n.type} ${n.folded.join(" ")}`),
    changed(found, search) {
      p.lookedFor = search && found.length ? new Set(found) : null;
      showMissed(p);
    },
  });
  return h("div", { class: "row" },
    h("button", { type: "button", "aria-label": "smaller", onclick: () => zoomBy(0.8) }, "−"),
    h("button", { type: "button", "aria-label": "larger", onclick: () => zoomBy(1.25) }, "+"),
    h("button", { type: "button", onclick: fit }, "Fit"),
    p.graph.groups.length > 0 && h("button", { type: "button", onclick: () => p.opened.set([]) }, "Collapse all"),
    find, pictureButtons(() => p.drawing, p.label));
}

/**
 * The drawing, with buttons and a search above it.
 * @param {{graph: any, chosen: ReturnType<typeof field>, opened: ReturnType<typeof field>,
 *   paint?: (node: number) => {fill: string, tag: string, strong?: boolean, faint?: boolean} | null,
 *   height?: string, label?: string}} options
 */
export function graphPane({ graph, chosen, opened, paint = () => null, height = "34em", label = "dataflow graph" }) {
  const owner = new Map(); // the group that holds a node
  graph.groups.forEach((g, k) => { for (let v = g.start; v < g.end; v += 1) owner.set(v, k); });
  const canvas = h("div", { class: "scroll graph", style: `max-height:max(${height}, 70vh, var(--room, 0px))` });
  const said = h("div", { class: "visually-hidden", "aria-live": "polite" });
  const keys = h("p", { class: "muted" }, "Data flows down. Keys: ↑ producer, ↓ consumer, ← → in program order.");
  const p = {
    graph, chosen, opened, paint, label, owner, canvas, said, ...neighbours(graph),
    zoom: 1, lookedFor: null, // the nodes that a search has found
    drawing: null, natural: null, elements: null, lines: null, // as `draw` makes them
  };
  const bar = toolbar(p);
  draw(p);
  const stops = [opened.on(() => draw(p)), chosen.on(() => refresh(p))];
  return {
    element: h("div", {}, bar, canvas, keys, said), before: p.before, after: p.after,
    refresh: () => refresh(p), focusOn: (v) => focusOn(p, v), reveal: (v) => reveal(p, v),
    stop: () => stops.forEach((s) => s()),
  };
}
