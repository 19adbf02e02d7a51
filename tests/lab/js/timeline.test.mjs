import assert from "node:assert/strict";
import test from "node:test";
import { byKernel, decades, laneTotals, nearestCall, registersAt, roof, stackOf, standing } from "../../../relaxlab/lab/static/timeline.js";

const levels = [{ name: "L1", holds: 5, bandwidth: 100 }, { name: "main memory", holds: null, bandwidth: 10 }];
const limits = { flops: 1000, levels };

test("calls of one kernel are taken together, the dearest first", () => {
  const found = byKernel({ names: ["a", "b"], calls: [
    { name: 0, seconds: 1, cost: { flops: 10, bytes: 5 } }, { name: 1, seconds: 3, cost: null }, { name: 0, seconds: 1, cost: { flops: 30, bytes: 5 } },
  ] });
  assert.deepEqual(found.map((k) => [k.name, k.calls, k.seconds, k.flops, k.bytes, k.known]), [["b", 1, 3, 0, 0, false], ["a", 2, 2, 40, 10, true]]);
});

test("a kernel stands under the lower of two roofs", () => {
  assert.equal(roof(4, limits, levels[1]), 40);
  assert.equal(roof(400, limits, levels[1]), 1000);
  const bound = standing({ seconds: 2, flops: 40, bytes: 10, calls: 1, known: true }, limits);
  assert.deepEqual(bound, { intensity: 4, rate: 20, bandwidth: 5, bound: "main memory", part: 0.5 });
  const cached = standing({ seconds: 2, flops: 40, bytes: 10, calls: 2, known: true }, limits);
  assert.deepEqual([cached.bound, cached.part], ["L1", 0.05]);
  assert.equal(standing({ seconds: 1, flops: 5000, bytes: 10, calls: 1, known: true }, limits).bound, "arithmetic");
  assert.equal(standing({ seconds: 1, flops: 0, bytes: 10, calls: 1, known: true }, limits).part, 1);
  assert.equal(standing({ seconds: 1, flops: 0, bytes: 5, calls: 1, known: false }, limits), null);
});

test("axes hold all points", () => {
  assert.deepEqual(decades([3, 250]), [0, 3]);
  assert.deepEqual(decades([0.2]), [-1, 0]);
  assert.deepEqual(decades([10]), [1, 2]);
  assert.deepEqual(decades([]), [0, 1]);
});

test("registers after a step, and the functions around it", () => {
  const run = {
    activations: [{ function: 0, parent: -1 }, { function: 1, parent: 0 }],
    steps: [{ changes: [[0, 0, 5, 0]], symbols: [[0, "n", 4]] }, { changes: [[1, 0, 5, 0], [0, 0, 6, 0]], symbols: [] }],
  };
  assert.deepEqual([...registersAt(run, 0).registers[0]], [[0, [5, 0]]]);
  assert.deepEqual([...registersAt(run, 1).registers[0]], [[0, [6, 0]]]);
  assert.deepEqual([...registersAt(run, 1).symbols[0]], [["n", 4]]);
  assert.deepEqual(stackOf(run, 1), [0, 1]);
});

test("what each thread worked and waited", () => {
  const lanes = [[[0, 0, 2e9, 0], [0, 2e9, 1e9, 1], [1, 3e9, 1e9, 0]], []];
  assert.deepEqual(laneTotals({ lanes }), [{ works: 3, waits: 1 }, { works: 0, waits: 0 }]);
});

test("a thread that begins early or ends late is in the nearest call", () => {
  const calls = [{ name: 0, start: 1, seconds: 1 }, { name: 1, start: 2, seconds: 1 }, { name: 0, start: 4, seconds: 1 }];
  assert.deepEqual([0.5, 1.5, 2.1, 4.5, 9].map((t) => nearestCall({ calls }, 0, t)), [0, 0, 0, 2, 2]);
  assert.equal(nearestCall({ calls }, 7, 1), -1);
});
