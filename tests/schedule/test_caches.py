"""Copies of what a block updates, tables of its indices, and regions that its author states."""

from __future__ import annotations

import numpy as np
import pytest

from relaxlab.ir.equal import assert_structural_equal
from relaxlab.ir.loops import Block, PrimFunc
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.schedule import Schedule, ScheduleError, apply_trace
from relaxlab.schedule.tree import all_blocks
from relaxlab.script import parse
from tests.schedule.programs import assert_same, assert_well_formed


def function(text: str) -> PrimFunc:
    return parse(f"@T.prim_func\n{text}")["main"]  # type: ignore[return-value]


UPDATES = {
    "row": """
def main(A: T.Buffer((6,), "int32"), B: T.Buffer((6, 5), "int32")):
    for i in range(6):
        with T.sblock("B"):
            vi = T.axis.spatial(6, i)
            for j in range(1, 5):
                B[vi, j] = B[vi, j] + B[vi, j - 1] * A[vi]
""",
    "element": """
def main(A: T.Buffer((5,), "int32"), B: T.Buffer((6, 5), "int32")):
    for i, j, k in T.grid(2, 5, 4):
        with T.sblock("B"):
            vi = T.axis.spatial(6, i * 4 + k)
            vj = T.axis.spatial(5, j)
            T.where(i * 4 + k < 6)
            B[vi, vj] = B[vi, vj] + A[vj]
""",
}


@pytest.mark.parametrize("name", UPDATES)
def test_updates_of_a_copy(name: str, rng: np.random.Generator) -> None:
    func = function(UPDATES[name])
    sch = Schedule(func)
    before, after = sch.cache_inplace(sch.get_block("B"), 0, "local")
    assert [b.name for b in map(sch.get, (before, after))] == ["B_local", "B_local_1"]  # type: ignore
    assert_well_formed(sch.func)
    a = rng.integers(-3, 3, int(str(func.buffers[0].shape[0]))).astype("int32")
    start = rng.integers(-3, 3, (6, 5)).astype("int32")
    want, got = start.copy(), start.copy()
    interpret_prim_func(func, [a, want])
    interpret_prim_func(sch.func, [a, got])
    np.testing.assert_array_equal(got, want)
    assert_structural_equal(apply_trace(func, sch.trace_json()).func, sch.func)


def test_what_is_only_read_or_written_beyond_what_is_read_has_no_copy_to_update() -> None:
    sch = Schedule(function(UPDATES["element"]))
    with pytest.raises(ScheduleError, match="only reads it"):
        sch.cache_inplace(sch.get_block("B"), 1, "local")
    beyond = Schedule(function("""
def main(A: T.Buffer((8,), "int32"), B: T.Buffer((9,), "int32")):
    for i in range(8):
        with T.sblock("B"):
            vi = T.axis.spatial(8, i)
            B[vi + 1] = B[vi] + A[vi]
"""))
    with pytest.raises(ScheduleError, match="reads all that it writes"):
        beyond.cache_inplace(beyond.get_block("B"), 0, "local")


RESIZED = """
def main(A: T.Buffer((16, 16), "float32"), B: T.Buffer((8, 8), "float32")):
    for i, j in T.grid(8, 8):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = (A[vi * 2, vj * 2] + A[vi * 2 + 1, vj * 2]
                         + A[vi * 2, vj * 2 + 1] * A[vj, vi // 3 + vj // 5])
"""


@pytest.mark.parametrize(("threshold", "count"), [(0, 5), (2, 2), (3, 2), (4, 0)])
def test_tables_of_indices(threshold: int, count: int, rng: np.random.Generator) -> None:
    """`vi * 2` occurs three times; twice beside the index that it is a part of."""
    func = function(RESIZED)
    sch = Schedule(func)
    tables = sch.cache_index(sch.get_block("B"), "global", threshold)
    assert len(tables) == count
    assert_well_formed(sch.func)
    assert_same(func, sch.func, rng, [1])
    assert_structural_equal(apply_trace(func, sch.trace_json()).func, sch.func)
    if tables:
        assert sch.get_producers(sch.get_block("B")) != []
        assert sch.get(tables[0]).name == "index_0"  # type: ignore[union-attr]


GATHERED = """
def main(A: T.Buffer((16, 4), "float32"), P: T.Buffer((8,), "int32"),
         B: T.Buffer((8, 4), "float32")):
    for i, j in T.grid(8, 4):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[P[vi], vj]
"""


def test_a_stated_region_stays_with_its_block() -> None:
    """Indices from data are inside by the author's word; a later step keeps what was said."""
    sch = Schedule(function(GATHERED))
    block = sch.get_block("B")
    number = [r.buffer.name for r in sch.get(block).reads].index("A")  # type: ignore[union-attr]
    stated = ("read", number)
    sch.annotate_buffer_access(block, stated, lambda i, j: (i, j), lambda i, j: (i + 4, j + 1))
    other = [r.buffer.name for r in sch.get(block).reads].index("P")  # type: ignore[union-attr]
    sch.reindex(block, ("read", other))
    found = sch.get(block)
    assert isinstance(found, Block)
    (region,) = [r for r in found.reads if r.buffer.name == "A"]
    assert str(region.region[0].min) == "vi" and str(region.region[0].extent) == "4"
    assert_structural_equal(apply_trace(sch.original, sch.trace_json()).func, sch.func)


def test_a_stated_region_holds_what_indices_show() -> None:
    sch = Schedule(function(RESIZED))
    block = sch.get_block("B")
    with pytest.raises(ScheduleError, match="holds all that the block accesses"):
        sch.annotate_buffer_access(
            block, ("write", 0), lambda i, j: (i, j), lambda i, j: (i + 1, 4)
        )
    with pytest.raises(ScheduleError, match="each of the 2 dimensions"):
        sch.annotate_buffer_access(block, ("write", 0), lambda i, j: (i,), lambda i, j: (i + 1,))


def test_hidden_accesses_are_not_declared() -> None:
    sch = Schedule(function(GATHERED))
    block = sch.get_block("B")
    names = [r.buffer.name for r in sch.get(block).reads]  # type: ignore[union-attr]
    sch.unsafe_hide_buffer_access(block, "read", [names.index("P")])
    assert [r.buffer.name for r in all_blocks(sch.func)[1].reads] == ["A"]
    with pytest.raises(ScheduleError, match="read region number 1"):
        sch.unsafe_hide_buffer_access(block, "read", [1])


TWICE = """
def main(A: T.Buffer((7, 4), "float32"), C: T.Buffer((7, 7), "float32")):
    for i, j, k in T.grid(7, 7, 4):
        with T.sblock("C"):
            y, x, z = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[y, x] = T.float32(0)
            C[y, x] = C[y, x] + A[y, z] * A[x, z]
"""


@pytest.mark.parametrize(("place", "value"), [(0, "A_local[z, y] * A[x, z]"),
                                              (1, "A[y, z] * A_local[z, x]")])  # fmt: skip
def test_a_copy_for_one_of_two_places(place: int, value: str, rng: np.random.Generator) -> None:
    func = function(TWICE)
    sch = Schedule(func)
    block = sch.get_block("C")
    sch.reindex_cache_read(
        block, 0, "local", lambda y, x, z: (z, x if place else y), place=place
    )
    assert value in str(sch.func)
    assert_well_formed(sch.func)
    assert_same(func, sch.func, rng, [1])
    assert_structural_equal(apply_trace(func, sch.trace_json()).func, sch.func)
    assert f"place={place})" in sch.as_python()


def test_which_of_two_places_has_to_be_said() -> None:
    sch = Schedule(function(TWICE))
    block = sch.get_block("C")
    with pytest.raises(ScheduleError, match=r"at one place(.|\n)*`place`"):
        sch.reindex_cache_read(block, 0, "local", lambda y, x, z: (x, z))
    with pytest.raises(ScheduleError, match=r"it has 0: A\[y, z\], 1: A\[x, z\]"):
        sch.reindex_cache_read(block, 0, "local", lambda y, x, z: (x, z), place=2)
