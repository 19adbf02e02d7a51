// One value: what it is, its statistics and histogram, the elements of a small array.

import { formatBytes, h, svg, table, tupleText } from "./core.js";

export const VALUE_CSS = `
.values { font: 12px/1.5 var(--mono); overflow-wrap: anywhere; }
.bars rect { fill: var(--accent); }
`;

export const shapeText = (v) => `${tupleText(v.shape)} ${v.dtype}`;

/**
 * Everything about a value that Python's `value_state` wrote.
 * @param {string} name @param {string | null} type @param {any} v
 * @param {[string, string][]} more rows about where it is
 */
export function valueDetails(name, type, v, more) {
  const rows = type ? [["type", type]] : [];
  if (v.kind === "tensor") {
    rows.push([type ? "now" : "type", `${shapeText(v)}, ${formatBytes(v.bytes)}`], ...more);
    if (v.min !== undefined) rows.push(["min", v.min], ["max", v.max], ["mean", v.mean], ["std", v.std]);
    if (v.nan) rows.push(["NaN", String(v.nan)]);
    if (v.infinite) rows.push(["infinite", String(v.infinite)]);
    if (v.sampled) rows.push(["of a sample of", String(v.sampled)]);
  } else rows.push(["value", v.text]);
  const parts = [h("h4", {}, name), table(["", ""], rows)];
  if (v.histogram) {
    const top = Math.max(...v.histogram);
    const width = 260;
    const each = width / v.histogram.length;
    parts.push(svg("svg", { class: "bars", viewBox: `0 0 ${width} 76`, width, role: "img", "aria-label": `histogram from ${v.min} to ${v.max}: ${v.histogram.join(", ")}` },
      v.histogram.map((n, i) => {
        const tall = n ? Math.max(1.5, (56 * n) / top) : 0;
        return svg("rect", { x: i * each + 1, y: 60 - tall, width: each - 2, height: tall });
      }),
      svg("text", { x: 0, y: 74 }, v.min), svg("text", { x: width, y: 74, "text-anchor": "end" }, v.max)));
  }
  if (v.values) {
    const columns = v.shape.at(-1) || 1;
    const wide = Math.max(...v.values.map((text) => text.length));
    const lines = [];
    for (let i = 0; i < v.values.length; i += columns) lines.push(v.values.slice(i, i + columns).map((text) => text.padStart(wide)).join("  "));
    parts.push(h("pre", { class: "values" }, lines.join("\n")));
  }
  return parts;
}
