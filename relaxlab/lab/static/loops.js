// A loop function: its tree, its accesses one statement after the other, what is reused, what the
// steps of a schedule changed, and what threads do.

import { h, mount, notes, position, stepper, tabs } from "./core.js";
import { GRID_CSS } from "./grid.js";
import { COSTS_CSS, reusePanel, schedulePanel } from "./loop_costs.js";
import { STEPS_CSS, stepPanel } from "./loop_steps.js";
import { plainRows, scriptPane } from "./script_pane.js";
import { THREADS_CSS, threadsPanel } from "./threads.js";
import { TREE_CSS } from "./tree.js";

const CSS = `
.calls { font: 12px/1.5 var(--mono); margin: 0 0 6px; white-space: pre-wrap; overflow-wrap: anywhere; }
.schedule { background: var(--panel); border-radius: 5px; padding: 4px 6px; }
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

export default {
  render({ model, el }) {
    const { root, cleanup } = mount(el);
    const state = model.get("state");
    const { versions, threads } = state;
    const at = position(model, "loops.version", versions.length, versions.length - 1);
    let stops = [];
    const end = () => {
      stops.forEach((s) => s());
      stops = [];
    };
    const body = h("div");
    const titles = ["Step through", "Reuse", ...(versions.length > 1 ? ["Costs of the steps"] : []), ...(threads ? ["Threads"] : []), "Script"];
    const tab = position(model, "loops.tab", titles.length, threads && !versions.at(-1).run.steps.site.length ? titles.indexOf("Threads") : 0);
    const show = () => {
      end();
      const version = versions[at.get()];
      const made = {
        "Step through": () => stepPanel(version, model, `loops.step.${at.get()}`),
        "Reuse": () => reusePanel(version, model),
        "Costs of the steps": () => schedulePanel(state, model, at),
        "Threads": () => threadsPanel(threads, model),
        "Script": () => {
          const pane = scriptPane({ rows: plainRows(version.script.map((i) => state.table[i])), label: "script" });
          return { element: pane.element, stop: pane.stop };
        },
      };
      const strip = tabs({ titles, at: tab, label: "what to look at", panel(i) {
        const { element, stop } = made[titles[i]]();
        if (stop) stops.push(stop);
        return element;
      } });
      stops.push(strip.stop);
      const calls = version.calls.length ? version.calls.join("\n") : "as given";
      body.replaceChildren(versions.length > 1 ? h("pre", { class: "calls" }, calls) : "", strip);
    };
    const sizes = Object.entries(state.sizes).map(([name, n]) => `${name} = ${n}`).join(", ");
    const bar = versions.length > 1 && stepper({
      count: versions.length, at, label: "steps of the schedule",
      describe: (i) => versions[i].calls.at(-1) ?? "as given",
    });
    bar?.prepend?.(h("span", { class: "muted" }, "step of the schedule"));
    bar?.classList?.add("schedule");
    root.append(h("style", {}, CSS + TREE_CSS + STEPS_CSS + COSTS_CSS + GRID_CSS + THREADS_CSS), ...notes(state),
      h("h3", {}, state.title, sizes && h("span", { class: "muted mono" }, `  ${sizes}`)),
      state.refused ? refusedBox(state.refused) : "", bar || "", body);
    const stop = at.on(show);
    show();
    return () => {
      stop();
      bar?.stop?.();
      end();
      cleanup();
    };
  },
};
