// Arrays as grids of cells: rows by columns, one slice and one window of it at a time.

import { h, tupleText } from "./core.js";
import { elementAt, pageOf } from "./accesses.js";

const ROWS = 16;

export const GRID_CSS = `
.grid { margin: 0; padding: 4px 6px 6px; }
.grid figcaption { font: 12px var(--mono); margin-bottom: 3px; display: flex; gap: 6px; align-items: baseline; flex-wrap: wrap; }
.grid table { font: 11px/1.2 var(--mono); border-collapse: separate; border-spacing: 1px; }
.grid th { position: static; background: none; border: none; padding: 0 3px; font-weight: 400; font-size: 10px; text-align: center; color: var(--muted); }
.grid td { border: 1px solid var(--line); padding: 1px 3px; min-width: 22px; height: 19px; text-align: center; border-radius: 2px; background: var(--bg); white-space: nowrap; }
.grid td.trail { background: color-mix(in srgb, var(--accent-bg) var(--w, 50%), var(--bg)); }
.grid td.heat { background: color-mix(in srgb, var(--accent) var(--w, 0%), var(--bg)); }
.grid td.heat.cold { background: color-mix(in srgb, var(--del) var(--w, 0%), var(--bg)); }
.grid td.heat.deep { color: var(--bg); }
.grid td.read { background: var(--accent-bg); outline: 2px dashed var(--accent); outline-offset: -1px; font-weight: 600; }
.grid td.write { background: var(--add-bg); outline: 2px solid var(--add); outline-offset: -1px; font-weight: 600; }
.grids { display: flex; flex-wrap: wrap; gap: 8px; align-items: flex-start; }
.grids > .grid { max-width: 100%; overflow-x: auto; border: 1px solid var(--line); border-radius: 5px; background: var(--panel); }
`;

/**
 * A buffer as a grid. `paint(cell)` says of element number `cell` its `text`, `cls`, `weight`
 * (per cent) and `title`; `look(element)` turns to the part that holds an element. Cells have room for
 * `letters`, so that they stay where they are when their text changes. Rows that are longer than
 * `columns` are folded if all lines have room then.
 * @param {{name: string, shape: number[], dtype: string, scope: string}} buffer
 */
export function bufferGrid(buffer, paint, { facts = "", columns: most = 24, wide: letters = 0 } = {}) {
  const { shape } = buffer;
  const size = shape.reduce((n, d) => n * d, 1);
  const [high, wide] = [shape.length > 1 ? shape.at(-2) : 1, shape.at(-1) ?? 1];
  const slices = size / Math.max(1, high * wide);
  const folds = Math.ceil(wide / most) * high <= ROWS ? Math.ceil(wide / most) : 1;
  const body = h("table", { role: "img" });
  const where = h("span", { class: "muted" });
  const element = h("figure", { class: "grid", tabindex: 0, "aria-label": buffer.name },
    h("figcaption", {}, h("strong", {}, buffer.name), h("span", { class: "muted" },
      `${tupleText(shape)} ${buffer.dtype}${buffer.scope === "global" ? "" : ` · ${buffer.scope}`}${facts}`), where), body);
  let page = null;
  let cells = [];
  const build = () => {
    cells = [];
    const columns = folds > 1 ? wide : Math.min(most, wide - page.column);
    const rows = Math.min(ROWS, high - page.row);
    const shown = Math.min(most, columns);
    const heads = h("tr", {}, h("th"), Array.from({ length: shown }, (_, c) => h("th", {}, `${folds > 1 ? "+" : ""}${page.column + c}`)));
    const lines = Array.from({ length: rows * folds }, (_, line) => {
      const [row, first] = [page.row + Math.floor(line / folds), page.column + (line % folds) * most];
      const head = [...(shape.length > 1 ? [row] : []), ...(folds > 1 ? [first] : [])].join(", ");
      return h("tr", {}, h("th", {}, head), Array.from({ length: Math.min(shown, wide - first) }, (_, c) => {
        const td = h("td", { style: letters ? `min-width:calc(${letters}ch + 8px)` : null });
        cells.push([elementAt([...page.slice, ...(shape.length > 1 ? [row] : []), first + c].slice(shape.length ? 0 : 1), shape), td]);
        return td;
      }));
    });
    body.replaceChildren(h("tbody", {}, heads, lines));
    const parts = [];
    if (slices > 1) parts.push(`[${page.slice.join(", ")}, :, :]`);
    if (rows < high) parts.push(`rows ${page.row}–${page.row + rows - 1}`);
    if (columns < wide) parts.push(`columns ${page.column}–${page.column + columns - 1}`);
    where.textContent = parts.join(" · ");
  };
  const look = (cell) => {
    if (!size) return;
    const next = pageOf(cell, shape, ROWS, folds > 1 ? wide : most);
    if (page && JSON.stringify(next) === JSON.stringify(page)) return;
    page = next;
    build();
  };
  const show = () => {
    for (const [cell, td] of cells) {
      const { text = "", cls = "", weight = null, title = "" } = paint(cell);
      if (td.textContent !== text) td.textContent = text;
      if (td.className !== cls) td.className = cls;
      if (weight !== null) td.style.setProperty("--w", `${weight}%`);
      if (td.title !== title) td.title = title;
    }
  };
  if (size) look(0);
  else where.textContent = "empty";
  const say = (text) => body.setAttribute("aria-label", text);
  say(`elements of ${buffer.name}`);
  return { element, look, show, say };
}
