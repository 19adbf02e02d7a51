import assert from "node:assert/strict";
import { test } from "node:test";

import { partsOf, wasted } from "../../../relaxlab/lab/static/ragged.js";

test("padding is told apart by whether it has memory", () => {
  assert.deepEqual(partsOf(5, 5, 5, null), [["useful", 0, 5]]);
  assert.deepEqual(partsOf(5, 8, 5, null), [["useful", 0, 5], ["unheld", 5, 8]]);
  assert.deepEqual(partsOf(5, 8, 8, null), [["useful", 0, 5], ["waste", 5, 8]]);
  assert.deepEqual(partsOf(11, 11, 11, 8), [["useful", 0, 8], ["tail", 8, 11]]);
  assert.deepEqual(partsOf(0, 0, 0, null), []);
});

test("what is wasted is a part of what is done", () => {
  assert.equal(wasted(8, 6), 25);
  assert.equal(wasted(0, 0), 0);
});
