// An array: statistics, a histogram, and a corner of its values as a heat map.

import { h, mount } from "./core.js";
import { GRID_CSS, bufferGrid } from "./grid.js";
import { VALUE_CSS, shapeText, valueDetails } from "./value.js";

export default {
  render({ model, el }) {
    const { root, cleanup } = mount(el);
    const state = model.get("state");
    const { corner } = state;
    const grid = bufferGrid({ name: "values", shape: corner.shape, dtype: state.dtype, scope: "global" },
      (cell) => ({ text: corner.text[cell], cls: corner.heat[cell] < 0 ? "heat cold" : "heat", weight: 0.45 * Math.abs(corner.heat[cell]) }));
    grid.show();
    root.append(h("style", {}, GRID_CSS + VALUE_CSS), h("div", { class: "row", style: "align-items:flex-start;gap:20px" },
      h("div", {}, valueDetails(`array ${shapeText(state)}`, null, { ...state, values: null }, [])),
      h("div", { class: "grow scroll", tabindex: 0, role: "group", "aria-label": "values" }, grid.element)));
    return cleanup;
  },
};
