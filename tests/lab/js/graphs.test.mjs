import assert from "node:assert/strict";
import { test } from "node:test";

import { bytesOf, groupsAfter, unstored } from "../../../relaxlab/lab/static/fusion.js";
import { neighbours, placed } from "../../../relaxlab/lab/static/graph_layout.js";
import { blocksAt, usage } from "../../../relaxlab/lab/static/memory.js";
import { marks, shapeAt, totals } from "../../../relaxlab/lab/static/shapes.js";

const node = { width: 60 };
const inner = { width: 300, height: 130, at: [[50, 30], [50, 96]], edges: [[0, 1]], curves: [[50, 48, 50, 60, 50, 60, 50, 78]] };
// 0 -> group of 1 and 2 -> 3
const graph = {
  nodes: [node, node, node, node], edges: [[0, 1], [1, 2], [2, 3]], items: [0, 4, 3],
  groups: [{ title: "block", start: 1, end: 3, layout: 0 }], layouts: [inner],
  top: {
    width: 200, height: 186, at: [[100, 26], [100, 92], [100, 158]], edges: [[0, 1], [1, 2]],
    curves: [[100, 44, 100, 55, 100, 60, 100, 74], [100, 110, 100, 120, 100, 130, 100, 140]],
  },
};

test("a closed group is a box, an open one grows and moves what is below", () => {
  const closed = placed(graph, new Set());
  assert.deepEqual(closed.boxes.map((b) => b.node ?? `g${b.group}`), [0, "g0", 3]);
  const open = placed(graph, new Set([0]));
  assert.deepEqual(open.boxes.map((b) => b.node ?? `g${b.group}`), [0, "g0", 1, 2, 3]);
  const [first, box, one, two, last] = open.boxes;
  assert.equal(first.y, closed.boxes[0].y);
  assert.ok(one.y > box.y && two.y + two.h < box.y + box.h);
  assert.ok(last.y > box.y + box.h, "below the group");
  assert.ok(open.height >= last.y + last.h && open.width >= box.x + box.w);
});

test("edges end at the boxes they join, open or closed", () => {
  for (const open of [new Set(), new Set([0])]) {
    const { boxes, curves } = placed(graph, open);
    const find = (item) => boxes.find((b) => (item < 4 ? b.node === item : b.group === item - 4));
    for (const c of curves) {
      assert.equal(c.points[0][1], find(c.a).y + find(c.a).h);
      assert.equal(c.points.at(-1)[1], find(c.b).y);
    }
  }
});

test("producers and consumers", () => {
  assert.deepEqual(neighbours(graph), { before: [[], [0], [1], [2]], after: [[1], [2], [3], []] });
});

const steps = [
  { applied: true, members: [1, 2] }, { applied: false, members: [2, 3] }, { applied: true, members: [3, 4] },
  { applied: true, members: [1, 2, 5] }, { applied: true, members: [1, 2, 3, 4, 5] },
];

test("groups grow and merge, and keep their oldest number", () => {
  assert.deepEqual([...groupsAfter(steps, 2).members], [[0, [1, 2]]]);
  assert.deepEqual([...groupsAfter(steps, 3).of], [[1, 0], [2, 0], [3, 1], [4, 1]]);
  assert.deepEqual([...groupsAfter(steps, 4).members], [[1, [3, 4]], [0, [1, 2, 5]]]);
  assert.deepEqual([...groupsAfter(steps, 5).members], [[0, [1, 2, 3, 4, 5]]]);
  assert.deepEqual([...groupsAfter(steps, 1).members], [[0, [1, 2]]], "and back");
});

test("all but the last value of a group need not be stored", () => {
  const of = { nodes: [4, "n", ["*", "n", 8], null].map((bytes) => ({ bytes })) };
  assert.deepEqual(unstored(new Map([[0, [1, 2, 5]], [1, [3, 4]]])), [1, 2, 3]);
  assert.equal(bytesOf(of, [0, 1, 2], { n: 3 }), 31);
  assert.equal(bytesOf(of, [0, 3], { n: 3 }), null);
});

test("a pool gives out the smallest free block that is large enough", () => {
  const tensors = [{ start: 0, end: 1, bytes: 100 }, { start: 1, end: 2, bytes: 40 }, { start: 2, end: 3, bytes: 60 }, { start: 3, end: 4, bytes: 30 }, { start: 4, end: 4, bytes: 200 }];
  const { live, pool } = usage(tensors, 5);
  assert.deepEqual(live, [100, 140, 100, 90, 230]);
  // 60 lies in the block of 100, 30 in that of 40, 200 in none
  assert.deepEqual(pool, [100, 140, 140, 140, 340]);
});

test("places of blocks follow the symbols", () => {
  const arena = { blocks: [[0, 0, ["*", "n", 4], [], ""], [1, ["*", "n", 4], 64, [], ""]] };
  const tensors = [{ start: 0, end: 1 }, { start: 1, end: 2 }];
  assert.deepEqual(blocksAt(arena, tensors, { n: 5 }).map((b) => [b.offset, b.size]), [[0, 20], [20, 64]]);
  assert.equal(blocksAt(arena, tensors, {}), null);
});

test("shapes and sums follow the symbols", () => {
  assert.equal(shapeAt(["n", 4], { n: 3 }), "(3, 4)");
  assert.equal(shapeAt([["*", "n", 2]], { n: 3 }), "(6,)");
  assert.equal(shapeAt([["text", "f(n)"], 2], { n: 3 }), "(?, 2)");
  assert.equal(shapeAt(null, {}), "");
  const list = [{ kind: "binding", bytes: ["*", "n", 4], flops: "n", dtype: "float32" }, { kind: "binding", bytes: null, flops: null, dtype: "float32" }, { kind: "result", bytes: 8, flops: null, dtype: null }];
  assert.deepEqual(totals(list, { n: 2 }), { bytes: 8, flops: 2, unknown: 1 });
});

test("what stands out has a sign and words", () => {
  assert.deepEqual(marks({ events: [], kind: "binding" }), []);
  assert.deepEqual(marks({ events: [{ kind: "lost" }, { kind: "unified" }], kind: "binding", failed: true }).map((m) => m[2]), ["no type", "shape lost", "unified across functions"]);
});
