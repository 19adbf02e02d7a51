import assert from "node:assert/strict";
import { test } from "node:test";

import { linkText, linker } from "../../../relaxlab/lab/static/code.js";

const differences = (numbers) => numbers.map((n, i) => n - (i ? numbers[i - 1] : 0));

const KERNEL = {
  origins: [[2, [5]], [3, [5, 6]]],
  panes: [
    { key: "loops", loop: differences([1, 2, 3]) },
    { key: "cuda", loop: differences([0, 2, 3, 3]) },
    { key: "ptx", loop: differences([0, 2, 3, 3]), from: differences([0, 2, 3, 4]) },
  ],
};

test("a line of the loops leads to the script and to the code", () => {
  const found = linker(KERNEL, 10)("loops", 2);
  assert.deepEqual(found, { loops: [2], cuda: [2, 3], ptx: [2, 3], script: [5, 6] });
});

test("a row of the script leads to all that was made of it", () => {
  assert.deepEqual(linker(KERNEL, 10)("script", 5), { loops: [1, 2], cuda: [1, 2, 3], ptx: [1, 2, 3], script: [5] });
  assert.deepEqual(linker(KERNEL, 10)("script", 0), { loops: [], cuda: [], ptx: [], script: [0] });
});

test("PTX knows its one line of CUDA, and the other way round", () => {
  const of = linker(KERNEL, 10);
  assert.deepEqual(of("ptx", 3).cuda, [3]);
  assert.deepEqual(of("cuda", 2).ptx, [2]);
});

test("a line without an origin stands alone", () => {
  assert.deepEqual(linker(KERNEL, 10)("ptx", 0), { ptx: [0] });
});

test("what is linked, in words", () => {
  const titles = { loops: "loops", cuda: "CUDA C", script: "Script" };
  assert.equal(linkText(titles, { loops: [1], cuda: [2, 3], script: [5] }, "loops"), "2 lines of CUDA C, 1 line of Script");
  assert.equal(linkText(titles, { loops: [1] }, "loops"), "nothing is linked with this line");
});
