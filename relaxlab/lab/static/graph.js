// A dataflow graph as SVG: nodes that the keyboard reaches, groups that open in place.

import { field, formatBytes, formatCount, h, notes, svg, table } from "./core.js";
import { evaluate, formatExpr, symbolSliders } from "./symbols.js";
import { finder } from "./find.js";
import { ofFunctions } from "./functions.js";
import { pictureButtons } from "./picture.js";

const MOST = 500;
const ROW = 18; // half the height of a node

export const ORIGINS = {
  operator: ["op", "var(--group-0)", "operator"], loops: ["loop", "var(--group-1)", "loop function"],
  library: ["lib", "var(--group-2)", "library"], function: ["fn", "var(--group-3)", "graph function"],
  check: ["chk", "var(--group-6)", "run-time check"], parameter: ["in", "var(--group-9)", "parameter"],
  return: ["out", "var(--group-9)", "result"], tuple: ["", "var(--panel)", "tuple"], value: ["", "var(--panel)", "value"],
};

/**
 * What is drawn where when the groups in `open` are: a group grows in place, what is below moves
 * down, what is beside it to the right moves on.
 * @param {any} graph @param {Set<number>} open
 */
export function placed(graph, open) {
  const count = graph.nodes.length;
  const grown = [];
  graph.items.forEach((item, i) => {
    if (item < count || !open.has(item - count)) return;
    const [x, y] = graph.top.at[i];
    const inner = graph.layouts[graph.groups[item - count].layout];
    grown.push({ x, y, dx: Math.max(0, inner.width + 12 - 170), dy: inner.height + 30 - 2 * ROW });
  });
  const move = (x, y) => {
    let [mx, my] = [x, y];
    for (const g of grown) {
      if (y > g.y + ROW - 2) my += g.dy;
      else if (Math.abs(y - g.y) < ROW && x > g.x + 1) mx += g.dx;
    }
    return [mx, my];
  };
  const boxes = [];
  const curves = [];
  const found = new Map();
  const curve = (a, b, flat, shift) => {
    const points = [];
    for (let i = 0; i < flat.length; i += 2) points.push(shift(flat[i], flat[i + 1]));
    const [from, to] = [found.get(a), found.get(b)];
    points[0][1] = from.y + from.h;
    points.at(-1)[1] = to.y;
    curves.push({ a, b, points });
  };
  const box = (key, b) => {
    found.set(key, b);
    boxes.push(b);
  };
  graph.items.forEach((item, i) => {
    const [x, y] = move(...graph.top.at[i]);
    if (item < count) {
      const w = graph.nodes[item].width;
      box(item, { node: item, x: x - w / 2, y: y - ROW, w, h: 2 * ROW });
      return;
    }
    const k = item - count;
    const group = graph.groups[k];
    if (!open.has(k)) {
      box(item, { group: k, x: x - 85, y: y - ROW, w: 170, h: 2 * ROW });
      return;
    }
    const inner = graph.layouts[group.layout];
    const [left, top] = [x - 85, y - ROW];
    box(item, { group: k, open: true, x: left, y: top, w: Math.max(170, inner.width + 12), h: inner.height + 30 });
    inner.at.forEach(([cx, cy], j) => {
      const node = group.start + j;
      const w = graph.nodes[node].width;
      box(node, { node, x: left + 6 + cx - w / 2, y: top + 26 + cy - ROW, w, h: 2 * ROW });
    });
    inner.edges.forEach(([a, b], e) => curve(group.start + a, group.start + b,
      inner.curves[e], (px, py) => [px + left + 6, py + top + 26]));
  });
  graph.top.edges.forEach(([a, b], e) => curve(graph.items[a], graph.items[b], graph.top.curves[e], move));
  const right = Math.max(graph.top.width, ...boxes.map((b) => b.x + b.w + 8));
  const low = Math.max(graph.top.height, ...boxes.map((b) => b.y + b.h + 8));
  return { boxes, curves, width: right, height: low };
}

/** The scale at which a drawing is seen as a whole in a pane, 1 where it is smaller than that. */
export const fitting = ([wide, tall], [width, height]) => Math.min(1, width / wide, height / tall);

/** Producers and consumers of each node, by number. */
export function neighbours(graph) {
  const before = graph.nodes.map(() => []);
  const after = graph.nodes.map(() => []);
  for (const [a, b] of graph.edges) {
    before[b].push(a);
    after[a].push(b);
  }
  return { before, after };
}

const path = (points) => points.map(([x, y], i) => `${i === 0 ? "M" : i % 3 === 1 ? "C" : ""}${x},${y}`).join(" ");
const ALONG = { ArrowLeft: -1, ArrowRight: 1, k: -1, j: 1 };

/**
 * The drawing, with a note of what is chosen beside it.
 * @param {{graph: any, chosen: ReturnType<typeof field>, opened: ReturnType<typeof field>,
 *   paint?: (node: number) => {fill: string, tag: string, strong?: boolean, faint?: boolean} | null,
 *   height?: string, label?: string}} options
 */
export function graphPane({ graph, chosen, opened, paint = () => null, height = "34em", label = "dataflow graph" }) {
  const { before, after } = neighbours(graph);
  const owner = new Map();
  graph.groups.forEach((g, k) => { for (let v = g.start; v < g.end; v += 1) owner.set(v, k); });
  const canvas = h("div", { class: "scroll graph", style: `max-height:max(${height}, 70vh, var(--room, 0px))` });
  const said = h("div", { class: "visually-hidden", "aria-live": "polite" });
  let elements = new Map();
  let zoom = 1;
  let drawing = null;
  let lookedFor = null; // what a search has found

  const sayNode = (v) => {
    const n = graph.nodes[v];
    return `${n.name}: ${n.label} (${(ORIGINS[n.origin] ?? ORIGINS.value)[2]}), ${n.type || "no type"}, reads ${before[v].length}, read by ${after[v].length}`;
  };
  const toggle = (k) => {
    const now = new Set(opened.get());
    if (now.has(k)) now.delete(k);
    else {
      const size = (g) => graph.groups[g].end - graph.groups[g].start;
      let visible = graph.items.length + size(k);
      for (const g of now) visible += size(g);
      for (const g of [...now]) {
        if (visible <= MOST) break;
        visible -= size(g);
        now.delete(g);
      }
      now.add(k);
    }
    opened.set([...now]);
  };
  const focusOn = (v) => {
    const k = owner.get(v);
    if (k !== undefined && !opened.get().includes(k)) toggle(k);
    chosen.set(v);
    const g = elements.get(v);
    g?.focus({ preventScroll: true });
    g?.scrollIntoView?.({ block: "nearest", inline: "nearest" });
    said.textContent = sayNode(v);
  };
  const keys = (event, v) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    let to = null;
    if (event.key === "ArrowUp") to = before[v][0] ?? v;
    else if (event.key === "ArrowDown") to = after[v][0] ?? v;
    else if (event.key in ALONG) to = Math.max(0, Math.min(graph.nodes.length - 1, v + ALONG[event.key]));
    else if (event.key === "Home") to = 0;
    else if (event.key === "End") to = graph.nodes.length - 1;
    else if (event.key === "Enter" || event.key === " ") to = v;
    if (to === null) return;
    event.preventDefault();
    event.stopPropagation();
    focusOn(to);
  };
  const nodeBox = (b) => {
    const n = graph.nodes[b.node];
    const g = svg("g", {
      class: `node ${n.origin}`, role: "button", "aria-label": sayNode(b.node), transform: `translate(${b.x},${b.y})`,
      onclick: () => focusOn(b.node), onkeydown: (event) => keys(event, b.node),
    },
    svg("title", {}, `${n.name} = ${n.label}\n${n.type}`),
    svg("rect", { width: b.w, height: b.h, rx: n.origin === "parameter" || n.origin === "return" ? 16 : 4 }),
    svg("text", { x: b.w / 2, y: 15, "text-anchor": "middle" }, n.short[0]),
    svg("text", { x: b.w / 2, y: 29, "text-anchor": "middle", class: "small" }, n.short[1]),
    svg("text", { x: 2, y: -4, class: "tag" }));
    elements.set(b.node, g);
    return g;
  };
  const groupBox = (b) => {
    const g = graph.groups[b.group];
    const text = `${g.title} · ${g.end - g.start} values`;
    return svg("g", {
      class: `group${b.open ? " open" : ""}`, role: "button", tabindex: 0, "aria-expanded": String(Boolean(b.open)),
      "aria-label": `${text}, ${b.open ? "close" : "open"}`, transform: `translate(${b.x},${b.y})`,
      onclick: () => toggle(b.group),
      onkeydown(event) {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        toggle(b.group);
        canvas.querySelectorAll("g.group")[b.group]?.focus();
      },
    },
    svg("rect", { width: b.w, height: b.h, rx: 6 }),
    svg("text", { x: b.open ? 8 : b.w / 2, y: b.open ? 17 : 22, "text-anchor": b.open ? "start" : "middle" }, `${b.open ? "▾" : "▸"} ${text}`));
  };
  const draw = () => {
    const { boxes, curves, width, height: tall } = placed(graph, new Set(opened.get()));
    elements = new Map();
    const lines = curves.map((c) => {
      const line = svg("path", { d: path(c.points), class: "edge" });
      line.ends = [c.a, c.b];
      return line;
    });
    drawing = svg("svg", {
      viewBox: `0 0 ${width} ${tall}`, role: "group", "aria-label": label, class: "drawing",
    }, svg("g", {}, boxes.filter((b) => b.open).map(groupBox)), svg("g", {}, lines),
    boxes.filter((b) => !b.open).map((b) => (b.node === undefined ? groupBox(b) : nodeBox(b))));
    drawing.natural = [width, tall];
    drawing.lines = lines;
    canvas.replaceChildren(drawing);
    scale();
    refresh();
  };
  const scale = () => {
    const [w, t] = drawing.natural;
    drawing.style.width = `${w * zoom}px`;
    drawing.style.height = `${t * zoom}px`;
    drawing.style.maxWidth = "none";
  };
  /** Paint anew what is there. */
  const refresh = () => {
    const now = chosen.get();
    for (const [v, g] of elements) {
      const [tag, fill] = ORIGINS[graph.nodes[v].origin] ?? ORIGINS.value;
      const own = paint(v) ?? { fill, tag };
      g.children[1].style.fill = own.fill;
      g.children[4].textContent = own.tag;
      g.classList.toggle("strong", Boolean(own.strong));
      g.classList.toggle("faint", Boolean(own.faint));
      g.classList.toggle("chosen", v === now);
      g.classList.toggle("missed", Boolean(lookedFor) && !lookedFor.has(v));
      g.setAttribute("aria-pressed", String(v === now));
      g.setAttribute("tabindex", v === now || (!elements.has(now) && v === elements.keys().next().value) ? "0" : "-1");
    }
    for (const line of drawing.lines) {
      line.classList.toggle("lit", line.ends.includes(now));
      if (line.ends.includes(now)) line.parentNode.append(line);
    }
  };
  /** Bring a node into sight without moving the focus; its group alone is opened for that. */
  const reveal = (v) => {
    const k = owner.get(v);
    if (k !== undefined && !opened.get().includes(k)) opened.set([k]);
    const g = elements.get(v);
    if (!g) return;
    const [box, frame] = [g.getBoundingClientRect(), canvas.getBoundingClientRect()];
    if (box.top < frame.top || box.bottom > frame.bottom) canvas.scrollTop += box.top - frame.top - frame.height / 3;
    if (box.left < frame.left || box.right > frame.right) canvas.scrollLeft += box.left - frame.left - frame.width / 3;
  };
  const find = finder({
    label: "find a value", at: () => chosen.get(), go: focusOn,
    texts: () => graph.nodes.map((n) => `${n.name} ${n.label} ${n.type} ${n.folded.join(" ")}`),
    changed(found, search) {
      lookedFor = search && found.length ? new Set(found) : null;
      for (const [v, g] of elements) g.classList.toggle("missed", Boolean(lookedFor) && !lookedFor.has(v));
    },
  });
  const zoomBy = (factor) => { zoom = Math.max(0.15, Math.min(3, zoom * factor)); scale(); };
  const fit = () => {
    const [wide, tall] = [canvas.clientWidth, parseFloat(getComputedStyle(canvas).maxHeight) - 4];
    zoom = fitting(drawing.natural, [wide, tall]);
    scale();
  };
  const bar = h("div", { class: "row" },
    h("button", { type: "button", "aria-label": "smaller", onclick: () => zoomBy(0.8) }, "−"),
    h("button", { type: "button", "aria-label": "larger", onclick: () => zoomBy(1.25) }, "+"),
    h("button", { type: "button", onclick: fit }, "Fit"),
    graph.groups.length > 0 && h("button", { type: "button", onclick: () => opened.set([]) }, "Collapse all"),
    find, pictureButtons(() => drawing, label));
  const keysText = h("p", { class: "muted" }, "Data flows down. Keys: ↑ producer, ↓ consumer, ← → in program order.");
  draw();
  const stops = [opened.on(draw), chosen.on(refresh)];
  return {
    element: h("div", {}, bar, canvas, keysText, said), refresh, focusOn, reveal, before, after,
    stop: () => stops.forEach((s) => s()),
  };
}

/** Facts on one node, with buttons to what it reads and what reads it. */
export function nodeFacts(graph, v, pane, env) {
  const n = graph.nodes[v];
  if (!n) return h("p", { class: "muted" }, "Choose a node.");
  const links = (list) => (list.length === 0 ? h("span", { class: "muted" }, "nothing")
    : h("span", {}, list.map((w, i) => [i > 0 ? ", " : "", h("button", { type: "button", class: "link mono", onclick: () => pane.focusOn(w) }, graph.nodes[w].name)])));
  const amount = (expr, format) => {
    if (expr === null) return h("span", { class: "muted" }, "not known");
    const value = evaluate(expr, env);
    return h("span", {}, value === null ? "" : format(value), typeof expr === "number" ? "" : h("span", { class: "muted mono" }, ` = ${formatExpr(expr)}`));
  };
  const rows = [
    ["makes", h("span", { class: "mono" }, n.type || "nothing")], ["bytes", amount(n.bytes, formatBytes)],
    n.origin !== "parameter" && n.origin !== "return" && ["FLOPs", amount(n.flops, formatCount)],
    ["reads", links(pane.before[v])], ["read by", links(pane.after[v])],
    n.folded.length > 0 && ["and", h("ul", { class: "plain" }, n.folded.map((t) => h("li", { class: "mono" }, t)))],
    n.kind && ["pattern", n.kind.replaceAll("_", " ")],
  ].filter(Boolean);
  return h("div", {}, h("h4", {}, h("span", { class: "mono" }, n.name), ` — ${(ORIGINS[n.origin] ?? ORIGINS.value)[2]} `, h("span", { class: "mono" }, n.label)),
    h("dl", { class: "facts" }, rows.map(([t, d]) => [h("dt", {}, t), h("dd", {}, d)])),
    n.text && h("pre", { class: "mono wrap" }, n.text));
}

/** Chosen numbers from an earlier state may be too large for this one. */
export function within(chosen, count) {
  if (chosen.get() >= count) chosen.set(0);
  return chosen;
}

/** Which groups are open, at first. */
export function openedField(model, key, graph) {
  const opened = field(model, `open ${key}`, graph.groups.length > 0 && graph.items.length < 100 ? [0] : []);
  if (opened.get().some((k) => k >= graph.groups.length)) opened.set([]);
  return opened;
}

/** A value for each symbol to begin with. */
export const firstValues = (symbols) => Object.fromEntries(symbols.map((s) => [s, 16]));

function functionView(graph, model, key) {
  const chosen = within(field(model, `chosen ${key}`, 0), graph.nodes.length);
  const opened = openedField(model, key, graph);
  const values = field(model, "values", {});
  const missing = graph.symbols.filter((s) => values.get()[s] === undefined);
  if (missing.length) values.set({ ...values.get(), ...firstValues(missing) });
  const pane = graphPane({ graph, chosen, opened, label: `dataflow of ${graph.name}` });
  const facts = h("div", { class: "panel", "aria-live": "polite" });
  const show = () => facts.replaceChildren(nodeFacts(graph, chosen.get(), pane, values.get()));
  show();
  const sliders = symbolSliders(graph.symbols, values);
  const stops = [chosen.on(show), values.on(show), pane.stop, sliders.stop];
  const used = [...new Set(graph.nodes.map((n) => n.origin))].filter((o) => ORIGINS[o]?.[0]);
  const legend = h("ul", { class: "legend" }, used.map((o) => h("li", {}, h("span", { class: "swatch", style: `background:${ORIGINS[o][1]}` }, ORIGINS[o][0]), ORIGINS[o][2])));
  const words = h("details", { ontoggle() { if (words.open && words.children.length === 1) words.append(asTable(graph, pane)); } },
    h("summary", {}, `As a table: ${graph.nodes.length} values`));
  const element = h("div", {}, notes(graph), graph.symbols.length > 0 && sliders, legend,
    h("div", { class: "wide-left" }, pane.element, facts), words);
  return { element, stop: () => stops.forEach((s) => s()) };
}

function asTable(graph, pane) {
  const names = (list) => list.map((w) => graph.nodes[w].name).join(", ");
  return h("div", { class: "scroll" }, table(["value", "made by", "type", "reads", "read by"],
    graph.nodes.map((n, v) => [n.name, n.label, n.type, names(pane.before[v]), names(pane.after[v])])));
}

export default ofFunctions((graph, model) => functionView(graph, model, graph.name));
