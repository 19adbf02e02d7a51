// The passes of a trace and what they changed: what the pipeline and the comparison view share.

import { fromDifferences, h, plural } from "./core.js";
import { changedPieces, countChanges, diffLines, pairedRows, unifiedRows } from "./diff.js";
import { tokens } from "./script.js";
import { scriptPane } from "./script_pane.js";

export const PASSES_STYLE = `
.spread { justify-content: space-between; }
.wide { width: 100%; }
.small { font-weight: 400; overflow-wrap: anywhere; }
.status { flex: none; width: 1em; text-align: center; font-weight: 700; }
.good { color: var(--add); } .bad { color: var(--del); }
.tall { max-height: max(44em, var(--room, 0px)); } .short { max-height: 10.5em; border: 1px solid var(--line); border-radius: 5px; }
.time { flex: none; width: 5.2em; text-align: right; font-size: 11px; font-variant-numeric: tabular-nums; color: var(--muted); }
.bar { display: block; height: 3px; border-radius: 2px; background: var(--line); overflow: hidden; }
.bar > span { display: block; height: 3px; margin-left: auto; background: var(--accent); }
.diff { max-height: max(44em, var(--room, 0px)); border-top: 1px solid var(--line); }
.diff details { margin: 4px 0; }
.diff summary { cursor: pointer; padding: 2px 4px; position: sticky; top: 0; z-index: 1; background: var(--bg); }
.diff .script.scroll { max-height: none; }
.sides { display: grid; gap: 6px; grid-template-columns: repeat(2, minmax(0, 1fr)); }
.script .ln.focus { box-shadow: inset 3px 0 0 var(--accent); background: var(--accent-bg); }
`;

/** The functions and modules of a state: lines of a function, functions of a module, changes. */
export function modulesOf(state) {
  const decoded = new Map();
  const ids = (f) => {
    if (!decoded.has(f)) decoded.set(f, fromDifferences(state.functions[f][2]));
    return decoded.get(f);
  };
  const diffs = new Map();
  const diff = (before, after) => {
    const key = `${before},${after}`;
    if (!diffs.has(key)) diffs.set(key, diffLines(before < 0 ? [] : ids(before), after < 0 ? [] : ids(after)));
    return diffs.get(key);
  };
  const textOf = (f) => (f < 0 ? [] : ids(f).map((i) => clipped(state.lines[i])));
  const known = new Map();
  /** The pieces of the changed lines of two functions that are on one side alone. */
  const pieces = ({ before, after }) => {
    const key = `${before},${after}`;
    if (!known.has(key)) known.set(key, changedPieces(diff(before, after), ...[before, after].map((f) => textOf(f).map((text) => tokens(text).map((t) => t.text)))));
    return known.get(key);
  };
  const names = (m) => new Map(state.modules[m].map((f) => [state.functions[f][0], f]));
  return {
    ids,
    diff,
    pieces,
    lines: (f) => (f < 0 ? [] : ids(f).map((i) => state.lines[i])),
    kind: (f) => state.functions[f][1],
    names,
    /** One entry per function of either module: its number before and after, -1 for none. */
    pairs(m, n) {
      const [old, now] = [names(m), names(n)];
      const all = [...now.keys(), ...[...old.keys()].filter((name) => !now.has(name))];
      return all.map((name) => {
        const [before, after] = [old.get(name) ?? -1, now.get(name) ?? -1];
        const counts = before === after ? { added: 0, removed: 0 } : countChanges(diff(before, after));
        return { name, before, after, changed: before !== after, ...counts };
      });
    },
  };
}

/** The functions and variables that the subject of a rewrite names, the last one first. */
export function subjectPlaces(subject, names) {
  const found = [];
  for (const [, head, rest] of subject.matchAll(/(\w+)(?:\.(\w+))?/g)) {
    if (names.has(head)) found.unshift({ name: head, variable: rest ?? null });
  }
  const exact = found.filter((p) => p.variable !== null);
  return exact.length > 0 ? exact : found;
}

/** The line that binds a variable, or the first one that mentions it; 0 where none does. */
export function lineOf(lines, variable) {
  if (variable === null) return Math.max(0, lines.findIndex((l) => /^\s*def /.test(l)));
  const binds = new RegExp(`^\\s*${variable}\\s*(:|=[^=])`);
  const mentions = new RegExp(`\\b${variable}\\b`);
  const at = lines.findIndex((l) => binds.test(l));
  return Math.max(0, at >= 0 ? at : lines.findIndex((l) => mentions.test(l)));
}

const LONGEST = 400;
const OPEN = 3; // functions of a difference that are open at first

/** A line short enough to be shown; the longest have tens of thousands of characters. */
export const clipped = (text) => (text.length <= LONGEST ? text
  : `${text.slice(0, LONGEST)} … ${(text.length - LONGEST).toLocaleString("en")} more characters`);

const foldText = (count) => `··· ${plural(count, "unchanged line")} ···`;

function unified(all, pair, context, keep) {
  const [old, now] = [all.lines(pair.before), all.lines(pair.after)];
  const rows = unifiedRows(all.diff(pair.before, pair.after), context, keep);
  const pieces = all.pieces(pair);
  return rows.map((r) => {
    if (r.kind === "fold") return { text: foldText(r.count), cls: "fold", fold: true, b: r.b };
    const text = clipped(r.kind === "del" ? old[r.a] : now[r.b]);
    const mark = { del: "−", add: "+", same: "" }[r.kind];
    const changed = r.kind === "del" ? pieces.a.get(r.a) : r.kind === "add" ? pieces.b.get(r.b) : undefined;
    return { text, mark, changed, cls: r.kind === "same" ? "" : r.kind, no: (r.b < 0 ? r.a : r.b) + 1, b: r.b };
  });
}

function paired(all, pair, context, keep) {
  const [old, now] = [all.lines(pair.before), all.lines(pair.after)];
  const rows = pairedRows(all.diff(pair.before, pair.after), context, keep);
  const pieces = all.pieces(pair);
  const side = (r, lines, i, mark, cls, of) => {
    if (r.kind === "fold") return { text: foldText(r.count), cls: "fold", fold: true, b: r.b };
    if (i < 0) return { text: "", cls: "fold", b: r.b };
    return { text: clipped(lines[i]), no: i + 1, b: r.b, changed: r.kind === "pair" ? of.get(i) : undefined, mark: r.kind === "pair" ? mark : "", cls: r.kind === "pair" ? cls : "" };
  };
  return [
    rows.map((r) => side(r, old, r.a, "−", "del", pieces.a)),
    rows.map((r) => side(r, now, r.b, "+", "add", pieces.b)),
  ];
}

const changesText = (p) => (!p.changed ? "unchanged"
  : p.before < 0 ? `new, ${plural(p.added, "line")}` : p.after < 0 ? `removed, ${plural(p.removed, "line")}` : `+${p.added} −${p.removed}`);

/** The panes of one function's difference: rows, and the row that shows line `line` of the new side. */
function functionRows(all, pair, layout, line) {
  if (layout === "whole") return [all.lines(pair.after).map((text, i) => ({ text: clipped(text), no: i + 1, b: i }))];
  return layout === "side" ? paired(all, pair, 3, line) : [unified(all, pair, 3, line)];
}

/** One function of a difference, folded up until somebody wants to see it. */
function functionPart(all, pair, layout, labels, area) {
  let panes = [];
  let line = -1;
  const body = h("div", { class: layout === "side" ? "sides" : "" });
  const fill = () => {
    for (const pane of panes) pane.stop();
    panes = functionRows(all, pair, layout, line).map((rows, side) => scriptPane({
      rows, height: rows.length > 150 ? "40em" : "none",
      label: `${pair.name}, ${layout === "side" ? labels[side] : "difference"}`,
    }));
    body.replaceChildren(...panes.map((pane) => pane.element));
  };
  const details = h("details", { ontoggle: () => { if (details.open && panes.length === 0) fill(); } },
    h("summary", {}, h("strong", { class: "mono" }, pair.name),
      h("span", { class: "muted" }, ` ${all.kind(pair.after < 0 ? pair.before : pair.after)} · ${layout === "whole" ? plural(all.ids(pair.after).length, "line") : changesText(pair)}`)),
    body);
  const show = () => {
    details.open = true;
    if (panes.length === 0) fill();
  };
  const focus = (variable) => {
    for (const old of body.querySelectorAll(".focus")) old.classList.remove("focus");
    if (variable === undefined || pair.after < 0) return;
    line = lineOf(all.lines(pair.after), variable);
    const isShown = () => functionRows(all, pair, layout, -1)[0].findIndex((r) => !r.fold && r.b === line);
    if (layout !== "whole" && (panes.length === 0 || isShown() < 0)) fill();
    show();
    const rows = functionRows(all, pair, layout, line).at(-1);
    const at = rows.findIndex((r) => !r.fold && r.b === line);
    const pane = panes.at(-1);
    const row = at >= 0 && pane.rowAt(at);
    if (!row) return;
    row.classList.add("focus");
    for (const box of [pane.pane, area]) {
      box.scrollTop += row.getBoundingClientRect().top - box.getBoundingClientRect().top - Math.min(box.clientHeight, 600) / 3;
    }
  };
  return { name: pair.name, details, show, focus, stop: () => panes.forEach((p) => p.stop()) };
}

/**
 * Two modules as one difference, function by function.
 * @param {ReturnType<typeof modulesOf>} all
 * @param {{before: number, after: number, layout: string, labels?: [string, string]}} options
 *   layout: "unified", "side" (by side) or "whole" (the new module, nothing folded)
 * @returns `focus(places)` scrolls to the first place that is in a function of the new module
 */
export function moduleDiff(all, { before, after, layout, labels = ["before", "after"] }) {
  const pairs = all.pairs(before, after);
  const area = h("div", { class: "scroll diff", tabindex: 0, role: "region", "aria-label": "what changed" });
  const parts = [];
  const add = (pair) => {
    const part = functionPart(all, pair, layout, labels, area);
    parts.push(part);
    area.append(part.details);
    return part;
  };
  for (const pair of pairs) if (layout === "whole" ? pair.after >= 0 : pair.changed) add(pair);
  if (parts.length === 0) area.append(h("p", { class: "muted" }, "No differences."));
  for (const part of parts.slice(0, OPEN)) part.show();
  const focus = (places) => {
    const wanted = places.find((p) => pairs.some((q) => q.name === p.name && q.after >= 0));
    for (const part of parts) if (part.name !== wanted?.name) part.focus(undefined);
    if (!wanted) return;
    const part = parts.find((p) => p.name === wanted.name) ?? add(pairs.find((q) => q.name === wanted.name));
    part.focus(wanted.variable);
  };
  return { element: area, pairs, focus, stop: () => parts.forEach((p) => p.stop()) };
}

/** What changed between two modules, in a sentence. */
export function changesSentence(pairs) {
  const changed = pairs.filter((p) => p.changed);
  if (changed.length === 0) return "no change";
  const sum = (key) => changed.reduce((n, p) => n + p[key], 0);
  return `+${sum("added")} −${sum("removed")} lines in ${changed.length} of ${plural(pairs.length, "function")}`;
}

/** The times of passes as text and a bar relative to the longest. */
export function passTime(ms, longest) {
  const text = ms >= 100 ? ms.toFixed(0) : ms >= 1 ? ms.toFixed(1) : ms.toFixed(2);
  return h("span", { class: "time" }, h("span", {}, `${text} ms`),
    h("span", { class: "bar", "aria-hidden": "true" }, h("span", { style: `width:${Math.max(1, (ms / longest) * 100)}%` })));
}
