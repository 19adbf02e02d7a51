// An array: shape, statistics, a histogram, a corner of its values as a heat map, the whole as pixels.

import { h, mount } from "./core.js";
import { GRID_CSS, bufferGrid } from "./grid.js";
import { VALUE_CSS, shapeText, valueDetails } from "./value.js";

const CSS = `
.pixels { image-rendering: pixelated; border: 1px solid var(--line); border-radius: 3px; display: block; max-width: 100%; }
.hue-cold { color: var(--del); } .hue-warm { color: var(--accent); } .hue-none { color: var(--bg); }
`;
const SIDE = 384; // pixels of the page for the longer side

/** "rows 8–15, columns 0–7" of pixel (i, j) */
export function blockText({ block, of }, i, j) {
  const range = (at, axis) => {
    const [from, to] = [at * block[axis], Math.min(of[axis], (at + 1) * block[axis]) - 1];
    return from === to ? `${from}` : `${from}–${to}`;
  };
  return `row ${range(i, 0)}, column ${range(j, 1)}`;
}

/** The rgb numbers of a colour of the theme. */
const rgbOf = (element) => getComputedStyle(element).color.match(/[\d.]+/g).slice(0, 3).map(Number);

/** A matrix as a canvas, with the mean below the pointer as text. */
function picture(image) {
  const [rows, columns] = image.shape;
  const scale = Math.max(1, Math.floor(SIDE / Math.max(rows, columns)));
  const canvas = h("canvas", { class: "pixels", width: columns, height: rows, style: `width:${columns * scale}px;height:${rows * scale}px`, role: "img", "aria-label": `all ${image.of.join(" by ")} elements` });
  const said = h("p", { class: "muted mono" }, "point at a pixel");
  const marks = ["cold", "warm", "none"].map((name) => h("span", { class: `hue-${name}` }));
  const paint = () => {
    const [cold, warm, none] = marks.map(rgbOf);
    const context = canvas.getContext("2d");
    const data = context.createImageData(columns, rows);
    image.heat.forEach((heat, k) => {
      const [hue, weight] = [heat < 0 ? cold : warm, Math.abs(heat) / 100];
      for (let c = 0; c < 3; c += 1) data.data[4 * k + c] = none[c] + (hue[c] - none[c]) * weight;
      data.data[4 * k + 3] = 255;
    });
    context.putImageData(data, 0, 0);
  };
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    const at = (p, start, size, n) => Math.max(0, Math.min(n - 1, Math.floor(((p - start) / size) * n)));
    const [i, j] = [at(event.clientY, box.top, box.height, rows), at(event.clientX, box.left, box.width, columns)];
    const mean = image.block.some((b) => b > 1) ? "mean " : "";
    said.textContent = `${blockText(image, i, j)}: ${mean}${image.text[i * columns + j]}`;
  });
  requestAnimationFrame(paint); // once it has colours
  return { element: h("div", {}, h("h4", {}, "The whole array"), canvas, said, marks), paint };
}

export default {
  render({ model, el }) {
    const { root, cleanup } = mount(el);
    const state = model.get("state");
    const { corner } = state;
    const grid = bufferGrid({ name: corner.name, shape: corner.shape, dtype: state.dtype, scope: "global" },
      (cell) => ({ text: corner.text[cell], cls: corner.heat[cell] < 0 ? "heat cold" : "heat", weight: 0.45 * Math.abs(corner.heat[cell]), title: corner.text[cell] }));
    grid.show();
    const whole = state.picture ? picture(state.picture) : null;
    const theme = new MutationObserver(() => whole?.paint());
    theme.observe(root, { attributeFilter: ["style"] });
    root.append(h("style", {}, GRID_CSS + VALUE_CSS + CSS), h("div", { class: "row", style: "align-items:flex-start;gap:20px" },
      h("div", {}, valueDetails(`array ${shapeText(state)}`, null, { ...state, values: null }, [])), whole && whole.element,
      h("div", { class: "grow scroll", style: "min-width:min(100%,24em)", tabindex: 0, role: "group", "aria-label": "values" }, grid.element)));
    return () => {
      theme.disconnect();
      cleanup();
    };
  },
};
