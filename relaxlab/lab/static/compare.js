// Two pipelines side by side: their passes by name, and how their modules differ after each.

import { failureFacts } from "./failure.js";
import { breakable, field, h, listbox, mount, notes } from "./core.js";
import { PASSES_STYLE, changesSentence, moduleDiff, modulesOf, passTime } from "./passes.js";

/** The modules of both sides after a row: those of the last pass that ran there. */
export function modulesAt(state, row) {
  return state.sides.map((side, k) => {
    let module = side.start;
    for (const r of state.rows.slice(0, row + 1)) if (r[k] >= 0) module = side.passes[r[k]].after;
    return module;
  });
}

function failures(state) {
  return state.sides.flatMap((side) => side.passes.filter((p) => p.failure).map((p) => h("div", {},
    h("p", {}, h("strong", {}, `${side.label}: ${p.name} failed`)), failureFacts(p.failure))));
}

function item(state, [i, j, same], longest) {
  const passes = state.sides.map((side, k) => side.passes[[i, j][k]] ?? null);
  const one = (p, label) => (p === null ? h("span", { class: "muted cell", "aria-label": `not in ${label}` }, "–")
    : h("span", { class: "cell" }, h("span", { class: p.failure ? "bad" : p.changed ? "good" : "muted" }, p.failure ? "✗ " : p.changed ? "● " : "○ "), passTime(p.ms, longest)));
  return {
    title: same ? "the modules read the same" : "the modules differ",
    label: [
      h("span", { class: `status ${same ? "muted" : "bad"}` }, same ? "=" : "≠"),
      h("span", { class: "grow" }, breakable((passes[0] ?? passes[1]).name)),
      passes.map((p, k) => one(p, state.sides[k].label)),
    ],
  };
}

export default {
  render({ model, el }) {
    const { root, cleanup } = mount(el);
    const state = model.get("state");
    root.append(h("style", {}, `${PASSES_STYLE}
.heads { gap: 6px; padding: 4px 8px 0; }
.cell { flex: none; width: 6.4em; display: flex; justify-content: flex-end; gap: 2px; }
.split.pairs { grid-template-columns: minmax(300px, 380px) minmax(0, 1fr); }
@container (max-width: 760px) { .split.pairs { grid-template-columns: minmax(0, 1fr); } }`), ...notes(state));
    if (state.failure) {
      root.append(h("h3", {}, "This program has errors"), failureFacts(state.failure));
      return cleanup;
    }
    const all = modulesOf(state);
    const labels = state.sides.map((s) => s.label);
    const longest = Math.max(0.001, ...state.sides.flatMap((s) => s.passes.map((p) => p.ms)));
    const differing = state.rows.findIndex((r) => !r[2]);
    const at = field(model, "row", differing >= 0 ? differing : Math.max(0, state.rows.length - 1));
    const layout = field(model, "layout", "unified");
    const list = listbox({ items: state.rows.map((r) => item(state, r, longest)), at, label: "passes" });
    const title = h("h3", {});
    const said = h("p", { role: "status" });
    const body = h("div");
    const view = h("select", { "aria-label": "layout", onchange: () => layout.set(view.value) },
      [["unified", "difference"], ["side", "side by side"]].map(([value, text]) => h("option", { value, selected: value === layout.get() }, text)));
    let diff = null;
    const draw = () => {
      const [before, after] = modulesAt(state, at.get());
      diff?.stop();
      diff = moduleDiff(all, { before, after, layout: layout.get(), labels });
      const row = state.rows[at.get()];
      const pass = row && (state.sides[0].passes[row[0]] ?? state.sides[1].passes[row[1]]);
      title.textContent = pass ? `After ${pass.name}` : "As given";
      said.textContent = before === after ? `${labels[0]} and ${labels[1]} read the same` : `from ${labels[0]} to ${labels[1]}: ${changesSentence(diff.pairs)}`;
      body.replaceChildren(diff.element);
    };
    draw();
    const stops = [at.on(draw), layout.on(draw), list.stop];
    const jump = h("button", { type: "button", disabled: differing < 0, onclick: () => at.set(differing) }, "first difference");
    const last = h("button", { type: "button", onclick: () => at.set(state.rows.length - 1) }, "final modules");
    root.append(...failures(state), h("div", { class: "split pairs" },
      h("div", {}, h("div", { class: "row" }, jump, last),
        h("div", { class: "row heads muted" }, h("span", { class: "grow" }), labels.map((l) => h("span", { class: "cell" }, l))),
        h("div", { class: "scroll tall" }, list)),
      h("div", {}, h("div", { class: "row spread" }, title, view), said, body)));
    return () => {
      for (const stop of stops) stop();
      diff.stop();
      cleanup();
    };
  },
};
