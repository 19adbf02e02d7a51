// Several runs under one roof.

import { h, mount, notes } from "./core.js";
import { ROOF_CSS, roofPanel } from "./run_roof.js";

export default {
  render({ model, el }) {
    const { root, cleanup } = mount(el);
    const state = model.get("state");
    root.append(h("style", {}, ROOF_CSS), h("h3", {}, state.title), ...notes(state), roofPanel(state.runs));
    return cleanup;
  },
};
