// The roofline: operations per second over operations per byte, of one run or of several.

import { formatBytes, formatCount, h, plural, scroller, svg, table } from "./core.js";
import { pictureButtons } from "./picture.js";
import { byKernel, decades, mainMemory, roof, standing } from "./timeline.js";
import { billions, flopsText } from "./run_time.js";

export const ROOF_CSS = `
.roof line, .roof path { stroke: var(--line); fill: none; } .roof path.top { stroke: var(--fg); stroke-width: 1.5; } .roof path.cache { stroke: var(--muted); stroke-dasharray: 5 4; }
.roof { max-width: 1100px; } .roof circle { fill-opacity: .8; stroke: var(--fg); } .roof path.moved { stroke: var(--muted); stroke-dasharray: 2 3; }
.roof text.muted { fill: var(--muted); }
`;

/** The colour of the points of a run: of one run the accent, of several far apart on the circle of hues. */
const runColor = (r, several) => (several ? `hsl(${(210 + 137 * r) % 360} 65% 50%)` : "var(--accent)");


const [WIDTH, HIGH] = [1000, 400];

/** The kernels of each run with where they stand, those of several runs with the run's number. */
const pointsOf = (runs) => runs.flatMap((run, r) => byKernel(run.profile)
  .map((k) => ({ ...k, run: r, label: run.label, at: standing(k, run.profile.limits) })).filter((k) => k.at));

/** Scales that hold all points and the ridge; `low` is the lowest number of the vertical axis. */
function scales(drawn, limits) {
  const ridge = limits.flops / mainMemory(limits).bandwidth;
  const [x0, x1] = decades([...drawn.map((k) => k.at.intensity), ridge / 10, ridge * 10]);
  const [y0, y1] = decades([...drawn.map((k) => k.at.rate), limits.flops, roof(10 ** x0, limits, mainMemory(limits))]);
  return {
    x0, x1, y0, y1, low: 10 ** y0,
    x: (v) => 62 + ((Math.log10(v) - x0) / (x1 - x0)) * (WIDTH - 76),
    y: (v) => HIGH - 34 - ((Math.log10(v) - y0) / (y1 - y0)) * (HIGH - 50),
  };
}

function grid({ x0, x1, y0, y1, low, x, y }) {
  const parts = [];
  for (let e = x0; e <= x1; e += 1) parts.push(svg("line", { x1: x(10 ** e), x2: x(10 ** e), y1: y(10 ** y1), y2: y(low) }), svg("text", { x: x(10 ** e), y: HIGH - 18, "text-anchor": "middle" }, formatCount(10 ** e)));
  for (let e = y0; e <= y1; e += 1) parts.push(svg("line", { x1: x(10 ** x0), x2: x(10 ** x1), y1: y(10 ** e), y2: y(10 ** e) }), svg("text", { x: 58, y: y(10 ** e) + 4, "text-anchor": "end" }, formatCount(10 ** e)));
  return parts;
}

function roofLine({ x0, x1, low, x, y }, limits, level) {
  const from = Math.max(10 ** x0, low / level.bandwidth);
  const to = Math.min(10 ** x1, limits.flops / level.bandwidth);
  const at = (v) => `${x(v)},${y(Math.max(low, roof(v, limits, level)))}`;
  return `M${at(from)} L${at(Math.max(from, to))} L${at(10 ** x1)}`;
}

/** The roofs of all levels of memory, those of caches dashed, with their names above the ridges. */
function roofs(scale, limits) {
  const names = [];
  for (const { name, bandwidth } of limits.levels) {
    const ridge = scale.x(limits.flops / bandwidth);
    const last = names[names.length - 1];
    if (last && ridge - last.ridge < 60) last.names.push(name);
    else names.push({ ridge, names: [name] });
  }
  return [
    ...limits.levels.map((level) => svg("path", { class: level.holds === null ? "top" : "cache", d: roofLine(scale, limits, level) })),
    ...names.map((one) => svg("text", { class: "muted", x: one.ridge, y: scale.y(limits.flops) - 6, "text-anchor": "middle" }, one.names.join(", "))),
  ];
}

const LETTER = 6.2; // pixels of a letter, about

/**
 * The side of a point on which a text stands: the right one, or the left one where another point or
 * the edge is in the way.
 * @param {{at: number, from: number, text: string}} label its base line and its left end
 * @param {number[][]} points the places of all points
 */
export function sideOf({ at, from, text }, points) {
  const to = from + LETTER * text.length;
  const covered = points.some(([px, py]) => px > from && px < to && Math.abs(py - at) < 12);
  return to > WIDTH || covered ? "left" : "right";
}

/** Texts beside points; of more than two points that lie close together, only the numbers. */
function labels(drawn, { x, y }, radius, several) {
  const found = [];
  const points = drawn.map((k) => [x(k.at.intensity), y(k.at.rate)]);
  drawn.forEach((k, i) => {
    const [at, left] = [y(k.at.rate) + 4, x(k.at.intensity) + 2 + radius(k)];
    const text = `${i + 1} ${several ? `${k.label}: ` : ""}${k.name}`;
    const near = found.find(([a, l]) => Math.abs(a - at) < 11 && Math.abs(l - left) < 16);
    if (near) {
      near[1] = Math.max(near[1], left);
      near[2].push(text);
    } else found.push([at, left, [text], 2 * radius(k) + 8]);
  });
  return found.map(([at, left, texts, over]) => {
    const text = texts.map((t) => (texts.length > 2 ? t.split(" ")[0] : t)).join(", ");
    const end = sideOf({ at, from: left, text }, points) === "left";
    return svg("text", { x: end ? left - over : left, y: at, "text-anchor": end ? "end" : "start" }, text);
  });
}

/** Dotted lines from a kernel of the first run to the ones of the same name in later runs. */
function moves(drawn, { x, y }) {
  return drawn.flatMap((k) => {
    const next = drawn.find((other) => other.run === k.run + 1 && other.name === k.name);
    return next ? [svg("path", { class: "moved", d: `M${x(k.at.intensity)},${y(k.at.rate)} L${x(next.at.intensity)},${y(next.at.rate)}` })] : [];
  });
}

/**
 * The roofline of runs on one machine.
 * @param {{label: string, profile: any}[]} runs
 */
export function roofPanel(runs) {
  const { limits, threads } = runs[0].profile;
  const several = runs.length > 1;
  const kernels = pointsOf(runs);
  const drawn = kernels.filter((k) => k.flops > 0 && k.at.intensity);
  const scale = scales(drawn, limits);
  const top = Math.max(...drawn.map((k) => k.seconds));
  const radius = (k) => 4 + 8 * Math.sqrt(k.seconds / top);
  const figure = svg("svg", { class: "roof chart", viewBox: `0 0 ${WIDTH} ${HIGH}`, role: "img", "aria-label": `roofline: ${drawn.map((k) => `${several ? `${k.label}, ` : ""}${k.name} at ${flopsText(k.at.rate)}`).join(", ")}` },
    grid(scale), roofs(scale, limits),
    svg("text", { x: 62, y: 10 }, "FLOP/s"), svg("text", { x: WIDTH - 14, y: HIGH - 4, "text-anchor": "end" }, "FLOPs per byte of the kernel's arguments"),
    several ? moves(drawn, scale) : null,
    drawn.map((k) => svg("circle", { cx: scale.x(k.at.intensity), cy: scale.y(k.at.rate), r: radius(k), style: `fill:${runColor(k.run, several)}` }, svg("title", {}, `${several ? `${k.label}, ` : ""}${k.name}: ${flopsText(k.at.rate)}`))),
    labels(drawn, scale, radius, several));
  const rows = kernels.map((k) => [
    drawn.includes(k) ? String(drawn.indexOf(k) + 1) : "", ...(several ? [k.label] : []), k.name, k.at.intensity === null ? "" : formatCount(k.at.intensity), billions(k.at.rate), billions(k.at.bandwidth), k.bound ?? k.at.bound, `${formatCount(Number((100 * k.at.part).toPrecision(2)))} %`,
  ]);
  const levels = limits.levels.map(({ name, bandwidth }) => `${formatBytes(bandwidth)}/s from ${name}`).join(", ");
  const measured = limits.levels.some(({ holds }) => holds);
  const heads = ["", ...(several ? ["run"] : []), "kernel", "FLOPs per byte", "GFLOP/s", "GB/s", "bound by", "share of its roof"];
  return h("div", {},
    h("p", {}, `${limits.source ?? `Measured on this machine with ${plural(threads, "thread")}`}: ${flopsText(limits.flops)} of fused multiply-adds, ${levels} (line).`),
    h("p", { class: "muted" }, "The size of a point is the kernel's share of the time. Bytes are those of distinct elements of its arguments: what lies in a cache comes faster than main memory allows, and may stand above the line.", measured ? " A kernel's roof is that of the nearest level that holds the bytes of a call." : ""),
    h("div", { class: "row" }, pictureButtons(() => figure, "roofline"), several && h("ul", { class: "legend" }, runs.map((run, r) => h("li", {}, h("span", { class: "swatch", style: `background:${runColor(r, several)}` }, "\u00a0"), run.label)))),
    figure, scroller("kernels under the roof", table(heads, rows)));
}
