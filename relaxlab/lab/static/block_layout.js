// The layout of a block: PQ-trees reduction by reduction, and the variables in memory.

import { formatBytes, h, mount, position, scroller, stepper, svg, table } from "./core.js";

const LAYOUT_CSS = `
.pq text { text-anchor: middle; } .pq line { stroke: var(--muted); } .pq circle, .pq rect { fill: var(--panel); stroke: var(--muted); stroke-width: 1.5; }
.pq .wanted rect { fill: var(--accent-bg); stroke: var(--accent); stroke-width: 2; } .pq .refused rect { fill: var(--del-bg); stroke: var(--del); }
.pq .q rect { fill: var(--group-6); } .pq .p circle { fill: var(--group-0); }
.memory text { text-anchor: middle; } .memory rect { fill: var(--panel); stroke: var(--muted); } .memory .lane rect { stroke: var(--fg); stroke-width: 1.5; }
.memory text.lane { font-size: 10px; fill: var(--muted); } .in-place { color: var(--add); } .is-copied { color: var(--del); }
`;

/** Pixels of a variable's box, by the longest name. */
const widthOf = (state) => Math.max(40, 14 + 7 * Math.max(0, ...state.names.map((n) => n.length)));

/** The leaves of a tree from left to right; a tree is a leaf's number, or ["P" or "Q", children]. */
export const leavesOf = (tree) => (typeof tree === "number" ? [tree] : tree[1].flatMap(leavesOf));

/** The levels below a node. */
export const heightOf = (tree) => (typeof tree === "number" ? 0 : 1 + Math.max(...tree[1].map(heightOf)));

/** The number of orders of a tree, as a text: 2 for each Q-node, k! for a P-node of k children. */
export function ordersText(tree) {
  const count = (t) => {
    if (typeof t === "number") return 1;
    const own = t[0] === "Q" ? 2 : t[1].reduce((n, _, i) => n * (i + 1), 1);
    return t[1].reduce((n, c) => n * count(c), own);
  };
  const n = count(tree);
  return n < 1e15 ? n.toLocaleString("en") : n.toExponential(1);
}

/** The tree with its leaves below each other's names: circles are P-nodes, boxes Q-nodes. */
function treeDrawing(state, step) {
  const cell = widthOf(state);
  const [gap, row] = [cell + 2, 46];
  const wanted = new Set(step.wanted);
  const height = heightOf(step.tree);
  const shapes = [];
  const lines = [];
  let next = 0;
  const draw = (tree) => {
    if (typeof tree === "number") {
      const x = gap * (next += 1) - gap / 2;
      const y = 20 + row * height;
      shapes.push(svg("g", { class: wanted.has(tree) ? (step.outcome === "copied" ? "refused" : "wanted") : "" }, svg("rect", { x: x - cell / 2, y: y - 11, width: cell, height: 22, rx: 3 }), svg("text", { x, y: y + 4 }, state.names[tree])));
      return { x, y: y - 11 };
    }
    const below = tree[1].map(draw);
    const [left, right] = [below[0].x, below.at(-1).x];
    const y = 20 + row * (height - heightOf(tree));
    const x = (left + right) / 2;
    if (tree[0] === "P") {
      below.forEach((b) => lines.push(svg("line", { x1: x, y1: y, x2: b.x, y2: b.y })));
      shapes.push(svg("g", { class: "p" }, svg("circle", { cx: x, cy: y, r: 11 }), svg("text", { x, y: y + 4 }, "P")));
    } else {
      below.forEach((b) => lines.push(svg("line", { x1: b.x, y1: y, x2: b.x, y2: b.y })));
      shapes.push(svg("g", { class: "q" }, svg("rect", { x: left - 8, y: y - 9, width: right - left + 16, height: 18, rx: 3 }), svg("text", { x, y: y + 4 }, "Q")));
    }
    return { x, y: y + (tree[0] === "P" ? -11 : -9) };
  };
  draw(step.tree);
  const [wide, high] = [gap * next, 20 + row * height + 18];
  return svg("svg", { class: "pq", width: wide, height: high, viewBox: `0 0 ${wide} ${high}`, style: "max-width:none", role: "img", "aria-label": `tree over ${leavesOf(step.tree).map((v) => state.names[v]).join(", ")}` }, lines, shapes);
}

/** The lanes of an operand by variable. */
export const lanesOf = (operand) => new Map((operand?.lanes ?? []).map((v, lane) => [v, lane]));

/** The variables in an order, those of an operand with the numbers of their lanes. */
function memoryDrawing(state, order, operand, copied) {
  const lanes = lanesOf(operand);
  const cell = widthOf(state);
  const cells = order.map((v, i) => {
    const x = 2 + cell * i;
    const lane = lanes.get(v);
    return svg("g", { class: lane === undefined ? "" : "lane" }, svg("rect", { x, y: 2, width: cell, height: 24, style: lane === undefined ? null : `fill:var(--group-${copied ? 5 : 1})` }), svg("text", { x: x + cell / 2, y: 18 }, state.names[v]),
      lane !== undefined && svg("text", { class: "lane", x: x + cell / 2, y: 39 }, `lane ${lane + 1}`));
  });
  const wide = cell * order.length + 4;
  return svg("svg", { class: "memory", width: wide, height: 44, viewBox: `0 0 ${wide} 44`, style: "max-width:none", role: "img", "aria-label": order.map((v) => state.names[v]).join(", ") }, cells);
}

function stepText(state, step) {
  if (step.pattern === null) return "Before anything is placed, every order is possible.";
  const kernel = state.kernels[step.pattern];
  const names = step.wanted.map((v) => state.names[v]).join(", ");
  const operand = `${kernel.name}, ${kernel.operands[step.operand].name}`;
  if (step.outcome === "copied") return `${operand}: ${names}. It is copied: ${step.why}.`;
  if (step.outcome === "follows") return `Then ${names} have to be contiguous, too: ${step.why}.`;
  return `${operand}: ${names}. ${step.why[0].toUpperCase()}${step.why.slice(1)}.`;
}

/** All operands of batched kernels, with what is copied; a click shows its lanes in memory. */
function operandsTable(state, chosen) {
  const place = (is) => h("span", { class: is ? "is-copied" : "in-place" }, is ? "copied" : "in place");
  const rows = operandsOf(state).map(({ kernel, operand }, i) => [
    h("button", { type: "button", class: "link", onclick: () => chosen.set(i) }, `${kernel.name}, ${operand.name}`),
    operand.lanes.map((v) => state.names[v]).join(" "), formatBytes(operand.bytes), place(operand.before), place(operand.after)]);
  return table(["operand", "lanes", "bytes per row", "in program order", "laid out"], rows);
}

const operandsOf = (state) => state.kernels.flatMap((kernel) => kernel.operands.map((operand) => ({ kernel, operand })));

export default {
  render({ model, el }) {
    const { root, cleanup } = mount(el);
    const state = model.get("state");
    const operands = operandsOf(state);
    const at = position(model, "layout.step", state.steps.length, state.steps.length - 1);
    const chosen = position(model, "layout.operand", operands.length);
    const bar = stepper({ count: state.steps.length, at, label: "reductions", describe: (i) => stepText(state, state.steps[i]), start: 0 });
    const tree = scroller("PQ-tree", "");
    const said = h("p", {});
    const memory = h("div", {});
    const list = operandsTable(state, chosen);
    const showTree = () => {
      const step = state.steps[at.get()];
      said.replaceChildren(h("span", { class: step.outcome === "copied" ? "refused" : "" }, stepText(state, step)), h("span", { class: "muted" }, ` Orders left: ${ordersText(step.tree)}.`));
      tree.replaceChildren(state.names.length ? treeDrawing(state, step) : "");
      const now = operands.findIndex(({ kernel, operand }) => kernel === state.kernels[step.pattern] && operand === kernel.operands[step.operand]);
      if (now >= 0) chosen.set(now);
    };
    const showMemory = () => {
      const one = operands[chosen.get()]?.operand;
      memory.replaceChildren(h("h4", {}, "In program order", h("span", { class: "muted" }, ` ${formatBytes(state.before)} copied per row`)), scroller("program order", memoryDrawing(state, state.program, one, one?.before)),
        h("h4", {}, "Laid out", h("span", { class: "muted" }, ` ${formatBytes(state.after)} copied per row`)), scroller("laid out", memoryDrawing(state, state.order, one, one?.after)));
      list.querySelectorAll("tbody button").forEach((b, i) => b.setAttribute("aria-pressed", String(i === chosen.get())));
    };
    const stops = [bar.stop, at.on(showTree), chosen.on(showMemory)];
    showMemory();
    showTree();
    root.append(h("style", {}, LAYOUT_CSS), h("p", { class: "muted" }, "A P-node's children may be in any order, a Q-node's in the one drawn or its reverse. Each operand of a batched kernel reduces the tree."),
      bar, said, tree, memory, h("h4", {}, "Operands of batched kernels"), scroller("operands", list));
    return () => {
      stops.forEach((f) => f());
      cleanup();
    };
  },
};
