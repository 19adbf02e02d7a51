import assert from "node:assert/strict";
import test from "node:test";
import { ancestors, placed, policyRows, whyApart } from "../../../relaxlab/lab/static/batching.js";

// Two instances: leaves in batch 0, cells in batches 1 to 3; node 6 is another block.
const state = {
  types: ["leaf", "cell", "head"],
  instances: 2,
  drawn: 2,
  nodes: [[0, 0, 0, []], [0, 1, 0, []], [1, 0, 1, [0]], [1, 1, 1, [1]], [1, 1, 2, [3]], [1, 0, 3, [0]], [2, 0, 4, [5]]],
  batches: [[0, 0, 0], [1, 0, 1], [1, 0, 2], [1, 1, 1], [2, 1, 2]].map(([type, round, depth]) => ({ type, round, depth: [depth, depth], phase: [0, 0], operands: [] })),
};

test("what a node reads, itself or through others", () => {
  assert.deepEqual([...ancestors(state.nodes, 4)].sort(), [1, 3]);
  assert.equal(ancestors(state.nodes, 0).size, 0);
});

test("two nodes say why they are not in one batch", () => {
  assert.match(whyApart(state, 0, 1), /run together, in batch 1/);
  assert.match(whyApart(state, 2, 6), /different blocks: cell and head/);
  assert.match(whyApart(state, 4, 3), /Node 4 reads what node 3 makes/);
  assert.match(whyApart(state, 2, 4), /Node 4 waits for node 3, which runs in batch 2/);
  assert.match(whyApart(state, 3, 5), /a flush: the instance of node 5 waited/);
});

test("nodes of an instance in one batch stand below each other", () => {
  const both = { ...state, nodes: [[0, 0, 0, []], [0, 0, 0, []], [0, 1, 0, []]] };
  assert.deepEqual(placed(both), { level: [0, 1, 0], tall: [2, 1] });
});

test("policies stand beside what ran, with their ratios to the bound", () => {
  const rows = policyRows({ ...state, policies: [["depth", 8], ["lower bound", 4]] });
  assert.deepEqual(rows, [["as they ran", 5, "1.25"], ["depth", 8, "2.00"], ["lower bound", 4, "1.00"]]);
});
