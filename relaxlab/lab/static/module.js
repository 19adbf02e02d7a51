// A module or a function: its script, its functions, and where names are used.

import { field, h, mount, notes } from "./core.js";
import { outline, plainRows, scriptPane } from "./script.js";

export default {
  render({ model, el }) {
    const { root, cleanup } = mount(el);
    const state = model.get("state");
    const lines = state.lines.map((i) => state.table[i]);
    const functions = outline(lines);
    const pane = scriptPane({ rows: plainRows(lines), label: state.title, facts: state.facts });
    const at = field(model, "function", "");
    const chosen = h("select", { "aria-label": "go to function", onchange: () => at.set(chosen.value) },
      h("option", { value: "" }, functions.length === 1 ? "1 function" : `${functions.length} functions`),
      functions.map((f) => h("option", { value: f.name }, `${f.name} (${f.kind}, ${f.end - f.start} lines)`)));
    const find = h("input", { type: "search", placeholder: "find a name", "aria-label": "find a name", onchange() {
      const i = lines.findIndex((l) => new RegExp(`\\b${find.value.replace(/\W/g, "")}\\b`).test(l));
      if (find.value && i >= 0) {
        pane.scrollTo(i);
        pane.light(find.value, i);
      }
    } });
    const go = () => {
      chosen.value = at.get();
      const f = functions.find((g) => g.name === at.get());
      if (f) pane.scrollTo(f.start);
    };
    root.append(...notes(state), h("div", { class: "row", style: "margin-bottom:6px" },
      h("h3", { class: "grow", style: "margin:0" }, state.title), functions.length > 1 && chosen, find), pane.element);
    go();
    const stop = at.on(go);
    return () => {
      stop();
      pane.stop();
      cleanup();
    };
  },
};
