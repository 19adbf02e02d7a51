// The timeline of a run: a lane for each thread, waiting, and memory on the same axis.

import { field, formatBytes, formatCount, formatSeconds, h, plural, position, scroller, stepper, svg, table } from "./core.js";
import { byKernel, laneTotals, nearestCall } from "./timeline.js";

export const TIME_CSS = `
.time rect { stroke: var(--bg); stroke-width: .5; } .time rect.chosen { stroke: var(--fg); stroke-width: 2; }
.time rect.waits { fill: var(--panel); stroke: var(--muted); stroke-dasharray: 2 2; }
.time path { fill: var(--accent-bg); stroke: var(--accent); }
.lanes { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 0 6px; margin-top: 6px; }
.lanes .names { font: 11px var(--sans); color: var(--muted); position: relative; width: 6em; } .lanes .names span { position: absolute; right: 0; }
.swatch { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 5px; }
`;

/** A tag on kernels that have decisions of a search. */
const tunedMark = (profile, name) => ((profile.tuned ?? []).includes(name) ? h("span", { class: "badge good", title: "scheduled with decisions that a search found" }, "tuned") : "");

export const flopsText = (n) => `${formatCount(n)}${n < 10000 ? " " : ""}FLOP/s`;
/** 2.1e9 -> "2.1", for columns of which the heading has the unit */
export const billions = (n) => String(Number((n / 1e9).toPrecision(3)));
const color = (i) => `color-mix(in srgb, var(--group-${i % 10}) 78%, var(--fg))`;

const [LEAST, TOP, LANE, MEMORY] = [600, 20, 34, 44];

/** What each thread did, from the profile; of one thread, its calls. */
const lanesOf = (profile) => (profile.lanes.length > 1 ? profile.lanes
  : [profile.calls.map((c) => [c.name, c.start * 1e9, c.seconds * 1e9, 0])]);

/** Bytes that the program has allocated, at each call, as a line of steps. */
function memoryPath(profile, x, top) {
  const most = Math.max(1, ...profile.calls.map((c) => c.memory));
  const y = (bytes) => top + MEMORY - 4 - ((MEMORY - 12) * bytes) / most;
  const points = [`M${x(0)},${y(0)}`];
  profile.calls.forEach((c, i) => {
    const end = profile.calls[i + 1]?.start ?? profile.seconds;
    points.push(`L${x(c.start)},${y(profile.calls[i - 1]?.memory ?? 0)} L${x(c.start)},${y(c.memory)} L${x(end)},${y(c.memory)}`);
  });
  return { most, line: svg("path", { d: `${points.join(" ")} L${x(profile.seconds)},${y(0)} Z` }) };
}

/** The drawing at a zoom: `wide` pixels where all is seen. */
function chart(profile, wide, zoom, chosen, rank) {
  const total = profile.seconds;
  const width = wide * 2 ** zoom;
  const x = (s) => (width * s) / total;
  const lanes = lanesOf(profile);
  const known = profile.calls.every((c) => c.memory !== null);
  const low = TOP + lanes.length * LANE;
  const high = low + (known ? MEMORY : 0);
  const marks = Array.from({ length: 6 * 2 ** zoom }, (_, i) => (i * total) / (6 * 2 ** zoom));
  const call = profile.calls[chosen.get()];
  const inCall = (start) => call && start >= call.start - 1e-9 && start < call.start + call.seconds;
  const boxes = lanes.flatMap((lane, t) => lane.map(([name, start, took, waits]) => {
    const text = profile.names[name];
    const [left, long] = [x(start / 1e9), Math.max(0.7, x(took / 1e9))];
    return [
      svg("rect", { class: [waits ? "waits" : "", inCall(start / 1e9) ? "chosen" : ""].join(" "), x: left, y: TOP + t * LANE, width: long, height: LANE - 6, style: waits ? null : `fill:${color(rank.get(name))}`,
        onclick: () => chosen.set(nearestCall(profile, name, start / 1e9)) }, svg("title", {}, `${waits ? "waits in " : ""}${text}: ${formatSeconds(took / 1e9)}`)),
      long > 7 * text.length + 6 && !waits ? svg("text", { x: left + 4, y: TOP + t * LANE + 18, "pointer-events": "none" }, text) : null,
    ];
  }));
  const memory = known && profile.calls.length ? memoryPath(profile, x, low) : null;
  const drawing = svg("svg", { class: "time", viewBox: `0 0 ${width} ${high}`, width, height: high, style: "max-width:none", role: "img", "aria-label": `${plural(profile.calls.length, "call")} in ${formatSeconds(total)} on ${plural(lanes.length, "thread")}` },
    marks.map((s) => [svg("line", { x1: x(s), x2: x(s), y1: 14, y2: high, stroke: "var(--line)" }), svg("text", { x: x(s) + 2, y: 11 }, formatSeconds(s))]),
    memory?.line, boxes);
  const names = h("div", { class: "names", style: `height:${high}px` },
    lanes.map((_, t) => h("span", { style: `top:${TOP + t * LANE + 7}px` }, `thread ${t}`)),
    memory && h("span", { style: `top:${low + 8}px;text-align:right` }, "allocated, at most ", formatBytes(memory.most)));
  return { drawing, names };
}

function facts(profile) {
  const total = profile.seconds;
  const inside = profile.calls.reduce((s, c) => s + c.seconds, 0);
  const sorted = [...profile.runs].sort((a, b) => a - b);
  const waits = profile.lanes.length > 1 ? laneTotals(profile).map((l, t) => `thread ${t} worked ${formatSeconds(l.works)} and waited ${formatSeconds(l.waits)}`) : [];
  return h("div", {},
    h("p", {}, `The fastest of ${profile.runs.length} runs took ${formatSeconds(total)} (median ${formatSeconds(sorted[Math.floor(sorted.length / 2)])}) with ${plural(profile.threads, "thread")}; `,
      `${formatSeconds(inside)} of it in ${plural(profile.calls.length, "call")}, ${formatSeconds(Math.max(0, total - inside))} outside them.`),
    waits.length ? h("p", {}, `In calls, ${waits.slice(0, 8).join("; ")}${waits.length > 8 ? "; …" : ""}.`)
      : profile.threads > 1 ? h("p", { class: "muted" }, "One thread did it all: the call is too short for a team.") : "");
}

export function timelinePanel(profile, model) {
  const chosen = position(model, "run.call", profile.calls.length, -1);
  const zoom = field(model, "run.zoom", 0);
  const kernels = byKernel(profile);
  const rank = new Map(kernels.map((k, i) => [k.index, i]));
  const holder = scroller("calls in time");
  const names = h("div");
  const said = h("p", { class: "mono", "aria-live": "polite" });
  const draw = () => {
    const made = chart(profile, Math.max(LEAST, holder.clientWidth), zoom.get(), chosen, rank);
    holder.replaceChildren(made.drawing);
    names.replaceChildren(made.names);
    const c = profile.calls[chosen.get()];
    said.textContent = c ? `call ${chosen.get() + 1} of ${profile.calls.length}: ${profile.names[c.name]} in ${c.in}, after ${formatSeconds(c.start)}, for ${formatSeconds(c.seconds)}${c.cost ? `: ${formatCount(c.cost.flops)} FLOPs, ${formatBytes(c.cost.bytes)}` : ""}` : "";
  };
  const stops = [chosen.on(draw), zoom.on(draw)];
  const slider = h("input", { type: "range", min: 0, max: 6, value: zoom.get(), "aria-label": "zoom, powers of two", oninput: () => zoom.set(Number(slider.value)) });
  const at = { get: () => Math.max(0, chosen.get()), set: chosen.set, on: chosen.on };
  const bar = profile.calls.length ? stepper({ count: profile.calls.length, at, label: "calls", describe: (i) => profile.names[profile.calls[i].name] }) : "";
  draw();
  requestAnimationFrame(draw); // once it has a width
  const rows = kernels.map((k, i) => [
    h("span", {}, h("span", { class: "swatch", style: `background:${color(i)}` }), k.name, tunedMark(profile, k.name)), k.calls, formatSeconds(k.seconds),
    `${((100 * k.seconds) / profile.seconds).toFixed(1)} %`, k.known ? billions(k.flops / k.seconds) : "", k.known ? billions(k.bytes / k.seconds) : "",
  ]);
  const element = h("div", {}, facts(profile), bar, said, h("label", {}, "zoom", slider), h("div", { class: "lanes" }, names, holder),
    profile.lanes.length > 1 && h("p", { class: "muted" }, "Dashed: the thread waits at a barrier."),
    scroller("kernels", table(["kernel", "calls", "total", "share", "GFLOP/s", "GB/s"], rows)));
  return { element, stop: () => { stops.forEach((s) => s()); bar.stop?.(); } };
}
