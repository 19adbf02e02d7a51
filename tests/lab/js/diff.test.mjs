import assert from "node:assert/strict";
import { test } from "node:test";

import { changedPieces, countChanges, diffLines, pairedRows, unifiedRows } from "../../../relaxlab/lab/static/diff.js";

/** The runs cover both lists in order, and what they call the same is. */
function assertIsDiff(a, b, found) {
  let [x, y] = [0, 0];
  for (const run of found) {
    assert.equal(run.a0, x);
    assert.equal(run.b0, y);
    if (run.kind === "same") assert.deepEqual(a.slice(run.a0, run.a1), b.slice(run.b0, run.b1));
    [x, y] = [run.a1, run.b1];
  }
  assert.deepEqual([x, y], [a.length, b.length]);
}

const kinds = (found) => found.map((r) => [r.kind, r.a1 - r.a0, r.b1 - r.b0]);

test("equal lists are one run, empty ones none", () => {
  assert.deepEqual(kinds(diffLines([1, 2, 3], [1, 2, 3])), [["same", 3, 3]]);
  assert.deepEqual(diffLines([], []), []);
  assert.deepEqual(kinds(diffLines([], [4, 5])), [["change", 0, 2]]);
});

test("a replaced, an added and a removed line", () => {
  assert.deepEqual(kinds(diffLines([1, 2, 3], [1, 9, 3])), [["same", 1, 1], ["change", 1, 1], ["same", 1, 1]]);
  assert.deepEqual(kinds(diffLines([1, 3], [1, 2, 3])), [["same", 1, 1], ["change", 0, 1], ["same", 1, 1]]);
  assert.deepEqual(kinds(diffLines([1, 2, 3], [1, 3])), [["same", 1, 1], ["change", 1, 0], ["same", 1, 1]]);
});

test("lines that repeat are matched by the table", () => {
  const found = diffLines([7, 7, 8, 7], [8, 7, 7]);
  assert.deepEqual(countChanges(found), { added: 1, removed: 2 });
});

test("a moved block is removed and added, the rest stays", () => {
  const found = diffLines([1, 2, 3, 4, 5, 6], [4, 5, 6, 1, 2, 3]);
  assertIsDiff([1, 2, 3, 4, 5, 6], [4, 5, 6, 1, 2, 3], found);
  assert.deepEqual(countChanges(found), { added: 3, removed: 3 });
});

test("random lists: always a diff, and where nothing was edited an empty one", () => {
  let seed = 12345;
  const random = (n) => {
    seed = (seed * 1103515245 + 12345) % 2147483648;
    return seed % n;
  };
  for (let round = 0; round < 300; round++) {
    const a = Array.from({ length: random(60) }, () => random(20));
    const b = [...a];
    for (let edits = random(6); edits > 0; edits--) {
      b.splice(random(b.length + 1), random(2), ...(random(2) ? [random(40)] : []));
    }
    const found = diffLines(a, b);
    assertIsDiff(a, b, found);
    assert.equal(countChanges(found).added > 0 || countChanges(found).removed > 0, String(a) !== String(b));
  }
});

test("long lists are compared in about linear time", () => {
  const a = Array.from({ length: 100_000 }, (_, i) => i);
  const b = a.filter((i) => i % 100 !== 0);
  const found = diffLines(a, b);
  assertIsDiff(a, b, found);
  assert.deepEqual(countChanges(found), { added: 0, removed: 1000 });
});

test("rows fold what is far from a change", () => {
  const a = Array.from({ length: 30 }, (_, i) => i);
  const b = a.with(15, 99);
  const rows = unifiedRows(diffLines(a, b), 2);
  assert.deepEqual(rows.map((r) => r.kind), ["fold", "same", "same", "del", "add", "same", "same", "fold"]);
  assert.deepEqual(rows[0], { kind: "fold", a: 0, b: 0, count: 13 });
  assert.deepEqual(rows.at(-1).count, 12);
});

test("a line that is looked at is not folded", () => {
  const a = Array.from({ length: 30 }, (_, i) => i);
  const rows = unifiedRows(diffLines(a, a), 1, 10);
  assert.deepEqual(rows.map((r) => [r.kind, r.b]), [["fold", 0], ["same", 9], ["same", 10], ["same", 11], ["fold", 12]]);
});

test("a fold is never a single line", () => {
  const rows = unifiedRows(diffLines([1, 2, 3, 4, 5], [9, 2, 3, 4, 8]), 1);
  assert.deepEqual(rows.map((r) => r.kind), ["del", "add", "same", "same", "same", "del", "add"]);
});

test("paired rows put a line beside what replaces it", () => {
  const rows = pairedRows(diffLines([1, 2, 3], [1, 8, 9, 3]), 3);
  assert.deepEqual(rows.map((r) => [r.kind, r.a, r.b]), [["same", 0, 0], ["pair", 1, 1], ["pair", -1, 2], ["same", 2, 3]]);
});

test("within changed lines only the new pieces are marked, however the lines are wrapped", () => {
  const pieces = (lines) => lines.map((line) => line.match(/\w+|\s+|./g));
  const a = pieces(["def f(x, y):", "  return x"]);
  const b = pieces(["def f(", "  x, y", ") -> int:", "  return x"]);
  const found = changedPieces(diffLines([0, 1], [2, 3, 4, 1]), a, b);
  assert.deepEqual([...found.a], [[0, new Set()]]);
  assert.deepEqual([...found.b.keys()].sort(), [0, 1, 2]);
  assert.deepEqual([found.b.get(0).size, found.b.get(1).size], [0, 0]);
  assert.deepEqual([...found.b.get(2)].map((i) => b[2][i]).join(""), "->int");
});

test("lines that have little in common are not compared piece by piece", () => {
  const found = changedPieces(diffLines([0], [1]), [["a", "b", "c", "d"]], [["e", "f", "g", "d", "h"]]);
  assert.deepEqual([found.a.size, found.b.size], [0, 0]);
});
