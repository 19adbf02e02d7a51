import assert from "node:assert/strict";
import { test } from "node:test";

import { definitions, outline, sizeText, tokens } from "../../../relaxlab/lab/static/script.js";

const SCRIPT = `from relaxlab.script import ir as I, relax as R, tir as T


@I.ir_module
class Module:
    @R.function
    def main(
        x: R.Tensor(("n", 4), "float32"),
    ) -> R.Tensor(("n", 8), "float32"):
        n = T.int64()
        with R.dataflow():
            z: R.Tensor((n, 8), "float32") = R.call_tir(cls.relu, (x,), out_ty=R.Tensor((n, 8), "float32"))
        return z

    @T.prim_func(s_tir=True)
    def relu(var_A: T.handle, B: T.Buffer((4, 8), "float32")):
        n = T.int64()
        A = T.match_buffer(var_A, (n, 8), "float32")
        y = T.sblock_alloc_buffer((1, 8), "float32", scope="local")
        for i, j in T.grid(n, 8):
            with T.sblock("relu"):
                vi, vj = T.axis.remap("SR", [i, j])
`.trimEnd().split("\n");

test("tokens make up the line", () => {
  for (const line of [...SCRIPT, "x = 'a # b' # <script>", "é ∑ \u2028 \"unfinished", ""]) {
    assert.equal(tokens(line).map((t) => t.text).join(""), line);
  }
});

test("a symbol's name in quotes is a name, a dtype's a string", () => {
  const found = tokens(SCRIPT[7]);
  assert.equal(found.find((t) => t.text === '"n"').name, "n");
  assert.equal(found.find((t) => t.text === '"float32"').kind, "string");
});

test("calls of loop functions are links", () => {
  assert.deepEqual(tokens(SCRIPT[11]).filter((t) => t.kind === "link").map((t) => t.name), ["relu"]);
});

test("the outline has each function once, with its decorator", () => {
  assert.deepEqual(outline(SCRIPT).map((f) => [f.name, f.kind, f.start, f.def, f.end]), [
    ["main", "graph", 5, 6, 13], ["relu", "loops", 14, 15, 22],
  ]);
});

test("definitions say what a name is", () => {
  const graph = definitions(SCRIPT.slice(5, 13));
  assert.equal(graph.get("n").kind, "symbol");
  assert.equal(graph.get("x").text, "parameter (n, 4) float32\n16 B × n");
  assert.equal(graph.get("z").text, "tensor (n, 8) float32\n32 B × n");
  const loops = definitions(SCRIPT.slice(14));
  assert.equal(loops.get("B").text, "parameter (4, 8) float32\n128 B");
  assert.equal(loops.get("y").text, "buffer (1, 8) float32\n32 B\nscope local");
  assert.equal(loops.get("j").text, "loop over 8");
  assert.equal(loops.get("vj").text, "reduction axis, bound to j");
});

test("sizes", () => {
  assert.equal(sizeText(["n + 1", "4"], "float16"), "8 B × (n + 1)");
  assert.equal(sizeText(["3"], "mystery"), "");
});

test("long lines take no longer than their length", () => {
  const part = 'R.Tensor((49152, 18, "n"), "int8"), ';
  const found = tokens(`    params: R.Tuple(${part.repeat(1000)})`);
  assert.equal(found.filter((t) => t.kind === "name" && t.text === '"n"').length, 1000);
});
