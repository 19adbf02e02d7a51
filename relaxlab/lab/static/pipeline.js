// The pipeline explorer: passes, what each changed, its remarks: rewrites made and refused, and why.

import { failureFacts } from "./failure.js";
import { breakable, field, fromDifferences, h, keyStep, listbox, mount, notes, plural, stepper, withCode } from "./core.js";
import { PASSES_STYLE, changesSentence, moduleDiff, modulesOf, passTime, subjectPlaces } from "./passes.js";

/** The remarks of a pass, from columns of numbers. */
export function remarksOf(pass, lines) {
  if (pass.remarks.length === 0) return []; // left out
  const [rules, subjects, reasons, made, modules, sources] = pass.remarks.map(fromDifferences);
  return rules.map((rule, i) => ({
    rule: lines[rule], subject: lines[subjects[i]], reason: lines[reasons[i]],
    made: made[i] === 1, module: modules[i], source: lines[sources[i]],
  }));
}

/** Before and after one rewrite, as far as they were recorded: else before and after the pass. */
export function modulesAround(pass, remarks, k) {
  if (k < 0 || !remarks.some((w) => w.module >= 0)) return { before: pass.before, after: pass.after, exact: k < 0 };
  let before = pass.before;
  for (const w of remarks.slice(0, k)) if (w.module >= 0) before = w.module;
  const after = remarks[k].made ? remarks[k].module : before;
  return after >= 0 ? { before, after, exact: true } : { before: pass.before, after: pass.after, exact: false };
}

/** Whether a pass is in the list: by what is searched for, and whether it did anything. */
export function isListed(pass, remarks, search, unchanged) {
  const words = search.trim().toLowerCase();
  if (words === "") return unchanged || pass.changed || pass.failure !== null;
  return pass.name.toLowerCase().includes(words) || remarks.some((w) => w.subject.toLowerCase().includes(words));
}

const SHOWN = 150; // remarks listed at once

function passList(state, { at, remarks, search, unchanged }) {
  const longest = Math.max(...state.passes.map((p) => p.ms), 0.001);
  const items = state.passes.map((p, i) => {
    const made = remarks(i).filter((w) => w.made).length;
    const [sign, said, cls] = p.failure ? ["✗", "failed", "bad"] : p.changed ? ["●", "changed", "good"] : ["○", "no change", "muted"];
    return {
      title: `${said}${made > 0 ? `, ${plural(made, "rewrite")}` : ""}${p.about ? `: ${p.about}` : ""}`,
      label: [
        h("span", { class: `status ${cls}`, "aria-hidden": "true" }, sign),
        h("span", { class: "grow" }, h("span", { class: "muted" }, `${i + 1} `), breakable(p.name),
          h("span", { class: "visually-hidden" }, `, ${said}`), h("span", { class: "muted" }, made > 0 ? ` ×${made}` : "")),
        p.ms !== null && passTime(p.ms, longest),
      ],
    };
  });
  const list = listbox({ items, at, label: "passes" });
  const said = h("p", { class: "muted", role: "status" });
  let listed = [];
  const filter = () => {
    const kept = state.passes.map((p, i) => isListed(p, remarks(i), search.get(), unchanged.get())
      || (search.get() === "" && i === at.get()));
    listed = kept.map((_, i) => i).filter((i) => kept[i]);
    list.options.forEach((o, i) => { o.hidden = !kept[i]; });
    said.textContent = listed.length === kept.length ? plural(kept.length, "pass", "passes") : `${listed.length} of ${kept.length} passes`;
    if (!kept[at.get()] && listed.length > 0) at.set(listed[0]);
  };
  const box = h("input", { type: "search", placeholder: "find a pass or function", "aria-label": "find a pass, or what it rewrote",
    value: search.get(), class: "wide", oninput: () => { search.set(box.value); filter(); } });
  const all = h("input", { type: "checkbox", checked: unchanged.get(), onchange: () => { unchanged.set(all.checked); filter(); } });
  filter();
  return {
    element: h("div", {}, box, h("div", { class: "row spread" }, said, h("label", {}, all, "show unchanged")), h("div", { class: "scroll tall" }, list)),
    listed: () => listed,
    stop: list.stop,
  };
}

/** The list of a pass's remarks; of thousands, those around the chosen one. */
function remarkList(remarks, kept, at) {
  const area = h("div", { class: "scroll short" });
  const more = h("p", { class: "muted", hidden: kept.length <= SHOWN }, `${SHOWN} of ${kept.length} are listed, around the chosen one`);
  let list = null;
  let first = -1;
  const fill = () => {
    const k = at.get() - 1;
    if (first >= 0 && (k < 0 || (k >= first && k < first + SHOWN))) return;
    const focused = list !== null && area.contains(area.getRootNode().activeElement);
    list?.stop();
    first = Math.max(0, Math.min(k - SHOWN / 2, kept.length - SHOWN));
    const start = first;
    const inner = { get: () => at.get() - 1 - start, set: (i) => at.set(i + 1 + start), on: (f) => at.on(f) };
    list = listbox({ label: "remarks", at: inner, items: kept.slice(first, first + SHOWN).map((i) => remarkItem(remarks[i])) });
    if (inner.get() < 0 && list.options[0]) list.options[0].tabIndex = 0; // a way in by keyboard
    area.replaceChildren(list);
    if (focused) list.options[inner.get()]?.focus();
  };
  fill();
  const stop = at.on(fill);
  return { element: h("div", {}, area, more), stop: () => { stop(); list?.stop(); } };
}

const remarkItem = (w) => ({ label: [
  h("span", { class: `status ${w.made ? "good" : "bad"}` }, w.made ? "+" : "−"),
  h("span", {}, h("span", { class: "visually-hidden" }, w.made ? "made: " : "refused: "),
    h("span", { class: "mono" }, w.subject), h("span", { class: "muted" }, ` — ${w.reason}`)),
] });

const choiceOf = (label, choices, at) => {
  const select = h("select", { "aria-label": label, onchange: () => at.set(select.value) },
    choices.map(([value, text]) => h("option", { value, selected: value === at.get() }, text)));
  return select;
};

/** The remarks of a pass: which kind of them, steps over them, and their list. */
function remarkBar(remarks, kept, which, step) {
  if (remarks.length === 0) return { elements: [], stop() {} };
  const made = remarks.filter((r) => r.made).length;
  const choice = choiceOf("which remarks", [["all", `${remarks.length > 1 ? "all " : ""}${plural(remarks.length, "remark")}`], ["made", `${made} made`],
    ["refused", `${remarks.length - made} refused`]], which);
  const describe = (i) => {
    const w = remarks[kept[i - 1]];
    return w ? `${w.made ? "made" : "refused"}: ${w.subject}, ${w.reason}` : "the whole pass";
  };
  const bar = stepper({ count: kept.length + 1, at: step, describe, label: "remarks of this pass", start: 0 });
  bar.classList.add("grow");
  const list = remarkList(remarks, kept, step);
  return { elements: [h("div", { class: "row" }, choice, bar), list.element], stop: () => { bar.stop(); list.stop(); } };
}

/** The chosen pass: what it is, its remarks, and what it or one of them changed. */
function passDetail(state, all, fields) {
  const { at, step, which, layout, remarks: decoded } = fields;
  const title = h("h3", {});
  const told = h("p", { class: "muted" });
  const failure = h("div");
  const said = h("p", { role: "status" });
  const bars = h("div");
  const body = h("div");
  const view = choiceOf("layout", [["unified", "difference"], ["side", "side by side"], ["whole", "whole module"]], layout);
  let [bar, diff, kept, drawn] = [null, null, [], ""];
  const drawStep = () => {
    const pass = state.passes[at.get()];
    const remarks = decoded(at.get());
    const chosen = kept[step.get() - 1] ?? -1;
    const w = remarks[chosen];
    const around = modulesAround(pass, remarks, chosen);
    const names = all.names(around.after);
    const stuck = pass.failure && around.before === around.after; // there is nothing but the module before
    const shape = stuck ? "whole" : layout.get();
    const key = `${around.before},${around.after},${shape}`;
    if (key !== drawn) {
      drawn = key;
      diff?.stop();
      diff = moduleDiff(all, { ...around, layout: shape });
      body.replaceChildren(diff.element);
    }
    const what = !w ? "" : !w.made ? "Refused: " : around.exact ? "This rewrite alone: " : "The whole pass: ";
    said.replaceChildren(h("strong", {}, what), stuck ? "The module before this pass:"
      : w && !w.made && around.exact ? "the module stays" : changesSentence(diff.pairs),
    w?.source ? h("span", { class: "muted" }, " · decided in ", h("code", {}, w.source)) : "");
    diff.focus(w ? subjectPlaces(w.subject, names) : []);
  };
  const drawPass = () => {
    const pass = state.passes[at.get()];
    const remarks = decoded(at.get());
    kept = remarks.map((_, i) => i).filter((i) => which.get() === "all" || remarks[i].made === (which.get() === "made"));
    title.replaceChildren(pass.name, h("span", { class: "muted mono small" }, pass.options ? ` (${pass.options})` : ""));
    told.replaceChildren(...withCode(pass.about));
    told.hidden = !pass.about;
    failure.replaceChildren(...(pass.failure ? [failureFacts(pass.failure)] : []));
    bar?.stop();
    bar = remarkBar(remarks, kept, which, step);
    bars.replaceChildren(...bar.elements);
    drawStep();
  };
  drawPass();
  const stops = [
    at.on(() => { step.set(0); drawPass(); }), step.on(drawStep), layout.on(drawStep),
    which.on(() => { step.set(0); drawPass(); bars.querySelector("select")?.focus(); }),
  ];
  return {
    element: h("div", {}, h("div", { class: "row spread" }, title, view), told, failure, bars, said, body),
    stop: () => { for (const stop of stops) stop(); bar.stop(); diff.stop(); },
  };
}

export default {
  render({ model, el }) {
    const { root, cleanup } = mount(el);
    const state = model.get("state");
    root.append(h("style", {}, PASSES_STYLE), ...notes(state));
    if (state.failure || state.passes.length === 0) {
      root.append(h("h3", {}, state.failure ? "This program has errors" : "No passes ran"),
        state.failure ? failureFacts(state.failure) : "");
      return cleanup;
    }
    const failed = state.passes.findIndex((p) => p.failure);
    const at = field(model, "pass", failed >= 0 ? failed : Math.max(0, state.passes.findIndex((p) => p.changed)));
    const known = new Map();
    const remarks = (i) => {
      if (!known.has(i)) known.set(i, remarksOf(state.passes[i], state.lines));
      return known.get(i);
    };
    const left = passList(state, { at, remarks, search: field(model, "search", ""), unchanged: field(model, "unchanged", false) });
    const right = passDetail(state, modulesOf(state), {
      at, remarks, step: field(model, "remark", 0), which: field(model, "which", "all"), layout: field(model, "layout", "unified"),
    });
    root.append(h("div", { class: "split" }, left.element, right.element));
    const keys = (event) => { // j and k walk the passes from anywhere but a control
      const control = event.target.closest?.("input,select,[role=listbox],[role=group]");
      if (control || event.ctrlKey || event.metaKey || event.altKey || !["j", "k"].includes(event.key)) return;
      const listed = left.listed();
      const to = keyStep(event.key, listed.indexOf(at.get()), listed.length);
      at.set(listed[to]);
    };
    root.addEventListener("keydown", keys);
    return () => {
      left.stop();
      right.stop();
      cleanup();
    };
  },
};
