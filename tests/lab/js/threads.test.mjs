import assert from "node:assert/strict";
import test from "node:test";
import { placeOf } from "../../../relaxlab/lab/static/threads.js";

const threads = { launches: [{
  threads: [4, 2, 1], buffers: [{ name: "A", shape: [2, 3] }, { name: "S", shape: [8] }], sites: [{ buffer: 0 }, { buffer: 1 }],
  blocks: [{ block: [0, 0, 0], accesses: [] }, { block: [1, 0, 0], accesses: [
    { site: 0, threads: [5, 6], elements: [4, 5] }, { site: 1, threads: [5], elements: [4] },
  ] }],
}] };

test("a problem is found at an access of its thread to its element", () => {
  const at = { buffer: "S", index: [4], threads: [[1, 0, 0, 1, 1, 0]] };
  assert.deepEqual(placeOf(threads, at), { launch: 0, block: 1, access: 1 });
  assert.deepEqual(placeOf(threads, { ...at, buffer: "A", index: [1, 1] }), { launch: 0, block: 1, access: 0 });
});

test("a problem elsewhere, or of no element, is not found", () => {
  assert.equal(placeOf(threads, { buffer: "S", index: [4], threads: [[0, 0, 0, 1, 1, 0]] }), null);
  assert.equal(placeOf(threads, { buffer: "", index: [], threads: [] }), null);
});
