// A loop function: its tree, its accesses one statement after the other, what is reused, what the
// steps of a schedule changed, and what threads do.

import { field, formatBytes, formatCount, h, mount, notes, position, reveal, scroller, stepper, svg, table, tabs } from "./core.js";
import { accessesOf, decode, distanceBars, loopValues, memoryOf, placeText, servedBy } from "./accesses.js";
import { bufferGrid, GRID_CSS } from "./grid.js";
import { plainRows, scriptPane } from "./script.js";
import { THREADS_CSS, threadsPanel } from "./threads.js";

const CSS = `
.tree { font: 12px/19px var(--mono); background: var(--bg); border: 1px solid var(--line); border-radius: 5px; padding: 4px 0; max-height: 34em; overflow: auto; position: relative; }
.tree > div { display: flex; gap: 6px; white-space: pre; padding: 0 8px 0 4px; min-width: max-content; }
.tree .mark { flex: none; width: 1.1em; text-align: center; color: var(--muted); }
.tree .new { background: var(--add-bg); } .tree .new > .mark { color: var(--add); }
.tree .gone { background: var(--del-bg); color: var(--del); text-decoration: line-through; }
.tree .moved, .tree .other { background: var(--warn-bg); } .tree .moved > .mark, .tree .other > .mark { color: var(--warn); }
.tree .now { background: var(--accent-bg); box-shadow: inset 3px 0 var(--accent); }
.tree .quiet { color: var(--muted); }
.tree button { all: unset; cursor: pointer; } .tree button:hover { text-decoration: underline; }
.tree button:focus-visible { outline: 2px solid var(--accent); }
.axis { border-radius: 3px; padding: 0 4px; font-weight: 600; font-size: 11px; }
.axis-S { background: var(--group-0); } .axis-R { background: var(--group-5); } .axis-x { background: var(--group-9); }
.how { border: 1px solid var(--line); border-radius: 3px; padding: 0 4px; font-size: 11px; color: var(--muted); }
.at { color: var(--accent); font-weight: 600; }
.said { min-height: 3.1em; font: 12px/1.5 var(--mono); overflow-wrap: anywhere; margin: 2px 0 6px; }
.calls { font: 12px/1.5 var(--mono); margin: 0 0 6px; white-space: pre-wrap; overflow-wrap: anywhere; }
.loops-split { display: grid; gap: 10px; grid-template-columns: minmax(260px, 5fr) minmax(0, 6fr); align-items: start; }
@container (max-width: 760px) { .loops-split { grid-template-columns: minmax(0, 1fr); } .tree { max-height: 20em; } }
.bars text { font: 11px var(--sans); fill: var(--fg); } .bars rect { fill: var(--accent); } .bars rect.first { fill: var(--muted); }
.refused dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 2px 10px; margin: 4px 0 0; }
.refused dt { font-family: var(--sans); } .refused dd { margin: 0; }
.refused ol { margin: 0; padding-left: 2em; }
`;

const MARKS = { "+": ["+", "new", "new"], ">": ["↕", "moved", "moved"], "~": ["~", "other", "run otherwise"], "=": ["", "", ""] };
const TRAIL = 8;

/** The rows of a version, those that are gone in between; `rowElements[i]` is the one of row i. */
function treePane(version, go) {
  const rowElements = [];
  const gone = version.gone ?? [];
  const children = [];
  const sites = new Map();
  version.run.sites.forEach((s, i) => { if (!sites.has(s.row)) sites.set(s.row, i); });
  const indent = (depth) => "  ".repeat(depth);
  const removed = (at) => gone.filter(([where]) => where === at).map(([, [depth, , text]]) =>
    h("div", { class: "gone", title: "gone" }, h("span", { class: "mark" }, "−"), h("span", {}, indent(depth), text)));
  version.rows.forEach(([depth, kind, text, axes, how], i) => {
    children.push(...removed(i));
    const [mark, cls, title] = MARKS[version.marks[i]];
    const quiet = ["axis", "reads", "writes", "alloc", "view"].includes(kind) ? "quiet" : "";
    const at = h("span", { class: "at" });
    const what = sites.has(i)
      ? h("button", { type: "button", title: "go to the next time this runs", onclick: () => go(i) }, text) : text;
    const badge = axes && h("span", {
      class: `axis axis-${axes === "S" || axes === "R" ? axes : "x"}`,
      title: { S: "spatial: independent iterations", R: "reduction: iterations add up" }[axes] ?? axes,
    }, axes);
    const row = h("div", { class: `${cls} ${quiet}`, title: title || null },
      h("span", { class: "mark" }, mark), h("span", {}, indent(depth), what), badge, how && h("span", { class: "how" }, how), at);
    row.at = at;
    rowElements.push(row);
    children.push(row);
  });
  children.push(...removed(version.rows.length));
  const element = h("div", { class: "tree", role: "region", tabindex: 0, "aria-label": "loops, blocks and statements" }, children);
  return { element, rowElements };
}

/** The rows of the loops around row i, by variable. */
function loopRows(rows, i) {
  const found = new Map();
  let depth = rows[i]?.[0] ?? 0;
  for (let j = i - 1; j >= 0; j -= 1) {
    if (rows[j][0] >= depth && !(rows[j][0] === depth && rows[j][1] === "block")) continue;
    depth = Math.min(depth, rows[j][0]);
    const variable = rows[j][1] === "for" && /^for (\S+) in/.exec(rows[j][2]);
    if (variable) found.set(variable[1], j);
  }
  return found;
}

const MODES = { value: "values", touched: "first touched in step", times: "times touched" };

function stepPanel(version, model, key) {
  const { error } = version.costs;
  const run = decode(version.run);
  const failed = error && h("p", { class: "error" }, run.count ? `It fails after step ${run.count}: ${error}` : error);
  if (!run.count) return { element: h("div", {}, failed, treePane(version, () => {}).element), stop() {} };
  const at = position(model, key, run.count);
  const mode = field(model, "loops.mode", "value");
  const memory = memoryOf(run);
  const said = h("div", { class: "said", "aria-live": "polite" });
  const pane = treePane(version, (row) => {
    const is = (i) => run.sites[run.steps.site[i]].row === row;
    for (let i = 1; i <= run.count; i += 1) {
      const next = (at.get() + i) % run.count;
      if (is(next)) return void at.set(next);
    }
  });
  let now = []; // by buffer: element to whether it is written
  let most = []; // by buffer: the number that is drawn darkest
  const paint = (b) => (cell) => {
    const held = memory.buffers()[b];
    const step = at.get();
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
  const grids = run.buffers.map((b, i) => bufferGrid(b, paint(i), { facts: { input: "", output: " · output", inner: " · scratch" }[b.role], columns: 16 }));
  const place = (a) => `${placeText(run.buffers[a.buffer], a.element)} = ${a.value}`;
  const since = (n, what) => (n === 0 ? "at once" : `after ${n} other ${what}${n === 1 ? "" : "s"}`);
  const again = (a) => (a.distance >= 0 ? `again ${since(a.distance, "element")}`
    : a.line >= 0 ? `first time, line again ${since(a.line, "line")}` : "first time, new line");
  const describe = (i) => {
    const site = run.sites[run.steps.site[i]];
    const text = version.rows[site.row]?.[2] ?? site.block;
    const loops = loopValues(run, i).map(([name, n]) => `${name} = ${n}`).join(", ");
    return `${text}${loops ? ` at ${loops}` : ""}`;
  };
  const bar = stepper({ count: run.count, at, describe, label: "statements as they run" });
  let timer = null;
  const play = h("button", { type: "button", "aria-pressed": "false", onclick() {
    if (timer) return pause();
    if (at.get() >= run.count - 1) at.set(0);
    timer = setInterval(() => (at.get() >= run.count - 1 ? pause() : at.set(at.get() + 1)), 400);
    play.setAttribute("aria-pressed", "true");
    play.textContent = "Pause";
  } }, "Play");
  const pause = () => {
    clearInterval(timer);
    timer = null;
    play.setAttribute("aria-pressed", "false");
    play.textContent = "Play";
  };
  const chosen = h("select", { "aria-label": "what cells show", onchange: () => mode.set(chosen.value) },
    Object.entries(MODES).map(([value, text]) => h("option", { value }, text)));
  let marked = [];
  const show = () => {
    const i = at.get();
    memory.to(i);
    const accesses = accessesOf(run, i);
    now = run.buffers.map(() => new Map());
    for (const a of accesses) now[a.buffer].set(a.element, a.write || now[a.buffer].get(a.element));
    most = memory.buffers().map((b) => (mode.get() === "times" ? b.times.reduce((m, n) => Math.max(m, n), 1) : i + 1));
    for (const a of accesses) grids[a.buffer].look(a.element);
    for (const g of grids) g.show();
    chosen.value = mode.get();
    const list = (write) => accesses.filter((a) => a.write === write).map((a) => `${place(a)} (${again(a)})`).join(", ");
    const [reads, writes] = [list(false), list(true)];
    said.replaceChildren(h("div", {}, h("strong", {}, describe(i))),
      h("div", {}, reads && `reads ${reads}`, reads && writes && h("br"), writes && `writes ${writes}`, !accesses.length && "touches no buffer"));
    for (const row of marked) {
      row.classList.remove("now");
      row.at.textContent = "";
    }
    const site = run.sites[run.steps.site[i]];
    const around = loopRows(version.rows, site.row);
    marked = [pane.rowElements[site.row], ...[...around.values()].map((r) => pane.rowElements[r])].filter(Boolean);
    const row = pane.rowElements[site.row];
    if (row) {
      row.classList.add("now");
      reveal(pane.element, row);
    }
    for (const [name, n] of loopValues(run, i)) {
      if (around.has(name)) pane.rowElements[around.get(name)].at.textContent = `${name} = ${n}`;
    }
  };
  const stops = [at.on(show), mode.on(show)];
  show();
  bar.prepend(h("span", { class: "muted" }, "statement"));
  bar.append(play, chosen);
  const legend = h("p", { class: "muted" }, "Dashed: read now. Solid: written now. Tinted: touched in the last steps. A dot: nothing was written there yet.");
  const element = h("div", {}, failed, bar, said, h("div", { class: "loops-split" }, pane.element,
    h("div", {}, h("div", { class: "grids" }, grids.map((g) => g.element)), legend)));
  return { element, stop: () => { pause(); bar.stop(); stops.forEach((s) => s()); } };
}

/** Bars with their counts as text. */
function barChart(bars, label) {
  const top = Math.max(1, ...bars.map((b) => b.count));
  const [wide, high] = [46, 110];
  const width = bars.length * wide + 4;
  return svg("svg", { class: "bars", viewBox: `0 0 ${width} ${high + 34}`, width, role: "img", "aria-label": `${label}: ${bars.map((b) => `${b.label}: ${b.count}`).join(", ")}` },
    bars.map((b, i) => {
      const tall = Math.round((high * b.count) / top);
      return [
        svg("rect", { class: b.label === "first" ? "first" : "", x: i * wide + 4, y: 16 + high - tall, width: wide - 8, height: tall, rx: 2 }),
        svg("text", { x: i * wide + wide / 2, y: 12 + high - tall, "text-anchor": "middle" }, formatCount(b.count)),
        svg("text", { x: i * wide + wide / 2, y: high + 30, "text-anchor": "middle" }, b.label),
      ];
    }));
}

function reusePanel(version, model) {
  const { costs } = version;
  const size = field(model, "loops.cache", 3);
  const total = costs.reads + costs.writes;
  const said = h("output", { "aria-live": "polite" });
  const slider = h("input", { type: "range", min: 0, max: 10, "aria-label": "lines of the cache, powers of two", oninput: () => size.set(Number(slider.value)) });
  const show = () => {
    const lines = 2 ** size.get();
    slider.value = size.get();
    const served = servedBy(costs.line_distances, lines);
    said.textContent = `${lines} line${lines === 1 ? "" : "s"} (${formatBytes(64 * lines)}): ${served} of ${total} accesses served, ${total - served} lines fetched`;
  };
  const stop = size.on(show);
  show();
  const element = h("div", {},
    h("p", { class: "muted" }, "How many other places were touched since a place was touched last. A cache that keeps the n lines used last serves the accesses with a distance below n."),
    h("div", { class: "row" }, h("label", {}, "a cache of", slider), said),
    h("div", { class: "halves" },
      h("div", {}, h("h4", {}, "Distance in cache lines of 64 bytes"), barChart(distanceBars(costs.line_distances), "accesses by distance in lines")),
      h("div", {}, h("h4", {}, "Distance in elements"), barChart(distanceBars(costs.distances), "accesses by distance in elements"))));
  return { element, stop };
}

function schedulePanel(state, model, at) {
  const size = field(model, "loops.cache", 3);
  const holder = scroller("costs of the steps");
  const show = () => {
    const lines = 2 ** size.get();
    const misses = (c) => c.reads + c.writes - servedBy(c.line_distances, lines);
    const change = (now, before) => (before === null || now === before || now === null ? formatCount(now) : `${formatCount(now)} (${now > before ? "+" : "−"}${formatCount(Math.abs(now - before))})`);
    const rows = state.versions.map((v, i) => {
      const old = i ? state.versions[i - 1].costs : null;
      const of = (f) => change(f(v.costs), old && f(old));
      const go = h("button", { type: "button", class: "link", onclick: () => at.set(i) }, i === 0 ? "as given" : v.calls.at(-1));
      return [go, of((c) => c.flops), of((c) => c.reads), of((c) => c.writes), of((c) => c.lines), of(misses), formatBytes(v.costs.scratch), v.costs.error ? "fails" : v.costs.cut ? "cut" : ""];
    });
    holder.replaceChildren(table(["step", "FLOPs", "reads", "writes", "lines touched", `lines fetched (cache of ${lines})`, "scratch", ""], rows));
  };
  const stop = size.on(show);
  show();
  return { element: h("div", {}, h("p", { class: "muted" }, "Counted in the interpreter at these sizes; the change against the step before in brackets."), holder), stop };
}

function refusedBox(refused) {
  const step = (n, text) => `step ${n}: ${text}`;
  const item = (name, value) => (value ? [h("dt", {}, name), h("dd", {}, value)] : []);
  return h("div", { class: "error refused", role: "alert" },
    h("strong", {}, `Refused: ${refused.step}`),
    h("dl", {}, item("condition", refused.condition), item("at", refused.place),
      item("made by", refused.made_by),
      item("in its way", refused.causes.length ? refused.causes.map(([n, text]) => h("div", {}, step(n, text))) : null),
      item("try", refused.suggestion),
      item("an order that works", refused.order
        ? h("ol", { start: 0 }, refused.order.map(([n, text], i) => h("li", {}, text, n !== i ? h("strong", {}, ` ← was ${text === refused.step ? "refused" : `step ${n}`}`) : "")))
        : `none was found in ${refused.trials} trials`)));
}

export default {
  render({ model, el }) {
    const { root, cleanup } = mount(el);
    const state = model.get("state");
    const { versions, threads } = state;
    const at = position(model, "loops.version", versions.length, versions.length - 1);
    let stops = [];
    const end = () => {
      stops.forEach((s) => s());
      stops = [];
    };
    const body = h("div");
    const titles = ["Step through", "Reuse", ...(versions.length > 1 ? ["Costs of the steps"] : []), ...(threads ? ["Threads"] : []), "Script"];
    const tab = position(model, "loops.tab", titles.length, threads && !versions.at(-1).run.steps.site.length ? titles.indexOf("Threads") : 0);
    const show = () => {
      end();
      const version = versions[at.get()];
      const made = {
        "Step through": () => stepPanel(version, model, `loops.step.${at.get()}`),
        "Reuse": () => reusePanel(version, model),
        "Costs of the steps": () => schedulePanel(state, model, at),
        "Threads": () => threadsPanel(threads, model),
        "Script": () => {
          const pane = scriptPane({ rows: plainRows(version.script.map((i) => state.table[i])), label: "script" });
          return { element: pane.element, stop: pane.stop };
        },
      };
      const strip = tabs({ titles, at: tab, label: "what to look at", panel(i) {
        const { element, stop } = made[titles[i]]();
        if (stop) stops.push(stop);
        return element;
      } });
      stops.push(strip.stop);
      const calls = version.calls.length ? version.calls.join("\n") : "as given";
      body.replaceChildren(versions.length > 1 ? h("pre", { class: "calls" }, calls) : "", strip);
    };
    const sizes = Object.entries(state.sizes).map(([name, n]) => `${name} = ${n}`).join(", ");
    const bar = versions.length > 1 && stepper({
      count: versions.length, at, label: "steps of the schedule",
      describe: (i) => versions[i].calls.at(-1) ?? "as given",
    });
    bar?.prepend?.(h("span", { class: "muted" }, "schedule"));
    root.append(h("style", {}, CSS + GRID_CSS + THREADS_CSS), ...notes(state),
      h("h3", {}, state.title, sizes && h("span", { class: "muted mono" }, `  ${sizes}`)),
      state.refused ? refusedBox(state.refused) : "", bar || "", body);
    const stop = at.on(show);
    show();
    return () => {
      stop();
      bar?.stop?.();
      end();
      cleanup();
    };
  },
};
