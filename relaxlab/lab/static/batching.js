// Batches of a program whose control flow depends on the input: instances as rows, batches as columns.

import { formatCount, h, mount, notes, plural, position, scroller, stepper, svg, table } from "./core.js";
import { letterOf } from "./policy_charts.js";

const CSS = `
.batching rect.node { stroke: var(--line); stroke-width: 1; cursor: pointer; } .batching rect.waits { opacity: .45; } .batching rect.now { stroke: var(--fg); stroke-width: 2; }
.batching rect.chosen { stroke: var(--accent); stroke-width: 3; } .batching rect.node:focus-visible { outline: 2px solid var(--accent); }
.batching text { font-size: 11px; fill: var(--muted); } .batching line { stroke: var(--accent); stroke-width: 1.5; pointer-events: none; } .batching line.flush { stroke: var(--line); stroke-dasharray: 4 3; }
.recorded { white-space: pre; font-family: var(--mono, monospace); font-size: 12px; line-height: 1.5; display: grid; grid-template-columns: max-content max-content; column-gap: 2em; } .recorded .remark { color: var(--muted); } .recorded .noted { justify-self: start; padding-right: 4px; } .recorded .now { outline: 2px solid var(--fg); } .batching-more { margin-top: 8px; } .batching-more summary { cursor: pointer; font-weight: 600; }
`;

const color = (t) => `fill:var(--group-${t % 10})`;
const span = (name, [low, high], first = 0) => (low === high ? `${name} ${low + first}` : `${name}s ${low + first} to ${high + first}`);
const chip = (t) => h("span", { class: "swatch", style: `background:var(--group-${t % 10})` }, letterOf(t));

/** All nodes that a node reads, directly or through others. */
export function ancestors(nodes, v) {
  const found = new Set();
  const work = [v];
  while (work.length) for (const p of nodes[work.pop()][3]) if (!found.has(p)) found.add(p), work.push(p);
  return found;
}

/** Why two nodes do not run in one batch, as a sentence. */
export function whyApart(state, a, b) {
  const { nodes, batches, types } = state;
  const name = (v) => `node ${v}`;
  if (nodes[a][2] === nodes[b][2]) return `They run together, in batch ${nodes[a][2] + 1}.`;
  const [ba, bb] = [batches[nodes[a][2]], batches[nodes[b][2]]];
  if (ba.type !== bb.type) return `They are different blocks: ${types[ba.type]} and ${types[bb.type]}.`;
  const [first, last] = nodes[a][2] < nodes[b][2] ? [a, b] : [b, a];
  if (ancestors(nodes, last).has(first)) return `Node ${last} reads what ${name(first)} makes, itself or through others.`;
  const [early, late] = [batches[nodes[first][2]], batches[nodes[last][2]]];
  if (early.round !== late.round) return `Between them is a flush: the instance of ${name(last)} waited for a tensor first.`;
  const waits = nodes[last][3].filter((p) => nodes[p][2] >= nodes[first][2]);
  if (waits.length) return `Node ${last} waits for ${name(waits[0])}, which runs in batch ${nodes[waits[0]][2] + 1}; ${name(first)} runs in batch ${nodes[first][2] + 1}.`;
  return "Together they would take more batches in all, or to find fewer would take longer than it saves: rl.explore.policy shows other policies.";
}

/** The rows of nodes in the columns of their batches: a place for each, and the height of each row. */
export function placed(state) {
  const stacks = new Map();
  const tall = new Array(state.drawn).fill(1);
  const level = state.nodes.map(([, instance, batch]) => {
    const key = `${instance}:${batch}`;
    const at = stacks.get(key) ?? 0;
    stacks.set(key, at + 1);
    tall[instance] = Math.max(tall[instance], at + 1);
    return at;
  });
  return { level, tall };
}

function drawing(state, at, chosen, choose) {
  const [left, top, w, hgt] = [56 + 8 * String(state.drawn - 1).length, 18, 18, 12];
  const { level, tall } = placed(state);
  const start = [];
  tall.reduce((y, n, i) => ((start[i] = y), y + n * hgt + 6), top);
  const place = state.nodes.map(([, i, b], v) => [left + w * b, start[i] + hgt * level[v]]);
  const drawn = state.nodes.map(([t, i, b], v) => svg("rect", { x: place[v][0], y: place[v][1], width: w - 3, height: hgt - 2, style: color(t), tabindex: 0, role: "button", "aria-label": `node ${v}, ${state.types[t]}, instance ${i}, batch ${b + 1}`, onclick: () => choose(v), onkeydown: (e) => e.key === "Enter" && choose(v) },
    svg("title", {}, `node ${v}: ${state.types[t]}, instance ${i}, batch ${b + 1}`)));
  const wide = left + w * state.batches.length + 12;
  const high = start.length ? start.at(-1) + tall.at(-1) * hgt + 12 : 40;
  const lines = svg("g", {});
  const flushes = state.batches.map((b, i) => i > 0 && b.round !== state.batches[i - 1].round && svg("line", { class: "flush", x1: left + w * i - 1.5, x2: left + w * i - 1.5, y1: 6, y2: high - 8 }));
  const element = svg("svg", { class: "batching", width: wide, height: high, viewBox: `0 0 ${wide} ${high}`, style: "max-width:none", role: "group", "aria-label": "instances by rows, batches by columns" },
    start.map((y, i) => svg("text", { x: left - 8, y: y + hgt - 3, "text-anchor": "end" }, `instance ${i}`)), flushes, drawn, lines);
  const show = () => {
    const picked = chosen();
    drawn.forEach((r, v) => r.setAttribute("class", ["node", state.nodes[v][2] === at.get() ? "now" : state.nodes[v][2] > at.get() ? "waits" : "", picked.includes(v) ? "chosen" : ""].join(" ").trim()));
    const middle = (v, side) => [place[v][0] + (side ? w - 3 : 0), place[v][1] + hgt / 2 - 1];
    lines.replaceChildren(...picked.flatMap((v) => state.nodes[v][3].map((p) => {
      const [[x1, y1], [x2, y2]] = [middle(p, true), middle(v, false)];
      return svg("line", { x1, y1, x2, y2 });
    })));
  };
  return { element, show };
}

function batchFacts(state, number) {
  const b = state.batches[number];
  const lies = (apart) => (apart ? "gathered row by row" : "in order, read where it lies");
  const rows = b.operands.map(([ty, bytes, now, before], k) => [`operand ${k}`, ty, formatCount(bytes), lies(now), lies(before)]);
  return h("div", { class: "stack" },
    h("p", {}, "Batch ", String(number + 1), ": ", chip(b.type), ` ${state.types[b.type]} × ${b.size}; flush ${b.round + 1}, ${span("phase", b.phase, 1)}, ${span("depth", b.depth)}.`),
    rows.length ? scroller("operands of the batch", table(["", "each row", "bytes", "as results lie, batch after batch", "as they would lie in the program's order"], rows)) : h("p", { class: "muted" }, "It reads no tensors but weights."));
}

function gatheredFacts(state) {
  const sum = (column) => state.batches.reduce((n, b) => n + b.operands.reduce((m, o) => m + (o[column] ? o[1] : 0), 0), 0);
  const all = state.batches.reduce((n, b) => n + b.operands.reduce((m, o) => m + o[1], 0), 0);
  return h("p", { class: "muted" }, `${plural(state.instances, "instance")}, ${plural(state.count, "node")}, ${plural(state.batches.length, "batch", "batches")}. Of ${formatCount(all)} bytes of operands ${formatCount(sum(2))} are gathered; with results in the order of the program ${formatCount(sum(3))} would be. Weights are read where they are.`);
}

/** The batches of each policy and the bound, as rows with the ratio to the bound. */
export function policyRows(state) {
  const bound = state.policies.at(-1)[1];
  return [["as they ran", state.batches.length], ...state.policies].map(([name, count]) => [name, count, bound ? (count / bound).toFixed(2) : ""]);
}

function policies(state) {
  return state.policies.length > 0 && h("details", { class: "panel batching-more", open: true }, h("summary", {}, "Batches by policy"),
    scroller("batches by policy", table(["policy", "batches", "to the bound"], policyRows(state))));
}

/** The program that is recorded, with what is decided for each line; those that note the blocks of the shown batch are marked. */
function programText(state) {
  const rows = state.program.map(([code, remark, block]) => ({ block, parts: [h("span", block < 0 ? {} : { class: "noted", style: `background:var(--group-${block % 10})` }, code || " "), h("span", { class: "remark" }, remark)] }));
  const element = h("details", { class: "panel batching-more", open: true }, h("summary", {}, "The program that is recorded"),
    scroller("the program that is recorded", h("div", { class: "recorded" }, rows.flatMap((r) => r.parts))));
  const mark = (block) => rows.forEach((r) => r.parts[0].classList.toggle("now", r.block >= 0 && r.block === block));
  return { element, mark };
}

export default {
  render({ model, el }) {
    const { root, cleanup } = mount(el);
    const state = model.get("state");
    const at = position(model, "batching.batch", Math.max(1, state.batches.length));
    let chosen = [];
    const why = h("p", { "aria-live": "polite" }, "Choose two nodes to see why they are not in one batch.");
    const facts = h("div", { class: "panel" });
    const draw = drawing(state, at, () => chosen, (v) => {
      chosen = chosen.length === 1 && chosen[0] !== v ? [chosen[0], v] : [v];
      why.textContent = chosen.length === 2 ? `Nodes ${chosen[0]} and ${chosen[1]}: ${whyApart(state, ...chosen)}` : `Node ${v}: ${state.types[state.nodes[v][0]]} of instance ${state.nodes[v][1]}, batch ${state.nodes[v][2] + 1}. Choose another one.`;
      show();
    });
    const text = programText(state);
    const show = () => {
      draw.show();
      text.mark(state.batches[at.get()]?.type ?? -1);
      facts.replaceChildren(...(state.batches.length ? [batchFacts(state, at.get())] : []));
    };
    const bar = stepper({ count: Math.max(1, state.batches.length), at, label: "batches", describe: (i) => (state.batches[i] ? `batch ${i + 1}: ${state.types[state.batches[i].type]} × ${state.batches[i].size}` : "nothing was noted") });
    const stop = at.on(show);
    show();
    const legend = h("ul", { class: "legend" }, state.types.map((name, t) => h("li", {}, chip(t), name)));
    root.append(h("style", {}, CSS), ...notes(state), gatheredFacts(state), legend, bar, ...(state.nodes.length ? [scroller("instances and batches", draw.element), why] : []), facts, ...[policies(state)].filter(Boolean), text.element);
    return () => {
      stop();
      bar.stop();
      cleanup();
    };
  },
};
