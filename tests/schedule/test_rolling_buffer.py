"""rolling_buffer keeps what programs compute, and refuses where an iteration needs more than the
one before left."""

from __future__ import annotations

import random

import numpy as np
import pytest

from relaxlab.ir.equal import assert_structural_equal
from relaxlab.ir.loops import PrimFunc
from relaxlab.runtime.build import compile as build
from relaxlab.schedule import Schedule, ScheduleError, apply_trace
from relaxlab.schedule.state import LoopRV
from relaxlab.schedule.tree import all_blocks
from relaxlab.script import parse
from tests.schedule.programs import assert_well_formed, run


def window(rows: int, columns: int, high: int, wide: int, deep: bool = False) -> PrimFunc:
    """Two blocks, the second of which reads windows of `high` times `wide` elements; a third one,
    which reads windows of the second, if `deep`."""
    outer = (rows + high - 1, columns + wide - 1)
    inner = (rows, columns) if not deep else (rows - high + 1, columns - wide + 1)
    middle = f"D = T.alloc_buffer({(rows, columns)}, 'float32')" if deep else ""
    last = f"""
    for i, j, k, l in T.grid({inner[0]}, {inner[1]}, {high}, {wide}):
        with T.sblock("E"):
            vi, vj, vk, vl = T.axis.remap("SSRR", [i, j, k, l])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + D[vi + vk, vj + vl]
    """
    second = "D" if deep else "C"
    text = f"""
@T.prim_func
def main(A: T.Buffer({outer}, "float32"), C: T.Buffer({inner}, "float32")):
    B = T.alloc_buffer({outer}, "float32")
    {middle}
    for i, j in T.grid({outer[0]}, {outer[1]}):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(3) + T.float32(1)
    for i, j, k, l in T.grid({rows}, {columns}, {high}, {wide}):
        with T.sblock("C"):
            vi, vj, vk, vl = T.axis.remap("SSRR", [i, j, k, l])
            with T.init():
                {second}[vi, vj] = T.float32(-1000)
            {second}[vi, vj] = T.max({second}[vi, vj], B[vi + vk, vj + vl])
    {last if deep else ""}
"""
    return parse(text)["main"]  # type: ignore[return-value]


def rolled(func: PrimFunc, rng: random.Random, last: str = "C") -> Schedule:
    """The function computed in tiles, if it is drawn, along one or two axes."""
    sch = Schedule(func)
    i, j, *window_loops = sch.get_loops(sch.get_block(last))
    at: list[LoopRV] = []
    inner: list[LoopRV] = []
    for loop in (i, j)[: rng.choice([1, 2])]:
        if rng.random() < 0.6:
            outer, rest = sch.split(loop, factors=[None, rng.choice([2, 3, 4])])
            at.append(outer)
            inner.append(rest)
        else:
            at.append(loop)
    rng.shuffle(at)
    rest = [j] if len(at) == 1 else []
    sch.reorder(*at, *inner, *rest, *window_loops)
    if last == "E":
        sch.compute_at(sch.get_block("C"), at[-1])
    sch.compute_at(sch.get_block("B"), at[-1])
    return sch


def arguments(func: PrimFunc, rng: np.random.Generator):
    """The shapes of the parameters, and whole numbers for the first, of which all results are
    exact."""
    shapes = [tuple(int(str(d)) for d in b.shape) for b in func.buffers]
    return shapes, [rng.integers(-99, 99, shapes[0]).astype("float32")]


@pytest.mark.parametrize("case", range(12))
def test_windows_of_two_blocks(case: int, rng: np.random.Generator) -> None:
    draw = random.Random(int(rng.integers(1 << 60)))
    high, wide = draw.choice([(3, 3), (2, 1), (1, 3), (4, 2)])
    func = window(draw.choice([8, 12]), draw.choice([6, 12]), high, wide)
    sch = rolled(func, draw)
    try:
        sch.rolling_buffer(sch.get_block("B"), 0)
    except ScheduleError as refused:
        # Tiles that are as large as the window's step have nothing in common, and those that end
        # beyond the array begin where no step says.
        assert "follow each other" in str(refused), refused
        return
    assert_well_formed(sch.func)
    shapes, values = arguments(func, rng)
    want = run(func, values, shapes[-1])
    np.testing.assert_array_equal(run(sch.func, values, shapes[-1]), want)
    got = np.zeros(shapes[-1], "float32")
    build(sch.func, use_cache=False, checks="all")(values[0], got)
    np.testing.assert_array_equal(got, want)
    assert_structural_equal(apply_trace(func, sch.trace_json()).func, sch.func)


def test_the_last_of_several_blocks_is_rolled_first(rng: np.random.Generator) -> None:
    func = window(12, 8, 3, 3, deep=True)
    sch = Schedule(func)
    i, *_ = sch.get_loops(sch.get_block("E"))
    sch.compute_at(sch.get_block("C"), i)
    sch.compute_at(sch.get_block("B"), i)
    other = sch.copy()
    other.rolling_buffer(other.get_block("B"), 0)
    with pytest.raises(ScheduleError, match="later blocks first"):
        other.rolling_buffer(other.get_block("C"), 0)
    for name in ("C", "B"):
        sch.rolling_buffer(sch.get_block(name), 0)
    root = all_blocks(sch.func)[0]
    assert [str(b.shape[0]) for b in root.alloc_buffers] == ["3", "5"]
    shapes, values = arguments(func, rng)
    np.testing.assert_array_equal(run(sch.func, values, shapes[-1]), run(func, values, shapes[-1]))


def test_iterations_stay_in_order() -> None:
    sch = Schedule(window(8, 8, 3, 1))
    i, *_ = sch.get_loops(sch.get_block("C"))
    sch.compute_at(sch.get_block("B"), i)
    sch.rolling_buffer(sch.get_block("B"), 0)
    with pytest.raises(ScheduleError, match="opaque"):
        sch.parallel(i)


def test_iterations_that_run_at_once_share_no_window() -> None:
    sch = Schedule(window(8, 8, 3, 1))
    i, *_ = sch.get_loops(sch.get_block("C"))
    sch.compute_at(sch.get_block("B"), i)
    sch.parallel(i)
    with pytest.raises(ScheduleError, match="one after the other"):
        sch.rolling_buffer(sch.get_block("B"), 0)


def test_what_is_not_computed_under_a_loop_of_its_readers_is_refused() -> None:
    sch = Schedule(window(8, 8, 3, 1))
    with pytest.raises(ScheduleError, match="a loop is around the block"):
        sch.rolling_buffer(sch.get_block("B"), 0)
