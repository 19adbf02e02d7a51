// Symbols and expressions of them: their values, their text, and sliders that change them.

import { h } from "./core.js";

/**
 * A number and a slider for each symbol, over powers of two up to `max` (any number can be typed).
 * @param {string[]} symbols @param {ReturnType<typeof field>} values an object: symbol to number
 */
export function symbolSliders(symbols, values, { max = 4096 } = {}) {
  const top = Math.round(Math.log2(max));
  const rows = symbols.map((name) => {
    const put = (n) => values.set({ ...values.get(), [name]: Math.max(0, Math.round(n) || 0) });
    const number = h("input", { type: "number", min: 0, "aria-label": `value of ${name}`, onchange: () => put(Number(number.value)) });
    const slider = h("input", { type: "range", min: 0, max: top, step: 1, "aria-label": `${name}, powers of two`, oninput: () => put(2 ** Number(slider.value)) });
    const show = () => {
      number.value = values.get()[name];
      slider.value = Math.log2(Math.max(1, values.get()[name]));
    };
    show();
    return { show, row: h("label", {}, `${name} =`, number, slider) };
  });
  const bar = h("div", { class: "row symbols", role: "group", "aria-label": "values of symbols" }, rows.map((r) => r.row));
  bar.stop = values.on(() => rows.forEach((r) => r.show()));
  return bar;
}

const OPERATORS = {
  "+": (a, b) => a + b, "-": (a, b) => a - b, "*": (a, b) => a * b,
  "//": (a, b) => Math.floor(a / b), "%": (a, b) => a - b * Math.floor(a / b),
  min: Math.min, max: Math.max,
};

/** The value of an expression that Python's `encode` wrote; null where it has no value here. */
export function evaluate(expr, env) {
  if (typeof expr === "number") return expr;
  if (typeof expr === "string") return env[expr] ?? null;
  if (expr === null || expr === undefined || expr[0] === "text") return null;
  const [a, b] = [evaluate(expr[1], env), evaluate(expr[2], env)];
  if (a === null || b === null || (b === 0 && (expr[0] === "//" || expr[0] === "%"))) return null;
  return OPERATORS[expr[0]](a, b);
}

const LEVEL = { "+": 1, "-": 1, "//": 2, "%": 2, "*": 3 }; // a product looks tighter than it is in Python

/** An encoded expression as text. */
export function formatExpr(expr, level = 0) {
  if (expr === null || expr === undefined) return "?";
  if (!Array.isArray(expr)) return String(expr);
  const [op, a, b] = expr;
  if (op === "text") return a;
  if (!(op in LEVEL)) return `${op}(${formatExpr(a)}, ${formatExpr(b)})`;
  const sign = { "*": "·", "//": " // ", "%": " % ", "+": " + ", "-": " - " }[op];
  const text = `${formatExpr(a, LEVEL[op])}${sign}${formatExpr(b, LEVEL[op] + (op === "+" || op === "*" ? 0 : 1))}`;
  return LEVEL[op] < level ? `(${text})` : text;
}
