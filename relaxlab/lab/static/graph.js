// The dataflow view: a drawing of each graph function, facts on the chosen node, and a table.

import { field, formatBytes, formatCount, h, notes, plural, position, table } from "./core.js";
import { evaluate, formatExpr, symbolSliders } from "./symbols.js";
import { ofFunctions } from "./functions.js";
import { ORIGINS, graphPane } from "./graph_pane.js";

/** Facts on one node, with buttons to what it reads and what reads it. */
export function nodeFacts(graph, v, pane, env) {
  const n = graph.nodes[v];
  if (!n) return h("p", { class: "muted" }, "Choose a node.");
  const links = (list) => (list.length === 0 ? h("span", { class: "muted" }, "nothing")
    : h("span", {}, list.map((w, i) => [i > 0 ? ", " : "", h("button", { type: "button", class: "link mono", onclick: () => pane.focusOn(w) }, graph.nodes[w].name)])));
  const amount = (expr, format) => {
    if (expr === null) return h("span", { class: "muted" }, "not known");
    const value = evaluate(expr, env);
    return h("span", {}, value === null ? "" : format(value), typeof expr === "number" ? "" : h("span", { class: "muted mono" }, ` = ${formatExpr(expr)}`));
  };
  const rows = [
    ["type", h("span", { class: "mono" }, n.type || "nothing")], ["bytes", amount(n.bytes, formatBytes)],
    n.origin !== "parameter" && n.origin !== "return" && ["FLOPs", amount(n.flops, formatCount)],
    ["inputs", links(pane.before[v])], ["used by", links(pane.after[v])],
    n.folded.length > 0 && ["and", h("ul", { class: "plain" }, n.folded.map((t) => h("li", { class: "mono" }, t)))],
    n.kind && ["pattern", h("code", {}, n.kind)],
  ].filter(Boolean);
  return h("div", {}, h("h4", {}, h("span", { class: "mono" }, n.name), ` — ${(ORIGINS[n.origin] ?? ORIGINS.value)[2]} `, n.label !== n.name && h("span", { class: "mono" }, n.label)),
    h("dl", { class: "facts" }, rows.map(([t, d]) => [h("dt", {}, t), h("dd", {}, d)])),
    n.text && h("pre", { class: "mono wrap" }, n.text));
}

/** Which groups are open, at first. */
export function openedField(model, key, graph) {
  const opened = field(model, `open ${key}`, graph.groups.length > 0 && graph.items.length < 100 ? [0] : []);
  if (opened.get().some((k) => k >= graph.groups.length)) opened.set([]);
  return opened;
}

/** A value for each symbol to begin with. */
export const firstValues = (symbols) => Object.fromEntries(symbols.map((s) => [s, 16]));

function functionView(graph, model, key) {
  const chosen = position(model, `chosen ${key}`, graph.nodes.length);
  const opened = openedField(model, key, graph);
  const values = field(model, "values", {});
  const missing = graph.symbols.filter((s) => values.get()[s] === undefined);
  if (missing.length) values.set({ ...values.get(), ...firstValues(missing) });
  const pane = graphPane({ graph, chosen, opened, label: `dataflow of ${graph.name}` });
  const facts = h("div", { class: "panel", "aria-live": "polite" });
  const show = () => facts.replaceChildren(nodeFacts(graph, chosen.get(), pane, values.get()));
  show();
  const sliders = symbolSliders(graph.symbols, values);
  const stops = [chosen.on(show), values.on(show), pane.stop, sliders.stop];
  const used = [...new Set(graph.nodes.map((n) => n.origin))].filter((o) => ORIGINS[o]?.[0]);
  const legend = h("ul", { class: "legend" }, used.map((o) => h("li", {}, h("span", { class: "swatch", style: `background:${ORIGINS[o][1]}` }, ORIGINS[o][0]), ORIGINS[o][2])));
  const words = h("details", { ontoggle() { if (words.open && words.children.length === 1) words.append(asTable(graph, pane)); } },
    h("summary", {}, `As a table: ${plural(graph.nodes.length, "value")}`));
  const element = h("div", {}, notes(graph), graph.symbols.length > 0 && sliders, legend,
    h("div", { class: "wide-left" }, pane.element, facts), words);
  return { element, stop: () => stops.forEach((s) => s()) };
}

function asTable(graph, pane) {
  const names = (list) => list.map((w) => graph.nodes[w].name).join(", ");
  return h("div", { class: "scroll" }, table(["value", "operation", "type", "inputs", "used by"],
    graph.nodes.map((n, v) => [n.name, n.label, n.type, names(pane.before[v]), names(pane.after[v])])));
}

export default ofFunctions((graph, model) => functionView(graph, model, graph.name));
