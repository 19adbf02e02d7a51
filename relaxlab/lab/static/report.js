// Texts, tables, scripts and diagnostics, one under the other.

import { h, mount, notes, table } from "./core.js";
import { plainRows, scriptPane } from "./script.js";

/** Errors of a program, each with its source and what is wrong marked in it. */
export function diagnosticList(found) {
  return h("div", { role: "list", "aria-label": "errors" }, found.map((d) => h("div", { class: "panel", role: "listitem", style: "margin-bottom:8px" },
    h("p", {}, h("strong", { style: "color:var(--del)" }, `error[${d.code}]`), ": ", d.message),
    d.places.map((place) => [
      place.label && h("p", { class: "muted" }, place.label),
      h("p", { class: "muted mono" }, place.at),
      h("div", { class: "script scroll", tabindex: 0, role: "group", "aria-label": `source at ${place.at}` }, place.lines.map(([no, text]) => h("div", { class: "ln" },
        h("span", { class: "no" }, String(no)),
        h("span", { class: "mark" }, no === place.line ? "▸" : ""),
        no === place.line ? h("span", {}, text.slice(0, place.from),
          h("mark", { style: "background:var(--del-bg);color:var(--del);text-decoration:underline wavy" }, text.slice(place.from, place.to)),
          text.slice(place.to)) : h("span", {}, text)))),
    ]),
    d.notes.map((text) => h("p", {}, h("strong", {}, "note: "), text)),
    d.help && h("p", {}, h("strong", {}, "help: "), d.help))));
}

function section(part, lines) {
  if (part.diagnostics) return diagnosticList(part.diagnostics);
  if (part.rows) return h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "table" }, table(part.heads, part.rows));
  if (part.lines) return scriptPane({ rows: plainRows(part.lines.map((i) => lines[i])) }).element;
  return h("pre", { class: "mono", style: "margin:0;white-space:pre-wrap;overflow-wrap:anywhere" }, part.text);
}

export default {
  render({ model, el }) {
    const { root, cleanup } = mount(el);
    const state = model.get("state");
    root.append(h("h3", {}, state.title), ...notes(state),
      ...state.sections.map((s) => h("div", { style: "margin-top:8px" }, section(s, state.table))));
    return cleanup;
  },
};
