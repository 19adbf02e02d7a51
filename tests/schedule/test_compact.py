"""Private buffers shrink to what one iteration touches, and only where that is safe."""

from __future__ import annotations

import numpy as np

from relaxlab.ir.expr import Var
from relaxlab.ir.loops import Buffer, PrimFunc
from relaxlab.schedule import Schedule
from relaxlab.schedule.compact import compact_buffers, narrowed
from relaxlab.schedule.tree import all_blocks
from relaxlab.script import tir as T
from tests.schedule.programs import PROGRAMS, assert_same, matmul


def allocations(func: PrimFunc) -> dict[str, tuple[str, list[str]]]:
    """For each allocated buffer the block that allocates it and its shape, as text."""
    return {
        a.name: (b.name, [str(d) for d in a.shape])
        for b in all_blocks(func)
        for a in b.alloc_buffers
    }


def compacted(before: PrimFunc, sch: Schedule) -> dict[str, tuple[str, list[str]]]:
    after = compact_buffers(sch.func)
    assert_same(before, after, np.random.default_rng(0), [1, 4, 9, 18])
    return allocations(after)


def test_register_tile_of_a_product() -> None:
    before = matmul(Var("n"), Var("k"), Var("m"))
    sch = Schedule(before)
    c, d, e = (sch.get_block(x) for x in "CDE")
    sch.compute_inline(d)
    sch.set_scope(c, 0, "local")
    i, j = sch.get_loops(e)
    io, ii = sch.split(i, factors=[None, 4])
    jo, ji = sch.split(j, factors=[None, 16])
    sch.reorder(io, jo, ii, ji)
    sch.compute_at(c, jo)
    *_, ci, cj, ck = sch.get_loops(c)
    ko, ki = sch.split(ck, factors=[None, 8])
    sch.reorder(ko, ki, ci, cj)
    sch.decompose_reduction(c, ko)
    panel = sch.cache_read(c, 2, "local")
    sch.compute_at(panel, ko)
    found = compacted(before, sch)
    assert found["C"] == ("j_0_body", ["4", "16"])
    assert found["B_local"] == ("ax2_0_body", ["8", "16"])


def test_accumulator_stays_outside_its_reduce_loop() -> None:
    before = PROGRAMS["matmul_even"]()
    sch = Schedule(before)
    c = sch.get_block("C")
    i, j, k = sch.get_loops(c)
    sch.reorder(k, i, j)
    sch.set_scope(c, 0, "local")
    assert compacted(before, sch)["C"] == ("root", ["8", "16"])


def test_global_buffers_stay() -> None:
    before = PROGRAMS["matmul_even"]()
    sch = Schedule(before)
    sch.compute_at(sch.get_block("D"), sch.get_loops(sch.get_block("E"))[0])
    assert compacted(before, sch)["D"] == ("root", ["8", "16"])


def test_global_buffers_of_one_iteration() -> None:
    """As large as a row where rows are made one after another; threads need all at once."""
    before = PROGRAMS["matmul_even"]()
    sch = Schedule(before)
    row, *_ = sch.get_loops(sch.get_block("E"))
    sch.compute_at(sch.get_block("D"), row)
    (buffer,) = (b for x in all_blocks(sch.func) for b in x.alloc_buffers if b.name == "D")
    after = narrowed(sch.func, buffer)
    assert_same(before, after, np.random.default_rng(0), [1, 4, 9, 18])
    assert allocations(after)["D"] == ("root", ["1", "16"])
    sch.parallel(row)
    assert narrowed(sch.func, buffer) is sch.func


def test_global_buffers_whose_sizes_differ_by_iteration() -> None:
    """No iteration says how large the buffer is, which is allocated around all of them."""

    @T.prim_func
    def triangle(A: T.Buffer((9, 9), "float32"), C: T.Buffer((9, 9), "float32")):
        B = T.alloc_buffer((9, 9), "float32")
        for i in range(9):
            for j in range(i + 1):
                with T.block("B"):
                    vi = T.axis.spatial(9, i)
                    vj = T.axis.spatial(vi + 1, j)
                    B[vi, vj] = A[vi, vj] + T.float32(1)
            for j in range(i + 1):
                with T.block("C"):
                    vi = T.axis.spatial(9, i)
                    vj = T.axis.spatial(vi + 1, j)
                    C[vi, vj] = B[vi, vj] * A[vj, vi]

    (buffer,) = (b for x in all_blocks(triangle) for b in x.alloc_buffers)
    after = narrowed(triangle, buffer)
    assert_same(triangle, after, np.random.default_rng(0), [1])
    assert allocations(after)["B"] == ("root", ["1", "9"])


def test_window_over_several_points() -> None:
    """Three neighbours are needed at each of four points: six elements."""
    before = PROGRAMS["stencil"]()
    sch = Schedule(before)
    q, c = sch.get_block("Q"), sch.get_block("C")
    sch.set_scope(q, 0, "local")
    io, _ = sch.split(sch.get_loops(c)[0], factors=[None, 4])
    sch.compute_at(q, io)
    assert compacted(before, sch)["Q"] == ("i_0_body", ["6"])


@T.prim_func
def carried(A: T.Buffer((9,), "float32"), C: T.Buffer((9,), "float32")):
    B = T.alloc_buffer((9,), "float32", scope="local")
    for i in range(9):
        with T.block("B"):
            vi = T.axis.spatial(9, i)
            B[vi] = A[vi]
        with T.block("C"):
            vi = T.axis.spatial(9, i)
            C[vi] = B[vi] + B[T.max(vi - 1, 0)]


def test_values_of_an_earlier_iteration_keep_the_whole_buffer() -> None:
    assert compacted(carried, Schedule(carried))["B"] == ("root", ["9"])
    sch = Schedule(carried)
    sch.set_scope(sch.get_block("B"), 0, "global")
    (buffer,) = (b for x in all_blocks(sch.func) for b in x.alloc_buffers)
    assert narrowed(sch.func, buffer) is sch.func


@T.prim_func
def sometimes(A: T.Buffer((9,), "float32"), C: T.Buffer((9,), "float32")):
    B = T.alloc_buffer((1,), "float32", scope="local")
    for i in range(9):
        with T.block("B"):
            vi = T.axis.opaque(9, i)
            if vi % 3 == 0:
                B[0] = A[vi]
        with T.block("C"):
            vi = T.axis.opaque(9, i)
            C[vi] = B[0]


def test_a_conditional_write_does_not_fill() -> None:
    assert compacted(sometimes, Schedule(sometimes))["B"] == ("root", ["1"])


@T.prim_func
def gather(
    A: T.Buffer((12,), "float32"), At: T.Buffer((9,), "int64"), C: T.Buffer((9,), "float32")
):
    B = T.alloc_buffer((12,), "float32", scope="local")
    for i in range(12):
        with T.block("B"):
            vi = T.axis.spatial(12, i)
            B[vi] = A[vi] * T.float32(2)
    for i in range(9):
        with T.block("C"):
            vi = T.axis.spatial(9, i)
            C[vi] = B[At[vi]]


def test_data_dependent_indices_keep_the_dimension() -> None:
    sch = Schedule(gather)
    sch.compute_at(sch.get_block("B"), sch.get_loops(sch.get_block("C"))[0])
    assert compacted(gather, sch)["B"] == ("i_body", ["12"])


def test_vector_indices_count_all_lanes() -> None:
    @T.prim_func
    def lanes(A: T.Buffer((32,), "float32"), C: T.Buffer((32,), "float32")):
        B = T.alloc_buffer((32,), "float32", scope="local")
        for i in range(4):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                B[T.Ramp(vi * 8, 1, 8)] = A[T.Ramp(vi * 8, 1, 8)]
            with T.block("C"):
                vi = T.axis.spatial(4, i)
                C[T.Ramp(vi * 8, 1, 8)] = B[T.Ramp(vi * 8, 1, 8)]

    found = compacted(lanes, Schedule(lanes))
    assert found["B"] == ("i_body", ["8"])


def test_unused_buffers_go() -> None:
    @T.prim_func
    def unused(A: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
        B = T.alloc_buffer((4,), "float32", scope="local")
        for i in range(4):
            with T.block("C"):
                vi = T.axis.spatial(4, i)
                C[vi] = A[vi]

    assert isinstance(unused.params[0], Buffer)
    assert compacted(unused, Schedule(unused)) == {}


@T.prim_func
def bounded(A: T.Buffer(("n",), "float32"), C: T.Buffer(("n",), "float32")):
    T.func_attr({"tir_var_upper_bound": {"n": 8}})
    n = T.int64()
    B = T.alloc_buffer((n,), "float32", scope="local")
    for i in range(n):
        with T.block("B"):
            vi = T.axis.spatial(n, i)
            B[vi] = A[vi] * T.float32(2)
    for i in range(n):
        with T.block("C"):
            vi = T.axis.spatial(n, i)
            C[vi] = B[n - 1 - vi]


def test_a_dimension_with_an_upper_bound_becomes_constant() -> None:
    after = compact_buffers(bounded)
    assert_same(bounded, after, np.random.default_rng(0), [1, 5, 8])
    assert allocations(after) == {"B": ("root", ["8"])}


@T.prim_func
def summed(A: T.Buffer(("n", 8), "float32"), C: T.Buffer(("n",), "float32")):
    n = T.int64()
    for i, k in T.grid(n, 8):
        with T.block("C"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[vi] = T.float32(0)
            C[vi] = C[vi] + A[vi, vk]


def test_versions_have_buffers_of_their_own() -> None:
    """Their blocks and loops have the same names and variables."""
    sch = Schedule(summed)

    def version(one: Schedule, most: int | None) -> Schedule:
        copy = one.cache_write(one.get_block("C"), 0, "local")
        (i, _) = one.get_loops(one.get_block("C"))
        one.reverse_compute_at(copy, i)
        return one

    sch.guarded_versions(summed.buffers[0].shape[0], [4], version)
    after = compact_buffers(sch.func)
    assert_same(summed, after, np.random.default_rng(0), [1, 4, 9])
    found = [[str(d) for d in a.shape] for b in all_blocks(after) for a in b.alloc_buffers]
    assert found == [["1"], ["1"]]
