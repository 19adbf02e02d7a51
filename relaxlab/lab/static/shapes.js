// Shapes, binding by binding: rules, unifications, questions, losses; numbers follow the sliders.

import { breakable, field, formatBytes, formatCount, h, listbox, position, stepper, tupleText } from "./core.js";
import { evaluate, formatExpr, symbolSliders } from "./symbols.js";
import { finder, matching } from "./find.js";
import { ofFunctions } from "./functions.js";

const ANSWER = {
  proved: ["✓", "made", "always true"], never: ["✗", "refused", "never true"], open: ["?", "open", "depends on the symbols"],
};
const TITLES = {
  unified: "Symbols found by unification", matched: "Dimensions compared", asked: "Asked the prover",
  checked: "Left to run time", lost: "Lost, and how to get it back",
};

/** A shape with the values of its symbols; "" where it is not known. */
export function shapeAt(dims, env) {
  if (!dims) return "";
  const values = dims.map((d) => evaluate(d, env));
  return tupleText(values.map((v) => v ?? "?"));
}

/** Sums over bindings at values of the symbols, and how many are not known. */
export function totals(bindings, env) {
  const sum = { bytes: 0, flops: 0, unknown: 0 };
  for (const b of bindings) {
    if (b.kind === "result") continue;
    const [bytes, flops] = [evaluate(b.bytes, env), evaluate(b.flops, env)];
    sum.bytes += bytes ?? 0;
    sum.flops += flops ?? 0;
    if (bytes === null && b.dtype !== null) sum.unknown += 1;
  }
  return sum;
}

/** What stands out in a binding: [sign, class, words]. */
export function marks(b) {
  const has = (kind) => b.events.some((f) => f.kind === kind);
  const found = [];
  if (b.failed) found.push(["✗", "refused", "no type"]);
  if (has("lost")) found.push(["⚠", "open", "shape lost"]);
  if (has("checked") || b.kind === "match_cast") found.push(["rt", "open", "checked at run time"]);
  if (has("unified")) found.push([":=", "made", "unified across functions"]);
  return found;
}

function factItem(f) {
  const answer = f.answer && ANSWER[f.answer];
  return h("li", {}, answer ? h("span", { class: answer[1], title: answer[2] }, `${answer[0]} `) : "",
    h("code", {}, f.text), answer ? h("span", { class: "muted" }, ` ${answer[2]}`) : "", f.place ? h("span", { class: "muted" }, ` — ${f.place}`) : "",
    f.remedy ? h("div", { class: "remedy" }, h("span", { class: "muted" }, "add this line after it: "), h("pre", { class: "mono wrap" }, f.remedy)) : "");
}

function details(b, env) {
  const amount = (e, format) => [evaluate(e, env) === null ? "not known" : format(evaluate(e, env)), e === null || typeof e === "number" ? "" : h("span", { class: "muted mono" }, ` = ${formatExpr(e)}`)];
  const groups = Object.entries(TITLES).map(([kind, title]) => [title, b.events.filter((f) => f.kind === kind)]).filter(([, list]) => list.length);
  return [
    h("h4", { class: "mono" }, b.name),
    b.failed ? h("p", { class: "refused" }, "It has no type; see the errors above.") : h("p", { class: "mono" }, b.type),
    h("dl", { class: "facts" },
      h("dt", {}, "by"), h("dd", {}, b.rule),
      b.defines.length > 0 && [h("dt", {}, "defines"), h("dd", { class: "mono" }, b.defines.join(", "))],
      b.dims && [h("dt", {}, "shape"), h("dd", { class: "mono" }, shapeAt(b.dims, env))],
      h("dt", {}, "bytes"), h("dd", {}, amount(b.bytes, formatBytes)),
      b.kind === "binding" && [h("dt", {}, "FLOPs"), h("dd", {}, amount(b.flops, formatCount))]),
    b.text && h("pre", { class: "mono wrap" }, b.text),
    groups.map(([title, list]) => [h("h4", {}, title), h("ul", { class: "plain factlist" }, list.map(factItem))]),
    groups.length === 0 && h("p", { class: "muted" }, "There was nothing to unify, to prove, or to check at run time."),
  ];
}

/** The type of a value: "(n, 4) float32", and fields of tuples as tensors by themselves. */
export const typeText = (b) => (b.dims ? `${tupleText(b.dims.map((d) => formatExpr(d)))} ${b.dtype ?? "?"}`
  : b.type.replaceAll(/R\.Tensor\((\([^()]*\)), '(\w+)'\)/g, "$1 $2").replaceAll("R.", "") || "no type");

const FILTERS = {
  all: ["all values", () => true], parameters: ["parameters", (b) => b.kind === "parameter"],
  operators: ["operators", (b) => b.kind !== "parameter"], marked: ["marked ones", (b) => marks(b).length > 0],
};

/** A search and a choice of the values to list. */
function filterBar(fn, list, at, model) {
  const kind = field(model, "filter", "all");
  const texts = fn.bindings.map((b) => `${b.name} ${b.op} ${typeText(b)}`);
  let search = "";
  const show = () => {
    const found = new Set(matching(texts, search));
    list.options.forEach((o, i) => { o.hidden = !FILTERS[kind.get()][1](fn.bindings[i]) || (search !== "" && !found.has(i)); });
  };
  const select = h("select", { "aria-label": "values to list", onchange: () => kind.set(select.value) },
    Object.entries(FILTERS).map(([key, [text, of]]) => h("option", { value: key, selected: key === kind.get() }, `${text} (${fn.bindings.filter(of).length})`)));
  const find = finder({ label: "find a value or operator", texts: () => texts, at: () => at.get(), go: (i) => at.set(i),
    changed(_, text) { search = text; show(); } });
  show();
  return { element: h("div", { class: "row", style: "margin-bottom:4px" }, find, select), stop: kind.on(show) };
}

function functionView(fn, model) {
  const key = fn.name;
  const at = position(model, `step ${key}`, fn.bindings.length);
  const values = field(model, "values", {});
  const missing = fn.symbols.filter((s) => values.get()[s] === undefined);
  if (missing.length) values.set({ ...values.get(), ...Object.fromEntries(missing.map((s) => [s, 16])) });
  const cells = fn.bindings.map(() => h("span", { class: "mono muted cell" }));
  const sizes = fn.bindings.map(() => h("span", { class: "muted cell amount" }));
  const items = fn.bindings.map((b, i) => ({
    label: [h("span", { class: `mono who ${b.made_up ? "made-up" : ""}`, title: b.made_up ? "a name that the compiler made up" : null }, b.name),
      h("span", { class: "mono muted" }, breakable(b.op)), h("span", { class: "mono what" }, typeText(b)),
      cells[i], sizes[i], h("span", {}, marks(b).map(([sign, cls, words]) => h("span", { class: `badge ${cls}`, title: words }, sign, h("span", { class: "visually-hidden" }, ` ${words}`))))],
    title: b.rule,
  }));
  const list = listbox({ items, at, label: `values of ${key}, in order of deduction` });
  list.classList.add("values");
  const filter = filterBar(fn, list, at, model);
  const bar = stepper({ count: fn.bindings.length, at, label: "bindings", describe: (i) => `${fn.bindings[i].name}: ${fn.bindings[i].type || "no type"}` });
  const panel = h("div", { class: "panel", "aria-live": "polite" });
  const sum = h("p", { role: "status" });
  const showDetails = () => panel.replaceChildren(...details(fn.bindings[at.get()], values.get()).flat(Infinity).filter(Boolean));
  const showValues = () => {
    const env = values.get();
    fn.bindings.forEach((b, i) => {
      cells[i].textContent = b.dims && b.dims.some((d) => typeof d !== "number") ? shapeAt(b.dims, env) : "";
      const bytes = evaluate(b.bytes, env);
      sizes[i].textContent = bytes === null ? "" : formatBytes(bytes);
    });
    const t = totals(fn.bindings, env);
    sum.textContent = `All values: ${formatBytes(t.bytes)}; arithmetic: ${formatCount(t.flops)} FLOPs${t.unknown ? `; without ${t.unknown} of unknown size` : ""}.`;
    showDetails();
  };
  const where = Object.entries(fn.origins);
  const sliders = symbolSliders(fn.symbols, values);
  const stops = [sliders.stop, filter.stop, at.on(showDetails), values.on(showValues), list.stop, bar.stop];
  showValues();
  const element = h("div", {}, fn.symbols.length > 0 && sliders,
    where.length > 0 && h("p", { class: "muted" }, "Symbols: ", where.map(([s, v], i) => [i ? ", " : "", h("code", {}, s), ` from `, h("code", {}, v)])),
    sum, bar, filter.element, legendOf(fn), h("div", { class: "wide-left half" },
      h("div", { class: "scroll panel", style: "max-height:max(34em, var(--room, 0px))" },
        h("div", { class: "values-head", "aria-hidden": "true" }, ["value", "operator", "type", "shape here", "bytes", ""].map((t) => h("span", { class: t === "bytes" ? "amount" : "" }, t))), list), panel));
  return { element, stop: () => stops.forEach((s) => s()) };
}

/** The meaning of the badges that occur, and of names in italics. */
function legendOf(fn) {
  const found = new Map(fn.bindings.flatMap(marks).map((m) => [m[0], m]));
  const madeUp = fn.bindings.some((b) => b.made_up);
  if (!found.size && !madeUp) return null;
  return h("ul", { class: "legend" },
    [...found.values()].map(([sign, cls, text]) => h("li", {}, h("span", { class: `badge ${cls}` }, sign), text)),
    madeUp && h("li", {}, h("em", { class: "mono muted" }, "name"), "named by the compiler"));
}

export default ofFunctions(functionView);
