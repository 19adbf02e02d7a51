import assert from "node:assert/strict";
import { test } from "node:test";

import { matching } from "../../../relaxlab/lab/static/find.js";
import { fitting } from "../../../relaxlab/lab/static/graph_layout.js";

test("all words of a search have to occur, in any case and order", () => {
  const texts = ["lv R.matmul (n, 32)", "h add (n, 32)", "MatMul of lv"];
  assert.deepEqual(matching(texts, "matmul LV"), [0, 2]);
  assert.deepEqual(matching(texts, " 32"), [0, 1]);
  assert.deepEqual(matching(texts, "  "), []);
});

test("a drawing is made small enough for its pane, never larger", () => {
  assert.equal(fitting([1000, 400], [500, 400]), 0.5);
  assert.equal(fitting([100, 4000], [500, 400]), 0.1);
  assert.equal(fitting([100, 100], [500, 400]), 1);
});
