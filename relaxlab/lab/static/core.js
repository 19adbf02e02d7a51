// What all views are made of: elements, the shadow root with its theme, state, controls, numbers.

import { CSS } from "./style.js";

/**
 * A DOM element. Strings among the children become text, never markup.
 * @param {string} tag @param {Record<string, any>} [props] `class`, `on…` handlers, attributes
 *   (false and null leave one out), or DOM properties `value`, `checked`, `hidden`, `disabled`
 */
export function h(tag, props = {}, ...children) {
  return filled(document.createElement(tag), props, children);
}

/** An SVG element, as `h` makes HTML ones. */
export function svg(tag, props = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);
}

function filled(element, props, children) {
  for (const [key, value] of Object.entries(props ?? {})) {
    if (value === false || value === null || value === undefined) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (["value", "checked", "hidden", "disabled"].includes(key)) element[key] = value;
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false));
  return element;
}

/** "light", "dark", or "light dark" (as the system is), as the page around the view says. */
export function schemeOf(doc) {
  const body = doc.body;
  const lab = body?.dataset?.jpThemeLight;
  if (lab) return lab === "false" ? "dark" : "light";
  const code = body?.dataset?.vscodeThemeKind;
  if (code) return /dark|contrast$/.test(code) ? "dark" : "light";
  const colab = doc.documentElement.getAttribute("theme");
  if (colab) return colab === "dark" ? "dark" : "light";
  const computed = getComputedStyle(body).colorScheme;
  return /^(dark|light)$/.test(computed) ? computed : computed.includes("dark") ? "light dark" : "light";
}

/**
 * An element inside an open shadow root of `el` that has the styles and follows the page's theme.
 * Rendering again into the same `el` starts anew. A view inside another one (`data-part`) has no
 * button for the full screen: that of the outer view shows both.
 * @returns {{root: HTMLElement, cleanup: () => void}}
 */
export function mount(el) {
  el.dataset.lmSuppressShortcuts = "true"; // JupyterLab leaves the keys to us
  const shadow = el.shadowRoot ?? el.attachShadow({ mode: "open" });
  const root = h("div", { class: "root" });
  shadow.replaceChildren(h("style", {}, CSS), root);
  if (!el.dataset.part) root.append(fullScreenStrip(el, root));
  const follow = () => { root.style.colorScheme = schemeOf(document); };
  const watcher = new MutationObserver(follow);
  for (const node of [document.documentElement, document.body]) {
    watcher.observe(node, {
      attributeFilter: ["data-jp-theme-light", "data-vscode-theme-kind", "theme", "style", "class"],
    });
  }
  follow();
  return { root, cleanup: () => { watcher.disconnect(); shadow.replaceChildren(); } };
}

/** Whether a key pressed on an element is text that is being typed there. */
const isTyping = (element) => Boolean(element?.closest?.("textarea,select,input:not([type=range],[type=checkbox])"));

/** A button, and the key f, by which a view fills the window, and Escape, by which it shrinks. */
function fullScreenStrip(el, root) {
  const button = h("button", { type: "button", title: "Full screen (f)", "aria-label": "Full screen (f)",
    "aria-pressed": "false", onclick: () => put(!el.classList.contains("full")) },
  svg("svg", { width: 13, height: 13, viewBox: "0 0 13 13", "aria-hidden": "true" },
    svg("path", { d: "M1,5V1H5M8,1h4V5M12,8v4H8M5,12H1V8", class: "line", style: "stroke:currentColor" })));
  const put = (full) => {
    el.classList.toggle("full", full);
    button.setAttribute("aria-pressed", String(full));
    // A popover stands above the page even where an ancestor clips or transforms what it holds.
    el.popover = full ? "manual" : null;
    if (full) el.showPopover();
    button.focus();
  };
  root.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (event.key === "f") put(!el.classList.contains("full"));
    else if (event.key === "Escape" && el.classList.contains("full")) put(false);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  return h("div", { class: "strip" }, button);
}

/** A model that lives on the page alone: what a notebook's widget manager offers, without a kernel. */
export function localModel(values) {
  const listeners = new Map();
  const heard = (event) => listeners.get(event) ?? [];
  return {
    get: (key) => values[key],
    set(key, value) {
      if (values[key] === value) return;
      values[key] = value;
      for (const f of heard(`change:${key}`)) f();
    },
    on: (event, f) => listeners.set(event, [...heard(event), f]),
    off: (event, f) => listeners.set(event, heard(event).filter((g) => g !== f)),
    save_changes() {},
    send() {},
  };
}

/** A piece of view state, kept in the model so that it outlives a rendering. */
export function field(model, key, initial) {
  if (model.get(key) === undefined || model.get(key) === null) model.set(key, initial);
  return {
    get: () => model.get(key),
    set(value) {
      model.set(key, value);
      model.save_changes();
    },
    /** Calls `f` on each change; returns what ends that. */
    on(f) {
      model.on(`change:${key}`, f);
      return () => model.off(`change:${key}`, f);
    },
  };
}

/** A field that counts from 0 to below `count`, put back inside where the view was made anew. */
export function position(model, key, count, initial = 0) {
  const at = field(model, key, initial);
  if (at.get() >= count) at.set(Math.max(0, count - 1));
  return at;
}

/** A part that scrolls by itself, which the keyboard reaches. */
export const scroller = (label, ...children) => h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": label }, children);

/** Scrolls `pane` alone so far that `row` is in it. */
export function reveal(pane, row) {
  const [top, high] = [row.offsetTop, row.offsetHeight];
  if (top < pane.scrollTop || top + high > pane.scrollTop + pane.clientHeight) {
    pane.scrollTop = top - pane.clientHeight / 3;
  }
}

/** A text whose parts between backticks are code. */
export const withCode = (text) => text.split("`").map((part, i) => (i % 2 ? h("code", {}, part) : part));

export const note = (text) => h("p", { class: "note", role: "note" }, withCode(text));
export const notes = (state) => (state.notes ?? []).map(note);

/** Numbers from the differences that Python wrote. */
export function fromDifferences(found) {
  let last = 0;
  return found.map((d) => (last += d));
}

/** Rows of strings, numbers or elements; numbers stand right. */
export function table(heads, rows, caption) {
  const numeric = heads.map((_, i) => rows.length > 0 && rows.every((r) => typeof r[i] === "number"));
  const cls = (i) => (numeric[i] ? "number" : null);
  return h("table", {},
    caption && h("caption", { class: "muted" }, caption),
    h("thead", {}, h("tr", {}, heads.map((t, i) => h("th", { scope: "col", class: cls(i) }, t)))),
    h("tbody", {}, rows.map((r) => h("tr", {}, r.map((c, i) =>
      h("td", { class: cls(i) }, typeof c === "number" ? formatCount(c) : c))))),
  );
}

/** Where a key leads among `count` steps from `at`; null for other keys. */
export function keyStep(key, at, count) {
  const to = {
    ArrowLeft: at - 1, k: at - 1, ArrowUp: at - 1, ArrowRight: at + 1, j: at + 1, ArrowDown: at + 1,
    Home: 0, End: count - 1, PageUp: at - 10, PageDown: at + 10,
  }[key];
  return to === undefined ? null : Math.max(0, Math.min(count - 1, to));
}

/**
 * First, back, next, last and a slider over `count` steps, which are numbered from `start`.
 * @param {{count: number, at: ReturnType<typeof field>, describe: (i: number) => string,
 *   label: string, start?: number}} options `describe` is what a screen reader hears at each step
 */
export function stepper({ count, at, describe, label, start = 1 }) {
  const go = (to) => at.set(Math.max(0, Math.min(count - 1, to)));
  const button = (text, title, to) =>
    h("button", { type: "button", title, "aria-label": title, onclick: () => go(to()) }, text);
  const back = [button("|◀", "First step", () => 0), button("◀", "Step back", () => at.get() - 1)];
  const next = [button("▶", "Next step", () => at.get() + 1), button("▶|", "Last step", () => count - 1)];
  const slider = h("input", {
    type: "range", min: 0, max: Math.max(0, count - 1), "aria-label": label,
    oninput: () => go(Number(slider.value)),
  });
  const where = h("output", {});
  const said = h("div", { class: "visually-hidden", "aria-live": "polite" });
  const show = () => {
    const i = at.get();
    slider.value = i;
    slider.setAttribute("aria-valuetext", describe(i));
    where.textContent = `${i + start} / ${count - 1 + start}`;
    said.textContent = describe(i);
    // Not `disabled`, which would take the focus, and with it the keys, at either end.
    for (const b of back) b.setAttribute("aria-disabled", String(i <= 0));
    for (const b of next) b.setAttribute("aria-disabled", String(i >= count - 1));
  };
  const keys = (event) => {
    if (event.target === slider && !["j", "k"].includes(event.key)) return; // the slider's own keys
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const to = keyStep(event.key, at.get(), count);
    if (to !== null) {
      event.preventDefault();
      go(to);
    }
  };
  const bar = h("div", { class: "row stepper", role: "group", "aria-label": label, onkeydown: keys },
    back, next, slider, where, said);
  bar.stop = at.on(show);
  show();
  return bar;
}

/**
 * A list of which one item is chosen, with one tab stop and arrow keys.
 * @param {{items: {label: any, title?: string}[], at: ReturnType<typeof field>, label: string}} options
 */
export function listbox({ items, at, label }) {
  const options = items.map((item, i) => h("li", {
    role: "option", title: item.title, onclick: () => at.set(i),
  }, item.label));
  const list = h("ul", {
    class: "list", role: "listbox", "aria-label": label,
    onkeydown(event) {
      const shown = options.map((o, i) => (o.hidden ? -1 : i)).filter((i) => i >= 0);
      const to = keyStep(event.key, Math.max(0, shown.indexOf(at.get())), shown.length);
      if (to === null || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      event.stopPropagation();
      at.set(shown[to]);
      options[shown[to]].focus();
    },
  }, options);
  const show = () => options.forEach((o, i) => {
    const chosen = i === at.get();
    o.setAttribute("aria-selected", String(chosen));
    o.tabIndex = chosen ? 0 : -1;
    if (chosen) o.scrollIntoView?.({ block: "nearest" });
  });
  list.stop = at.on(show);
  list.options = options;
  show();
  return list;
}

/** Tabs; `panel(i)` makes the content of one when it is first shown. */
export function tabs({ titles, at, label, panel }) {
  const id = `t${Math.random().toString(36).slice(2)}`;
  const panels = titles.map((_, i) => h("div", {
    role: "tabpanel", id: `${id}p${i}`, "aria-labelledby": `${id}t${i}`, hidden: true,
  }));
  const buttons = titles.map((title, i) => h("button", {
    type: "button", role: "tab", id: `${id}t${i}`, "aria-controls": `${id}p${i}`, onclick: () => at.set(i),
  }, title));
  const filledPanels = new Set();
  const show = () => titles.forEach((_, i) => {
    const chosen = i === at.get();
    buttons[i].setAttribute("aria-selected", String(chosen));
    buttons[i].tabIndex = chosen ? 0 : -1;
    panels[i].hidden = !chosen;
    if (chosen && !filledPanels.has(i)) {
      filledPanels.add(i);
      panels[i].append(panel(i));
    }
  });
  const strip = h("div", {
    class: "tabs", role: "tablist", "aria-label": label,
    onkeydown(event) {
      const to = keyStep(event.key, at.get(), titles.length);
      if (to === null || ["j", "k"].includes(event.key)) return;
      event.preventDefault();
      at.set(to);
      buttons[to].focus();
    },
  }, buttons);
  const all = h("div", {}, strip, panels);
  all.stop = at.on(show);
  show();
  return all;
}

function scaled(n, units, step) {
  let i = 0;
  while (Math.abs(n) >= step && i < units.length - 1) {
    n /= step;
    i += 1;
  }
  const digits = i === 0 || Math.abs(n) >= 100 ? 0 : Math.abs(n) >= 10 ? 1 : 2;
  return `${Number.isInteger(n) ? n : n.toFixed(digits)}${units[i]}`;
}

/** 1536 -> "1.50 KiB" */
export const formatBytes = (n) => (n === null || n === undefined ? "?" : scaled(n, [" B", " KiB", " MiB", " GiB", " TiB"], 1024));
/** 1234567 -> "1.23 M"; below ten thousand as it is */
export const formatCount = (n) => (n === null || n === undefined ? "?" : Math.abs(n) < 10000
  ? String(Number.isInteger(n) ? n : Number(n.toPrecision(3))) : scaled(n, ["", " k", " M", " G", " T", " P"], 1000));
/** "1 pass", "2 passes" */
/** A tuple as Python writes it: "(n, 4)", "(64,)". */
export const tupleText = (items) => `(${items.join(", ")}${items.length === 1 ? "," : ""})`;
export const plural = (n, one, many = `${one}s`) => `${formatCount(n)} ${n === 1 ? one : many}`;
/** Seconds with a unit */
export const formatSeconds = (s) => (s >= 1 ? `${s.toFixed(2)} s` : s >= 1e-3 ? `${(s * 1e3).toFixed(1)} ms`
  : s >= 1e-6 ? `${(s * 1e6).toFixed(1)} µs` : s === 0 ? "0" : `${(s * 1e9).toFixed(0)} ns`);
/** A name that is broken after its underscores, where it has to be. */
export const breakable = (name) => name.split("_").flatMap((part, i) => (i ? ["_", h("wbr"), part] : [part]));
