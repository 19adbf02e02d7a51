import assert from "node:assert/strict";
import { test } from "node:test";

import { rowsThatRun } from "../../../relaxlab/lab/static/tree.js";

test("rows that run are those of the statements, what is around them, and the facts of their blocks", () => {
  const rows = [
    [0, "other", "if n == 1"], [1, "for", "for i in range(2)"], [2, "store", "A[0] = 1"],
    [0, "other", "else"], [1, "for", "for j in range(n)"], [2, "block", "block B"], [3, "axis", "vi in range(n) = j"],
    [3, "store", "A[vi] = 2"],
  ];
  assert.deepEqual(rowsThatRun(rows, [{ row: 7 }]), [true, false, false, true, true, true, true, true]);
  assert.deepEqual(rowsThatRun(rows, [{ row: 2 }]), [true, true, true, false, false, false, false, false]);
});
