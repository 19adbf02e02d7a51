import assert from "node:assert/strict";
import { test } from "node:test";

import { coloursOf, firstLinked } from "../../../relaxlab/lab/static/code.js";

const kernel = (origins) => ({
  origins,
  panes: [{ key: "loops", loop: [1, 1, 1, 1] }, { key: "assembly", loop: [2, 0, 1, -3] }], // 1 2 3 4, and 2 2 3 0
});

test("lines of several sources have the colours of these", () => {
  const found = coloursOf(kernel([[2, [5]], [3, [7]]]), 9);
  assert.deepEqual(found.script, [-1, -1, -1, -1, -1, 0, -1, 1, -1]);
  assert.deepEqual(found.loops, [-1, 0, 1, -1]);
  assert.deepEqual(found.assembly, [0, 0, 1, -1]);
});

test("lines of one source have the colours of their loops", () => {
  const found = coloursOf(kernel([[2, [5]], [3, [5]]]), 9);
  assert.ok(found.script.every((c) => c === -1));
  assert.deepEqual([found.loops, found.assembly], [[-1, 0, 1, -1], [0, 0, 1, -1]]);
});

test("what is chosen at first is linked", () => {
  assert.deepEqual(firstLinked(kernel([[2, [7]], [3, [5]]]), 9), ["script", 5]);
  assert.deepEqual(firstLinked(kernel([]), 0), ["loops", 1]);
  assert.equal(firstLinked({ origins: [], panes: [] }, 0), null);
});
