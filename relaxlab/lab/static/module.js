// A module or a function: its script, its functions, and where names are used.

import { field, h, mount, notes, plural } from "./core.js";
import { outline } from "./script.js";
import { plainRows, scriptPane } from "./script_pane.js";

const META = "regions of blocks, and attributes that the compiler sets for itself";

export default {
  render({ model, el }) {
    const { root, cleanup } = mount(el);
    const state = model.get("state");
    const full = field(model, "full", false);
    const linesOf = () => ((full.get() && state.full) || state.lines).map((i) => state.table[i]);
    let lines = linesOf();
    let functions = outline(lines);
    const pane = scriptPane({ rows: plainRows(lines), label: state.title, facts: state.facts });
    const at = field(model, "function", "");
    const chosen = h("select", { "aria-label": "go to function", onchange: () => at.set(chosen.value) },
      h("option", { value: "" }, plural(functions.length, "function")),
      functions.map((f) => h("option", { value: f.name }, `${f.name} (${f.kind}, ${plural(f.end - f.start, "line")})`)));
    const find = h("input", { type: "search", placeholder: "find a name", "aria-label": "find a name", onchange() {
      const i = lines.findIndex((l) => new RegExp(`\\b${find.value.replace(/\W/g, "")}\\b`).test(l));
      if (find.value && i >= 0) {
        pane.scrollTo(i);
        pane.light(find.value, i);
      }
    } });
    const box = h("input", { type: "checkbox", checked: full.get(), onchange: () => full.set(box.checked) });
    const go = () => {
      chosen.value = at.get();
      const f = functions.find((g) => g.name === at.get());
      if (f) pane.scrollTo(f.start);
    };
    const show = () => {
      lines = linesOf();
      functions = outline(lines);
      pane.setRows(plainRows(lines));
      go();
    };
    root.append(...notes(state), h("div", { class: "row", style: "margin-bottom:6px" },
      h("h3", { class: "grow", style: "margin:0" }, state.title), functions.length > 1 && chosen,
      state.full && h("label", { title: META }, box, "show all"), find), pane.element);
    go();
    const stops = [at.on(go), full.on(show)];
    return () => {
      stops.forEach((s) => s());
      pane.stop();
      cleanup();
    };
  },
};
