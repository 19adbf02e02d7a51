"""Layouts of parameters: callers learn what to do from the function's attributes."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir import expr
from relaxlab.ir.expr import Var
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.schedule import Schedule, ScheduleError
from relaxlab.script import parse
from tests.schedule.programs import PROGRAMS, assert_well_formed, matmul


def product() -> Schedule:
    return Schedule(matmul(Var("n"), expr.const(6), expr.const(20)))


def test_weights_in_tiles() -> None:
    """B[k, j] goes to [j // 8, k, j % 8]; the caller pads 20 columns to 24."""
    sch = product()
    before = sch.func
    sch.transform_layout(sch.get_block("C"), "B", lambda k, j: (j // 8, k, j % 8))
    assert_well_formed(sch.func)
    ((index, index_map),) = sch.func.attrs["layout_rewrites"]
    assert index == 1
    assert [str(d) for d in sch.func.buffers[1].shape] == ["3", "6", "8"]
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype("float32") for s in ((5, 6), (6, 20)))
    bias = rng.standard_normal(20).astype("float32")
    tiles = np.zeros((3, 6, 8), "float32")
    for k in range(6):
        for j in range(20):
            tiles[tuple(int(str(e)) for e in index_map.apply([expr.const(k), expr.const(j)]))] = b[
                k, j
            ]
    one, two = np.empty((5, 20), "float32"), np.empty((5, 20), "float32")
    interpret_prim_func(before, [a, b, bias, one])
    interpret_prim_func(sch.func, [a, tiles, bias, two])
    np.testing.assert_array_equal(one, two)


def test_two_rewrites_of_one_parameter_compose() -> None:
    sch = product()
    block = sch.get_block("C")
    sch.transform_layout(block, "B", lambda k, j: (j, k))
    sch.transform_layout(block, "B", lambda j, k: (j // 4, k, j % 4))
    ((_, index_map),) = sch.func.attrs["layout_rewrites"]
    assert str(index_map) == "(k, j) -> (j // 4, k, j % 4)"
    assert [str(d) for d in sch.func.buffers[1].shape] == ["5", "6", "4"]


def test_several_parameters() -> None:
    sch = product()
    sch.transform_layout(sch.get_block("D"), "bias", lambda j: (j // 4, j % 4))
    sch.transform_layout(sch.get_block("C"), ("read", 0), lambda i, k: (k, i))
    assert [i for i, _ in sch.func.attrs["layout_rewrites"]] == [0, 2]
    assert_well_formed(sch.func)


def test_padding_a_parameter_is_the_callers_business() -> None:
    sch = product()
    with pytest.raises(ScheduleError, match="callers pad with 0"):
        sch.transform_layout(sch.get_block("C"), "B", lambda k, j: (j // 8, k, j % 8), 0.0)


def test_a_padded_reduction_result_is_refused() -> None:
    sch = Schedule(PROGRAMS["matmul_odd"]())
    with pytest.raises(ScheduleError, match="one block writes C, elementwise"):
        sch.transform_layout(sch.get_block("C"), "C", lambda i, j: (i, j // 4, j % 4), 0.0)


CALLED = """
@T.prim_func
def f(A: T.Buffer((4, 4), "int32"), B: T.Buffer((4, 4), "int32")):
    for i, j in T.grid(4, 4):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * 2

@R.function
def main(x: R.Tensor((4, 4), "int32")):
    return R.call_tir(cls.f, (x,), out_ty=R.Tensor((4, 4), "int32"))
"""


@pytest.mark.parametrize("parameter", ["A", "B"])
def test_the_layout_of_a_parameter_that_the_module_passes_is_refused(parameter: str) -> None:
    sch = Schedule(parse(CALLED), "f")
    with pytest.raises(ScheduleError, match=f"passes {parameter} in the layout.*`main` calls `f`"):
        sch.transform_layout(sch.get_block("B"), parameter, lambda i, j: (j, i))


def test_copies_of_such_parameters_have_any_layout() -> None:
    sch = Schedule(parse(CALLED), "f")
    block = sch.get_block("B")
    sch.cache_read(block, 0, "global")
    sch.cache_write(block, 0, "global")
    sch.transform_layout(block, ("read", 0), lambda i, j: (j, i))
    sch.transform_layout(block, ("write", 0), lambda i, j: (j, i))
    x = np.arange(16, dtype="int32").reshape(4, 4)
    np.testing.assert_array_equal(rl.compile(sch, use_cache=False)(x), x * 2)


def test_a_function_alone_is_called_with_the_new_layouts() -> None:
    func = parse("""
@T.prim_func
def f(A: T.Buffer((3, 4), "int32")):
    for i, j in T.grid(2, 3):
        with T.sblock("A"):
            vi, vj = T.axis.remap("SS", [i, j])
            A[vi + 1, vj] = A[vi, vj + 1] + A[vi + 1, vj]
""").loop_functions()["f"]
    sch = Schedule(func)
    sch.transform_layout(sch.get_block("A"), "A", lambda i, j: (j, i))
    before, after = np.arange(12, dtype="int32").reshape(3, 4), np.empty((4, 3), "int32")
    after[:] = before.T
    interpret_prim_func(func, [before])
    rl.compile(sch, use_cache=False)(after)
    np.testing.assert_array_equal(after, before.T)
