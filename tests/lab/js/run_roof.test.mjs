import assert from "node:assert/strict";
import test from "node:test";
import { sideOf } from "../../../relaxlab/lab/static/run_roof.js";

test("a text stands on the side where nothing is in its way", () => {
  const label = { at: 100, from: 50, text: "2 matmul" };
  assert.equal(sideOf(label, [[40, 100], [300, 100], [60, 200]]), "right");
  assert.equal(sideOf(label, [[40, 100], [80, 104]]), "left");
  assert.equal(sideOf({ ...label, from: 10_000 }, []), "left");
});
