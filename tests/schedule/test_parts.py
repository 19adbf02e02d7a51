"""Loops in consecutive parts, and reductions that start at what is combined with their results."""

from __future__ import annotations

import numpy as np
import pytest

from relaxlab.ir.equal import assert_structural_equal
from relaxlab.ir.loops import For
from relaxlab.runtime.build import compile as build
from relaxlab.schedule import Schedule, ScheduleError, apply_trace
from relaxlab.script import parse
from tests.schedule.programs import PROGRAMS, assert_same, assert_well_formed, run


def test_parts_are_scheduled_apart(rng: np.random.Generator) -> None:
    sch = Schedule(PROGRAMS["matmul_even"]())
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    first, middle, last = sch.loop_partition(i, [3, None, 2])
    parts = [sch.get(loop) for loop in (first, middle, last)]
    ranges = [(str(p.min), str(p.extent)) for p in parts if isinstance(p, For)]
    assert ranges == [("0", "3"), ("3", "3"), ("6", "2")]
    own = sch.get_block("C_i1")
    _, inner, reduced = sch.get_loops(own)
    sch.parallel(middle)
    sch.reorder(reduced, inner)
    sch.decompose_reduction(sch.get_block("C_i0"), sch.get_loops(sch.get_block("C_i0"))[2])
    assert_well_formed(sch.func)
    assert_same(sch.original, sch.func, rng, [1])
    assert_structural_equal(apply_trace(sch.original, sch.trace_json()).func, sch.func)
    exe = build(sch.func, use_cache=False, checks="all")
    shapes = [tuple(int(str(d)) for d in b.shape) for b in sch.original.buffers]
    inputs = [rng.integers(-3, 3, s).astype("float32") for s in shapes[:-1]]
    got = np.zeros(shapes[-1], "float32")
    exe(*inputs, got)
    np.testing.assert_array_equal(got, run(sch.original, inputs, shapes))


def test_parts_inside_of_another_loop(rng: np.random.Generator) -> None:
    sch = Schedule(PROGRAMS["matmul_even"]())
    i, j, _ = sch.get_loops(sch.get_block("C"))
    main, _ = sch.loop_partition(j, [4])
    sch.unroll(main)
    sch.parallel(i)
    assert_well_formed(sch.func)
    assert_same(sch.original, sch.func, rng, [1])


def test_a_sum_is_initialised_before_its_parts() -> None:
    sch = Schedule(PROGRAMS["matmul_even"]())
    block = sch.get_block("C")
    k = sch.get_loops(block)[2]
    with pytest.raises(ScheduleError, match="decompose_reduction first"):
        sch.loop_partition(k, [2])
    sch.decompose_reduction(block, k)
    sch.loop_partition(k, [2])
    assert_same(sch.original, sch.func, np.random.default_rng(0), [1])


@pytest.mark.parametrize("factors", [[0], [99], [None, None], [], [2, -1]])
def test_each_part_has_iterations(factors: list[int | None]) -> None:
    sch = Schedule(PROGRAMS["matmul_even"]())
    i, _, _ = sch.get_loops(sch.get_block("C"))
    with pytest.raises(ScheduleError, match="loop_partition refused"):
        sch.loop_partition(i, factors)
    symbolic = Schedule(PROGRAMS["matmul"]())
    with pytest.raises(ScheduleError, match="each part has iterations"):
        symbolic.loop_partition(symbolic.get_loops(symbolic.get_block("C"))[0], [4])


def with_epilogue(dtype: str, init: str, value: str, epilogue: str) -> Schedule:
    text = f"""
@T.prim_func
def main(A: T.Buffer((6, 7), "{dtype}"), b: T.Buffer((7,), "{dtype}"),
         D: T.Buffer((7, 6), "{dtype}")):
    C = T.alloc_buffer((6,), "{dtype}")
    E = T.alloc_buffer((6, 7), "{dtype}")
    for i, j, k in T.grid(6, 7, 7):
        with T.sblock("E"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                E[vi, vj] = {init}
            E[vi, vj] = {value}
    for j, i in T.grid(7, 6):
        with T.sblock("D"):
            vj, vi = T.axis.remap("SS", [j, i])
            D[vj, vi] = {epilogue}
"""
    return Schedule(parse(text)["main"])  # type: ignore[arg-type]


FUSED = {
    "bias": ("float32", "T.float32(0)", "E[vi, vj] + A[vi, vk] * b[vj]", "E[vi, vj] + b[vj]"),
    "left": ("int32", "0", "E[vi, vj] + A[vi, vk]", "b[vj] * 2 + E[vi, vj]"),
    "update": ("int32", "0", "E[vi, vj] + A[vi, vk]", "(D[vj, vi] + 5) * b[vj] + E[vi, vj]"),
    "start": ("int32", "3", "A[vi, vk] + E[vi, vj]", "E[vi, vj] + b[vj]"),
    "maximum": ("int32", "-100", "T.max(E[vi, vj], A[vi, vk])", "T.max(E[vi, vj], b[vj])"),
    "product": ("int32", "1", "E[vi, vj] * A[vi, vk]", "b[vj] * E[vi, vj]"),
}


@pytest.mark.parametrize("name", FUSED)
def test_a_reduction_starts_at_what_is_combined_with_it(
    name: str, rng: np.random.Generator
) -> None:
    sch = with_epilogue(*FUSED[name])
    sch.fuse_reduction_epilogue(sch.get_block("E"), sch.get_block("D"))
    assert len(sch.get_child_blocks(sch.get_block("root"))) == 1
    assert_well_formed(sch.func)
    assert_same(sch.original, sch.func, rng, [1])
    assert_structural_equal(apply_trace(sch.original, sch.trace_json()).func, sch.func)


@pytest.mark.parametrize(
    "epilogue",
    ["T.max(E[vi, vj], T.float32(0))", "E[vi, vj] * b[vj]", "E[vi, vj] + E[vi, vj]",
     "T.max(E[vi, vj] + b[vj], T.float32(0))", "D[6 - vj, vi] + E[vi, vj]"],
)  # fmt: skip
def test_other_operations_see_results_that_are_complete(epilogue: str) -> None:
    sch = with_epilogue("float32", "T.float32(0)", "E[vi, vj] + A[vi, vk]", epilogue)
    with pytest.raises(ScheduleError, match="results that are not complete"):
        sch.fuse_reduction_epilogue(sch.get_block("E"), sch.get_block("D"))
