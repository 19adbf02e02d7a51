// The drawings of batching policies: an automaton, batches as strips, a minibatch's graph.

import { h, svg } from "./core.js";

export const POLICY_CSS = `
.policy line.axis { stroke: var(--line); } .policy text { paint-order: stroke; stroke: var(--bg); stroke-width: 3px; }
.policy .state { cursor: pointer; } .policy .state rect.box { fill: none; stroke: var(--muted); } .policy .state.chosen rect.box { stroke: var(--accent); stroke-width: 3; }
.policy .state:focus-visible { outline: none; } .policy .state text { stroke: none; text-anchor: middle; } .policy .state text.small { stroke: var(--bg); } .policy .state text.act { font-weight: 700; text-decoration: underline; }
.policy .state.never { opacity: .5; } .policy text.small, .policy .state text.small { font-size: 10px; fill: var(--muted); }
.policy path.move { fill: none; stroke: var(--muted); opacity: .4; } .policy path.move.lit { stroke: var(--accent); opacity: 1; }
.policy marker path { fill: var(--muted); } .policy marker.lit path { fill: var(--accent); }
.policy rect.batch { stroke: var(--bg); stroke-width: .5; cursor: pointer; } .policy path.lost { stroke: var(--del); stroke-width: 1.5; fill: none; pointer-events: none; }
.policy line.bound { stroke: var(--add); stroke-width: 2; } .policy text.bound { fill: var(--add); } .policy rect.now { fill: none; stroke: var(--fg); stroke-width: 2; pointer-events: none; }
.policy line.edge { stroke: var(--line); } .policy circle { stroke: var(--line); } .policy .waits { opacity: .45; } .policy .waits circle { fill: none !important; stroke: var(--muted); }
.policy .ready circle { fill: none !important; stroke: var(--accent); stroke-width: 2; } .policy .now circle { stroke: var(--fg); stroke-width: 3; }
.policy .node text { stroke: none; text-anchor: middle; font-size: 9px; } .policy path.checks { fill: none; stroke-width: 2; }
.qvalues { width: 100%; table-layout: fixed; } .qvalues td.number { width: 5em; } .qvalues td.bars { width: 30%; } .qbar { display: inline-block; height: 10px; background: var(--muted); border-radius: 2px; vertical-align: middle; } tr.best .qbar { background: var(--accent); } tr.best td { font-weight: 600; }
.runs { font-weight: 700; } .bad { color: var(--del); } .good { color: var(--add); }
`;

/** A, B, … Z, A1, …: the letter of a type. */
export const letterOf = (t) => String.fromCharCode(65 + (t % 26)) + (t >= 26 ? Math.floor(t / 26) : "");

const STATE = 24;
const color = (t) => `fill:var(--group-${t % 10})`;

const arrow = (id, cls) => svg("marker", { id, class: cls, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, markerUnits: "userSpaceOnUse", orient: "auto" }, svg("path", { d: "M0,0L8,4L0,8z" }));

/** The curve of a move between the boxes of two states, {x, y, w, h}; a loop above a state that follows itself. */
export function moveCurve(a, b) {
  const middle = (s) => [s.x + s.w / 2, s.y + s.h / 2];
  if (a === b) return `M${a.x + a.w / 2 - 7},${a.y}c-12,-24 26,-24 14,-1`;
  const [[ax, ay], [bx, by]] = [middle(a), middle(b)];
  const long = Math.hypot(bx - ax, by - ay) || 1;
  const bend = 14 + long / 12;
  const [cx, cy] = [(ax + bx) / 2 - ((by - ay) / long) * bend, (ay + by) / 2 + ((bx - ax) / long) * bend];
  const edge = (s, x, y) => {
    const [mx, my] = middle(s);
    const t = Math.min((s.w / 2 + 1) / Math.max(1e-6, Math.abs(x - mx)), (s.h / 2 + 1) / Math.max(1e-6, Math.abs(y - my)));
    return [mx + (x - mx) * Math.min(1, t), my + (y - my) * Math.min(1, t)].map((v) => Math.round(10 * v) / 10);
  };
  return `M${edge(a, cx, cy)}Q${cx.toFixed(1)},${cy.toFixed(1)} ${edge(b, cx, cy)}`;
}

/** The states as boxes of letters, the moves between them as curves; `at` is the chosen one. */
export function automatonDrawing(state, at) {
  const { states, places, moves } = state.automaton;
  const boxes = places.map(([x, y], i) => ({ x, y, w: STATE * states[i].types.length, h: 22 }));
  const id = `m${Math.random().toString(36).slice(2)}`;
  const curves = moves.filter(([a, b]) => a < boxes.length && b < boxes.length).map(([a, b, count]) => ({ a, b, path: svg("path", {
    class: "move", d: moveCurve(boxes[a], boxes[b]), style: `stroke-width:${(0.8 + 1.3 * Math.log10(count)).toFixed(2)}` }, svg("title", {}, `${count}×`)) }));
  const drawn = boxes.map((box, i) => svg("g", { class: `state${states[i].times ? "" : " never"}`, role: "button", tabindex: 0,
    "aria-label": `state ${states[i].types.map((t) => state.types[t]).join(", ")}: ${states[i].times} times`, onclick: () => at.set(i),
    onkeydown: (event) => ["Enter", " "].includes(event.key) && (event.preventDefault(), at.set(i)) },
  svg("title", {}, states[i].types.map((t) => state.types[t]).join(", ")),
  states[i].types.map((t, k) => [svg("rect", { x: box.x + STATE * k, y: box.y, width: STATE, height: box.h, style: color(t) }),
    svg("text", { class: t === states[i].action && states[i].types.lastIndexOf(t) === k ? "act" : "", x: box.x + STATE * (k + 0.5), y: box.y + 15 }, letterOf(t))]),
  svg("rect", { class: "box", x: box.x, y: box.y, width: box.w, height: box.h, rx: 3 }),
  svg("text", { class: "small", x: box.x + box.w / 2, y: box.y + box.h + 12 }, `${states[i].times}×`)));
  const high = Math.max(...boxes.map((b) => b.y + b.h), 60) + 22;
  const element = svg("svg", { class: "chart policy", viewBox: `0 0 1000 ${high}`, role: "group", "aria-label": "states and moves between them" },
    svg("defs", {}, arrow(id, ""), arrow(`${id}l`, "lit")), curves.map((c) => c.path), drawn);
  const show = () => {
    drawn.forEach((g, i) => {
      g.classList.toggle("chosen", i === at.get());
      g.setAttribute("aria-pressed", String(i === at.get()));
    });
    for (const { a, b, path } of curves) {
      const lit = a === at.get() || b === at.get();
      path.classList.toggle("lit", lit);
      path.setAttribute("marker-end", `url(#${id}${lit ? "l" : ""})`);
    }
  };
  show();
  return { element, stop: at.on(show) };
}

/** Batches of the training minibatches after so many episodes, a line per encoding. */
export function checksChart({ bound, checks }) {
  const [wide, high, left] = [1000, 200, 60];
  const names = Object.keys(checks);
  const all = Object.values(checks).flat();
  const [most, top, low] = [Math.max(...all.map((c) => c[0])), Math.max(...all.map((c) => c[1]), bound), Math.min(bound, ...all.map((c) => c[1]))];
  const x = (episode) => left + ((wide - left - 120) * episode) / most;
  const y = (batches) => 14 + (high - 50) * (1 - (batches - low) / Math.max(1, top - low));
  const line = (name, i) => [svg("path", { class: "checks", d: checks[name].map(([e, b], k) => `${k ? "L" : "M"}${x(e)},${y(b)}`).join(""), style: `stroke:${LINES[i % LINES.length]};stroke-dasharray:${DASHES[i % DASHES.length]}` }),
    checks[name].map(([e, b]) => svg("circle", { cx: x(e), cy: y(b), r: 2.5, style: `fill:${LINES[i % LINES.length]}` }, svg("title", {}, `${name}: ${b} batches after ${e} episodes`)))];
  const key = names.map((name, i) => h("li", {}, svg("svg", { width: 30, height: 8, "aria-hidden": "true" }, svg("path", { d: "M0,4L30,4", class: "line", style: `stroke:${LINES[i % LINES.length]};stroke-dasharray:${DASHES[i % DASHES.length]}` })), name));
  return h("div", {}, h("ul", { class: "legend" }, key), svg("svg", { class: "chart policy", viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": `batches while learning, bound ${bound}` },
    svg("line", { class: "bound", x1: left, x2: wide - 120, y1: y(bound), y2: y(bound) }), svg("text", { class: "bound", x: wide - 112, y: y(bound) + 4 }, `bound ${bound}`),
    svg("text", { x: left - 6, y: y(top) + 4, "text-anchor": "end" }, String(top)), names.map(line), svg("text", { x: left, y: high - 8 }, `episodes, up to ${most} →`)));
}

const LINES = ["var(--accent)", "var(--add)", "var(--warn)", "var(--del)"];
const DASHES = ["none", "6 3", "2 2", "10 3 2 3"];

/** A row of batches for each policy, coloured by type; lost ones are crossed. */
export function stripsChart(state, at) {
  const [left, row] = [70, 30];
  const most = Math.max(1, ...state.runs.map((r) => r.types.length), state.bound);
  const step = Math.max(5, Math.min(26, (960 - left) / most));
  const wide = Math.max(1000, Math.ceil(left + step * most + 40));
  const high = row * state.runs.length + 34;
  const x = (i) => left + step * i;
  const strips = state.runs.map((run, p) => [
    svg("text", { x: left - 8, y: row * p + 35, "text-anchor": "end" }, state.names[p]),
    run.types.map((t, i) => [
      svg("rect", { class: "batch", x: x(i), y: row * p + 21, width: step, height: row - 9, style: color(t), onclick: () => at.set(i) }, svg("title", {}, `${state.names[p]}, batch ${i + 1}: ${state.types[t]} × ${run.sizes[i]}${run.lost[i] ? ", lost" : ""}`)),
      step >= 14 && svg("text", { x: x(i) + step / 2, y: row * p + 35, "text-anchor": "middle", "pointer-events": "none", style: "stroke:none" }, letterOf(t)),
      run.lost[i] && svg("path", { class: "lost", d: `M${x(i) + 1},${row * p + 22}L${x(i) + step - 1},${row * p + row + 11}` })]),
    svg("text", { class: "small", x: x(run.types.length) + 4, y: row * p + 35 }, String(run.types.length))]);
  const now = svg("rect", { class: "now", y: 18, height: high - 31, width: step });
  const element = svg("svg", { class: "policy", width: wide, height: high, viewBox: `0 0 ${wide} ${high}`, style: "max-width:none", role: "img", "aria-label": "batches of each policy, from left to right" },
    strips, svg("line", { class: "bound", x1: x(state.bound), x2: x(state.bound), y1: 14, y2: high - 12 }),
    svg("text", { class: "bound", x: x(state.bound) - 4, y: 11, "text-anchor": "end" }, `bound ${state.bound}`), now);
  const show = () => now.setAttribute("x", x(at.get()));
  show();
  return { element, stop: at.on(show) };
}

/** "now", "ran", "ready" or "waits": a node before batch `step` of a run whose nodes have batches. */
export function statusOf(node, step, batch, readers) {
  if (batch[node] === step) return "now";
  if (batch[node] < step) return "ran";
  return readers[node].every((p) => batch[p] < step) ? "ready" : "waits";
}

/** The nodes of a minibatch from left to right by depth, marked by what a policy does at a step. */
export function minibatchDrawing(state, at, which) {
  const { nodes, edges } = state.drawing;
  const [dx, dy, r] = [34, 10, 8];
  const place = nodes.map(([, depth, height]) => [16 + dx * depth, 14 + dy * height]);
  const reads = nodes.map(() => []);
  edges.forEach(([p, v]) => reads[v].push(p));
  const drawn = nodes.map(([t], v) => svg("g", { class: "node" }, svg("title", {}, `${state.types[t]}, node ${v}`),
    svg("circle", { cx: place[v][0], cy: place[v][1], r, style: color(t) }), svg("text", { x: place[v][0], y: place[v][1] + 3 }, letterOf(t))));
  const wide = Math.max(...place.map((p) => p[0]), 0) + 20;
  const high = Math.max(...place.map((p) => p[1]), 0) + 18;
  const element = svg("svg", { class: "policy", width: wide, height: high, viewBox: `0 0 ${wide} ${high}`, style: "max-width:none", role: "img", "aria-label": "nodes by depth" },
    edges.map(([p, v]) => svg("line", { class: "edge", x1: place[p][0] + r, y1: place[p][1], x2: place[v][0] - r, y2: place[v][1] })), drawn);
  const show = () => {
    const { batch } = state.runs[which.get()];
    drawn.forEach((g, v) => g.setAttribute("class", `node ${statusOf(v, at.get(), batch, reads)}`));
  };
  const stops = [at.on(show), which.on(show)];
  show();
  return { element, stop: () => stops.forEach((f) => f()) };
}
