// Fusion, decision by decision: the graph with its kinds, the groups so far, and their kernels.

import { field, formatBytes, h, notes, plural, position, stepper, tabs } from "./core.js";
import { evaluate, symbolSliders } from "./symbols.js";
import { ofFunctions } from "./functions.js";
import { firstValues, nodeFacts, openedField } from "./graph.js";
import { graphPane } from "./graph_pane.js";
import { plainRows, scriptPane } from "./script_pane.js";

const SHORT = { elementwise: "ew", broadcast: "bc", injective: "inj", reduction: "red", out_ewise_fusible: "mac", opaque: "opq" };
const letter = (k) => String.fromCharCode(65 + (k % 26)) + (k >= 26 ? Math.floor(k / 26) : "");

/**
 * The groups after the first `count` decisions: for each node its group's number, numbered in the
 * order in which groups were first made (a group that grows keeps the number of its oldest part).
 * @returns {{of: Map<number, number>, members: Map<number, number[]>}}
 */
export function groupsAfter(steps, count) {
  const of = new Map();
  const members = new Map();
  let next = 0;
  for (const step of steps.slice(0, count)) {
    if (!step.applied || step.members.length < 2) continue;
    const old = step.members.map((m) => of.get(m)).filter((g) => g !== undefined);
    const g = old.length ? Math.min(...old) : next;
    if (!old.length) next += 1;
    for (const o of old) members.delete(o);
    members.set(g, step.members);
    for (const m of step.members) of.set(m, g);
  }
  return { of, members };
}

/** The values that groups need not store: all but the last of each. */
export const unstored = (members) => [...members.values()].flatMap((m) => m.slice(0, -1));

/** Bytes of some nodes' values at values of the symbols; null where one is not known. */
export function bytesOf(graph, nodes, env) {
  let total = 0;
  for (const v of nodes) {
    const bytes = evaluate(graph.nodes[v].bytes, env);
    if (bytes === null) return null;
    total += bytes;
  }
  return total;
}

/** The kernel of a group: its calls as far as they are together, and what all decisions make of it. */
function kernelPanel(graph, state, tab) {
  const element = h("div", {});
  let [strip, panes, shown] = [null, [], ""];
  const stop = () => {
    strip?.stop();
    panes.forEach((p) => p.stop());
    panes = [];
  };
  const show = (group, members) => {
    const key = group ? `${graph.made.indexOf(group)}:${members.join()}` : "";
    if (key === shown && key) return;
    shown = key;
    stop();
    if (!group) {
      element.replaceChildren(...(graph.made.length ? [h("p", { class: "muted" }, "Choose a call of a group to see its kernel before and after.")] : []));
      return;
    }
    const names = [...new Set(members.map((m) => graph.nodes[m].label))].filter((name) => name in graph.parts);
    const parts = names.flatMap((name) => [...graph.parts[name].map((i) => state.lines[i]), ""]).slice(0, -1);
    const script = (ids) => (ids.length ? ids.map((i) => state.lines[i]) : ["# not made"]);
    const pages = [[`${plural(members.length, "call")} at this step`, parts], ["Final group", script(group.grouped)], ["Final loops", script(group.merged)]];
    strip = tabs({ titles: pages.map(([title]) => title), at: tab, label: "kernel", panel(i) {
      const pane = scriptPane({ rows: plainRows(pages[i][1]), height: "26em", label: pages[i][0] });
      panes.push(pane);
      return pane.element;
    } });
    const so = members.length < group.members.length ? `, of which ${members.length} of ${group.members.length} calls are together` : "";
    element.replaceChildren(h("h4", {}, "Kernel ", h("span", { class: "mono" }, group.name ?? "?"), so), strip);
  };
  return { element, show, stop };
}

/** What a decision says: what was merged or not, and why; `go` leads to a node. */
function decisionText(graph, s, go, saved) {
  if (graph.steps.length === 0) return [h("p", {}, "There are no decisions here.")];
  if (!s) return [h("p", {}, "Before the first decision: every call is a kernel of its own. Step on with ▶ or the arrow keys."), saved];
  const button = (v) => v !== null && v !== undefined && h("button", { type: "button", class: "link mono", onclick: () => go(v) }, graph.nodes[v].name);
  const what = s.copies.length ? [`Copy for ${plural(s.copies.length, "reader")}: `, button(s.copies[0] ?? s.source)]
    : [s.members.length < 2 ? "Keep apart: " : s.applied ? "Compute " : "Not: compute ", button(s.source), s.target !== null && [" in the kernel of ", button(s.target)]];
  return [h("p", {}, h("strong", { class: s.applied ? "made" : "refused" }, s.applied ? "+ made " : "− refused "), what),
    h("p", {}, s.reason, "."), h("p", { class: "muted mono" }, s.subject), saved];
}

/** All decisions as a list that is made when it is opened. */
function decisionList(graph, at) {
  const list = h("ol", { class: "list decisions" });
  const all = h("details", { ontoggle() {
    if (all.open && !list.children.length) {
      list.append(...graph.steps.map((s, i) => h("li", {},
        h("button", { type: "button", class: "link", onclick: () => at.set(i + 1) }, `${s.applied ? "+" : "−"} ${s.subject}`), h("span", { class: "muted" }, s.reason))));
    }
  } }, h("summary", {}, `${graph.steps.length === 1 ? "The" : "All"} ${plural(graph.steps.length, "decision")}`), h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "all decisions" }, list));
  return graph.steps.length > 0 && all;
}

/** How a node is drawn: in the colour of its group, with its kind and the group's letter. */
function painted(graph, v, groups, step) {
  const g = groups.of.get(v);
  const tag = [SHORT[graph.nodes[v].kind], g === undefined ? "" : letter(g)].filter(Boolean).join(" · ");
  const part = step && (v === step.source || v === step.target);
  return { fill: g === undefined ? "var(--bg)" : `var(--group-${g % 10})`, tag, strong: Boolean(part) };
}

/** The pattern kinds that occur, in words. */
function kindLegend(graph, kinds) {
  const used = [...new Set(graph.nodes.map((n) => n.kind).filter(Boolean))];
  return h("ul", { class: "legend" }, used.map((k) => h("li", {}, h("span", { class: "swatch" }, SHORT[k] ?? k), h("span", {}, h("code", {}, k), `: ${kinds[k] ?? ""}`))));
}

function functionView(graph, state, model) {
  const key = graph.name;
  const at = position(model, `step ${key}`, graph.steps.length + 1);
  const chosen = position(model, `chosen ${key}`, graph.nodes.length);
  const opened = openedField(model, key, graph);
  const values = field(model, "values", {});
  const missing = graph.symbols.filter((s) => values.get()[s] === undefined);
  if (missing.length) values.set({ ...values.get(), ...firstValues(missing) });
  const count = graph.steps.length + 1;
  let now = groupsAfter(graph.steps, at.get());
  const current = () => (at.get() > 0 ? graph.steps[at.get() - 1] : null);

  const pane = graphPane({ graph, chosen, opened, paint: (v) => painted(graph, v, now, current()), height: "30em", label: `calls of ${key}` });
  const says = (i) => {
    if (i === 0) return "before the first decision";
    const s = graph.steps[i - 1];
    return `${s.applied ? "made" : "refused"}: ${s.subject}: ${s.reason}`;
  };
  const bar = stepper({ count, at, describe: says, label: "decisions", start: 0 });
  const decision = h("div", { class: "panel" });
  const facts = h("div", { class: "panel" });
  const saved = h("p", {});
  const showSaved = () => {
    const gone = unstored(now.members);
    const bytes = bytesOf(graph, gone, values.get());
    saved.replaceChildren(h("strong", {}, formatBytes(bytes)), ` of intermediates need not be stored: ${plural(gone.length, "value")} in ${plural(now.members.size, "group")}.`);
  };
  const showDecision = () => decision.replaceChildren(...decisionText(graph, current(), pane.focusOn, saved));
  const showFacts = () => {
    const v = chosen.get();
    const kind = graph.nodes[v]?.kind;
    const g = now.of.get(v);
    facts.replaceChildren(nodeFacts(graph, v, pane, values.get()),
      kind ? h("p", { class: "muted" }, `${SHORT[kind] ?? kind}: ${state.kinds[kind] ?? ""}`) : "",
      g === undefined ? "" : h("p", {}, h("span", { class: "swatch", style: `background:var(--group-${g % 10})` }, letter(g)), ` group of ${now.members.get(g).length} calls`));
  };
  const kernel = kernelPanel(graph, state, field(model, "kernel tab", 0));
  const showKernels = () => {
    const s = current();
    const v = s?.members.length > 1 && s.applied ? s.source : chosen.get();
    kernel.show(graph.made.find((m) => m.members.includes(v)) ?? null, now.members.get(now.of.get(v)) ?? [v]);
  };
  const show = () => {
    now = groupsAfter(graph.steps, at.get());
    pane.refresh();
    const s = current();
    if (s && s.source !== null) {
      pane.reveal(s.source);
      chosen.set(s.source);
    }
    showSaved(); showDecision(); showFacts(); showKernels();
  };
  const sliders = symbolSliders(graph.symbols, values);
  const stops = [sliders.stop, at.on(show), chosen.on(() => { showFacts(); showKernels(); }), values.on(() => { showSaved(); showFacts(); }), pane.stop, bar.stop];
  show();
  const element = h("div", {}, notes(graph), graph.symbols.length > 0 && sliders, kindLegend(graph, state.kinds), bar,
    h("div", { class: "decided" }, decision, pane.element, facts), kernel.element,
    decisionList(graph, at));
  return { element, stop: () => { stops.forEach((s) => s()); kernel.stop(); } };
}

export default ofFunctions((graph, model, state) => functionView(graph, state, model));
