// The drawings of a search: the best over time, decisions in parallel coordinates, predictions.

import { h, scroller, svg } from "./core.js";

export const TUNING_CSS = `
.tuning line.axis { stroke: var(--line); } .tuning line.bar { stroke: var(--muted); } .tuning path { fill: none; }
.tuning text { paint-order: stroke; stroke: var(--bg); stroke-width: 3px; }
.tuning path.best { stroke: var(--accent); stroke-width: 2; } .tuning line.even { stroke: var(--muted); stroke-dasharray: 4 3; }
.tuning circle { fill: var(--muted); } .tuning .faster circle { fill: var(--accent); } .tuning path.failed { stroke: var(--del); stroke-width: 1.5; }
.tuning .mark { cursor: pointer; } .tuning .mark.chosen circle { stroke: var(--fg); stroke-width: 2; } .tuning .mark.chosen path.failed { stroke-width: 3; }
.tuning path.final { fill: var(--add); } .tuning line.final { stroke: var(--add); stroke-width: 2; }
.tuning path.way { stroke: var(--muted); opacity: .45; } .tuning path.way.faster { stroke: var(--accent); opacity: .9; stroke-width: 1.5; }
.tuning path.way.wrong { stroke: var(--del); stroke-dasharray: 3 3; } .tuning path.way.chosen { stroke: var(--fg); stroke-width: 3; opacity: 1; }
.tuning { min-width: 700px; max-width: 1100px; margin-bottom: 10px; } tr.chosen td { background: var(--accent-bg); } tbody tr[data-trial] { cursor: pointer; }
th button.link { color: inherit; font-weight: 600; text-decoration: none; white-space: nowrap; }
`;

const [WIDTH, HIGH, LEFT, RIGHT, TOP, BOTTOM] = [1000, 260, 52, 60, 14, 36];

/** "1.21 (1.18–1.24)" */
export const ratioText = ({ ratio, low, high }) => `${ratio.toPrecision(3)} (${low.toPrecision(3)}–${high.toPrecision(3)})`;

/** Round ratios between two, at most seven of them. */
export function ticks(low, high) {
  const all = [0.1, 0.2, 0.25, 0.33, 0.5, 0.67, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2, 3, 4, 6, 8, 12, 16, 32, 64].filter((v) => v >= low && v <= high);
  const step = Math.ceil(all.length / 7);
  const one = Math.max(0, all.indexOf(1));
  return all.filter((_, i) => (i - one) % step === 0);
}

/** A logarithmic scale between the ratios, with some room. */
function scale(ratios, from, to) {
  const [low, high] = [Math.min(0.9, ...ratios) / 1.05, Math.max(1.1, ...ratios) * 1.05];
  const at = (v) => from + ((Math.log(v) - Math.log(low)) / (Math.log(high) - Math.log(low))) * (to - from);
  return { low, high, at: (v) => at(Math.max(low, Math.min(high, v))) };
}

function levels(y) {
  return ticks(y.low, y.high).map((v) => [
    svg("line", { class: v === 1 ? "even" : "axis", x1: LEFT, x2: WIDTH - RIGHT, y1: y.at(v), y2: y.at(v) }),
    svg("text", { x: LEFT - 6, y: y.at(v) + 4, "text-anchor": "end" }, `${v}×`),
  ]);
}

/** Marks the chosen one among elements that have the number of a trial. */
function follow(figure, at) {
  const show = () => figure.querySelectorAll("[data-trial]").forEach((e) => e.classList.toggle("chosen", Number(e.dataset.trial) === at.get()));
  show();
  return at.on(show);
}

const label = (t) => `Trial ${t.number}: ${t.point.map(([k, v]) => `${k} = ${v}`).join(", ")}; ${t.ratio === null ? `${t.outcome}: ${t.reason}` : `${ratioText(t)} times as fast`}`;

function finalMark(end, x, y) {
  const [middle, low, high] = end.interval;
  const at = y.at(middle);
  return svg("g", {}, svg("title", {}, `confirmed: ${ratioText({ ratio: middle, low, high })}`),
    svg("line", { class: "final", x1: x, x2: x, y1: y.at(low), y2: y.at(high) }),
    svg("path", { class: "final", d: `M${x},${at - 6}l6,6l-6,6l-6,-6z` }),
    svg("text", { x: x + 9, y: at + 4 }, `${middle.toPrecision(3)}×`));
}

/** Each trial with its interval, and the best so far as steps; at the right what was confirmed. */
export function progressChart(kernel, trials, at) {
  const measured = trials.filter((t) => t.ratio !== null);
  const final = kernel.end?.interval && kernel.end.outcome === "accepted" ? kernel.end.interval : null;
  const y = scale([...measured.map((t) => t.ratio), ...measured.filter((t) => t.low > 1).map((t) => t.high), ...(final ?? [])].filter((v) => v > 0.3), HIGH - BOTTOM, TOP);
  const step = (WIDTH - LEFT - RIGHT - 30) / Math.max(1, trials.length);
  const x = (number) => LEFT + (number - 0.5) * step;
  const mark = (t) => svg("g", { class: `mark${t.low > 1 ? " faster" : ""}`, "data-trial": t.number - 1, onclick: () => at.set(t.number - 1) },
    svg("title", {}, label(t)),
    t.ratio === null ? svg("path", { class: "failed", d: `M${x(t.number) - 4},${HIGH - BOTTOM - 4}l8,8m0,-8l-8,8` })
      : [svg("line", { class: "bar", x1: x(t.number), x2: x(t.number), y1: y.at(t.low), y2: y.at(t.high) }), svg("circle", { cx: x(t.number), cy: y.at(t.ratio), r: 4 })]);
  let best = `M${LEFT},${y.at(1)}`;
  for (const t of trials) best += `H${x(t.number)}V${y.at(t.best)}`;
  best += `H${LEFT + trials.length * step}`;
  const every = Math.max(1, Math.ceil(trials.length / 20));
  const about = `best over time: ${trials.length} trials, the best so far about ${trials.at(-1)?.best ?? 1} times as fast as the default`;
  const figure = svg("svg", { class: "tuning chart", viewBox: `0 0 ${WIDTH} ${HIGH}`, role: "img", "aria-label": about },
    levels(y), svg("path", { class: "best", d: best }), trials.map(mark),
    final ? finalMark(kernel.end, WIDTH - RIGHT - 6, y) : null,
    trials.filter((t) => t.number === 1 || t.number % every === 0).map((t) => svg("text", { x: x(t.number), y: HIGH - 18, "text-anchor": "middle" }, String(t.number))),
    svg("text", { x: WIDTH - RIGHT, y: HIGH - 3, "text-anchor": "end" }, "trial"));
  const legend = h("ul", { class: "legend" }, ["● faster with 95 % confidence (coloured), or not (grey)", "| interval", "— best so far", "× not measured", ...(final ? ["◆ confirmed beside the default"] : [])].map((text) => h("li", {}, text)));
  return { element: h("div", {}, legend, scroller("best over time", figure)), stop: follow(figure, at) };
}

const MOST_AXES = 8;

/** One axis per decision, those with the largest effect first, and one for the ratio. */
export function coordinatesChart(kernel, trials, at) {
  const axes = kernel.decisions.slice(0, MOST_AXES);
  const high = 240;
  const x = (i) => 70 + (i * (WIDTH - 150)) / Math.max(1, axes.length);
  const places = axes.map((d) => new Map(d.values.map((v, j) => [v, high - 40 - (j * (high - 80)) / Math.max(1, d.values.length - 1)])));
  const y = scale(trials.filter((t) => t.ratio !== null).map((t) => t.ratio), high - 40, 40);
  const way = (t) => {
    const points = axes.map((d, i) => (t.values[i] === null ? null : [x(i), places[i].get(t.values[i])])).filter(Boolean);
    if (t.ratio !== null) points.push([x(axes.length), y.at(t.ratio)]);
    const kind = t.ratio === null ? " wrong" : t.low > 1 ? " faster" : "";
    return svg("path", { class: `mark way${kind}`, "data-trial": t.number - 1, d: `M${points.join("L")}`, onclick: () => at.set(t.number - 1) }, svg("title", {}, label(t)));
  };
  const axis = (d, i) => [
    svg("line", { class: "axis", x1: x(i), x2: x(i), y1: 34, y2: high - 34 }),
    svg("text", { x: x(i), y: i % 2 ? high - 4 : 14, "text-anchor": i ? "middle" : "start" }, svg("title", {}, d.meaning), d.key.length > 34 ? `…${d.key.slice(-33)}` : d.key),
    d.values.map((v) => svg("text", { x: x(i) - 5, y: places[i].get(v) + 4, "text-anchor": "end" }, v)),
  ];
  const shown = [...trials].sort((a, b) => (a.ratio ?? 0) - (b.ratio ?? 0)); // the fastest on top
  const figure = svg("svg", { class: "tuning chart", viewBox: `0 0 ${WIDTH} ${high}`, role: "img", "aria-label": `decisions in parallel coordinates: ${axes.map((d) => d.key).join(", ")}` },
    shown.map(way), axes.map(axis), svg("line", { class: "axis", x1: x(axes.length), x2: x(axes.length), y1: 34, y2: high - 34 }),
    svg("text", { x: WIDTH - 4, y: 14, "text-anchor": "end" }, "times as fast"),
    ticks(y.low, y.high).map((v) => svg("text", { x: x(axes.length) + 6, y: y.at(v) + 4 }, `${v}×`)));
  return { element: scroller("decisions and ratios", figure), stop: follow(figure, at) };
}

/** What the model said of each trial against what was measured. */
export function predictedChart(trials, at) {
  const shown = trials.filter((t) => t.predicted !== null && t.ratio !== null);
  const both = shown.flatMap((t) => [t.predicted, t.ratio]);
  const [side, y] = [WIDTH - RIGHT, scale(both, HIGH - BOTTOM, TOP)];
  const x = scale(both, LEFT, side);
  const figure = svg("svg", { class: "tuning chart", viewBox: `0 0 ${WIDTH} ${HIGH}`, role: "img", "aria-label": `predicted against measured ratios of ${shown.length} trials` },
    levels(y), ticks(x.low, x.high).map((v) => svg("text", { x: x.at(v), y: HIGH - 18, "text-anchor": "middle" }, `${v}×`)),
    svg("line", { class: "even", x1: LEFT, y1: HIGH - BOTTOM, x2: side, y2: TOP }),
    shown.map((t) => svg("g", { class: `mark${t.low > 1 ? " faster" : ""}`, "data-trial": t.number - 1, onclick: () => at.set(t.number - 1) }, svg("title", {}, label(t)), svg("circle", { cx: x.at(t.predicted), cy: y.at(t.ratio), r: 5 }))),
    svg("text", { x: side, y: HIGH - 3, "text-anchor": "end" }, "predicted; upwards: measured"));
  return { element: scroller("predictions", figure), stop: follow(figure, at) };
}
