import assert from "node:assert/strict";
import test from "node:test";
import {
  accessesOf, decode, distanceBars, elementAt, indicesOf, loopValues, memoryOf, pageOf, placesText, placeText, rangesText, servedBy,
} from "../../../relaxlab/lab/static/accesses.js";

// for i in range(2): B[i] = A[1 - i]; B[i] = B[i]
const run = decode({
  buffers: [{ name: "A", shape: [2], initial: [1, 2] }, { name: "B", shape: [2], initial: null }],
  sites: [{ row: 1, loops: ["i"], block: "B" }, { row: 2, loops: ["i"], block: "B" }],
  steps: { site: [0, 1, 0, 1], values: [0, 0, 1, 1], count: [2, 2, 2, 2] },
  accesses: {
    buffer: [0, 1, 1, 1, 0, 1, 1, 1], element: [1, 0, 0, 0, 0, 1, 1, 1], write: [0, 1, 0, 1, 0, 1, 0, 1],
    value: [2, 2, 2, 2, 1, 1, 1, 1], distance: [-1, -1, 0, 0, -1, -1, 0, 0], line: [-1, -1, 0, 0, 1, 1, 0, 0],
  },
  values: ["0", "7", "8"],
});

test("elements and indices", () => {
  assert.deepEqual(indicesOf(17, [2, 3, 4]), [1, 1, 1]);
  assert.equal(elementAt([1, 1, 1], [2, 3, 4]), 17);
  assert.deepEqual(indicesOf(0, []), []);
  assert.equal(elementAt([], []), 0);
  assert.equal(placeText({ name: "C", shape: [2, 3] }, 5), "C[1, 2]");
});

test("several elements as one place", () => {
  const c = { name: "C", shape: [2, 3] };
  assert.equal(placesText(c, [3, 4, 5, 4]), "C[1, 0–2]");
  assert.equal(placesText(c, [5, 2]), "C[0–1, 2]");
  assert.equal(placesText(c, [4]), "C[1, 1]");
  assert.equal(placesText(c, [0, 4]), "C[0, 0], C[1, 1]");
  assert.equal(placesText(c, [0, 1, 2, 3]), "C[0, 0], C[0, 1], C[0, 2], … (4)");
  assert.equal(placesText({ name: "s", shape: [] }, [0]), "s[]");
});

test("steps have their loops' values and accesses", () => {
  assert.equal(run.count, 4);
  assert.deepEqual(loopValues(run, 3), [["i", 1]]);
  assert.deepEqual(accessesOf(run, 0).map((a) => [a.buffer, a.element, a.write, a.value]), [[0, 1, false, "8"], [1, 0, true, "8"]]);
});

test("memory at a step, forward and back", () => {
  const memory = memoryOf(run);
  assert.deepEqual([...memory.to(0)[1].value], [2, -1]);
  assert.deepEqual([...memory.to(3)[1].value], [2, 1]);
  assert.deepEqual([...memory.to(3)[1].touched], [0, 2]);
  assert.deepEqual([...memory.to(1)[1].value], [2, -1]);
  assert.deepEqual([...memory.to(1)[1].times], [3, 0]);
  assert.deepEqual([...memory.to(1)[1].last], [1, -1]);
  assert.deepEqual([...memory.to(1)[0].value], [1, 2]);
});

test("distances as bars, and what a cache serves", () => {
  const counts = [[-1, 3], [0, 1], [1, 2], [3, 4], [9, 1]];
  assert.deepEqual(distanceBars(counts).map((b) => `${b.label}:${b.count}`), ["first:3", "0:1", "1:2", "2–3:4", "4–7:0", "8–15:1"]);
  assert.equal(servedBy(counts, 1), 1);
  assert.equal(servedBy(counts, 4), 7);
  assert.equal(servedBy(counts, 100), 8);
});

test("windows of big arrays", () => {
  assert.deepEqual(pageOf(0, [], 4, 4), { slice: [], row: 0, column: 0 });
  assert.deepEqual(pageOf(9, [12], 4, 4), { slice: [], row: 0, column: 8 });
  assert.deepEqual(pageOf(2 * 60 + 5 * 10 + 7, [3, 6, 10], 4, 4), { slice: [2], row: 4, column: 4 });
});

test("numbers as ranges", () => {
  assert.equal(rangesText([0, 1, 2, 5]), "0–2, 5");
  assert.equal(rangesText([4, 4, 4]), "4");
  assert.equal(rangesText([0, 2, 4, 6]), "0, 2, 4, …");
});
