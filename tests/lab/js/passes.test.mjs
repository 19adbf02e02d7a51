import assert from "node:assert/strict";
import { test } from "node:test";

import { fromDifferences } from "../../../relaxlab/lab/static/core.js";
import { clipped, lineOf, modulesOf, subjectPlaces } from "../../../relaxlab/lab/static/passes.js";
import { isListed, modulesAround, remarksOf } from "../../../relaxlab/lab/static/pipeline.js";

test("numbers from differences", () => {
  assert.deepEqual(fromDifferences([5, 1, 1, -4]), [5, 6, 7, 3]);
  assert.deepEqual(fromDifferences([]), []);
});

test("subjects name functions and variables", () => {
  const names = new Map([["main", 0], ["relu", 1]]);
  assert.deepEqual(subjectPlaces("main.y (matmul) into main.z (add)", names),
    [{ name: "main", variable: "z" }, { name: "main", variable: "y" }]);
  assert.deepEqual(subjectPlaces("relu", names), [{ name: "relu", variable: null }]);
  assert.deepEqual(subjectPlaces("main.r: nn.relu", names), [{ name: "main", variable: "r" }]);
  assert.deepEqual(subjectPlaces("gone", names), []);
});

test("the line of a variable is where it is bound", () => {
  const lines = ["@R.function", "def main(z: R.Object):", "    y = f(z)", "    z: R.Tensor = g(y)", "    w == z"];
  assert.equal(lineOf(lines, "z"), 3);
  assert.equal(lineOf(lines, "w"), 4);
  assert.equal(lineOf(lines, null), 1);
  assert.equal(lineOf(lines, "nothing"), 0);
});

test("long lines are clipped and say by how much", () => {
  assert.equal(clipped("short"), "short");
  assert.match(clipped("x".repeat(1400)), /^x{400} … 1,000 more characters$/);
});

const pass = (modules, made) => ({
  name: "p", before: 0, after: 9, changed: true, failure: null,
  remarks: [[0], [0], [0], made, modules, [0]].map((c) => (c.length === 1 ? Array(made.length).fill(c[0]) : c))
    .map((c) => c.map((n, i) => n - (i ? c[i - 1] : 0))),
});

test("the modules around a remark are those recorded, else those of the pass", () => {
  const some = pass([4, -1, 9], [1, 0, 1]);
  const remarks = remarksOf(some, ["text"]);
  assert.deepEqual(remarks.map((w) => w.made), [true, false, true]);
  assert.deepEqual(modulesAround(some, remarks, -1), { before: 0, after: 9, exact: true });
  assert.deepEqual(modulesAround(some, remarks, 0), { before: 0, after: 4, exact: true });
  assert.deepEqual(modulesAround(some, remarks, 1), { before: 4, after: 4, exact: true });
  assert.deepEqual(modulesAround(some, remarks, 2), { before: 4, after: 9, exact: true });
  const none = pass([-1, -1], [1, 1]);
  assert.deepEqual(modulesAround(none, remarksOf(none, ["text"]), 1), { before: 0, after: 9, exact: false });
});

test("remarks may be left out", () => {
  assert.deepEqual(remarksOf({ remarks: [] }, []), []);
});

test("passes that changed nothing are listed on request, or when searched for", () => {
  const quiet = { name: "canonicalize", changed: false, failure: null };
  assert.equal(isListed(quiet, [], "", false), false);
  assert.equal(isListed(quiet, [], "", true), true);
  assert.equal(isListed(quiet, [], "canon", false), true);
  assert.equal(isListed(quiet, [{ subject: "main.Relu" }], "relu", false), true);
  assert.equal(isListed({ ...quiet, failure: {} }, [], "", false), true);
});

test("functions of two modules are paired by name", () => {
  const state = {
    lines: ["a", "b", "c"],
    functions: [["f", "graph", [0, 1]], ["f", "graph", [0, 2]], ["g", "loops", [1]]],
    modules: [[0, 2], [1]],
  };
  const pairs = modulesOf(state).pairs(0, 1);
  assert.deepEqual(pairs.map((p) => [p.name, p.changed, p.added, p.removed]), [["f", true, 1, 1], ["g", true, 0, 1]]);
  assert.deepEqual(modulesOf(state).pairs(0, 0).map((p) => p.changed), [false, false]);
});
