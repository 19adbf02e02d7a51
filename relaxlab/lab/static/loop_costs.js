// What the accesses of a loop function cost: reuse, and the steps of a schedule compared.

import { field, formatBytes, formatCount, h, plural, scroller, svg, table } from "./core.js";
import { distanceBars, servedBy } from "./accesses.js";

export const COSTS_CSS = `
.bars text { font: 11px var(--sans); fill: var(--fg); } .bars rect { fill: var(--accent); } .bars rect.first { fill: var(--muted); }
td.less { color: var(--add); } td.more { color: var(--del); }
.costs td { white-space: nowrap; } .costs td:first-child { white-space: normal; overflow-wrap: anywhere; min-width: 16em; }
`;

/** Bars with their counts as text. */
function barChart(bars, label) {
  const top = Math.max(1, ...bars.map((b) => b.count));
  const [wide, high] = [Math.max(46, 6 + 7 * Math.max(...bars.map((b) => b.label.length))), 110];
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

/** A cache to choose: how many lines it has, and of how many bytes. */
function cacheChoice(model, sizes) {
  const count = field(model, "loops.cache", 3);
  const bytes = field(model, "loops.line", Number(sizes[0]));
  const slider = h("input", { type: "range", min: 0, max: 10, value: count.get(), "aria-label": "lines of the cache, powers of two", oninput: () => count.set(Number(slider.value)) });
  const select = h("select", { "aria-label": "bytes of a line", onchange: () => bytes.set(Number(select.value)) },
    sizes.map((n) => h("option", { value: n, selected: Number(n) === bytes.get() }, `${n} bytes`)));
  const said = h("output", {});
  const show = () => { said.textContent = `${2 ** count.get()} line${count.get() ? "s" : ""} of`; };
  show();
  return {
    element: h("span", { class: "row", role: "group", "aria-label": "cache" }, h("label", {}, "a cache of", slider), said, select),
    lines: () => 2 ** count.get(),
    of: (costs) => costs.lines[String(bytes.get())],
    bytes: () => bytes.get(),
    on(f) {
      const stops = [count.on(() => { show(); f(); }), bytes.on(f)];
      return () => stops.forEach((s) => s());
    },
  };
}

/** Cache lines fetched from main memory in a run. */
const fetched = (costs, cache) => costs.reads + costs.writes - servedBy(cache.of(costs), cache.lines());

export function reusePanel(version, model) {
  const { costs } = version;
  if (!costs) return { element: h("p", { class: "muted" }, "Not counted for this form: choose a step that is not indented."), stop() {} };
  const cache = cacheChoice(model, Object.keys(costs.lines));
  const total = costs.reads + costs.writes;
  const said = h("output", { "aria-live": "polite" });
  const charts = h("div", { class: "halves" });
  const show = () => {
    const misses = fetched(costs, cache);
    said.textContent = `(${formatBytes(cache.bytes() * cache.lines())}): ${total - misses} of ${total} accesses served, ${plural(misses, "line")} fetched`;
    charts.replaceChildren(
      h("div", {}, h("h4", {}, `Distance in cache lines of ${cache.bytes()} bytes`), barChart(distanceBars(cache.of(costs)), "accesses by distance in lines")),
      h("div", {}, h("h4", {}, "Distance in elements"), barChart(distanceBars(costs.distances), "accesses by distance in elements")));
  };
  const stop = cache.on(show);
  show();
  const element = h("div", {},
    h("p", { class: "muted" }, "How many other places were touched since a place was touched last. A cache that keeps the n lines used last serves the accesses with a distance below n. Registers (`local`) are no memory."),
    h("div", { class: "row" }, cache.element, said), charts);
  return { element, stop };
}

const COLUMNS = [
  ["FLOPs", (c) => c.flops], ["arithmetic", (c) => c.issued.arithmetic], ["loads", (c) => c.issued.loads], ["stores", (c) => c.issued.stores],
];

/** A number and what it changed against the step before. */
function changeCell(now, before) {
  if (before === null || now === before || now === null) return formatCount(now);
  const less = now < before;
  return h("span", {}, formatCount(now), h("span", { class: less ? "made" : "refused" }, ` ${less ? "−" : "+"}${formatCount(Math.abs(now - before))}`));
}

export function schedulePanel(state, model, at) {
  const cache = cacheChoice(model, Object.keys(state.versions[0].costs.lines));
  const holder = scroller("costs of the steps");
  holder.classList.add("costs");
  const show = () => {
    const columns = [...COLUMNS, ["lines fetched", (c) => fetched(c, cache)], ["scratch bytes", (c) => c.scratch]];
    const whole = state.versions.flatMap((v, i) => (v.costs ? [[v, i]] : []));
    const rows = whole.map(([v, i], place) => {
      const old = place ? whole[place - 1][0].costs : null;
      const go = h("button", { type: "button", class: "link mono", onclick: () => at.set(i) }, i === 0 ? "as given" : v.calls.at(-1));
      return [go, ...columns.map(([, of]) => changeCell(of(v.costs), old && of(old))), v.costs.error ? "fails" : v.costs.cut ? "cut" : ""];
    });
    holder.replaceChildren(table(["step", ...columns.map(([title]) => title), ""], rows));
  };
  const stop = cache.on(show);
  show();
  return { element: h("div", {},
    h("p", { class: "muted" }, "Counted in the interpreter at these sizes, with the change against the step before. Arithmetic, loads and stores are instructions: one for all lanes of a vector whose elements are neighbours, and none for what the unrolled code has in a register. Lines are fetched into this cache:"),
    h("div", { class: "row", style: "margin-bottom:6px" }, cache.element), holder), stop };
}
