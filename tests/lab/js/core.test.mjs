import assert from "node:assert/strict";
import { test } from "node:test";

import { formatBytes, formatCount, keyStep, schemeOf, tupleText } from "../../../relaxlab/lab/static/core.js";
import { evaluate, formatExpr } from "../../../relaxlab/lab/static/symbols.js";

test("expressions have the value that Python's have", () => {
  assert.equal(evaluate(["+", ["*", "n", 4], 1], { n: 3 }), 13);
  assert.equal(evaluate(["//", -7, 2], {}), -4);
  assert.equal(evaluate(["%", -7, 3], {}), 2);
  assert.equal(evaluate(["max", "n", ["min", 5, "m"]], { n: 1, m: 9 }), 5);
});

test("what has no value is null", () => {
  assert.equal(evaluate("n", {}), null);
  assert.equal(evaluate(["*", "n", 2], {}), null);
  assert.equal(evaluate(["//", 1, "n"], { n: 0 }), null);
  assert.equal(evaluate(["text", "foo(n)"], { n: 1 }), null);
});

test("expressions are written with as few brackets as they need", () => {
  assert.equal(formatExpr(["*", ["+", "n", 1], 4]), "(n + 1)·4");
  assert.equal(formatExpr(["+", ["*", "n", 4], 1]), "n·4 + 1");
  assert.equal(formatExpr(["-", "a", ["-", "b", "c"]]), "a - (b - c)");
  assert.equal(formatExpr(["//", ["//", "a", 2], 3]), "a // 2 // 3");
  assert.equal(formatExpr(["*", ["//", ["*", "n", 32], 64], 2]), "(n·32 // 64)·2");
  assert.equal(formatExpr(["max", "n", ["text", "f(m)"]]), "max(n, f(m))");
});

test("numbers are short", () => {
  assert.equal(formatBytes(1536), "1.50 KiB");
  assert.equal(formatBytes(0), "0 B");
  assert.equal(formatBytes(null), "?");
  assert.equal(formatCount(1234567), "1.23 M");
  assert.equal(formatCount(9999), "9999");
});

test("keys stay within the steps", () => {
  assert.equal(keyStep("ArrowRight", 4, 5), 4);
  assert.equal(keyStep("k", 0, 5), 0);
  assert.equal(keyStep("End", 0, 5), 4);
  assert.equal(keyStep("x", 0, 5), null);
});

test("the theme is the one that the page around says", () => {
  const page = (dataset, theme = null) => ({ body: { dataset }, documentElement: { getAttribute: () => theme } });
  assert.equal(schemeOf(page({ jpThemeLight: "false" })), "dark");
  assert.equal(schemeOf(page({ jpThemeLight: "true" })), "light");
  for (const [kind, scheme] of [["vscode-light", "light"], ["vscode-dark", "dark"],
    ["vscode-high-contrast", "dark"], ["vscode-high-contrast-light", "light"]]) {
    assert.equal(schemeOf(page({ vscodeThemeKind: kind })), scheme);
  }
  assert.equal(schemeOf(page({}, "dark")), "dark");
});

test("tuples are written as in Python", () => {
  assert.equal(tupleText([]), "()");
  assert.equal(tupleText([64]), "(64,)");
  assert.equal(tupleText(["n", 4]), "(n, 4)");
});
