// Texts, tables, scripts and diagnostics, one under the other.

import { h, mount, notes, table } from "./core.js";
import { changedPieces, diffLines, unifiedRows } from "./diff.js";
import { diagnosticList } from "./failure.js";
import { tokens } from "./script.js";
import { plainRows, scriptPane } from "./script_pane.js";

/** Two scripts as one: lines that are gone, lines that are new, and in them the pieces that are. */
function changeSection(part, lines) {
  const found = diffLines(part.before, part.after);
  const texts = [part.before, part.after].map((ids) => ids.map((i) => lines[i]));
  const pieces = changedPieces(found, ...texts.map((all) => all.map((text) => tokens(text).map((t) => t.text))));
  const rows = unifiedRows(found).map((r) => {
    if (r.kind === "fold") return { text: `··· ${r.count} unchanged lines ···`, cls: "fold" };
    const gone = r.kind === "del";
    return {
      text: gone ? texts[0][r.a] : texts[1][r.b], no: (gone ? r.a : r.b) + 1, mark: { del: "−", add: "+", same: "" }[r.kind],
      cls: r.kind === "same" ? "" : r.kind, changed: (gone ? pieces.a.get(r.a) : r.kind === "add" ? pieces.b.get(r.b) : undefined),
    };
  });
  return h("div", {}, h("h4", {}, h("span", { class: "refused" }, `− ${part.labels[0]}`), " ", h("span", { class: "made" }, `+ ${part.labels[1]}`)),
    scriptPane({ rows, label: part.labels.join(", ") }).element);
}

function section(part, lines) {
  if (part.before) return changeSection(part, lines);
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
