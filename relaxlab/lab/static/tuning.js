// A search: the best over time, the trials, which decisions matter, and one trial looked at closely.

import { field, formatSeconds, h, mount, notes, plural, position, scroller, table, tabs } from "./core.js";
import { TUNING_CSS, coordinatesChart, predictedChart, progressChart, ratioText } from "./tuning_charts.js";

const COLUMNS = {
  trial: (t) => t.number, outcome: (t) => t.outcome, "times as fast": (t) => t.ratio,
  predicted: (t) => t.predicted, decisions: (t) => pointText(t.point), after: (t) => t.seconds,
  reason: (t) => t.reason,
};

const pointText = (point) => point.map(([key, value]) => `${key} = ${value}`).join(", ") || "default";

/** The order of trials by a column, those without a value last. */
export function ordered(trials, column, falling) {
  const value = COLUMNS[column];
  const missing = (v) => v === null || v === "";
  return [...trials].sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (missing(x) || missing(y)) return Number(missing(x)) - Number(missing(y)) || a.number - b.number;
    const way = typeof x === "number" ? x - y : x.localeCompare(y);
    return (falling ? -way : way) || a.number - b.number;
  });
}

/** How the search ended, in a sentence. */
export function endText(end) {
  if (!end) return "The search has not ended.";
  if (end.outcome === "default") return `The default stays: ${end.reason}.`;
  const [middle, low, high] = end.interval;
  return `Confirmed: ${ratioText({ ratio: middle, low, high })} times as fast as the default, with ${pointText(end.point)}.`;
}

/** The trials that have loops and code, in a sentence. */
function recordedText(details, number, put) {
  if (put) return "";
  const found = Object.keys(details).map((name) => name.split(":").map(Number)).filter(([k]) => k === number).map(([, t]) => t + 1);
  return found.length ? ` Loops and code are here for ${found.sort((a, b) => a - b).join(", ")}.` : "";
}

function trialsTable(trials, at, model, recorded) {
  const sort = field(model, "tuning.sort", "trial");
  const predicted = trials.some((t) => t.predicted !== null);
  const heads = Object.keys(COLUMNS).filter((name) => name !== "predicted" || predicted);
  const place = h("div", {});
  const cell = (t, name) => {
    if (name === "trial") return h("button", { type: "button", class: "link", "aria-label": `trial ${t.number}`, onclick: () => at.set(t.number - 1) }, String(t.number));
    if (name === "times as fast") return t.ratio === null ? "" : h("span", { class: "nowrap" }, ratioText(t));
    if (name === "predicted") return t.predicted === null ? "" : t.predicted.toPrecision(3);
    if (name === "after") return h("span", { class: "nowrap" }, formatSeconds(t.seconds));
    if (name === "outcome") return h("span", { class: t.ratio === null ? "bad" : t.low > 1 ? "good" : "" }, t.outcome);
    return COLUMNS[name](t);
  };
  const show = () => {
    const [column, falling] = [sort.get().replace("-", ""), sort.get().startsWith("-")];
    const rows = ordered(trials, column, falling);
    const head = (name) => h("button", { type: "button", class: "link", onclick() {
      sort.set(sort.get() === name ? `-${name}` : name);
      place.querySelectorAll("th button")[heads.indexOf(name)].focus();
    } }, name, column === name ? (falling ? " ▼" : " ▲") : "");
    const made = table(heads.map(head), rows.map((t) => heads.map((name) => cell(t, name))));
    made.querySelectorAll("th").forEach((th, i) => th.setAttribute("aria-sort", heads[i] !== column ? "none" : falling ? "descending" : "ascending"));
    made.querySelectorAll("tbody tr").forEach((row, i) => {
      row.dataset.trial = String(rows[i].number - 1);
      row.addEventListener("click", () => at.set(rows[i].number - 1));
    });
    place.replaceChildren(made);
    mark();
  };
  const mark = () => place.querySelectorAll("tbody tr").forEach((row) => {
    const chosen = Number(row.dataset.trial) === at.get();
    row.classList.toggle("chosen", chosen);
    row.querySelector("button").setAttribute("aria-pressed", String(chosen));
  });
  const stops = [sort.on(show), at.on(mark)];
  show();
  const element = h("div", {}, h("p", { class: "muted" }, "Ratios are about: each trial was measured beside the best before it. A heading sorts; a trial opens below.", recorded), scroller("trials", place));
  return { element, stop: () => stops.forEach((f) => f()) };
}

function decisionsPart(kernel, trials, at) {
  const rows = kernel.decisions.map((d) => [h("code", {}, d.key), d.effect === null ? "" : `${d.effect.toFixed(2)} ×`, d.default ?? "", d.values.join(", "), d.meaning]);
  const chart = coordinatesChart(kernel, trials, at);
  return { element: h("div", {},
    h("p", { class: "muted" }, "Effect: the mean ratio of the trials with the best value of a decision over that of the trials with its worst. It says what to look at first, not that one value is better with all others."),
    chart.element, scroller("decisions", table(["decision", "effect", "default", "values tried", "what it decides"], rows))), stop: chart.stop };
}

function matrixPart(matrix) {
  const rows = matrix.rows.map(([point, intervals], r) => [point, ...intervals.map(([middle, low, high], i) =>
    h("span", { class: matrix.chosen[i] === r ? "good" : "" }, `${matrix.chosen[i] === r ? "● " : ""}${ratioText({ ratio: middle, low, high })}`))]);
  return h("div", {}, h("p", { class: "muted" }, "Each program at every size, as many times as fast as the default; ● is the one that is used there."),
    scroller("winners and sizes", table(["program", ...matrix.sizes], rows)));
}

/** A model of a part of the view, whose state is given. */
const part = (model, prefix, state) => ({
  get: (key) => (key === "state" ? state : model.get(`${prefix}.${key}`)),
  set: (key, value) => model.set(`${prefix}.${key}`, value),
  on: (event, f) => model.on(event.replace("change:", `change:${prefix}.`), f),
  off: (event, f) => model.off(event.replace("change:", `change:${prefix}.`), f),
  save_changes: () => model.save_changes(),
  send() {},
});

/** The chosen trial: what is known of it, and its loops and code where they are recorded. */
function detailPart({ model, views, put }, kernel, number, t) {
  const said = h("p", { class: "muted", role: "status" });
  const inner = h("div", { "data-part": "true" });
  const name = `${number}:${t.number - 1}`;
  const detail = model.get("state").details[name];
  let end = null;
  if (detail?.tabs.length) end = views.page.render({ model: part(model, `tuning.detail.${name}`, detail), el: inner, views });
  else if (detail) said.textContent = detail.error;
  else if (put) {
    said.textContent = "The kernel makes its loops and code …";
    put("trial", name);
  } else said.textContent = "Its loops and code were not recorded; a live view of the program makes them.";
  const item = (key, value) => (value ? [h("dt", {}, key), h("dd", {}, value)] : []);
  return { element: h("section", { class: "panel", "aria-label": `trial ${t.number}` },
    h("h3", {}, `Trial ${t.number}`, h("span", { class: "muted" }, ` of ${kernel.name}`)),
    h("dl", { class: "facts" }, item("decisions", pointText(t.point)), item("outcome", t.outcome + (t.reason ? `: ${t.reason}` : "")),
      item("times as fast", t.ratio === null ? "" : ratioText(t)), item("predicted", t.predicted?.toPrecision(3)), item("sizes", t.sizes)),
    said.textContent ? said : "", inner), stop: () => end?.() };
}

function kernelPanel(given, kernel, number) {
  const { model } = given;
  const trials = kernel.trials.map((t, i) => ({ ...t, number: i + 1 }));
  const at = field(model, `tuning.trial.${number}`, -1);
  const stops = [];
  const kept = ({ element, stop }) => {
    stops.push(stop);
    return element;
  };
  const panels = {
    "Best over time": () => kept(progressChart(kernel, trials, at)),
    Decisions: () => kept(decisionsPart(kernel, trials, at)),
    ...(trials.some((t) => t.predicted !== null && t.ratio !== null) ? { Predicted: () => kept(predictedChart(trials, at)) } : {}),
    ...(kernel.end?.matrix ? { Sizes: () => matrixPart(kernel.end.matrix) } : {}),
  };
  const titles = Object.keys(panels);
  const strip = tabs({ titles, at: position(model, `tuning.tab.${number}`, titles.length), label: "what to look at", panel: (i) => panels[titles[i]]() });
  const detail = h("div", {});
  let leave = null;
  const show = () => {
    leave?.();
    const t = trials[at.get()];
    if (!t) return;
    const made = detailPart(given, kernel, number, t);
    leave = made.stop;
    detail.replaceChildren(made.element);
  };
  stops.push(strip.stop, at.on(show));
  const list = trialsTable(trials, at, model, recordedText(model.get("state").details, number, given.put));
  stops.push(list.stop);
  show();
  const failed = trials.filter((t) => t.outcome === "failed" || t.outcome === "invalid").length;
  const element = h("div", { class: "stack" },
    h("p", { role: "status" }, `${endText(kernel.end)} ${plural(trials.length, "trial")}, ${failed} of them failed, with ${plural(kernel.threads, "thread")}.`),
    strip, list.element, detail);
  return { element, stop: () => {
    stops.forEach((f) => f());
    leave?.();
  } };
}

export default {
  render({ model, el, views, put }) {
    const { root, cleanup } = mount(el);
    const state = model.get("state");
    root.append(h("style", {}, TUNING_CSS), ...notes(state), h("h3", {}, state.title));
    const stops = [];
    const panel = (i) => {
      const { element, stop } = kernelPanel({ model, views, put }, state.kernels[i], i);
      stops.push(stop);
      return element;
    };
    if (state.kernels.length > 1) {
      const strip = tabs({ titles: state.kernels.map((k) => k.name), at: position(model, "tuning.kernel", state.kernels.length), label: "kernels", panel });
      stops.push(strip.stop);
      root.append(strip);
    } else if (state.kernels.length) root.append(h("h3", {}, h("code", {}, state.kernels[0].name)), panel(0));
    const left = Object.entries(state.left);
    if (left.length) root.append(h("p", {}, "Not tuned:"), h("ul", { class: "factlist" }, left.map(([name, why]) => h("li", {}, h("code", {}, name), `: ${why}`))));
    return () => {
      stops.forEach((f) => f());
      cleanup();
    };
  },
};
