import assert from "node:assert/strict";
import test from "node:test";
import { heightOf, lanesOf, leavesOf, ordersText } from "../../../relaxlab/lab/static/block_layout.js";
import { lostUpTo, neighbours } from "../../../relaxlab/lab/static/policy.js";
import { letterOf, moveCurve, statusOf } from "../../../relaxlab/lab/static/policy_charts.js";

test("types have letters", () => {
  assert.deepEqual([0, 25, 26, 53].map(letterOf), ["A", "Z", "A1", "B2"]);
});

test("neighbours of a state come with the most frequent first", () => {
  const moves = [[0, 1, 3], [0, 2, 9], [1, 0, 4], [2, 2, 1]];
  assert.deepEqual(neighbours(moves, 0), { to: [[2, 9], [1, 3]], from: [[1, 4]] });
  assert.deepEqual(neighbours(moves, 2), { to: [[2, 1]], from: [[0, 9], [2, 1]] });
});

test("lost batches are counted up to a step", () => {
  assert.deepEqual([0, 1, 2, 9].map((step) => lostUpTo({ lost: [1, 0, 1] }, step)), [0, 1, 1, 2]);
});

test("a node has run, runs, is ready or waits", () => {
  const [batch, reads] = [[0, 1, 2], [[], [0], [1]]];
  assert.deepEqual([0, 1, 2].map((v) => statusOf(v, 1, batch, reads)), ["ran", "now", "waits"]);
  assert.deepEqual([0, 1, 2].map((v) => statusOf(v, 0, [0, 1, 1], [[], [], [0]])), ["now", "ready", "waits"]);
});

test("moves begin and end at the edges of their states", () => {
  const [a, b] = [{ x: 0, y: 0, w: 20, h: 20 }, { x: 200, y: 0, w: 20, h: 20 }];
  const [, sx, sy, ex, ey] = /^M([\d.-]+),([\d.-]+)Q.* ([\d.-]+),([\d.-]+)$/.exec(moveCurve(a, b)).map(Number);
  assert.ok(sx > 10 && sx <= 22 && ex >= 198 && ex < 210 && Math.abs(sy - 10) < 11 && Math.abs(ey - 10) < 11);
  assert.match(moveCurve(a, a), /^M3,0c/);
});

test("trees are read off", () => {
  const tree = ["P", [3, ["Q", [0, 1, 2]]]];
  assert.deepEqual(leavesOf(tree), [3, 0, 1, 2]);
  assert.equal(heightOf(tree), 2);
  assert.equal(ordersText(tree), "4");
  assert.equal(ordersText(["P", Array.from({ length: 20 }, (_, i) => i)]), "2.4e+18");
  assert.deepEqual([...lanesOf({ lanes: [4, 2] })], [[4, 0], [2, 1]]);
  assert.equal(lanesOf(undefined).size, 0);
});
