// A pane of script: many lines without making them all, names that light up, links to functions.

import { h, plural } from "./core.js";
import { definitions, outline, tokens } from "./script.js";

const CHUNK = 60;
const LINE = 18;

/** The function of the script that holds row `i`, or null. */
const scopeAt = (s, i) => s.functions.find((f) => i >= f.start && i < f.end) ?? null;

/** What defines the names of a function `f`, or of the whole text. */
function definitionsOf(s, f) {
  const key = f ? f.start : -1;
  if (!s.known.has(key)) {
    const part = f ? s.rows.slice(f.start, f.end) : s.rows;
    s.known.set(key, definitions(part.map((r) => r.text)));
  }
  return s.known.get(key);
}

/** True if `name` in row `i` is the name that is lit. */
const isLit = (s, name, i) => Boolean(s.lit && s.lit.name === name && (!s.lit.scope || s.lit.scope === scopeAt(s, i)));

function tokenElement(s, t, i, changed) {
  if (t.kind === "plain" && !changed) return t.text;
  const lit = t.name && isLit(s, t.name, i);
  return h("span", { class: `t-${t.kind}${lit ? " lit" : ""}${changed ? " changed" : ""}`, "data-n": t.name }, t.text);
}

function rowElement(s, r, i) {
  const text = h("span", {}, tokens(r.text).map((t, k) => tokenElement(s, t, i, r.changed?.has(k))));
  const cls = `ln ${r.cls ?? ""}${r.changed?.size === 0 ? " rewrapped" : ""}${s.linked.has(i) ? " linked" : ""}`;
  return h("div", { class: cls, "data-i": i, title: r.title },
    h("span", { class: "no", "aria-hidden": "true" }, String(r.no ?? "")),
    h("span", { class: "mark" }, r.mark ?? ""), text);
}

function fill(s, chunk) {
  const from = Number(chunk.dataset.from);
  chunk.replaceChildren(...s.rows.slice(from, from + CHUNK).map((r, j) => rowElement(s, r, from + j)));
  chunk.dataset.full = "true";
}

/** Shows other rows: empty chunks of the height of theirs, which `near` fills. */
function setRows(s, rows) {
  s.rows = rows;
  s.known = new Map();
  s.functions = outline(rows.map((r) => r.text));
  s.near.disconnect();
  const chunks = [];
  for (let from = 0; from < rows.length; from += CHUNK) {
    const count = Math.min(CHUNK, rows.length - from);
    chunks.push(h("div", { class: "chunk", "data-from": from, style: `min-height:${count * LINE}px` }));
  }
  s.pane.replaceChildren(...chunks);
  if (chunks.length) fill(s, chunks[0]); // something to see at once
  for (const c of chunks) s.near.observe(c);
}

function rowAt(s, i) {
  const chunk = s.pane.children[Math.floor(i / CHUNK)];
  if (chunk && !chunk.dataset.full) fill(s, chunk);
  return chunk?.children[i % CHUNK] ?? null;
}

function scrollTo(s, i, flash = true) {
  const target = rowAt(s, i);
  if (!target) return;
  s.pane.scrollTop = Math.max(0, i * LINE - s.pane.clientHeight / 3);
  if (flash) target.animate?.([{ background: "var(--find-bg)" }, {}], 900);
}

/** Marks these rows, and no others, as linked. */
function link(s, rows) {
  s.linked = new Set(rows);
  for (const line of s.pane.querySelectorAll(".ln")) line.classList.toggle("linked", s.linked.has(Number(line.dataset.i)));
}

/** Lights all uses of the name in row `i`, or none if they are lit. */
function light(s, name, i) {
  const f = scopeAt(s, i);
  const fact = definitionsOf(s, f).get(name);
  s.lit = s.lit?.name === name ? null : { name, scope: fact?.kind === "symbol" ? null : f };
  let count = 0;
  s.rows.forEach((r, j) => { if (isLit(s, name, j)) count += tokens(r.text).filter((t) => t.name === name).length; });
  for (const span of s.pane.querySelectorAll("[data-n]")) {
    span.classList.toggle("lit", isLit(s, span.dataset.n, Number(span.closest(".ln").dataset.i)));
  }
  s.said.textContent = s.lit ? `${name}: ${plural(count, "place")}${fact ? `. ${fact.text}` : ""}` : "";
}

/** Goes from a call of a function to its definition, or from the definition to the next call. */
function jump(s, name, i, defined) {
  const calls = s.rows.map((r, j) => (r.text.includes(`cls.${name}`) ? j : -1)).filter((j) => j >= 0);
  const to = defined ? (calls.find((j) => j > i) ?? calls[0]) : s.functions.find((f) => f.name === name)?.def;
  if (to !== undefined) scrollTo(s, to);
  s.said.textContent = to === undefined ? `${name} has no definition here` : s.rows[to].text.trim();
}

function clicked(s, event) {
  const line = event.target.closest?.(".ln");
  if (!line) return;
  const i = Number(line.dataset.i);
  s.rows[i].onclick?.();
  const span = event.target.closest("[data-n]");
  if (!span) return;
  if (span.classList.contains("t-link")) jump(s, span.dataset.n, i, false);
  else if (span.classList.contains("t-def")) jump(s, span.dataset.n, i, true);
  else light(s, span.dataset.n, i);
}

/** Shows what defines the name under the pointer. */
function pointed(s, event) {
  const span = event.target.closest?.("[data-n]");
  const i = span && Number(span.closest(".ln").dataset.i);
  const fact = span && (s.facts[span.dataset.n] ?? definitionsOf(s, scopeAt(s, i)).get(span.dataset.n)?.text);
  s.tip.hidden = !fact;
  if (!fact) return;
  s.tip.textContent = `${span.dataset.n}: ${fact}`;
  const box = span.getBoundingClientRect();
  s.tip.style.left = `${Math.max(4, Math.min(box.left, innerWidth - 360))}px`;
  s.tip.style.top = `${box.bottom + 4}px`;
}

/**
 * Rows of script, made when they come near the visible part.
 *
 * A click on a name lights all its uses: a symbol's everywhere, other names' in their function. A
 * click on a called function goes to its definition, one on a definition to the next call.
 * @param {{rows: {text: string, no?: any, mark?: string, cls?: string, title?: string, onclick?: () => void}[],
 *   height?: string, label?: string, facts?: Record<string, string>}} options a row's `changed` are the
 *   numbers of its tokens that are marked
 *   facts: more about functions, by name, for their tip
 */
export function scriptPane({ rows, height = "32em", label = "script", facts = {} }) {
  const highest = height === "none" ? height : `max(${height}, var(--room, 0px))`;
  const pane = h("div", { class: "script scroll", tabindex: 0, role: "region", "aria-label": label, style: `max-height:${highest}` });
  const tip = h("div", { class: "tip", role: "tooltip", hidden: true });
  const said = h("div", { class: "visually-hidden", "aria-live": "polite" });
  const near = new IntersectionObserver((entries) => {
    for (const e of entries) if (e.isIntersecting && !e.target.dataset.full) fill(s, e.target);
  }, { root: pane, rootMargin: "400px" });
  // `lit`: the name that is lit and the function that holds it (null: everywhere).
  const s = { pane, tip, said, facts, near, rows: [], functions: [], known: new Map(), lit: null, linked: new Set() };
  pane.addEventListener("click", (event) => clicked(s, event));
  pane.addEventListener("mouseover", (event) => pointed(s, event));
  pane.addEventListener("mouseleave", () => { tip.hidden = true; });
  pane.addEventListener("scroll", () => { tip.hidden = true; });
  setRows(s, rows);
  return {
    element: h("div", {}, pane, tip, said), pane, functions: () => s.functions, stop: () => near.disconnect(),
    setRows: (next) => setRows(s, next), rowAt: (i) => rowAt(s, i), link: (linked) => link(s, linked),
    scrollTo: (i, flash) => scrollTo(s, i, flash), light: (name, i) => light(s, name, i),
  };
}

/** Rows numbered from one. */
export const plainRows = (lines) => lines.map((text, i) => ({ text, no: i + 1 }));
