// What stopped a compilation, above what can still be explored.

import { h } from "./core.js";
import { diagnosticList } from "./report.js";

/** Nothing where nothing failed. */
export function failurePanel(failure) {
  if (!failure) return null;
  return h("div", { role: "alert" },
    h("p", {}, h("strong", {}, failure.pass ? `The pass ${failure.pass} failed.` : "The program cannot be read."),
      failure.pass ? " What is below shows the program up to there." : ""),
    failure.message && h("div", { class: "error" }, failure.message),
    diagnosticList(failure.diagnostics));
}
