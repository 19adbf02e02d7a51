"""Tensor intrinsics: matching a block with a description and replacing it."""

from __future__ import annotations

import numpy as np
import pytest

from relaxlab.ir.equal import assert_structural_equal
from relaxlab.ir.loops import Block, PrimFunc
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.schedule import Schedule, ScheduleError, TensorIntrin, apply_trace
from relaxlab.script import tir as T
from tests.schedule.programs import assert_same, assert_well_formed


@T.prim_func
def dot4_desc(
    A: T.Buffer((16, 4), "uint8"), B: T.Buffer((4,), "int8"), C: T.Buffer((16,), "int32")
):
    for i, k in T.grid(16, 4):
        with T.block("dot4"):
            vi, vk = T.axis.remap("SR", [i, k])
            C[vi] = C[vi] + T.Cast("int32", A[vi, vk]) * T.Cast("int32", B[vk])


@T.prim_func
def dot4_impl(
    A: T.Buffer((16, 4), "uint8"), B: T.Buffer((4,), "int8"), C: T.Buffer((16,), "int32")
):
    """All lanes at once; an instruction would take the four bytes of a lane together."""
    for k in T.unroll(4):
        C[T.Ramp(0, 1, 16)] = C[T.Ramp(0, 1, 16)] + T.Cast(
            "int32x16", A[T.Ramp(0, 1, 16), k]
        ) * T.Broadcast(T.Cast("int32", B[k]), 16)


@T.prim_func
def product(x: T.handle, W: T.Buffer((3, 5, 16, 4), "uint8"), y: T.handle):
    n = T.int64()
    X = T.match_buffer(x, (n, 20), "int8")
    Y = T.match_buffer(y, (n, 48), "int32")
    for i, j, k in T.grid(n, 48, 20):
        with T.block("Y"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                Y[vi, vj] = 0
            Y[vi, vj] = Y[vi, vj] + T.Cast("int32", X[vi, vk]) * T.Cast(
                "int32", W[vj // 16, vk // 4, vj % 16, vk % 4]
            )


@pytest.fixture
def dot4() -> str:
    TensorIntrin.register("test.dot4", dot4_desc, dot4_impl, ["avx512vnni"])
    return "test.dot4"


def tiled(func: PrimFunc = product) -> tuple[Schedule, list]:  # type: ignore[type-arg]
    sch = Schedule(func)
    i, j, k = sch.get_loops(sch.get_block("Y"))
    jo, ji = sch.split(j, factors=[None, 16])
    ko, ki = sch.split(k, factors=[None, 4])
    sch.reorder(i, jo, ko, ji, ki)
    return sch, [i, jo, ko, ji, ki]


def test_tensorize_a_packed_integer_product(dot4: str) -> None:
    sch, (_, _, ko, ji, _) = tiled()
    outer = sch.blockize(ji)
    sch.decompose_reduction(outer, ko)
    sch.tensorize(outer, dot4)
    block = sch.get(outer)
    assert isinstance(block, Block)
    views = {m.source.buffer.name: m for m in block.match_buffers}
    assert [str(r.min) for r in views["W"].source.region] == ["vj_o", "vk_o", "0", "0"]
    assert [str(r.extent) for r in views["Y"].source.region] == ["1", "16"]
    assert block.annotations["tensor_intrin"] == dot4
    assert_well_formed(sch.func)
    assert_same(product, sch.func, np.random.default_rng(0), [1, 3])
    assert_structural_equal(apply_trace(product, sch.trace_json()).func, sch.func)


def test_tensorize_a_loop_keeps_the_initialisation_in_the_block(dot4: str) -> None:
    sch, (*_, ji, _) = tiled()
    sch.tensorize(ji, dot4)
    assert_well_formed(sch.func)
    assert_same(product, sch.func, np.random.default_rng(1), [2, 5])


def test_the_same_intrinsic_twice(dot4: str) -> None:
    sch, (i, _, ko, ji, _) = tiled()
    outer = sch.blockize(ji)
    sch.decompose_reduction(outer, ko)
    sch.tensorize(outer, dot4)
    again = Schedule(sch.func)
    assert_same(product, again.func, np.random.default_rng(2), [2])


@T.prim_func
def subtraction(x: T.handle, W: T.Buffer((3, 5, 16, 4), "uint8"), y: T.handle):
    n = T.int64()
    X = T.match_buffer(x, (n, 20), "int8")
    Y = T.match_buffer(y, (n, 48), "int32")
    for i, j, k in T.grid(n, 48, 20):
        with T.block("Y"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                Y[vi, vj] = 0
            Y[vi, vj] = Y[vi, vj] - T.Cast("int32", X[vi, vk]) * T.Cast(
                "int32", W[vj // 16, vk // 4, vj % 16, vk % 4]
            )


@T.prim_func
def strided(x: T.handle, W: T.Buffer((3, 5, 32, 4), "uint8"), y: T.handle):
    n = T.int64()
    X = T.match_buffer(x, (n, 20), "int8")
    Y = T.match_buffer(y, (n, 48), "int32")
    for i, j, k in T.grid(n, 48, 20):
        with T.block("Y"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                Y[vi, vj] = 0
            Y[vi, vj] = Y[vi, vj] + T.Cast("int32", X[vi, vk]) * T.Cast(
                "int32", W[vj // 16, vk // 4, vj % 16 * 2, vk % 4]
            )


@pytest.mark.parametrize(
    ("func", "reason"),
    [(subtraction, "there is a Sub in place of an Add"), (strided, "does not move like A")],
    ids=["subtraction", "strided"],
)
def test_another_computation_is_refused(dot4: str, func: PrimFunc, reason: str) -> None:
    sch, (*_, ji, _) = tiled(func)
    before = sch.func
    with pytest.raises(ScheduleError) as caught:
        sch.tensorize(ji, dot4)
    text = str(caught.value)
    assert "the block computes what intrinsic 'test.dot4' describes" in text
    assert reason in text
    assert sch.func is before


def test_wrong_tile_is_refused(dot4: str) -> None:
    sch = Schedule(product)
    *_, j, k = sch.get_loops(sch.get_block("Y"))
    jo, ji = sch.split(j, factors=[None, 8])
    ko, ki = sch.split(k, factors=[None, 4])
    sch.reorder(jo, ko, ji, ki)
    with pytest.raises(ScheduleError, match="loop j_1 has extent 8, loop i of the desc"):
        sch.tensorize(ji, dot4)


def test_a_tail_is_refused(dot4: str) -> None:
    """40 columns in tiles of 16: the last tile is not full."""
    sch = Schedule(_columns_40)
    *_, j, k = sch.get_loops(sch.get_block("Y"))
    jo, ji = sch.split(j, factors=[None, 16])
    with pytest.raises(ScheduleError, match="has the predicate"):
        sch.tensorize(ji, dot4)


@T.prim_func
def _columns_40(
    W: T.Buffer((40, 4), "uint8"), X: T.Buffer((4,), "int8"), Y: T.Buffer((40,), "int32")
):
    for j, k in T.grid(40, 4):
        with T.block("Y"):
            vj, vk = T.axis.remap("SR", [j, k])
            with T.init():
                Y[vj] = 0
            Y[vj] = Y[vj] + T.Cast("int32", W[vj, vk]) * T.Cast("int32", X[vk])


def test_description_and_implementation_agree() -> None:
    """The description and the implementation of a registered pair agree, for the pair of these
    tests."""
    rng = np.random.default_rng(3)
    a = rng.integers(0, 256, (16, 4)).astype("uint8")
    b = rng.integers(-128, 128, 4).astype("int8")
    one = rng.integers(-9, 9, 16).astype("int32")
    two = one.copy()
    interpret_prim_func(dot4_desc, [a, b, one])
    interpret_prim_func(dot4_impl, [a, b, two])
    np.testing.assert_array_equal(one, two)


def test_registry_errors() -> None:
    TensorIntrin.register("test.dot4", dot4_desc, dot4_impl)
    with pytest.raises(ValueError, match="override=True"):
        TensorIntrin.register("test.dot4", dot4_desc, dot4_impl)
    with pytest.raises(ValueError, match="A is uint8"):
        TensorIntrin.register("test.other", dot4_desc, _columns_40)
    with pytest.raises(KeyError, match=r"test\.dot4"):
        TensorIntrin.get("test.dot5")
