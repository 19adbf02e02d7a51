import assert from "node:assert/strict";
import { test } from "node:test";

import { typeText } from "../../../relaxlab/lab/static/shapes.js";

test("types of tuples are as short as those of tensors", () => {
  assert.equal(typeText({ dims: [3], dtype: "int8", type: "R.Tensor((3,), 'int8')" }), "(3,) int8");
  const pair = "R.Tuple(R.Tensor((n, 32), 'float32'), R.Tensor(dtype='int64', ndim=2))";
  assert.equal(typeText({ dims: null, type: pair }), "Tuple((n, 32) float32, Tensor(dtype='int64', ndim=2))");
  assert.equal(typeText({ dims: null, type: "" }), "no type");
});
