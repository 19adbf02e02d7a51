// What stopped a compilation, above what can still be explored.

import { h } from "./core.js";
import { diagnosticList } from "./report.js";

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
