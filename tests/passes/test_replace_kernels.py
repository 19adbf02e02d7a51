"""Other loop functions compute operations; changes of layout that undo each other go away."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.analysis.index_map import IndexMap
from relaxlab.ir.loops import PrimFunc
from relaxlab.testing.pass_check import compare_runs

PROGRAM = """
@I.ir_module
class M:
    @T.prim_func(private=True)
    def double(A: T.Buffer((14,), "float32"), B: T.Buffer((14,), "float32")):
        T.func_attr({"operator_name": "double"})
        for i in range(14):
            with T.block("double"):
                vi = T.axis.spatial(14, i)
                B[vi] = A[vi] + A[vi]

    @R.function
    def main(x: R.Tensor((14,), "float32")):
        with R.dataflow():
            y = R.call_tir(M.double, (x,), out_ty=R.Tensor((14,), "float32"))
            z = R.call_tir(M.double, (y,), out_ty=R.Tensor((14,), "float32"))
            R.output(z)
        return z
"""
TILED = """
@T.prim_func
def tiled(A: T.Buffer((4, 4), "float32"), B: T.Buffer((4, 4), "float32")):
    for i, j in T.grid(4, 4):
        with T.block("tiled"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
"""
LAYOUTS = """
@R.function
def main(x: R.Tensor((16,), "float32")):
    a = R.layout_transform(x, index_map=T.index_map(lambda i: (i // 4, i % 4)))
    b = R.layout_transform(a, index_map=T.index_map(lambda i, j: (i * 4 + j,)))
    c = R.layout_transform(a, index_map=T.index_map(lambda i, j: (j * 4 + i,)))
    return (b, c)
"""
LAYOUT = IndexMap.of(lambda i: (i // 4, i % 4))


def _replaced(layouts: int = 2) -> rl.Module:
    kernel = rl.parse(TILED)["tiled"]
    assert isinstance(kernel, PrimFunc)
    replace = rl.find_pass("replace_kernels").with_options(
        kernels={"double": kernel}, layouts={"double": (LAYOUT,) * layouts}
    )
    normalize = rl.find_pass("normalize")
    once = normalize(replace(normalize(rl.parse(PROGRAM))))
    assert replace(once) is once
    return once


def test_a_layout_with_further_elements_computes_the_same() -> None:
    mod = _replaced()
    assert mod.script().count("double_replacement, (") == 2
    compare_runs(rl.parse(PROGRAM), mod, runs=1)
    x = np.arange(14, dtype="float32")
    np.testing.assert_array_equal(rl.compile(mod)["main"](x), 4 * x)


def test_each_operand_and_result_has_a_layout() -> None:
    with pytest.raises(ValueError, match="'double' has 3 layouts, and 'double' 2 operands"):
        _replaced(layouts=3)


def test_only_layouts_that_undo_each_other_go_away() -> None:
    before = rl.find_pass("normalize")(rl.parse(LAYOUTS))
    after = rl.find_pass("remove_redundant_layouts")(before)
    assert after.script().count("R.layout_transform") == 2
    compare_runs(before, after, runs=1)
