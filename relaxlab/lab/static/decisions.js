// The decisions of a kernel's rule as controls. Recorded, those whose loops are in the view can be
// chosen, one at a time; live, `put` asks the kernel for any.

import { formatSeconds, h, scroller, table } from "./core.js";

export const DECISIONS_CSS = `
.choices { margin-bottom: 6px; } .choices summary { cursor: pointer; font-weight: 600; }
.choices .scroll { max-height: 16em; } .choices table { width: 100%; } .choices th { background: var(--panel); }
.choices td { vertical-align: middle; } .choices select { width: 13em; }
.choices td, .choices th { width: 1%; white-space: nowrap; }
.choices td:last-child, .choices th:last-child { width: auto; white-space: normal; }
.choices td:first-child { font-family: var(--mono); } .measured { margin-top: 10px; }
.assembly { margin: 0; padding: 6px 8px; font: 12px/18px var(--mono); tab-size: 4; }
`;

const PREFIX = "decision ";

/** What can be said of a choice beside its value. */
const spelled = (row, text, made, live) =>
  `${text}${text === row.default ? " (default)" : ""}${!live && text !== row.value && typeof made === "string" ? " – not here" : ""}`;

function choice(row, form, put) {
  const select = h("select", { "aria-label": row.key, onchange() {
    if (put) put(PREFIX + row.key, select.value);
    else form.set(row.choices.find(([text, made]) => text === select.value && typeof made === "number")?.[1] ?? -1);
  } }, row.choices.map(([text, made]) => h("option", {
    value: text, selected: text === row.value, title: typeof made === "string" && !put ? made : null,
    disabled: !put && text !== row.value && typeof made === "string",
  }, spelled(row, text, made, put))));
  return select;
}

function times(measured) {
  if (!measured) return "";
  const [usual] = measured.times;
  const rows = measured.times.map(([name, seconds, spread, count]) =>
    [name, formatSeconds(seconds), formatSeconds(spread), `${(seconds / usual[1]).toFixed(2)} ×`, String(count)]);
  return h("div", { class: "measured", "aria-live": "polite" },
    measured.error ? h("p", { class: "error" }, measured.error) : "",
    rows.length ? table(["measured, in turns", "median", "middle half within", "against defaults", "samples"], rows, measured.sizes || null) : "");
}

/** The panel; `form` is the number of the recorded form that is shown, -1 for the one taken. */
export function decisionsPanel(decisions, form, put) {
  const selects = decisions.rows.map((row) => choice(row, form, put));
  const said = h("p", { class: "muted", role: "status" });
  const missing = !put && decisions.rows.some((row) => row.choices.some(([text, made]) => text !== row.value && typeof made === "string"));
  const show = () => {
    const shown = decisions.forms[form.get()];
    decisions.rows.forEach((row, i) => {
      const other = shown && row.choices.find(([, made]) => made === form.get());
      selects[i].value = other ? other[0] : row.value;
    });
    said.textContent = put ? "A choice schedules the kernel again; what this machine can run is measured beside the defaults."
      : shown ? `The loops with ${shown.title}, against those of the schedule below, whose steps lead back.`
        : `Another choice shows its loops, one at a time.${missing ? " Those that are not here were not recorded: a live view makes them." : ""}`;
  };
  const stop = form.on(show);
  show();
  const rows = decisions.rows.map((row, i) => [row.key, selects[i], row.meaning]);
  const element = h("details", { class: "panel choices", open: true }, h("summary", {}, "Decisions of the rule"),
    said, scroller("decisions of the rule", table(["decision", "value", "what it decides"], rows)), times(decisions.measured));
  return { element, stop };
}

/** The code of the kernel as it is chosen. */
export function codePanel(measured) {
  const code = h("pre", { class: "assembly" }, measured.code.join("\n"));
  return { element: measured.code.length ? scroller(measured.language, code) : h("p", {}, measured.error), stop() {} };
}
