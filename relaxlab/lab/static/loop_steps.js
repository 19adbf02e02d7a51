// A run of a loop function, one statement after the other: the tree beside what memory holds.

import { field, h, position, reveal, stepper } from "./core.js";
import { accessesOf, decode, loopValues, memoryOf, nextRound, placesText, placeText } from "./accesses.js";
import { bufferGrid } from "./grid.js";
import { loopRows, treePane } from "./tree.js";

export const STEPS_CSS = `
.said { height: 6em; overflow: auto; font: 12px/1.5 var(--mono); overflow-wrap: anywhere; margin: 2px 0 6px; }
.loops-split { display: grid; gap: 10px; grid-template-columns: minmax(260px, 5fr) minmax(0, 6fr); align-items: start; }
.loops-split > :first-child { position: sticky; top: 0; } /* beside grids that are higher than the window */
@container (max-width: 760px) { .loops-split { grid-template-columns: minmax(0, 1fr); } .loops-split > :first-child { position: relative; } }
`;

const MODES = { value: "values", touched: "first touched in step", times: "times touched" };
const SPEEDS = { 1: "slow", 3: "normal", 12: "fast", 60: "very fast" }; // steps a second
const ROLES = { input: "", output: " · output", inner: " · scratch" };
const TRAIL = 8;

const since = (n, what) => (n === 0 ? "at once" : `after ${n} other ${what}${n === 1 ? "" : "s"}`);
const again = (a) => (a.distance >= 0 ? `again ${since(a.distance, "element")}`
  : a.line >= 0 ? `first time, line again ${since(a.line, "line")}` : "first time, new line");

/** The accesses of a statement as text; those of the lanes of a vector by buffer. */
function accessesText(run, accesses, vector) {
  if (!vector) return accesses.map((a) => `${placeText(run.buffers[a.buffer], a.element)} = ${a.value} (${again(a)})`).join(", ");
  const elements = new Map();
  for (const a of accesses) elements.set(a.buffer, [...(elements.get(a.buffer) ?? []), a.element]);
  return [...elements].map(([b, of]) => placesText(run.buffers[b], of)).join(", ");
}

/** A button that steps on by itself, and how fast. */
function player(at, count, model) {
  const speed = field(model, "loops.speed", 3);
  let timer = null;
  const pause = () => {
    clearInterval(timer);
    timer = null;
    button.setAttribute("aria-pressed", "false");
    button.textContent = "Play";
  };
  const play = () => {
    if (at.get() >= count - 1) at.set(0);
    timer = setInterval(() => (at.get() >= count - 1 ? pause() : at.set(at.get() + 1)), 1000 / speed.get());
    button.setAttribute("aria-pressed", "true");
    button.textContent = "Pause";
  };
  const button = h("button", { type: "button", "aria-pressed": "false", onclick: () => (timer ? pause() : play()) }, "Play");
  const select = h("select", { "aria-label": "speed", onchange() {
    speed.set(Number(select.value));
    if (timer) {
      pause();
      play();
    }
  } }, Object.entries(SPEEDS).map(([n, text]) => h("option", { value: n, selected: Number(n) === speed.get() }, text)));
  return { elements: [button, select], pause };
}

/** The buffers as grids; `draw(step, accesses)` shows what they hold after a step. */
function memoryGrids(run, mode) {
  const memory = memoryOf(run);
  let now = []; // by buffer: element to whether it is written
  let most = []; // by buffer: the number that is drawn darkest
  let step = 0;
  const paint = (b) => (cell) => {
    const held = memory.buffers()[b];
    const age = held.last[cell] < 0 ? TRAIL : step - held.last[cell];
    const value = held.value[cell] < 0 ? "·" : run.values[held.value[cell]];
    const title = `${placeText(run.buffers[b], cell)} = ${value}`;
    const touched = now[b].has(cell) ? (now[b].get(cell) ? "write" : "read") : "";
    if (mode.get() === "value") {
      const weight = age < TRAIL ? Math.round(100 - (100 * age) / TRAIL) : null;
      return { text: value, cls: touched || (weight === null ? "" : "trail"), weight, title };
    }
    const number = mode.get() === "touched" ? held.touched[cell] + 1 : held.times[cell];
    if (!number) return { cls: touched, title };
    const weight = Math.round((100 * number) / most[b]);
    return { text: String(number), cls: touched || (weight > 55 ? "heat deep" : "heat"), weight, title };
  };
  const wide = Math.min(9, Math.max(2, ...run.values.map((v) => v.length)));
  const grids = run.buffers.map((b, i) => bufferGrid(b, paint(i), { facts: ROLES[b.role], columns: 16, wide }));
  const draw = (to, accesses) => {
    step = to;
    memory.to(to);
    now = run.buffers.map(() => new Map());
    for (const a of accesses) now[a.buffer].set(a.element, a.write || now[a.buffer].get(a.element));
    most = memory.buffers().map((b) => (mode.get() === "times" ? b.times.reduce((m, n) => Math.max(m, n), 1) : to + 1));
    for (const a of accesses) grids[a.buffer].look(a.element);
    for (const g of grids) g.show();
  };
  return { elements: grids.map((g) => g.element), draw };
}

/** The tree of a version, whose rows lead to steps; `mark(step)` shows where a step is. */
function steppedTree(version, run, at) {
  const pane = treePane(version, {
    toRound: (variable) => at.set(nextRound(run, at.get(), variable)),
    toStatement(row) {
      for (let i = 1; i <= run.count; i += 1) {
        const next = (at.get() + i) % run.count;
        if (run.sites[run.steps.site[next]].row === row) return void at.set(next);
      }
    },
  });
  let marked = [];
  const mark = (i) => {
    for (const row of marked) {
      row.classList.remove("now");
      row.at.textContent = "";
    }
    const site = run.sites[run.steps.site[i]];
    const around = loopRows(version.rows, site.row);
    const row = pane.rowElements[site.row];
    marked = [row, ...[...around.values()].map((r) => pane.rowElements[r])].filter(Boolean);
    if (row) {
      row.classList.add("now");
      reveal(pane.element, row);
    }
    for (const [name, n] of loopValues(run, i)) {
      if (around.has(name)) pane.rowElements[around.get(name)].at.textContent = `${name} = ${n}`;
    }
  };
  return { element: pane.element, mark };
}

const LEGEND = "Dashed: read now. Solid: written now. Tinted: touched in the last steps. A dot: nothing was written there yet. "
  + "A click on a statement goes to the next time it runs, one on a loop to its next iteration.";

export function stepPanel(version, model, key) {
  const nowhere = { toRound() {}, toStatement() {} };
  if (!version.run) return { element: treePane(version, nowhere).element, stop() {} };
  const { error } = version.costs;
  const run = decode(version.run);
  const failed = error && h("p", { class: "error" }, run.count ? `It fails after step ${run.count}: ${error}` : error);
  if (!run.count) return { element: h("div", {}, failed, treePane(version, nowhere).element), stop() {} };
  const at = position(model, key, run.count);
  const mode = field(model, "loops.mode", "value");
  const grids = memoryGrids(run, mode);
  const tree = steppedTree(version, run, at);
  const said = h("div", { class: "said", "aria-live": "polite", tabindex: 0 });
  const describe = (i) => {
    const site = run.sites[run.steps.site[i]];
    const loops = loopValues(run, i).map(([name, n]) => `${name} = ${n}`).join(", ");
    return `${version.rows[site.row]?.[2] ?? site.block}${loops ? ` at ${loops}` : ""}`;
  };
  const bar = stepper({ count: run.count, at, describe, label: "statements as they run" });
  const { elements: play, pause } = player(at, run.count, model);
  const chosen = h("select", { "aria-label": "what cells show", onchange: () => mode.set(chosen.value) },
    Object.entries(MODES).map(([value, text]) => h("option", { value }, text)));
  const show = () => {
    const accesses = accessesOf(run, at.get());
    grids.draw(at.get(), accesses);
    tree.mark(at.get());
    chosen.value = mode.get();
    const vector = loopValues(run, at.get()).some(([, n]) => typeof n === "string");
    const list = (write) => accessesText(run, accesses.filter((a) => a.write === write), vector);
    const [reads, writes] = [list(false), list(true)];
    said.replaceChildren(h("div", {}, h("strong", {}, describe(at.get()))),
      h("div", {}, reads && `reads ${reads}`, reads && writes && h("br"), writes && `writes ${writes}`, !accesses.length && "touches no buffer"));
  };
  const stops = [at.on(show), mode.on(show)];
  show();
  requestAnimationFrame(() => tree.mark(at.get())); // once it has a place to be scrolled in
  bar.prepend(h("span", { class: "muted" }, "time"));
  bar.append(...play, chosen);
  const element = h("div", {}, failed, bar, said, h("div", { class: "loops-split" }, tree.element,
    h("div", {}, h("div", { class: "grids" }, grids.elements), h("p", { class: "muted" }, LEGEND))));
  return { element, stop: () => { pause(); bar.stop(); stops.forEach((s) => s()); } };
}
