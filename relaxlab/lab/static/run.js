// A run: instructions one by one with what registers hold, the kernels on a time axis, the roofline.

import { h, mount, notes, position, tabs } from "./core.js";
import { INSTRUCTIONS_CSS, stepsPanel } from "./run_instructions.js";
import { ROOF_CSS, roofPanel } from "./run_roof.js";
import { TIME_CSS, timelinePanel } from "./run_time.js";
import { VALUE_CSS, valueDetails } from "./value.js";

function resultPanel(run) {
  return h("div", {}, run.result.map((v, i) => h("div", { class: "panel" }, valueDetails(run.result.length > 1 ? `field ${i}` : "result", "", v, []))));
}

export default {
  render({ model, el }) {
    const { root, cleanup } = mount(el);
    const state = model.get("state");
    const { run, profile, error } = state;
    const stops = [];
    const kept = ({ element, stop }) => {
      stops.push(stop);
      return element;
    };
    const panels = {
      "Step through": () => kept(stepsPanel(state, model)),
      ...(profile ? { Timeline: () => kept(timelinePanel(profile, model)), Roofline: () => roofPanel([{ label: "", profile }]) } : {}),
      ...(run.result ? { Result: () => resultPanel(run) } : {}),
    };
    const titles = Object.keys(panels);
    const strip = tabs({ titles, at: position(model, "run.tab", titles.length), label: "what to look at", panel: (i) => panels[titles[i]]() });
    root.append(h("style", {}, INSTRUCTIONS_CSS + TIME_CSS + ROOF_CSS + VALUE_CSS), ...notes(state), h("h3", {}, state.title),
      error ? h("p", { class: "error", role: "alert" }, `It fails at instruction ${run.steps.length}: ${error}`) : "", strip);
    return () => {
      strip.stop();
      stops.forEach((s) => s());
      cleanup();
    };
  },
};
