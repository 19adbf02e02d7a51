// Sequences of different lengths: iterations and storage at each step, the prelude, the threads.

import { formatBytes, formatCount, h, mount, notes, plural, position, scroller, stepper, svg, table } from "./core.js";

const RAGGED_CSS = `
.rows text { font-size: 11px; fill: var(--muted); } .rows .useful { fill: var(--group-1); } .rows .tail { fill: var(--group-2); }
.rows .waste { fill: var(--del-bg); stroke: var(--del); stroke-width: .5; } .rows .unheld { fill: none; stroke: var(--muted); stroke-dasharray: 3 2; }
.loads rect { fill: var(--group-1); } .loads text { font-size: 12px; fill: var(--fg); paint-order: stroke; stroke: var(--bg); stroke-width: 3px; } .loads .limit { stroke: var(--muted); stroke-dasharray: 3 3; }
`;
const [WIDE, ROW, LABEL] = [680, 15, 44];

/** The parts of a sequence's row: [class, from, to], in iterations. */
export function partsOf(length, runs, holds, whole) {
  const parts = whole === null ? [["useful", 0, length]] : [["useful", 0, whole], ["tail", whole, length]];
  const held = Math.min(runs, holds);
  return [...parts, ["waste", length, held], ["unheld", Math.max(length, held), runs]].filter(([, from, to]) => to > from);
}

/** The percentage of what is done or held that nobody needs. */
export const wasted = (all, needed) => (all ? Math.round((1000 * (all - needed)) / all) / 10 : 0);

function rowsDrawing(state, step) {
  const unit = WIDE / Math.max(1, ...state.steps.flatMap((s) => s.runs));
  const bars = step.order.map((v, row) => {
    const y = ROW * row;
    const parts = partsOf(state.lengths[v], step.runs[v], step.holds[v], step.whole && step.whole[v]);
    return svg("g", {}, svg("text", { x: LABEL - 6, y: y + 11, "text-anchor": "end" }, String(v)),
      parts.map(([kind, from, to]) => svg("rect", { class: kind, x: LABEL + from * unit, y: y + 1, width: (to - from) * unit, height: ROW - 3 })));
  });
  const high = ROW * step.order.length + 2;
  return svg("svg", { class: "rows", width: WIDE + LABEL + 4, height: high, viewBox: `0 0 ${WIDE + LABEL + 4} ${high}`, style: "max-width:none", role: "img", "aria-label": `iterations of ${plural(step.order.length, "sequence")}, ${step.name}` }, bars);
}

function loadsDrawing(state, step) {
  const most = Math.max(1, ...state.steps.flatMap((s) => s.loads));
  const unit = (WIDE - 120) / most;
  const bars = step.loads.map((load, t) => [svg("text", { x: 0, y: 22 * t + 15 }, `thread ${t}`), svg("rect", { x: 64, y: 22 * t + 3, width: load * unit, height: 16 })]);
  const counts = step.loads.map((load, t) => svg("text", { x: 68 + load * unit, y: 22 * t + 15 }, formatCount(load)));
  const even = 64 + (unit * step.loads.reduce((a, b) => a + b, 0)) / step.loads.length;
  const high = 22 * step.loads.length + 2;
  return svg("svg", { class: "loads", width: WIDE, height: high, viewBox: `0 0 ${WIDE} ${high}`, style: "max-width:none", role: "img", "aria-label": `work of the threads: ${step.loads.join(", ")}` },
    bars, svg("line", { class: "limit", x1: even, x2: even, y1: 0, y2: high }), counts);
}

function preludeTable(step) {
  if (!step.prelude.length) return h("p", { class: "muted" }, "None: the shape says it all.");
  const numbers = (a) => h("code", {}, `${a.first.join(" ")}${a.count > a.first.length ? " …" : ""}`);
  return scroller("arrays of the prelude", table(["array", "integers", "as int32", "elements"], step.prelude.map((a) => [a.name, formatCount(a.count), formatBytes(a.bytes), numbers(a)])));
}

function stepsTable(state, at) {
  const row = (step, i) => [h("button", { type: "button", class: "link", onclick: () => at.set(i) }, step.name), formatCount(step.done), `${wasted(step.done, step.needed)} %`,
    formatBytes(step.bytes), `${wasted(step.bytes, step.needed_bytes)} %`, `${Math.round(100 * step.balance)} %`, formatBytes(step.prelude.reduce((n, a) => n + a.bytes, 0))];
  return table(["step", `work (${state.work})`, "wasted", "memory", "wasted", "threads busy", "prelude"], state.steps.map(row));
}

export default {
  render({ model, el }) {
    const { root, cleanup } = mount(el);
    const state = model.get("state");
    const at = position(model, "ragged.step", state.steps.length, 1);
    const bar = stepper({ count: state.steps.length, at, label: "steps", describe: (i) => `${state.steps[i].name}. ${state.steps[i].says}` });
    const [said, rows, loads, prelude] = [h("p", {}), scroller("iterations", ""), scroller("threads", ""), h("div", {})];
    const all = stepsTable(state, at);
    const show = () => {
      const step = state.steps[at.get()];
      said.replaceChildren(h("strong", {}, step.name), step.primitive ? h("code", {}, ` ${step.primitive}`) : "", ` ${step.says}`);
      rows.replaceChildren(rowsDrawing(state, step));
      loads.replaceChildren(loadsDrawing(state, step));
      prelude.replaceChildren(preludeTable(step));
      all.querySelectorAll("tbody button").forEach((b, i) => b.setAttribute("aria-pressed", String(i === at.get())));
    };
    const stop = at.on(show);
    show();
    root.append(h("style", {}, RAGGED_CSS), notes(state), bar, said, rows,
      h("p", { class: "muted" }, "A line is a sequence, as long as its loop runs. Filled: rows that are needed, in a second colour the rest after whole tiles; red: padding, in memory as well; dashed: guarded iterations without memory."),
      h("h4", {}, "Work of the threads"), loads, h("p", { class: "muted" }, "The dashed line is an even share."),
      h("h4", {}, "Made of the lengths before"), prelude, h("h4", {}, "All steps"), scroller("all steps", all));
    return () => {
      stop();
      bar.stop();
      cleanup();
    };
  },
};
