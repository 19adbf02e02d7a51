// A loop function: its tree, its accesses one statement after the other, what is reused, what the
// steps of a schedule changed, and what threads do.

import { field, h, listbox, mount, notes, position, reveal, tabs } from "./core.js";
import { codePanel, decisionsPanel, DECISIONS_CSS } from "./decisions.js";
import { GRID_CSS } from "./grid.js";
import { COSTS_CSS, reusePanel, schedulePanel } from "./loop_costs.js";
import { STEPS_CSS, stepPanel } from "./loop_steps.js";
import { plainRows, scriptPane } from "./script_pane.js";
import { THREADS_CSS, threadsPanel } from "./threads.js";
import { TREE_CSS } from "./tree.js";

const CSS = `
.schedule { border: 1px solid var(--line); border-radius: 5px; margin-bottom: 6px; max-height: 9.5em; }
.schedule li { font: 12px/1.5 var(--mono); white-space: pre-wrap; overflow-wrap: anywhere; }
.refused dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 2px 10px; margin: 4px 0 0; }
.refused dt { font-family: var(--sans); } .refused dd { margin: 0; }
.refused ol { margin: 0; padding-left: 2em; }
`;

function refusedBox(refused) {
  const step = (n, text) => `step ${n}: ${text}`;
  const item = (name, value) => (value ? [h("dt", {}, name), h("dd", {}, value)] : []);
  return h("div", { class: "error refused", role: "alert" },
    h("strong", {}, `Refused: ${refused.step}`),
    h("dl", {}, item("condition", refused.condition), item("at", refused.place),
      item("made by", refused.made_by),
      item("in its way", refused.causes.length ? refused.causes.map(([n, text]) => h("div", {}, step(n, text))) : null),
      item("try", refused.suggestion),
      item("an order that works", refused.order
        ? h("ol", { start: 0 }, refused.order.map(([n, text], i) => h("li", {}, text, n !== i ? h("strong", {}, ` ← was ${text === refused.step ? "refused" : `step ${n}`}`) : "")))
        : `none was found in ${refused.trials} trials`)));
}

/** The steps of a schedule, one of which is chosen: the function is shown as it is after that. */
function scheduleList(versions, at) {
  const items = versions.map((v, i) => {
    const text = v.calls.length ? v.calls.join("\n") : v.within.length ? `${v.within.at(-1)}:` : "as given";
    const depth = v.within.length - (v.within.length && !v.calls.length ? 1 : 0);
    const indent = `padding-left: ${1.5 * depth}em`;
    return { label: h("div", { style: indent }, h("span", { class: "muted" }, `${i} `), v.calls.length ? text : h("em", {}, text)) };
  });
  return listbox({ items, at, label: "steps of the schedule" });
}

export default {
  render({ model, el, put }) {
    const { root, cleanup } = mount(el);
    const state = model.get("state");
    const { versions, threads, decisions } = state;
    const at = position(model, "loops.version", versions.length, versions.length - 1);
    const form = field(model, "loops.form", -1); // of another choice than the one taken
    if (!decisions?.forms[form.get()]) form.set(-1);
    let stops = [];
    const end = () => {
      stops.forEach((s) => s());
      stops = [];
    };
    const body = h("div");
    const titles = ["Step through", "Reuse", ...(versions.length > 1 ? ["Costs of the steps"] : []), ...(threads ? ["Threads"] : []), "Script", ...(decisions?.measured ? [decisions.measured.language || "Code"] : [])];
    const tab = position(model, "loops.tab", titles.length, threads && !versions.at(-1).run.steps.site.length ? titles.indexOf("Threads") : 0);
    const show = () => {
      end();
      const version = decisions?.forms[form.get()] ?? versions[at.get()];
      const lines = form.get() < 0 ? state.table : decisions.table;
      const made = {
        "Step through": () => stepPanel(version, model, `loops.step.${at.get()}`),
        "Reuse": () => reusePanel(version, model),
        "Costs of the steps": () => schedulePanel(state, model, at),
        "Threads": () => threadsPanel(threads, model),
        [decisions?.measured?.language || "Code"]: () => codePanel(decisions.measured),
        "Script": () => {
          const pane = scriptPane({ rows: plainRows(version.script.map((i) => lines[i])), label: "script" });
          return { element: pane.element, stop: pane.stop };
        },
      };
      const strip = tabs({ titles, at: tab, label: "what to look at", panel(i) {
        const { element, stop } = made[titles[i]]();
        if (stop) stops.push(stop);
        return element;
      } });
      stops.push(strip.stop);
      const nested = version.within.length ? h("p", { class: "muted" }, `In the version for ${version.within.join(", ")}`) : "";
      body.replaceChildren(nested, strip);
    };
    const sizes = Object.entries(state.sizes).map(([name, n]) => `${name} = ${n}`).join(", ");
    const list = versions.length > 1 ? scheduleList(versions, at) : null;
    const panel = decisions?.rows.length ? decisionsPanel(decisions, form, put) : null;
    const steps = list && h("div", { class: "scroll schedule" }, list);
    if (steps) requestAnimationFrame(() => reveal(steps, list.options[at.get()])); // once it has its height
    root.append(h("style", {}, CSS + TREE_CSS + STEPS_CSS + COSTS_CSS + GRID_CSS + THREADS_CSS + DECISIONS_CSS), ...notes(state),
      h("h3", {}, state.title, sizes && h("span", { class: "muted mono" }, `  ${sizes}`)),
      state.refused ? refusedBox(state.refused) : "", panel?.element ?? "", steps ?? "", body);
    const leave = at.on(() => form.set(-1)); // a step is one of the schedule as it is
    const stop = at.on(show);
    const changed = form.on(show);
    show();
    return () => {
      [leave, stop, changed].forEach((f) => f());
      panel?.stop();
      if (list) list.stop();
      end();
      cleanup();
    };
  },
};
