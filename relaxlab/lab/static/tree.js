// A loop function as a tree of rows: loops, blocks, statements, and what a schedule's step changed.

import { h } from "./core.js";

export const TREE_CSS = `
.tree { font: 12px/19px var(--mono); background: var(--bg); border: 1px solid var(--line); border-radius: 5px; padding: 4px 0; max-height: max(34em, 70vh, var(--room, 0px)); overflow: auto; position: relative; }
.tree > div { display: flex; gap: 6px; white-space: pre; padding: 0 8px 0 4px; min-width: max-content; }
.tree .mark { flex: none; width: 1.1em; text-align: center; color: var(--muted); }
.tree .new { background: var(--add-bg); } .tree .new > .mark { color: var(--add); }
.tree .gone { background: var(--del-bg); color: var(--del); text-decoration: line-through; }
.tree .moved, .tree .other { background: var(--warn-bg); } .tree .moved > .mark, .tree .other > .mark { color: var(--warn); }
.tree .now { background: var(--accent-bg); box-shadow: inset 3px 0 var(--accent); }
.tree .quiet { color: var(--muted); } .tree .idle { color: var(--muted); font-style: italic; }
.tree button { all: unset; cursor: pointer; } .tree button:hover { text-decoration: underline; }
.tree button:focus-visible { outline: 2px solid var(--accent); }
.axis { border-radius: 3px; padding: 0 4px; font-weight: 600; font-size: 11px; }
.axis-S { background: var(--group-0); } .axis-R { background: var(--group-5); } .axis-x { background: var(--group-9); }
.how { border: 1px solid var(--line); border-radius: 3px; padding: 0 4px; font-size: 11px; color: var(--muted); }
.at { color: var(--accent); font-weight: 600; }
@container (max-width: 760px) { .tree { max-height: 20em; } }
`;

const MARKS = { "+": ["+", "new", "new"], ">": ["↕", "moved", "moved"], "~": ["~", "other", "run otherwise"], "=": ["", "", ""] };
const QUIET = ["axis", "reads", "writes", "alloc", "view"];
const AXES = { S: "spatial: independent iterations", R: "reduction: iterations add up" };

const variableOf = ([, kind, text]) => (kind === "for" ? /^for (\S+) in/.exec(text)?.[1] : null) ?? null;

/** Which rows run: those of the statements in `sites`, the loops and blocks around them, and what is
 * said of a block (its axes, regions and memory). */
export function rowsThatRun(rows, sites) {
  const runs = rows.map(() => false);
  for (const { row } of sites) {
    let [depth, branch] = [Infinity, false];
    for (let i = row; i >= 0 && row < rows.length; i -= 1) {
      const [at, kind, text] = rows[i];
      const around = at < depth || (at === depth && (kind === "block" || (branch && text.startsWith("if "))));
      if (!around) continue;
      [depth, branch] = [at, text === "else"];
      runs[i] = true;
    }
  }
  rows.forEach(([, kind], i) => { if (QUIET.includes(kind)) runs[i] = i === 0 || runs[i - 1]; });
  return runs;
}

/**
 * The rows of a version, those that are gone in between; `rowElements[i]` is the one of row i.
 * @param {{toStatement: (row: number) => void, toRound: (variable: string) => void}} go where a click
 *   on a statement, or on a loop, leads
 */
export function treePane(version, go) {
  const rowElements = [];
  const gone = version.gone ?? [];
  const children = [];
  const places = version.run?.sites ?? [];
  const sites = new Set(places.map((s) => s.row));
  const runs = sites.size ? rowsThatRun(version.rows, places) : version.rows.map(() => true);
  const indent = (depth) => "  ".repeat(depth);
  const removed = (at) => gone.filter(([where]) => where === at).map(([, [depth, , text]]) =>
    h("div", { class: "gone", title: "gone" }, h("span", { class: "mark" }, "−"), h("span", {}, indent(depth), text)));
  const button = (text, title, onclick) => h("button", { type: "button", title, onclick }, text);
  const row = ([depth, kind, text, axes, how], i) => {
    const [mark, cls, title] = MARKS[version.marks[i]];
    const variable = variableOf(version.rows[i]);
    const what = sites.has(i) ? button(text, "go to the next time this runs", () => go.toStatement(i))
      : variable && runs[i] ? button(text, "go to the next iteration of this loop", () => go.toRound(variable)) : text;
    const badge = axes && h("span", { class: `axis axis-${axes in AXES ? axes : "x"}`, title: AXES[axes] ?? axes }, axes);
    const at = h("span", { class: "at" });
    const element = h("div", { class: `${cls} ${QUIET.includes(kind) ? "quiet" : ""} ${runs[i] ? "" : "idle"}`, title: title || (runs[i] ? null : "does not run here") },
      h("span", { class: "mark" }, mark), h("span", {}, indent(depth), what), badge, how && h("span", { class: "how" }, how), at);
    element.at = at;
    return element;
  };
  version.rows.forEach((one, i) => {
    rowElements.push(row(one, i));
    children.push(...removed(i), rowElements[i]);
  });
  children.push(...removed(version.rows.length));
  const element = h("div", { class: "tree", role: "region", tabindex: 0, "aria-label": "loops, blocks and statements" }, children);
  return { element, rowElements };
}

/** The rows of the loops around row i, by variable. */
export function loopRows(rows, i) {
  const found = new Map();
  let depth = rows[i]?.[0] ?? 0;
  for (let j = i - 1; j >= 0; j -= 1) {
    if (rows[j][0] >= depth && !(rows[j][0] === depth && rows[j][1] === "block")) continue;
    depth = Math.min(depth, rows[j][0]);
    const variable = variableOf(rows[j]);
    if (variable) found.set(variable, j);
  }
  return found;
}
