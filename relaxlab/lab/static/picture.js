// Drawings as files: SVG with its colours written out, and PNG made of it.

import { h } from "./core.js";

const KEPT = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-family", "font-weight", "text-anchor"];

/** The text of an SVG file that looks like the drawing does here. */
function svgText(drawing) {
  const copy = drawing.cloneNode(true);
  const [from, to] = [drawing, copy].map((root) => [root, ...root.querySelectorAll("*")]);
  from.forEach((element, i) => {
    const style = getComputedStyle(element);
    to[i].setAttribute("style", KEPT.map((key) => `${key}:${style.getPropertyValue(key)}`).join(";"));
  });
  const { width, height } = drawing.viewBox.baseVal;
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  copy.style.background = getComputedStyle(drawing.closest(".root")).backgroundColor;
  return new XMLSerializer().serializeToString(copy);
}

function download(blob, name) {
  const url = URL.createObjectURL(blob);
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

async function png(text, scale = 2) {
  const image = new Image();
  image.src = `data:image/svg+xml,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = h("canvas", { width: image.width * scale, height: image.height * scale });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => { canvas.toBlob(done, "image/png"); });
}

/** Buttons that save a drawing. @param {() => SVGElement} drawing @param {string} name of the files */
export function pictureButtons(drawing, name) {
  const file = name.replace(/\W+/g, "_");
  const save = {
    SVG: () => download(new Blob([svgText(drawing())], { type: "image/svg+xml" }), `${file}.svg`),
    PNG: async () => download(await png(svgText(drawing())), `${file}.png`),
  };
  return Object.entries(save).map(([kind, onclick]) =>
    h("button", { type: "button", title: `Save the drawing as ${kind}`, onclick }, kind));
}
