// Memory over time: where tensors lie in their storage, and what other ways would take.

import { field, formatBytes, h, plural, position, scroller, svg, table } from "./core.js";
import { evaluate, formatExpr, symbolSliders } from "./symbols.js";
import { ofFunctions } from "./functions.js";

/**
 * Bytes in use at each step: `live`, of the tensors that are needed then; `pool`, of what a pool has
 * taken so far that gives freed blocks out again, the smallest that is large enough.
 * @param {{start: number, end: number, bytes: number}[]} tensors @param {number} steps
 */
export function usage(tensors, steps) {
  const live = new Array(steps).fill(0);
  for (const t of tensors) for (let i = t.start; i <= t.end; i += 1) live[i] += t.bytes;
  const pool = new Array(steps).fill(0);
  const free = [];
  let taken = 0;
  const held = [];
  const born = tensors.map((t, i) => ({ ...t, i })).sort((a, b) => a.start - b.start || a.i - b.i);
  let next = 0;
  for (let step = 0; step < steps; step += 1) {
    for (let k = held.length - 1; k >= 0; k -= 1) {
      if (held[k].end < step) free.push(...held.splice(k, 1));
    }
    while (next < born.length && born[next].start <= step) {
      const t = born[next];
      const fitting = free.filter((f) => f.size >= t.bytes).sort((a, b) => a.size - b.size)[0];
      if (fitting) free.splice(free.indexOf(fitting), 1);
      else taken += t.bytes;
      held.push({ size: fitting ? fitting.size : t.bytes, end: t.end });
      next += 1;
    }
    pool[step] = taken;
  }
  return { live, pool };
}

/** Blocks of an arena in bytes, with where they lie; null where a size has no value. */
export function blocksAt(arena, tensors, env) {
  const blocks = arena.blocks.map(([tensor, offset, size, reuses, why]) => ({
    tensor, offset: evaluate(offset, env), size: evaluate(size, env), reuses, why,
    start: tensors[tensor].start, end: tensors[tensor].end,
  }));
  return blocks.every((b) => b.offset !== null && b.size !== null) ? blocks : null;
}

const [WIDE, TALL, LEFT] = [1000, 300, 78];

function axis(steps, scale, top) {
  const marks = [...new Set([0, 0.25, 0.5, 0.75, 1].map((f) => Math.round(top * f)))].map((bytes) => svg("g", {},
    svg("line", { x1: LEFT, x2: scale.wide, y1: scale.y(bytes), y2: scale.y(bytes), class: "gridline" }),
    svg("text", { x: LEFT - 5, y: scale.y(bytes) + 4, "text-anchor": "end" }, formatBytes(bytes))));
  const every = Math.max(1, Math.ceil((steps * WIDE) / (8 * scale.wide)));
  const names = Array.from({ length: Math.ceil(steps / every) }, (_, i) => i * every).map((i) =>
    svg("text", { x: scale.x(i), y: TALL + 14 }, String(i + 1)));
  return [...marks, ...names];
}

/** Places of steps and bytes in a drawing that is `wide`; it is shown as wide as its part of the pane. */
function scaleOf(steps, top, wide) {
  return { wide, x: (i) => LEFT + ((wide - LEFT) * i) / Math.max(1, steps), y: (b) => TALL - (TALL - 8) * (top > 0 ? b / top : 0) };
}

/** The size of a drawing, and how it fills its pane. */
const sized = (wide) => ({ viewBox: `0 0 ${wide} ${TALL + 32}`, class: "chart", style: `width:${(100 * wide) / WIDE}%;max-width:none` });

/** The colour of a tensor: that of the kernel that makes it. */
const colorOf = (fn, t) => {
  const kernels = [...new Set(fn.tensors.map((one) => fn.steps[one.start]))];
  return `var(--group-${kernels.indexOf(fn.steps[t.start]) % 10})`;
};

function arenaChart(fn, arena, blocks, env, chosen, label, wide) {
  const steps = fn.steps.length;
  const size = evaluate(arena.size, env);
  const scale = scaleOf(steps, size, wide);
  const order = blocks.map((b, i) => i).sort((a, b) => blocks[a].start - blocks[b].start);
  const drawn = new Map();
  const choose = (i) => {
    chosen.set(blocks[i].tensor);
  };
  for (const i of order) {
    const b = blocks[i];
    const t = fn.tensors[b.tensor];
    const [x, y] = [scale.x(b.start), scale.y(b.offset + b.size)];
    const [w, tall] = [scale.x(b.end + 1) - x, scale.y(b.offset) - y];
    const fits = w > t.name.length * 6 && tall > 12;
    const g = svg("g", {
      class: "block", role: "button", "aria-label": `${t.name}, ${formatBytes(b.size)} at ${formatBytes(b.offset)}, steps ${b.start + 1} to ${b.end + 1}`,
      onclick: () => choose(i),
    }, svg("title", {}, `${t.name} ${t.type}\n${formatBytes(b.size)} at ${formatBytes(b.offset)}\nsteps ${b.start + 1} to ${b.end + 1}`),
    svg("rect", { x, y, width: Math.max(1, w), height: Math.max(1, tall), style: `fill:${colorOf(fn, t)}` }),
    fits && svg("text", { x: x + 3, y: y + Math.min(tall / 2 + 4, 14) }, t.name));
    drawn.set(i, g);
  }
  const peak = scale.y(size);
  const chart = svg("svg", {
    ...sized(wide), role: "group", "aria-label": label,
    onkeydown(event) {
      const to = { ArrowLeft: -1, k: -1, ArrowUp: -1, ArrowRight: 1, j: 1, ArrowDown: 1 }[event.key];
      if (!to || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      event.stopPropagation();
      const at = order.findIndex((i) => blocks[i].tensor === chosen.get());
      const next = order[Math.max(0, Math.min(order.length - 1, at + to))];
      choose(next);
      drawn.get(next).focus();
    },
  }, axis(steps, scale, size), [...drawn.values()],
  svg("line", { x1: LEFT, x2: wide, y1: peak, y2: peak, class: "peak" }),
  svg("text", { x: wide, y: peak + 12, "text-anchor": "end", class: "peak" }, `peak ${formatBytes(size)}`),
  svg("text", { x: LEFT, y: TALL + 29 }, `steps 1 to ${steps} of ${fn.name}, in program order →`));
  /** Mark the chosen tensor, and those that lay where it lies. */
  chart.mark = () => {
    const now = order.find((i) => blocks[i].tensor === chosen.get());
    const under = new Set(now === undefined ? [] : blocks[now].reuses);
    for (const [i, g] of drawn) {
      g.classList.toggle("chosen", i === now);
      g.classList.toggle("under", under.has(blocks[i].tensor));
      g.setAttribute("aria-pressed", String(i === now));
      g.setAttribute("tabindex", i === (now ?? order[0]) ? "0" : "-1");
    }
  };
  chart.mark();
  return chart;
}

const LINES = [["planned", "", "var(--accent)"], ["live tensors", "2 2", "var(--add)"], ["run-time pool", "6 3", "var(--warn)"], ["one allocation per tensor", "10 4 2 4", "var(--del)"]];

function usageChart(fn, values, showApart, wide) {
  const steps = fn.steps.length;
  const lines = values.filter((_, i) => showApart || i < 3);
  const top = Math.max(1, ...lines.flat());
  const scale = scaleOf(steps, top, wide);
  const step = (series) => series.map((v, i) => `${i === 0 ? "M" : "L"}${scale.x(i)},${scale.y(v)} L${scale.x(i + 1)},${scale.y(v)}`).join(" ");
  return svg("svg", { ...sized(wide), role: "img", "aria-label": "bytes over time" },
    axis(steps, scale, top),
    lines.map((series, i) => svg("path", { d: step(series), style: `stroke:${LINES[i][2]};stroke-dasharray:${LINES[i][1]}`, class: "line" })),
    svg("text", { x: LEFT, y: TALL + 29 }, "bytes taken at each step →"));
}

function tensorFacts(fn, plan, number, env, choose) {
  const t = fn.tensors[number];
  if (!t) return h("p", { class: "muted" }, "Choose a tensor.");
  const link = (i) => h("button", { type: "button", class: "link mono", onclick: () => choose(i) }, fn.tensors[i].name);
  const entry = plan.arenas.flatMap((a) => a.blocks).find((b) => b[0] === number);
  const apart = plan.unplanned.find((u) => u[0] === number);
  const amount = (e) => [formatBytes(evaluate(e, env)), typeof e === "number" ? "" : h("span", { class: "muted mono" }, ` = ${formatExpr(e)}`)];
  const later = plan.arenas.flatMap((a) => a.blocks).filter((b) => b[3].includes(number)).map((b) => b[0]);
  const rows = [["type", h("span", { class: "mono" }, t.type)], ["in use", `steps ${t.start + 1} (${fn.steps[t.start]}) to ${t.end + 1} (${fn.steps[t.end]})`],
    entry && ["offset", amount(entry[1])], entry && ["takes", amount(entry[2])],
    entry && entry[3].length > 0 && ["reuses memory of", entry[3].map((i, k) => [k ? ", " : "", link(i)])],
    later.length > 0 && ["reused by", later.slice(0, 6).map((i, k) => [k ? ", " : "", link(i)])]].filter(Boolean);
  return h("div", {}, h("h4", { class: "mono" }, t.name), h("dl", { class: "facts" }, rows.map(([a, b]) => [h("dt", {}, a), h("dd", {}, b)])),
    h("p", {}, apart ? `Allocated separately, when it is needed: ${apart[1]}.` : entry ? `${entry[4][0].toUpperCase()}${entry[4].slice(1)}.` : ""));
}

/** The drawings of a plan: its storages, and the bytes that are taken over time. */
function planCharts(fn, plan, env, chosen, showApart, wide, sums) {
  if (!plan.arenas.length) return [h("p", { class: "note" }, "The plan has no storage: every tensor is allocated separately, when it is needed.")];
  const arenas = plan.arenas.map((arena, i) => {
    const blocks = blocksAt(arena, fn.tensors, env);
    const name = `Storage ${i + 1}, ${arena.scope}${arena.after ? `, allocated after ${arena.after}` : ""}`;
    return h("div", {}, h("h4", {}, name, h("span", { class: "muted mono" }, typeof arena.size === "number" ? ` ${formatBytes(arena.size)}` : ` ${formatExpr(arena.size)} bytes`)),
      blocks ? scroller(name, arenaChart(fn, arena, blocks, env, chosen, name, wide)) : h("p", { class: "muted" }, "Some sizes are unknown here."));
  });
  const legend = LINES.map(([text, dash, stroke], i) => (i < 3 || showApart) && h("li", {},
    svg("svg", { width: 30, height: 8, "aria-hidden": "true" }, svg("path", { d: "M0,4 L30,4", class: "line", style: `stroke:${stroke};stroke-dasharray:${dash}` })), text));
  return [...arenas, h("p", { class: "muted" }, "The colour shows which kernel writes the tensor."), h("h4", {}, "Bytes over time"), h("ul", { class: "legend" }, legend),
    scroller("bytes over time", usageChart(fn, sums, showApart, wide))];
}

/** What each way to allocate takes: bytes over time, and in sum. */
function sumsOf(fn, plan, env) {
  const planned = plan.arenas.flatMap((a) => a.blocks.map((b) => b[0]));
  const known = planned.map((i) => ({ ...fn.tensors[i], bytes: evaluate(fn.tensors[i].bytes, env) })).filter((t) => t.bytes !== null);
  const { live, pool } = usage(known, fn.steps.length);
  const size = plan.arenas.reduce((n, a) => n + (evaluate(a.size, env) ?? 0), 0);
  const own = known.reduce((n, t) => n + t.bytes, 0);
  const flat = (v) => fn.steps.map(() => v);
  return { size, lines: [flat(size), live, pool, flat(own)], rows: [["planned", size], ["peak of live tensors", Math.max(0, ...live)], ["run-time pool", pool.at(-1) ?? 0], ["one allocation per tensor", own]] };
}

/** All tensors of a plan as a table. */
function planTable(fn, plan, env) {
  const entries = new Map(plan.arenas.flatMap((a) => a.blocks).map((b) => [b[0], b]));
  const apartBy = new Map(plan.unplanned);
  return table(["tensor", "from", "to", "bytes", "why there"], fn.tensors.map((t, i) => {
    const entry = entries.get(i);
    return [t.name, t.start + 1, t.end + 1, formatBytes(evaluate(entry ? entry[2] : t.bytes, env)), entry ? entry[4] : apartBy.get(i) ?? ""];
  }));
}

/** Values of the symbols to begin with, below the bounds of the plan as compiled. */
function beginWith(fn, values) {
  const missing = fn.symbols.filter((s) => values.get()[s] === undefined);
  const { bounds } = fn.plans[fn.start];
  if (missing.length) values.set({ ...values.get(), ...Object.fromEntries(missing.map((s) => [s, Math.min(64, bounds[s] ?? 64)])) });
}

function functionView(fn, model) {
  const key = fn.name;
  const which = position(model, `plan ${key}`, fn.plans.length, fn.start);
  const chosen = position(model, `chosen ${key}`, fn.tensors.length);
  const apart = field(model, "apart", false);
  const zoom = field(model, "zoom", 0);
  const values = field(model, "values", {});
  beginWith(fn, values);
  const title = h("output", { class: "mono" });
  const range = (at, max, label) => {
    const element = h("input", { type: "range", min: 0, max, value: at.get(), "aria-label": label, oninput: () => at.set(Number(element.value)) });
    return element;
  };
  const slider = range(which, fn.plans.length - 1, "plan, by upper bounds");
  const charts = h("div", {});
  const facts = h("div", { class: "panel", "aria-live": "polite" });
  const sums = h("div", {});
  const words = h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "tensors" });
  const plan = () => fn.plans[which.get()];
  const showFacts = () => {
    for (const chart of charts.querySelectorAll("svg.chart")) chart.mark?.();
    facts.replaceChildren(tensorFacts(fn, plan(), chosen.get(), values.get(), (i) => chosen.set(i)));
  };
  const showWords = () => more.open && words.replaceChildren(planTable(fn, plan(), values.get()));
  const show = () => {
    const env = values.get();
    title.textContent = plan().title;
    slider.value = which.get();
    slider.setAttribute("aria-valuetext", plan().title);
    const { size, lines, rows } = sumsOf(fn, plan(), env);
    const past = Object.entries(plan().bounds).filter(([s, b]) => env[s] > b);
    charts.replaceChildren(...planCharts(fn, plan(), env, chosen, apart.get(), WIDE * 2 ** zoom.get(), lines));
    sums.replaceChildren(...past.map(([s, b]) => h("p", { class: "note" }, `${s} = ${env[s]} is above its upper bound ${b}: the program would refuse it.`)),
      ...(plan().arenas.length ? [table(["allocation", "bytes", "relative to the plan"], rows.map(([text, n]) => [text, h("span", { class: "nowrap" }, formatBytes(n)), size ? `${(n / size).toFixed(2)} ×` : "–"]))] : []));
    one.hidden = !plan().arenas.length;
    showFacts();
    showWords();
  };
  const box = h("input", { type: "checkbox", checked: apart.get(), onchange: () => apart.set(box.checked) });
  const one = h("label", {}, box, "show one allocation per tensor");
  const sliders = symbolSliders(fn.symbols, values);
  const more = h("details", { ontoggle: showWords }, h("summary", {}, `As a table: ${plural(fn.tensors.length, "tensor")}`), words);
  const stops = [which.on(show), chosen.on(showFacts), values.on(show), apart.on(show), zoom.on(show), sliders.stop];
  show();
  const element = h("div", {},
    h("div", { class: "row" }, h("label", {}, "Upper bounds ", slider), title, h("label", {}, "zoom ", range(zoom, 5, "zoom, powers of two"))),
    fn.symbols.length > 0 && h("div", { class: "row" }, h("span", { class: "muted" }, "Run with"), sliders),
    h("div", { class: "wide-left" }, charts, h("div", { class: "stack" }, sums, one, facts)),
    more);
  return { element, stop: () => stops.forEach((s) => s()) };
}

export default ofFunctions(functionView);
