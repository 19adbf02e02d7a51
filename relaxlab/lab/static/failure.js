// What stopped a compilation, above what can still be explored.

import { h } from "./core.js";

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

/** What was raised: a message, or diagnostics at their places. */
export const failureFacts = (failure) => h("div", { role: "alert" },
  failure.message && h("div", { class: "error" }, failure.message), diagnosticList(failure.diagnostics));

/** Nothing where nothing failed. */
export function failurePanel(failure) {
  if (!failure) return null;
  return h("div", {},
    h("p", {}, h("strong", {}, failure.pass ? `The pass ${failure.pass} failed.` : "The program cannot be read."),
      failure.pass ? " What is below shows the program up to there." : ""),
    failureFacts(failure));
}
