// A run instruction by instruction: what registers hold, and what lies where in storages.

import { field, formatBytes, h, position, reveal, scroller, stepper } from "./core.js";
import { registersAt, stackOf } from "./timeline.js";
import { shapeText, valueDetails } from "./value.js";

export const INSTRUCTIONS_CSS = `
.listing { font: 12px/19px var(--mono); background: var(--bg); border: 1px solid var(--line); border-radius: 5px; padding: 4px 0; max-height: 30em; overflow: auto; position: relative; }
.listing > div { display: flex; gap: 6px; white-space: pre; padding: 0 8px 0 4px; min-width: max-content; }
.listing .no { flex: none; width: 3em; text-align: right; color: var(--muted); }
.listing .now { background: var(--accent-bg); box-shadow: inset 3px 0 var(--accent); }
.listing .bad { background: var(--del-bg); color: var(--del); box-shadow: inset 3px 0 var(--del); }
.listing button { all: unset; cursor: pointer; } .listing button:hover { text-decoration: underline; }
.listing button:focus-visible { outline: 2px solid var(--accent); }
.run-split { display: grid; gap: 10px; grid-template-columns: minmax(0, 5fr) minmax(0, 6fr); align-items: start; }
@container (max-width: 760px) { .run-split { grid-template-columns: minmax(0, 1fr); } .listing { max-height: 18em; } }
.registers tr.changed td { background: var(--add-bg); } .registers tr.gone td { color: var(--muted); }
.registers button { all: unset; cursor: pointer; color: var(--accent); text-decoration: underline dotted; }
.registers button:focus-visible { outline: 2px solid var(--accent); }
.registers td, .registers th { padding: 1px 6px; white-space: nowrap; } .registers td.wide { white-space: normal; overflow-wrap: anywhere; min-width: 9em; }
.memory-bar { position: relative; height: 22px; border: 1px solid var(--line); border-radius: 3px; background: var(--panel); margin: 2px 0 6px; overflow: hidden; }
.memory-bar > span { position: absolute; top: 0; bottom: 0; overflow: hidden; border-right: 1px solid var(--bg); font: 11px/20px var(--mono); padding: 0 3px; white-space: nowrap; background: var(--group-0); }
.memory-bar > span.odd { background: var(--group-1); } .memory-bar > span.gone { background: var(--group-9); color: var(--muted); }
`;

const MOST_REGISTERS = 150;

function tensorText(v) {
  if (v.fresh) return "nothing written yet";
  if (v.min === undefined) return v.nan ? `${v.nan} × NaN` : "empty";
  return `${v.min} … ${v.max}, mean ${v.mean}${v.nan ? `, ${v.nan} × NaN` : ""}${v.infinite ? `, ${v.infinite} × inf` : ""}`;
}

/** The instructions of the function of an activation; `mark` shows where a step is. */
function instructionList(run, at, functionOf) {
  const element = h("div", { class: "listing", role: "region", tabindex: 0, "aria-label": "instructions" });
  let shown = -1;
  let rows = [];
  const goTo = (row) => {
    for (let k = 1; k <= run.steps.length; k += 1) {
      const next = (at.get() + k) % run.steps.length;
      if (run.steps[next].row === row && run.activations[run.steps[next].frame].function === shown) return void at.set(next);
    }
  };
  const list = (activation) => {
    if (shown === run.activations[activation].function) return;
    shown = run.activations[activation].function;
    rows = functionOf(activation).rows.map(([depth, text], i) => h("div", {}, h("span", { class: "no" }, String(i + 1)),
      h("button", { type: "button", title: "go to the next time this runs", onclick: () => goTo(i) }, "  ".repeat(depth) + text)));
    element.replaceChildren(...rows);
  };
  const mark = (step) => {
    list(step.frame);
    rows.forEach((r, k) => {
      r.classList.toggle("now", k === step.row && !step.failed);
      r.classList.toggle("bad", k === step.row && Boolean(step.failed));
    });
    reveal(element, rows[step.row]);
  };
  return { element, mark };
}

/** Each storage as a bar, with the tensors that lie in it now. */
function storageBars(run, now, functionOf) {
  const blocks = run.storages.map(() => []);
  now.registers.forEach((held, activation) => held.forEach(([value, place], r) => {
    const p = run.places[place];
    if (p.storage === undefined || run.values[value].kind === "storage") return;
    blocks[p.storage].push({ ...p, name: functionOf(activation).registers[r], gone: run.values[value].kind === "gone" });
  }));
  const bars = run.storages.map((s, i) => {
    const live = blocks[i].filter((b) => !b.gone);
    const share = (n) => (100 * n) / Math.max(1, s.bytes);
    return h("div", {}, h("span", { class: "mono muted" }, `${s.name}, ${formatBytes(s.bytes)}`),
      h("div", { class: "memory-bar", role: "img", "aria-label": `${s.name}: ${live.map((b) => `${b.name} at byte ${b.offset}`).join(", ") || "empty"}` },
        live.map((b, k) => h("span", { class: k % 2 ? "odd" : "", title: `${b.name}: bytes ${b.offset} to ${b.offset + b.bytes}`, style: `left:${share(b.offset)}%;width:${Math.max(0.5, share(b.bytes))}%` }, b.name))));
  });
  return [...(bars.length ? [h("h4", {}, "Storages")] : []), ...bars];
}

/** The registers of the function that runs, those that changed last first. */
function registerTable(run, step, now, fn, chosen) {
  const changed = new Set(step.changes.filter(([f]) => f === step.frame).map(([, r]) => r));
  const gone = ([, [value]]) => run.values[value].kind === "gone";
  const all = [...now.registers[step.frame]].reverse();
  const held = [...all.filter((r) => !gone(r)), ...all.filter(gone)];
  const lines = held.slice(0, MOST_REGISTERS).map(([r, [value]]) => {
    const v = run.values[value];
    const key = `${step.frame}.${r}`;
    return h("tr", { class: v.kind === "gone" ? "gone" : changed.has(r) ? "changed" : "" },
      h("td", {}, changed.has(r) ? "●" : ""),
      h("td", { class: "wide" }, h("button", { type: "button", "aria-pressed": String(chosen.get() === key), onclick: () => chosen.set(key) }, fn.registers[r])),
      h("td", {}, v.kind === "tensor" ? shapeText(v) : v.kind),
      h("td", { class: "wide" }, v.kind === "tensor" ? tensorText(v) : v.text));
  });
  return [h("table", {}, h("thead", {}, h("tr", {}, ["", "register", "type", "value"].map((t) => h("th", { scope: "col" }, t)))), h("tbody", {}, lines)),
    held.length > MOST_REGISTERS ? h("p", { class: "muted" }, `${held.length - MOST_REGISTERS} registers that changed longer ago are not shown`) : ""];
}

/** All about the chosen register, or the one that changed first; null where there is none. */
function registerDetails(run, step, now, chosen, functionOf) {
  const first = step.changes.find(([f]) => f === step.frame);
  const [activation, register] = (chosen.get() || (first ? `${first[0]}.${first[1]}` : "")).split(".").map(Number);
  const entry = Number.isInteger(activation) && now.registers[activation]?.get(register);
  if (!entry) return null;
  const owner = functionOf(activation);
  const place = run.places[entry[1]];
  const lies = place.storage === undefined ? [] : [["lies in", `${run.storages[place.storage].name}, bytes ${place.offset} to ${place.offset + place.bytes}`]];
  return valueDetails(owner.registers[register], owner.types[register], run.values[entry[0]], lies);
}

export function stepsPanel(state, model) {
  const { run, error } = state;
  if (!run.steps.length) return { element: h("p", { class: "muted" }, "The function has no instructions."), stop() {} };
  const at = position(model, "run.step", run.steps.length);
  const chosen = field(model, "run.register", "");
  const functionOf = (activation) => run.functions[run.activations[activation].function];
  const listing = instructionList(run, at, functionOf);
  const where = h("p", { class: "muted mono" });
  const said = h("p", { class: "error", role: "alert", hidden: true });
  const registers = scroller("registers");
  registers.classList.add("registers");
  const memory = h("div");
  const detail = h("div", { class: "panel", "aria-live": "polite" });
  const draw = () => {
    const step = run.steps[at.get()];
    const now = registersAt(run, at.get());
    listing.mark(step);
    const numbers = [...now.symbols[step.frame]].map(([name, n]) => `${name} = ${n}`);
    where.textContent = [stackOf(run, step.frame).map((a) => functionOf(a).name).join(" › "), ...numbers].join(" · ");
    said.hidden = !step.failed;
    said.textContent = step.failed ? error : "";
    registers.replaceChildren(...registerTable(run, step, now, functionOf(step.frame), chosen));
    memory.replaceChildren(...storageBars(run, now, functionOf));
    const about = registerDetails(run, step, now, chosen, functionOf);
    detail.hidden = !about;
    detail.replaceChildren(...(about ?? []));
  };
  const describe = (i) => functionOf(run.steps[i].frame).rows[run.steps[i].row][1];
  const bar = stepper({ count: run.steps.length, at, describe, label: "instructions" });
  const stops = [at.on(draw), chosen.on(draw), bar.stop];
  draw();
  const element = h("div", {}, bar, where, said, h("div", { class: "run-split" }, h("div", {}, listing.element, memory), h("div", {}, registers, detail)));
  return { element, stop: () => stops.forEach((s) => s()) };
}
