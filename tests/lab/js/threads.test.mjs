import assert from "node:assert/strict";
import test from "node:test";
import { placeOf } from "../../../relaxlab/lab/static/threads.js";

const threads = { launches: [{
  threads: [4, 2, 1], buffers: [{ name: "A", shape: [2, 3] }, { name: "S", shape: [8] }], sites: [{ buffer: 0, name: "a" }, { buffer: 1, name: "b" }, { buffer: 1, name: "c" }],
  blocks: [{ block: [0, 0, 0], accesses: [] }, { block: [1, 0, 0], accesses: [
    { site: 0, threads: [5, 6], elements: [4, 5] }, { site: 2, threads: [5], elements: [4] }, { site: 1, threads: [6, 5], elements: [4, 5] },
    { site: 1, threads: [5], elements: [4] },
  ] }],
}] };

test("a problem is found at the access of its own thread in its statement", () => {
  const at = { site: "b", buffer: "S", index: [4], threads: [[1, 0, 0, 1, 1, 0], [1, 0, 0, 2, 1, 0]] };
  assert.deepEqual(placeOf(threads, at), { launch: 0, block: 1, access: 3 });
  assert.deepEqual(placeOf(threads, { ...at, site: "a", buffer: "A", index: [1, 1] }), { launch: 0, block: 1, access: 0 });
});

test("a problem elsewhere, or of no element, is not found", () => {
  assert.equal(placeOf(threads, { site: "b", buffer: "S", index: [4], threads: [[0, 0, 0, 1, 1, 0]] }), null);
  assert.equal(placeOf(threads, { buffer: "", index: [], threads: [] }), null);
});
