// Batching policies: a learned automaton, one minibatch under each policy, and counts of batches.

import { field, formatCount, h, mount, notes, plural, position, scroller, stepper, table, tabs } from "./core.js";
import { POLICY_CSS, automatonDrawing, checksChart, letterOf, minibatchDrawing, stripsChart } from "./policy_charts.js";

/** The letters of types, with their names. */
const legend = (types) => h("ul", { class: "legend" }, types.map((name, t) => h("li", {}, chip(t), name)));

const chip = (t) => h("span", { class: "swatch", style: `background:var(--group-${t % 10})` }, letterOf(t));

/** "A B" as chips. */
const chips = (state) => h("span", { class: "nowrap" }, state.types.map(chip));

/** The states that a state led to and came from, by number, the most frequent first. */
export function neighbours(moves, state) {
  const by = (mine, other) => moves.filter((m) => m[mine] === state).map((m) => [m[other], m[2]]).sort((a, b) => b[1] - a[1]);
  return { to: by(0, 1), from: by(1, 0) };
}

/** Of a run, the batches up to a step that did not lower the bound of what was left. */
export const lostUpTo = (run, step) => run.lost.slice(0, step).reduce((n, lost) => n + lost, 0);

function stateFacts(state, automaton, number, at) {
  const found = automaton.states[number];
  const names = (t) => state.types[t];
  const least = Math.min(0, ...found.values.map(([, v]) => v));
  const bar = (v) => h("span", { class: "qbar", style: `width:${least ? (100 * v) / least : 0}%` });
  const value = ([t, v]) => h("tr", { class: t === found.action ? "best" : "" },
    h("td", {}, t === found.action ? "▶ " : "", chip(t), " ", names(t)), h("td", { class: "number" }, v.toFixed(2)), h("td", { class: "bars" }, bar(v)));
  const link = ([s, count]) => h("li", {}, h("button", { type: "button", class: "link", "aria-label": `state ${automaton.states[s].types.map(names).join(", ")}`, onclick: () => at.set(s) }, chips(automaton.states[s])), ` ${plural(count, "time")}`);
  const { to, from } = neighbours(automaton.moves, number);
  const list = (title, items) => items.length > 0 && [h("h4", {}, title), h("ul", { class: "plain" }, items.map(link))];
  return [h("h4", {}, "State ", chips(found)), h("p", {}, found.types.map(names).join(", ")),
    h("p", { class: "muted" }, `${plural(found.times, "time")} in these minibatches, ${plural(found.visits, "time")} in learning.`),
    found.values.length ? [h("p", {}, "The sum of rewards after each choice, as learned: at most 0. ▶ is run."), h("table", { class: "qvalues" }, h("tbody", {}, found.values.map(value)))]
      : h("p", { class: "note" }, "It is not in the table: the type with most ready nodes is run."),
    list("Then", to), list("Before", from)];
}

function automatonPanel(state, model) {
  const { automaton } = state;
  const at = position(model, "policy.state", automaton.states.length);
  const facts = h("div", { class: "panel stack", "aria-live": "polite" });
  const drawing = automatonDrawing(state, at);
  const show = () => facts.replaceChildren(...stateFacts(state, automaton, at.get(), at).flat(Infinity).filter(Boolean));
  const rows = automaton.states.map((s, i) => [h("button", { type: "button", class: "link", "aria-label": `state ${s.types.map((t) => state.types[t]).join(", ")}`, onclick: () => at.set(i) }, chips(s)),
    s.action === null ? "" : state.types[s.action], s.times, s.visits]);
  const hidden = automaton.states.length - automaton.places.length;
  const stops = [at.on(show), drawing.stop];
  show();
  const learning = state.learning && h("details", {}, h("summary", {}, "How it was learned"), checksChart(state.learning),
    scroller("batches of the minibatches held out", table(["policy", "batches of the minibatches held out"], state.learning.held_out)));
  const element = h("div", { class: "stack" },
    h("p", { class: "muted" }, `Encoding ${automaton.encoding}. A state is a set of types, the underlined one is run next; states are drawn in the order in which they come up, edges as wide as moves are frequent.${hidden > 0 ? ` ${plural(hidden, "state")} with fewer visits ${hidden === 1 ? "is" : "are"} in the table only.` : ""}`),
    h("div", { class: "wide-left" }, drawing.element, facts), learning,
    h("details", {}, h("summary", {}, `All ${plural(automaton.states.length, "state")}`), scroller("states", table(["state", "is run", "times here", "visits in learning"], rows))));
  return { element, stop: () => stops.forEach((f) => f()) };
}

/** What each policy does at a step, and the ready nodes and frontiers before it. */
function stepTable(state, step) {
  const cell = (run, t) => {
    if (step >= run.types.length) return "";
    const [ready, frontier] = [run.ready[step][t], run.frontier[step][t]];
    return h("span", { class: `nowrap${run.types[step] === t ? " runs" : ready ? "" : " muted"}` }, run.types[step] === t ? "▶ " : "", `${formatCount(ready)} / ${formatCount(frontier)}`);
  };
  const batch = (run) => {
    if (step >= run.types.length) return h("span", { class: "muted" }, `done in ${run.types.length}`);
    return h("span", { class: "nowrap" }, chip(run.types[step]), ` × ${formatCount(run.sizes[step])} `, run.lost[step] ? h("span", { class: "bad" }, "✕ lost") : "");
  };
  const heads = ["", ...state.names];
  const rows = [["batch", ...state.runs.map(batch)], ["lost so far", ...state.runs.map((run) => String(lostUpTo(run, step + 1)))],
    ...state.types.map((name, t) => [h("span", { class: "nowrap" }, chip(t), " ", name), ...state.runs.map((run) => cell(run, t))])];
  return table(heads, rows);
}

function stepsPanel(state, model) {
  const most = Math.max(1, ...state.runs.map((r) => r.types.length));
  const at = position(model, "policy.step", most);
  const which = position(model, "policy.drawn", state.runs.length, state.runs.length - 1);
  const bar = stepper({ count: most, at, label: "batches", describe: (i) => `batch ${i + 1}: ${state.names.map((n, p) => `${n} ${i < state.runs[p].types.length ? state.types[state.runs[p].types[i]] : "done"}`).join(", ")}` });
  const strips = stripsChart(state, at);
  const place = scroller("ready nodes and frontiers", "");
  const stops = [bar.stop, strips.stop, at.on(() => show())];
  const show = () => place.replaceChildren(stepTable(state, at.get()));
  const drawn = h("div", {});
  if (state.drawing) {
    const drawing = minibatchDrawing(state, at, which);
    const choice = h("select", { "aria-label": "policy whose batches are drawn", onchange: () => which.set(Number(choice.value)) },
      state.names.map((name, i) => h("option", { value: i, selected: i === which.get() }, name)));
    drawn.append(h("div", { class: "row" }, h("label", {}, "The minibatch under ", choice), h("span", { class: "muted" }, "filled: has run; heavy: runs now; outlined: ready; faint: waits")), scroller("the minibatch", drawing.element));
    stops.push(drawing.stop);
  }
  show();
  const element = h("div", { class: "stack" },
    h("p", { class: "muted" }, `${plural(state.nodes, "node")}, bound ${plural(state.bound, "batch", "batches")}. A batch is lost if the bound of what is left is as high after it as before. Below: ready nodes / frontier of each type; ▶ is run.`),
    bar, scroller("batches of each policy", strips.element), place, drawn);
  return { element, stop: () => stops.forEach((f) => f()) };
}

function countsPanel(state) {
  const of = (count, bound) => h("span", { class: count === bound ? "good nowrap" : "nowrap" }, `${count} (${(count / Math.max(1, bound)).toFixed(2)}×)`);
  const row = ([nodes, bound, ...counts], name) => [name, nodes, bound, ...counts.map((c) => of(c, bound))];
  const sums = state.counts[0].map((_, i) => state.counts.reduce((n, r) => n + r[i], 0));
  const rows = [...state.counts.map((r, i) => row(r, `minibatch ${i + 1}`)), row(sums, "together")];
  return h("div", {}, h("p", { class: "muted" }, "Batches, and how many times the bound that is."), scroller("batches", table(["", "nodes", "bound", ...state.names], rows)));
}

export default {
  render({ model, el }) {
    const { root, cleanup } = mount(el);
    const state = model.get("state");
    const stops = [];
    const kept = ({ element, stop }) => {
      stops.push(stop);
      return element;
    };
    const panels = {
      ...(state.automaton ? { Automaton: () => kept(automatonPanel(state, model)) } : {}),
      "Batch by batch": () => kept(stepsPanel(state, model)),
      "Numbers of batches": () => countsPanel(state),
    };
    const titles = Object.keys(panels);
    const at = field(model, "policy.tab", 0);
    const strip = tabs({ titles, at, label: "what to look at", panel: (i) => panels[titles[i]]() });
    root.append(h("style", {}, POLICY_CSS), ...notes(state), legend(state.types), strip);
    return () => {
      strip.stop();
      stops.forEach((f) => f());
      cleanup();
    };
  },
};
