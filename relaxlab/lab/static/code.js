// The code explorer: one kernel in several languages; a line lights those it came from and became.

import { field, fromDifferences, h, keyStep, mount, notes } from "./core.js";
import { failurePanel } from "./failure.js";
import { instructionHelp } from "./instructions.js";
import { scriptPane } from "./script_pane.js";

const STYLE = `
.codes { display: grid; gap: 8px; grid-template-columns: repeat(2, minmax(0, 1fr)); }
@container (min-width: 1700px) { .codes { grid-template-columns: repeat(4, minmax(0, 1fr)); } }
@container (max-width: 560px) { .codes { grid-template-columns: minmax(0, 1fr); } }
.codes h4 { display: flex; gap: 6px; align-items: baseline; justify-content: space-between; margin: 2px 0; }
.codes .script .ln.linked > .no { color: var(--fg); font-weight: 700; box-shadow: inset 3px 0 0 var(--accent); }
.codes .scroll { max-height: max(26em, calc(var(--room, 0px) / 2 - 3em)) !important; }
.codes.one .scroll { max-height: max(26em, var(--room, 0px)) !important; }
${Array.from({ length: 10 }, (_, i) => `.colours .script .ln.c${i} { background: color-mix(in srgb, var(--group-${i}) var(--shade, 30%), var(--bg)); }`).join("\n")}
.colours .script .ln :is(.t-module, .t-comment, .no) { color: color-mix(in srgb, var(--fg) 75%, var(--muted)); }
.codes .script .ln.linked { --shade: 75%; }
.codes .script .ln.here { outline: 1px solid var(--accent); outline-offset: -1px; }
.codes .script .ln > .mark { color: var(--accent); }
.codes .script .ln.hot > .mark { color: var(--warn); }
.facts { display: flex; gap: 6px; flex-wrap: wrap; margin: 4px 0 6px; }
.facts span { background: var(--panel); border: 1px solid var(--line); border-radius: 10px; padding: 0 8px; }
.facts .bad { color: var(--warn); background: var(--warn-bg); }
.picked { min-height: 1.5em; }
`;

/**
 * How the lines of a kernel's panes belong together. A line's `loop` is the line of the loop function
 * that it was made for, which the rows of the script lead to; PTX and SASS know their line of CUDA C as well.
 * @returns {(pane: string, row: number) => Record<string, number[]>} linked rows by pane
 */
export function linker(kernel, scriptRows) {
  const panes = kernel.panes.map((p) => ({ ...p, loop: fromDifferences(p.loop), from: p.from && fromDifferences(p.from) }));
  const origins = new Map(kernel.origins);
  const byLoop = (wanted) => Object.fromEntries(panes.map((p) => [p.key,
    p.loop.map((n, i) => (n > 0 && wanted.has(n) ? i : -1)).filter((i) => i >= 0)]));
  return (key, row) => {
    if (key === "script") {
      const loops = new Set(kernel.origins.filter(([, rows]) => rows.includes(row)).map(([line]) => line));
      return { ...byLoop(loops), script: [row] };
    }
    const pane = panes.find((p) => p.key === key);
    const line = pane?.loop[row] ?? 0;
    const cuda = key === "cuda" ? row + 1 : pane?.from?.[row] ?? 0;
    if (line === 0 && cuda === 0) return { [key]: [row] };
    const found = line === 0 ? { [key]: [row] }
      : { ...byLoop(new Set([line])), script: (origins.get(line) ?? []).filter((r) => r < scriptRows) };
    if (cuda === 0) return found;
    found.cuda = [cuda - 1];
    for (const made of panes.filter((p) => p.from && p.key !== key)) {
      found[made.key] = made.from.map((n, i) => (n === cuda ? i : -1)).filter((i) => i >= 0);
    }
    return found;
  };
}

/**
 * The colour (0 to 9) of each row of each pane, -1 for none: rows that belong together have the same.
 * Where a kernel comes from several lines of the script, those have colours; else its loops do.
 */
export function coloursOf(kernel, scriptRows) {
  const origins = new Map(kernel.origins.map(([line, rows]) => [line, rows.filter((r) => r < scriptRows)]));
  const sources = [...new Set([...origins.values()].flat())].sort((a, b) => a - b);
  const loops = kernel.panes.map((p) => [p.key, fromDifferences(p.loop)]);
  const lines = [...new Set(loops.filter(([key]) => key !== "loops").flatMap(([, loop]) => loop))].filter((n) => n > 0).sort((a, b) => a - b);
  const bySource = sources.length > 1;
  const colour = (line) => (bySource ? sources.indexOf((origins.get(line) ?? [])[0]) : lines.indexOf(line));
  const wrap = (n) => (n < 0 ? -1 : n % 10);
  const script = Array.from({ length: scriptRows }, (_, r) => wrap(bySource ? sources.indexOf(r) : -1));
  return { script, ...Object.fromEntries(loops.map(([key, loop]) => [key, loop.map((n) => wrap(colour(n)))])) };
}

/** The place to begin with: the first line of the script, or of the loops, that became code. */
export function firstLinked(kernel, scriptRows) {
  const rows = kernel.origins.flatMap(([, r]) => r).filter((r) => r < scriptRows);
  if (rows.length) return ["script", Math.min(...rows)];
  const code = new Set(kernel.panes.filter((p) => p.key !== "loops").flatMap((p) => fromDifferences(p.loop)));
  const row = fromDifferences(kernel.panes[0]?.loop ?? []).findIndex((n) => n > 0 && code.has(n));
  return row < 0 ? null : [kernel.panes[0].key, row];
}

/** What a reader hears and sees of a chosen line. */
export function linkText(titles, found, key) {
  const parts = Object.entries(found).filter(([other, rows]) => other !== key && rows.length > 0)
    .map(([other, rows]) => `${rows.length} ${rows.length === 1 ? "line" : "lines"} of ${titles[other]}`);
  return parts.length > 0 ? parts.join(", ") : "nothing is linked with this line";
}

const rowsOf = (pane, table, intel) => {
  const bits = pane.bits ? fromDifferences(pane.bits) : [];
  const spills = new Set(pane.spills);
  return fromDifferences((intel && pane.intel) || pane.lines).map((id, i) => ({
    text: table[id], no: i + 1,
    mark: spills.has(i) ? "⚠" : bits[i] > 0 ? "▮" : "",
    cls: spills.has(i) ? "hot" : "",
    title: [instructionHelp(["assembly", "ptx", "sass"].includes(pane.key) ? table[id] : ""),
      spills.has(i) ? "to or from the stack, as registers are lacking" : bits[i] > 0 ? `${bits[i]} bits at once` : ""].filter(Boolean).join("; ") || null,
  }));
};

/** The kernels other than `kernel` that a row of the script has become a part of. */
export function otherKernels(kernels, kernel, row) {
  return kernels.filter((k) => k !== kernel && k.origins.some(([, rows]) => rows.includes(row)));
}

function copyButton(pane) {
  const button = h("button", { type: "button", class: "link", "aria-label": `copy ${pane.title}`, async onclick() {
    try {
      await navigator.clipboard.writeText(pane.rows.map((r) => r.text).join("\n"));
      button.textContent = "copied";
    } catch (error) { // a page from elsewhere without a right to the clipboard
      button.textContent = `not copied (${error.name})`;
    }
  } }, "copy");
  return button;
}

/** The rows of each pane, script first, with the colours of lines that belong together. */
function panesOf(state, kernel, intel) {
  const script = state.script.map(([no, id]) => ({ text: state.table[id], no: no > 0 ? no : "", cls: no > 0 ? "" : "fold" }));
  const all = [
    ...(script.length > 0 ? [{ key: "script", title: "Script", rows: script }] : []),
    ...kernel.panes.map((p) => ({ ...p, rows: rowsOf(p, state.table, intel) })),
  ];
  const colours = coloursOf(kernel, script.length);
  for (const p of all) p.rows.forEach((r, i) => { if (colours[p.key]?.[i] >= 0) r.cls += ` c${colours[p.key][i]}`; });
  return all;
}

/** A pane with its head: buttons to the next spill and vector, and a copy of its text. */
function paneBox(p, isShown, jumpTo) {
  const pane = scriptPane({ rows: p.rows, height: "26em", label: p.title });
  const marked = (mark) => p.rows.flatMap((r, i) => (r.mark === mark ? [i] : []));
  const jump = (text, where) => where.length > 0 && h("button", { type: "button", class: "link", "aria-label": `${text} in ${p.title}`, onclick: () => jumpTo(p.key, where) }, text);
  const box = h("div", { hidden: !isShown }, h("h4", {}, h("span", {}, p.title),
    h("span", { class: "row" }, jump("next spill", marked("⚠")), jump("next vector", marked("▮")), copyButton(p))), pane.element);
  return { ...p, pane, box };
}

/** Lets a pane hear the pointer and the keys. */
function listen(part, { chosen, here, show, pick }) {
  const { pane } = part.pane;
  const rowOf = (event) => { const line = event.target.closest?.(".ln"); return line ? Number(line.dataset.i) : -1; };
  pane.addEventListener("mouseover", (event) => { if (rowOf(event) >= 0) show(part.key, rowOf(event), false); });
  pane.addEventListener("mouseleave", () => { if (chosen.get()) show(...chosen.get(), false); });
  pane.addEventListener("click", (event) => { if (rowOf(event) >= 0) { pick(part.key, rowOf(event), false); show(part.key, rowOf(event), true); } });
  pane.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter" && here(part.key) >= 0) show(part.key, here(part.key), true);
    else if (["j", "k"].includes(event.key)) pick(part.key, keyStep(event.key, here(part.key), part.rows.length), true);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
}

function check(text, checked, change) {
  const box = h("input", { type: "checkbox", checked, onchange: () => change(box.checked) });
  return h("label", {}, box, text);
}

/** The panes side by side, and a checkbox for each and for the colours. */
function arranged(parts, shown) {
  const area = h("div", { class: "codes colours" }, parts.map((p) => p.box));
  const arrange = () => area.classList.toggle("one", parts.filter((p) => !p.box.hidden).length <= 2);
  const toggles = parts.map((p) => check(p.title, shown.get()[p.key], (on) => {
    shown.set({ ...shown.get(), [p.key]: on });
    p.box.hidden = !on;
    arrange();
  }));
  toggles.push(check("colours", true, (on) => area.classList.toggle("colours", on)));
  arrange();
  return { area, toggles };
}

/** The panes of one kernel; `go(kernel, row)` shows a row of the script with another one. */
function kernelParts(state, kernel, { shown, chosen, intel }, go) {
  const all = panesOf(state, kernel, intel.get());
  const scriptLines = state.script.length;
  const titles = Object.fromEntries(all.map((p) => [p.key, p.title]));
  const linked = linker(kernel, scriptLines);
  const said = h("p", { class: "muted picked", "aria-live": "polite" }, "Point at a line, or press j and k in a pane; a click or Enter brings its partners into view.");
  const here = (key) => (chosen.get()?.[0] === key ? chosen.get()[1] : -1);
  const parts = all.map((p) => paneBox(p, shown.get()[p.key], (key, where) => pick(key, where.find((i) => i > here(key)) ?? where[0], true)));
  const show = (key, row, bring) => {
    const found = linked(key, row);
    for (const part of parts) {
      const rows = found[part.key] ?? [];
      part.pane.link(rows);
      if (bring && part.key !== key && rows.length > 0) part.pane.scrollTo(rows[0], false);
    }
    const others = key === "script" ? otherKernels(state.kernels, kernel, row) : [];
    const linkedText = linkText(titles, found, key);
    said.replaceChildren(`${titles[key]}, line ${parts.find((p) => p.key === key).rows[row]?.no ?? ""}: ${linkedText}`,
      ...others.slice(0, 6).map((k) => h("span", {}, " · ", h("button", { type: "button", class: "link", onclick: () => go(k, row) }, `in ${k.name}`))));
  };
  const pick = (key, row, bring) => {
    chosen.set([key, row]);
    const part = parts.find((p) => p.key === key);
    for (const old of part.box.querySelectorAll(".here")) old.classList.remove("here");
    part.pane.rowAt(row)?.classList.add("here");
    if (bring) part.pane.scrollTo(row, false);
    show(key, row, bring);
  };
  for (const part of parts) listen(part, { chosen, here, show, pick });
  const { area, toggles } = arranged(parts, shown);
  const first = chosen.get() ?? firstLinked(kernel, scriptLines);
  if (first) requestAnimationFrame(() => pick(...first, true)); // once the panes have their heights
  return {
    pick,
    elements: [h("div", { class: "row", role: "group", "aria-label": "panes" }, toggles), said, area],
    stop: () => { for (const p of parts) p.pane.stop(); },
  };
}

export default {
  render({ model, el }) {
    const { root, cleanup } = mount(el);
    const state = model.get("state");
    root.append(h("style", {}, STYLE), ...notes(state), failurePanel(state.failure) ?? "");
    if (state.kernels.length === 0) return cleanup;
    const panes = state.kernels.flatMap((k) => k.panes);
    const defaults = Object.fromEntries([["script", true], ...panes.map((p) => [p.key, !p.hidden])]);
    const at = field(model, "kernel", Math.max(0, state.kernels.findIndex((k) => k.panes.length > 0)));
    const shown = field(model, "shown", defaults);
    const chosen = field(model, "line", null);
    const intel = field(model, "intel", false);
    const select = h("select", { "aria-label": "kernel", onchange: () => at.set(Number(select.value)) },
      state.kernels.map((k, i) => h("option", { value: i, selected: i === at.get() }, k.name)));
    const body = h("div");
    let parts = null;
    const draw = () => {
      const kernel = state.kernels[at.get()];
      parts?.stop();
      parts = kernel.error ? { elements: [h("div", { class: "error", role: "alert" }, kernel.error)], stop() {} }
        : kernelParts(state, kernel, { shown, chosen, intel }, (other, row) => {
          select.value = state.kernels.indexOf(other);
          at.set(Number(select.value));
          parts.pick?.("script", row, true);
        });
      const bad = (fact) => /spill/.test(fact) && !/no spills/.test(fact);
      body.replaceChildren(
        h("div", { class: "facts" }, kernel.facts.map((f) => h("span", { class: bad(f) ? "bad" : "" }, f)),
          kernel.via.map((v) => h("span", { title: "the passes that made these loops of the script" }, `by ${v}`))),
        ...parts.elements);
    };
    draw();
    root.append(h("div", { class: "row" }, h("label", {}, "kernel", select), h("span", { class: "muted" }, `of ${state.kernels.length} for ${state.target}`),
      panes.some((p) => p.intel) && check("Intel syntax", intel.get(), intel.set)), body);
    const stops = [at.on(() => { model.set("line", null); draw(); }), intel.on(draw)];
    return () => {
      stops.forEach((s) => s());
      parts.stop();
      cleanup();
    };
  },
};
