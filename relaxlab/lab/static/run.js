// A run: instructions one by one with what registers hold, the kernels on a time axis, the roofline.

import { field, formatBytes, formatCount, formatSeconds, h, mount, notes, position, reveal, scroller, stepper, svg, table, tabs } from "./core.js";
import { byKernel, decades, registersAt, roof, stackOf, standing } from "./timeline.js";
import { VALUE_CSS, shapeText, valueDetails } from "./value.js";

const CSS = `
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
.time rect { stroke: var(--bg); stroke-width: .5; } .time rect.chosen { stroke: var(--fg); stroke-width: 2; }
.roof line, .roof path { stroke: var(--line); fill: none; } .roof path.top { stroke: var(--fg); stroke-width: 1.5; } .roof path.cache { stroke: var(--muted); stroke-dasharray: 5 4; }
.roof circle { fill: var(--accent); fill-opacity: .75; stroke: var(--bg); }
.roof text.muted { fill: var(--muted); }
.swatch { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 5px; }
`;

const MOST_REGISTERS = 150;
/** 2.1e9 -> "2.10 GFLOP/s" */
const flopsText = (n) => `${formatCount(n)}${n < 10000 ? " " : ""}FLOP/s`;
const color = (i) => `color-mix(in srgb, var(--group-${i % 10}) 78%, var(--fg))`;

function tensorText(v) {
  if (v.fresh) return "nothing written yet";
  if (v.min === undefined) return v.nan ? `${v.nan} × NaN` : "empty";
  return `${v.min} … ${v.max}, mean ${v.mean}${v.nan ? `, ${v.nan} × NaN` : ""}${v.infinite ? `, ${v.infinite} × inf` : ""}`;
}

function stepsPanel(state, model) {
  const { run, error } = state;
  if (!run.steps.length) return { element: h("p", { class: "muted" }, "The function has no instructions."), stop() {} };
  const at = position(model, "run.step", run.steps.length);
  const chosen = field(model, "run.register", "");
  const functionOf = (activation) => run.functions[run.activations[activation].function];
  const textOf = (i) => functionOf(run.steps[i].frame).rows[run.steps[i].row][1];
  const listing = h("div", { class: "listing", role: "region", tabindex: 0, "aria-label": "instructions" });
  const where = h("p", { class: "muted mono" });
  const said = h("p", { class: "error", role: "alert", hidden: true });
  const registers = scroller("registers");
  registers.classList.add("registers");
  const memory = h("div");
  const detail = h("div", { class: "panel", "aria-live": "polite" });
  let shown = -1;
  let rows = [];
  const list = (activation) => {
    const fn = functionOf(activation);
    if (shown === run.activations[activation].function) return;
    shown = run.activations[activation].function;
    rows = fn.rows.map(([depth, text], i) => h("div", {}, h("span", { class: "no" }, String(i + 1)),
      h("button", { type: "button", title: "go to the next time this runs", onclick: () => {
        for (let k = 1; k <= run.steps.length; k += 1) {
          const next = (at.get() + k) % run.steps.length;
          if (run.steps[next].row === i && run.activations[run.steps[next].frame].function === shown) return void at.set(next);
        }
      } }, "  ".repeat(depth) + text)));
    listing.replaceChildren(...rows);
  };
  const bars = (now) => {
    const blocks = run.storages.map(() => []);
    now.registers.forEach((held, activation) => held.forEach(([value, place], r) => {
      const p = run.places[place];
      if (p.storage === undefined || run.values[value].kind === "storage") return;
      blocks[p.storage].push({ ...p, name: functionOf(activation).registers[r], gone: run.values[value].kind === "gone" });
    }));
    memory.replaceChildren(...(run.storages.length ? [h("h4", {}, "Storages")] : []), ...run.storages.map((s, i) => {
      const live = blocks[i].filter((b) => !b.gone);
      return h("div", {}, h("span", { class: "mono muted" }, `${s.name}, ${formatBytes(s.bytes)}`),
        h("div", { class: "memory-bar", role: "img", "aria-label": `${s.name}: ${live.map((b) => `${b.name} at byte ${b.offset}`).join(", ") || "empty"}` },
          live.map((b, k) => h("span", { class: k % 2 ? "odd" : "", title: `${b.name}: bytes ${b.offset} to ${b.offset + b.bytes}`, style: `left:${(100 * b.offset) / Math.max(1, s.bytes)}%;width:${Math.max(0.5, (100 * b.bytes) / Math.max(1, s.bytes))}%` }, b.name))));
    }));
  };
  const draw = () => {
    const i = at.get();
    const step = run.steps[i];
    list(step.frame);
    rows.forEach((r, k) => {
      r.classList.toggle("now", k === step.row && !step.failed);
      r.classList.toggle("bad", k === step.row && Boolean(step.failed));
    });
    reveal(listing, rows[step.row]);
    const stack = stackOf(run, step.frame).map((a) => functionOf(a).name);
    const now = registersAt(run, i);
    const numbers = [...now.symbols[step.frame]].map(([name, n]) => `${name} = ${n}`);
    where.textContent = [stack.join(" › "), ...numbers].join(" · ");
    said.hidden = !step.failed;
    said.textContent = step.failed ? error : "";
    const fn = functionOf(step.frame);
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
    registers.replaceChildren(h("table", {}, h("thead", {}, h("tr", {}, ["", "register", "is", "holds"].map((t) => h("th", { scope: "col" }, t)))), h("tbody", {}, lines)),
      held.length > MOST_REGISTERS ? h("p", { class: "muted" }, `${held.length - MOST_REGISTERS} registers that changed longer ago are not shown`) : "");
    bars(now);
    const first = step.changes.find(([f]) => f === step.frame);
    const [activation, register] = (chosen.get() || (first ? `${first[0]}.${first[1]}` : "")).split(".").map(Number);
    const entry = Number.isInteger(activation) && now.registers[activation]?.get(register);
    detail.hidden = !entry;
    if (entry) {
      const owner = functionOf(activation);
      const place = run.places[entry[1]];
      const lies = place.storage === undefined ? [] : [["lies in", `${run.storages[place.storage].name}, bytes ${place.offset} to ${place.offset + place.bytes}`]];
      detail.replaceChildren(...valueDetails(owner.registers[register], owner.types[register], run.values[entry[0]], lies));
    }
  };
  const bar = stepper({ count: run.steps.length, at, describe: textOf, label: "instructions" });
  const stops = [at.on(draw), chosen.on(draw), bar.stop];
  draw();
  const element = h("div", {}, bar, where, said, h("div", { class: "run-split" }, h("div", {}, listing, memory), h("div", {}, registers, detail)));
  return { element, stop: () => stops.forEach((s) => s()) };
}

function timelinePanel(profile, model) {
  const chosen = position(model, "run.call", profile.calls.length, -1);
  const zoom = field(model, "run.zoom", 0);
  const kernels = byKernel(profile);
  const rank = new Map(kernels.map((k, i) => [k.index, i]));
  const holder = scroller("calls in time");
  const said = h("p", { class: "mono", "aria-live": "polite" });
  const total = profile.seconds;
  const draw = () => {
    const width = 930 * 2 ** zoom.get();
    const x = (s) => (width * s) / total;
    const marks = Array.from({ length: 6 * 2 ** zoom.get() }, (_, i) => (i * total) / (6 * 2 ** zoom.get()));
    holder.replaceChildren(svg("svg", { class: "time", viewBox: `0 0 ${width} 66`, width, style: "max-width:none", role: "img", "aria-label": `${profile.calls.length} calls in ${formatSeconds(total)}` },
      marks.map((s) => [svg("line", { x1: x(s), x2: x(s), y1: 14, y2: 62, stroke: "var(--line)" }), svg("text", { x: x(s) + 2, y: 11 }, formatSeconds(s))]),
      profile.calls.map((c, i) => {
        const name = profile.names[c.name];
        const wide = Math.max(0.7, x(c.seconds));
        return [
          svg("rect", { class: chosen.get() === i ? "chosen" : "", x: x(c.start), y: 20, width: wide, height: 38, style: `fill:${color(rank.get(c.name))}`, onclick: () => chosen.set(i) },
            svg("title", {}, `${name}: ${formatSeconds(c.seconds)}`)),
          wide > 7 * name.length + 6 ? svg("text", { x: x(c.start) + 4, y: 43, "pointer-events": "none" }, name) : null,
        ];
      })));
    const c = profile.calls[chosen.get()];
    said.textContent = c ? `call ${chosen.get() + 1} of ${profile.calls.length}: ${profile.names[c.name]} in ${c.in}, after ${formatSeconds(c.start)}, for ${formatSeconds(c.seconds)}${c.cost ? `: ${formatCount(c.cost.flops)} FLOPs, ${formatBytes(c.cost.bytes)}` : ""}` : "";
  };
  const stops = [chosen.on(draw), zoom.on(draw)];
  const slider = h("input", { type: "range", min: 0, max: 6, value: zoom.get(), "aria-label": "zoom, powers of two", oninput: () => zoom.set(Number(slider.value)) });
  const inside = profile.calls.reduce((s, c) => s + c.seconds, 0);
  const bar = profile.calls.length ? stepper({ count: profile.calls.length, at: { get: () => Math.max(0, chosen.get()), set: chosen.set, on: chosen.on }, label: "calls", describe: (i) => profile.names[profile.calls[i].name] }) : "";
  draw();
  const rows = kernels.map((k, i) => [
    h("span", {}, h("span", { class: "swatch", style: `background:${color(i)}` }), k.name), k.calls, formatSeconds(k.seconds),
    `${((100 * k.seconds) / total).toFixed(1)} %`, k.known ? flopsText(k.flops / k.seconds) : "", k.known ? `${formatBytes(k.bytes / k.seconds)}/s` : "",
  ]);
  const sorted = [...profile.runs].sort((a, b) => a - b);
  const element = h("div", {},
    h("p", {}, `The fastest of ${profile.runs.length} runs took ${formatSeconds(total)} (median ${formatSeconds(sorted[Math.floor(sorted.length / 2)])}) with ${profile.threads} thread${profile.threads === 1 ? "" : "s"}; `,
      `${formatSeconds(inside)} of it in ${profile.calls.length} calls, ${formatSeconds(Math.max(0, total - inside))} around them.`),
    bar, said, h("label", {}, "zoom", slider), holder, scroller("kernels", table(["kernel", "calls", "total", "share", "FLOP/s", "bytes/s"], rows)));
  return { element, stop: () => { stops.forEach((s) => s()); bar.stop?.(); } };
}

function roofPanel(profile) {
  const { limits } = profile;
  const kernels = byKernel(profile).map((k) => ({ ...k, at: standing(k, limits) })).filter((k) => k.at);
  const drawn = kernels.filter((k) => k.flops > 0 && k.at.intensity);
  const [width, high] = [900, 360];
  const ridge = limits.flops / limits.memory;
  const [x0, x1] = decades([...drawn.map((k) => k.at.intensity), ridge / 10, ridge * 10]);
  const [y0, y1] = decades([...drawn.map((k) => k.at.rate), limits.flops, roof(10 ** x0, limits)]);
  const x = (v) => 62 + ((Math.log10(v) - x0) / (x1 - x0)) * (width - 76);
  const y = (v) => high - 34 - ((Math.log10(v) - y0) / (y1 - y0)) * (high - 50);
  const power = (e) => formatCount(10 ** e);
  const low = 10 ** y0;
  const line = (bandwidth) => {
    const from = Math.max(10 ** x0, low / bandwidth);
    const to = Math.min(10 ** x1, limits.flops / bandwidth);
    return `M${x(from)},${y(Math.max(low, roof(from, limits, bandwidth)))} L${x(to)},${y(roof(to, limits, bandwidth))} L${x(10 ** x1)},${y(roof(10 ** x1, limits, bandwidth))}`;
  };
  const top = Math.max(...drawn.map((k) => k.seconds));
  const grid = [];
  for (let e = x0; e <= x1; e += 1) grid.push(svg("line", { x1: x(10 ** e), x2: x(10 ** e), y1: y(10 ** y1), y2: y(low) }), svg("text", { x: x(10 ** e), y: high - 18, "text-anchor": "middle" }, power(e)));
  for (let e = y0; e <= y1; e += 1) grid.push(svg("line", { x1: x(10 ** x0), x2: x(10 ** x1), y1: y(10 ** e), y2: y(10 ** e) }), svg("text", { x: 58, y: y(10 ** e) + 4, "text-anchor": "end" }, power(e)));
  const labels = []; // of points that lie close together in one line
  drawn.forEach((k, i) => {
    const [at, left] = [y(k.at.rate) + 4, x(k.at.intensity) + 6 + 8 * Math.sqrt(k.seconds / top)];
    const near = labels.find(([a, l]) => Math.abs(a - at) < 11 && Math.abs(l - left) < 16);
    if (near) {
      near[1] = Math.max(near[1], left);
      near[2] += `, ${i + 1} ${k.name}`;
    } else labels.push([at, left, `${i + 1} ${k.name}`]);
  });
  const figure = svg("svg", { class: "roof", viewBox: `0 0 ${width} ${high}`, width, role: "img", "aria-label": `roofline: ${drawn.map((k) => `${k.name} at ${flopsText(k.at.rate)}`).join(", ")}` },
    grid, svg("path", { class: "cache", d: line(limits.cache) }), svg("path", { class: "top", d: line(limits.memory) }),
    svg("text", { x: 62, y: 10 }, "FLOP/s"), svg("text", { x: width - 14, y: high - 4, "text-anchor": "end" }, "FLOPs per byte of the kernel's arguments"),
    drawn.map((k) => [
      svg("circle", { cx: x(k.at.intensity), cy: y(k.at.rate), r: 4 + 8 * Math.sqrt(k.seconds / top) }, svg("title", {}, `${k.name}: ${flopsText(k.at.rate)}`)),
    ]), labels.map(([at, left, text]) => {
      const right = left > 0.65 * width; // there is more room on the other side
      return svg("text", { x: right ? left - 26 : left, y: at, "text-anchor": right ? "end" : "start" }, text);
    }));
  const rows = kernels.map((k) => [
    drawn.includes(k) ? String(drawn.indexOf(k) + 1) : "", k.name, k.at.intensity === null ? "" : formatCount(k.at.intensity), `${flopsText(k.at.rate)}`, `${formatBytes(k.at.bandwidth)}/s`, k.at.bound, `${formatCount(Number((100 * k.at.part).toPrecision(2)))} %`,
  ]);
  return h("div", {},
    h("p", {}, `Measured on this machine with ${profile.threads} thread${profile.threads === 1 ? "" : "s"}: ${flopsText(limits.flops)} of fused multiply-adds, ${formatBytes(limits.memory)}/s from main memory (line), ${formatBytes(limits.cache)}/s from caches (dashed).`),
    h("p", { class: "muted" }, "The size of a point is the kernel's part of the time. Bytes are those of distinct elements of its arguments: what lies in a cache comes faster than main memory allows, and may stand above the line. Kernels whose bytes are at most ", formatBytes(limits.cache_bytes), " a call are held against the caches."),
    figure, scroller("kernels under the roof", table(["", "kernel", "FLOPs per byte", "FLOP/s", "bytes/s", "bound by", "share of its roof"], rows)));
}

function resultPanel(run) {
  return h("div", {}, run.result.map((v, i) => h("div", { class: "panel" }, valueDetails(run.result.length > 1 ? `field ${i}` : "result", "", v, []))));
}

export default {
  render({ model, el }) {
    const { root, cleanup } = mount(el);
    const state = model.get("state");
    const { run, profile, error } = state;
    const stops = [];
    const kept = ({ element, stop }) => {
      stops.push(stop);
      return element;
    };
    const panels = {
      "Step through": () => kept(stepsPanel(state, model)),
      ...(profile ? { Timeline: () => kept(timelinePanel(profile, model)), Roofline: () => roofPanel(profile) } : {}),
      ...(run.result ? { Result: () => resultPanel(run) } : {}),
    };
    const titles = Object.keys(panels);
    const strip = tabs({ titles, at: position(model, "run.tab", titles.length), label: "what to look at", panel: (i) => panels[titles[i]]() });
    root.append(h("style", {}, CSS + VALUE_CSS), ...notes(state), h("h3", {}, state.title),
      error ? h("p", { class: "error", role: "alert" }, `It fails at instruction ${run.steps.length}: ${error}`) : "", strip);
    return () => {
      strip.stop();
      stops.forEach((s) => s());
      cleanup();
    };
  },
};
