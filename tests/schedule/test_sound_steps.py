"""Programs and steps that random schedules found: each was accepted and changed results, or failed
without a reason."""

from __future__ import annotations

import numpy as np
import pytest

from relaxlab.ir.loops import PrimFunc
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.schedule import Schedule, ScheduleError
from relaxlab.schedule.compact import compact_buffers
from relaxlab.schedule.tree import all_blocks
from relaxlab.script import parse
from tests.schedule.programs import PROGRAMS, assert_same, assert_well_formed, loop_of
from tests.schedule.ragged_cases import RAGGED_CASES


def test_sums_of_sequences_are_initialised_by_what_is_there() -> None:
    """The copy would be made in the first iteration of a loop that may have none."""
    sch = Schedule(RAGGED_CASES["centred"]())
    block = sch.get_block("z")
    row = sch.reindex(block, ("write", 0))
    j = sch.get_loops(block)[-1]
    assert row
    func = sch.func
    number = [r.buffer.name for r in sch.get(block).reads].index("x")  # type: ignore[union-attr]
    sch.read_at(j, block, number, "local")
    assert sch.func is not func
    assert_same(sch.original, sch.func, np.random.default_rng(3), [1, 5])
    sch = Schedule(function(STARTED))
    i, k = sch.get_loops(sch.get_block("y"))
    with pytest.raises(ScheduleError, match="the results of block 'y'.*have terms"):
        sch.read_at(k, sch.get_block("y"), 0, "local")
    copy = sch.cache_read(sch.get_block("y"), 0, "global")
    with pytest.raises(ScheduleError, match="a_global has a part in initialising, have terms"):
        sch.compute_at(copy, k)
    sch.compute_at(copy, i)
    a, y = np.arange(3, dtype="float32"), np.zeros(3, "float32")
    for func in (sch.original, sch.func):
        interpret_prim_func(func, [a, np.array([0, 2, 0]), y])
        np.testing.assert_array_equal(y, [0, 3, 2])


STARTED = """
def main(a: T.Buffer((3,), "float32"), s: T.Buffer((3,), "int64"), y: T.Buffer((3,), "float32")):
    for i in range(3):
        for k in range(s[i]):
            with T.sblock("y"):
                vi = T.axis.spatial(3, i)
                vk = T.axis.reduce(s[vi], k)
                with T.init():
                    y[vi] = a[vi]
                y[vi] = y[vi] + a[vi]
"""


def test_a_copy_inside_of_a_sum_of_which_there_is_a_first_term() -> None:
    """Rows of a sequence exist where it has some, so their sums over it have terms."""
    sch = Schedule(RAGGED_CASES["ragged_softmax"]())
    block = sch.get_block("M")
    number = [r.buffer.name for r in sch.get(block).reads].index("o")  # type: ignore[union-attr]
    sch.read_at(sch.get_loops(block)[-1], block, number, "local")
    assert_same(sch.original, sch.func, np.random.default_rng(3), [1, 5])


def test_initialisation_apart_does_not_run_before_what_it_reads() -> None:
    """Such a program is refused at run time where a sum has no terms."""
    func = function("""
def main(x: T.Buffer((5,), "float32"), y: T.Buffer((1,), "float32"), n: T.int64):
    at = T.alloc_buffer((1,), "int64")
    for k in range(n):
        with T.sblock("at"):
            v = T.axis.spatial(1, 0)
            at[v] = 0
        with T.sblock("y"):
            vk = T.axis.reduce(n, k)
            with T.init():
                y[at[0]] = T.float32(0)
            y[at[0]] = y[at[0]] + x[vk]
""")
    y = np.full(1, 7, "float32")
    interpret_prim_func(func, [np.ones(5, "float32"), y, 5])
    assert y[0] == 5


def function(text: str) -> PrimFunc:
    return parse(f"@T.prim_func\n{text}")["main"]  # type: ignore[return-value]


def test_axes_stay_behind_those_that_their_extents_depend_on() -> None:
    sch = Schedule(RAGGED_CASES["triangular_add"]())
    with pytest.raises(ScheduleError, match=r"vj, of\s+vi \+ 1 values, is not behind vi"):
        sch.reorder_block_iter_var(sch.get_block("C"), [1, 0])


def test_a_function_with_versions_takes_no_further_steps() -> None:
    """Blocks of both versions have the same names."""
    sch = Schedule(PROGRAMS["chain"]())
    n = sch.func.buffers[0].shape[0]
    sch.guarded_versions(n, [4], lambda sub, _: sub)
    for step in (
        lambda: sch.compact_buffers(),
        lambda: sch.guarded_versions(n, [2], lambda sub, _: sub),
        lambda: sch.join_axes(lambda sub: sub),
        lambda: sch.schedule_apart([sch.get_block("C")], lambda sub: sub),
    ):
        with pytest.raises(ScheduleError, match="the function has one version"):
            step()


def test_buffers_of_versions_are_made_compact() -> None:
    sch = Schedule(PROGRAMS["chain"]())

    def version(sub: Schedule, _: int | None) -> Schedule:
        block = sub.get_block("C")
        sub.compute_at(sub.get_block("B"), sub.get_loops(block)[0])
        sub.set_scope(sub.get_block("B"), 0, "local")
        return sub

    sch.guarded_versions(sch.func.buffers[0].shape[0], [4], version)
    made = compact_buffers(sch.func)
    assert made.script().count('B = T.sblock_alloc_buffer((1, n), "float32", scope="local")') == 2
    assert compact_buffers(made) is made
    assert_same(sch.original, made, np.random.default_rng(1), [3, 9])


def test_a_refusal_names_a_step_with_schedules_inside_in_one_line() -> None:
    sch = Schedule(PROGRAMS["matmul_even"]())

    def inside(sub: Schedule) -> Schedule:
        sub.parallel(sub.split(sub.get_loops(sub.get_block("D"))[0], [None, 4])[1])
        return sub

    sch.schedule_apart([sch.get_block("D")], inside)
    with pytest.raises(ScheduleError, match=r"caused by: step \d+: sch.schedule_apart\(") as info:
        sch.pad_loop(sch.get_loops(sch.get_block("D"))[1], 3)
    assert "def schedule" not in str(info.value)


def test_copies_are_of_regions_that_axes_say() -> None:
    sch = Schedule(PROGRAMS["chain"]())
    block = sch.get_block("C")
    copy = sch.cache_write(block, 0, "local")
    outer, _ = sch.split(sch.get_loops(block)[0], [None, 4])
    sch.reverse_compute_at(copy, outer)
    sch.compact_buffers()
    with pytest.raises(ScheduleError, match="cache_read before compact_buffers"):
        sch.cache_read(copy, 0, "local")


def test_read_at_copies_tiles_of_one_size() -> None:
    sch = Schedule(RAGGED_CASES["triangular_add"]())
    i, j = sch.get_loops(sch.get_block("C"))
    with pytest.raises(ScheduleError, match=r"all iterations touch as many elements"):
        sch.read_at(i, sch.get_block("C"), 1, "local")
    sch.read_at(j, sch.get_block("C"), 1, "local")
    assert_well_formed(sch.func)
    assert_same(sch.original, sch.func, np.random.default_rng(1), [1, 6])


def test_read_at_has_axes_as_long_as_the_loops() -> None:
    """One of b + 1 elements, of which the loop over b sequences reaches all but the last."""
    sch = Schedule(RAGGED_CASES["scaled"]())
    block = sch.get_block("y")
    sch.read_at(sch.get_loops(block)[0], block, 0, "local")
    assert_well_formed(sch.func)
    assert "v0 = T.axis.spatial(b, i)" in sch.func.script()


def test_pack_and_reindex_take_places_that_axes_say() -> None:
    sch = Schedule(PROGRAMS["chain"]())
    i, j = sch.get_loops(sch.get_block("B"))
    copy = sch.read_at(i, sch.get_block("B"), 0, "local")
    with pytest.raises(ScheduleError, match="and not loops in it"):
        sch.pack(copy, 0, i)
    outer = sch.blockize(sch.get_loops(sch.get_block("C"))[1])
    with pytest.raises(ScheduleError, match="at one place, which its axes say"):
        sch.reindex(outer, ("read", 0))
    assert j


def test_reindex_states_what_nested_blocks_touch() -> None:
    sch = Schedule(PROGRAMS["matmul"]())
    outer = sch.blockize(sch.get_loops(sch.get_block("C"))[2])
    sch.reindex_cache_write(outer, 0, "global", lambda i, j: (j, i))
    assert_well_formed(sch.func)
    assert_same(sch.original, sch.func, np.random.default_rng(1), [3, 5])


def test_cache_write_copies_what_is_written_and_no_more() -> None:
    """Inside of a block, a row that a table gives has no axis; all rows would be copied."""
    sch = Schedule(RAGGED_CASES["scaled"]())
    sch.blockize(sch.get_loops(sch.get_block("y"))[2])
    with pytest.raises(ScheduleError, match=r"one dimension is at o\[vi_o\] \+ vj_o"):
        sch.cache_write(sch.get_block("y"), 0, "local")


def test_pack_of_a_loop_over_results_and_terms() -> None:
    """Results begin in the middle of tiles, where an axis over a tile is not at its first value."""
    sch = Schedule(PROGRAMS["softmax"]())
    block = sch.get_block("S")
    outer, _ = sch.split(sch.fuse(*sch.get_loops(block)), [None, 4])
    with pytest.raises(ScheduleError, match="of results or of terms; it is of both"):
        sch.pack(block, 0, outer)


def test_blocks_that_read_a_panel_stay_where_it_is_filled() -> None:
    """Each iteration fills it anew, so that behind the loop only the last one is there."""
    sch = Schedule(PROGRAMS["matmul"]())
    block = sch.get_block("D")
    i, j = sch.get_loops(block)
    sch.reorder(j, i)
    sch.pack(block, 1, j)
    at = sch.get_loops(sch.get_block("E"))[0]
    for move in (lambda: sch.compute_inline(block), lambda: sch.compute_at(block, at)):
        with pytest.raises(ScheduleError, match="fills bias_panel anew in each iteration"):
            move()
    sch.reverse_compute_at(sch.get_block("E"), i)
    assert_same(sch.original, sch.func, np.random.default_rng(1), [2, 5])


def test_lengths_are_read_where_there_are_sequences() -> None:
    """Loops that tiles make longer ask for the lengths of sequences beyond the last one."""
    sch = Schedule(RAGGED_CASES["centred"]())
    i, _, k = sch.get_loops(sch.get_block("w"))
    sch.pad_loop(i, 4)
    sch.compute_at(sch.get_block("z"), k)
    assert "range(s[T.min(i, b - 1)])" in sch.func.script()
    assert_same(sch.original, sch.func, np.random.default_rng(3), [1, 5])


def test_versions_do_not_share_what_was_allocated_before() -> None:
    sch = Schedule(PROGRAMS["matmul"]())
    copy = sch.cache_write(sch.get_block("C"), 0, "local")
    sch.reverse_compute_at(copy, sch.get_loops(sch.get_block("C"))[1])
    n = sch.original.buffers[0].shape[0]

    def version(one: Schedule, most: int | None) -> Schedule:
        if most is None:
            one.split(one.get_loops(one.get_block("C"))[0], [None, 2])
        return one

    sch.guarded_versions(n, [4], version)
    allocated = [buffer for block in all_blocks(sch.func) for buffer in block.alloc_buffers]
    assert len(allocated) == len(set(allocated)) == 6
    assert_same(sch.original, compact_buffers(sch.func), np.random.default_rng(3), [1, 5])


def test_copies_in_place_declare_what_a_part_of_a_loop_reaches() -> None:
    sch = Schedule(
        function("""
def main(y: T.Buffer((7,), "float32")):
    for i in range(2, 7):
        with T.sblock("y"):
            v = T.axis.spatial((2, 7), i)
            y[v] = y[v] * y[v]
""")
    )
    sch.cache_inplace(sch.get_block("y"), 0, "local")
    assert_well_formed(sch.func)


def test_fused_loops_without_iterations_have_none() -> None:
    """Two extents below zero have a product above it."""
    func = parse("""
@T.prim_func
def f(A: T.Buffer(("n", "n"), "float32"), B: T.Buffer(("n", "n"), "float32"), k: T.int64):
    for i, j in T.grid(n - 2, k):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi + 1, vj] = A[vi, vj] + A[vi + 2, vj]
""")["f"]
    sch = Schedule(func)
    i, j = sch.get_loops(sch.get_block("B"))
    sch.parallel(sch.fuse(i, j))
    for n, k in ((0, -3), (1, -1), (1, 1), (2, -4), (3, -2), (4, 3)):
        a, b = np.ones((n, n), "float32"), np.zeros((n, n), "float32")
        interpret_prim_func(sch.func, [a, b, k])
        assert b.sum() == 2 * max(n - 2, 0) * max(k, 0)


def test_results_that_lie_over_each_other_are_computed_where_they_are_read() -> None:
    """Each iteration fills the panel anew for the block behind it."""
    sch = Schedule(
        function("""
def main(a: T.Buffer((6,), "float32"), y: T.Buffer((6,), "float32")):
    b = T.sblock_alloc_buffer((6,), "float32")
    panel = T.sblock_alloc_buffer((1,), "float32", scope="local")
    for i in range(6):
        with T.sblock("b"):
            v = T.axis.spatial(6, i)
            b[v] = a[v] * a[v]
    for i in range(6):
        with T.sblock("panel"):
            v = T.axis.spatial(6, i)
            panel[0] = b[v]
        with T.sblock("y"):
            v = T.axis.spatial(6, i)
            y[v] = panel[0]
""")
    )
    with pytest.raises(ScheduleError, match="no two instances have their results in common"):
        sch.reverse_compute_inline(sch.get_block("panel"))


def test_copies_of_what_is_there_have_axes_as_long() -> None:
    """The rows behind the end of the buffer, which `pad_einsum` adds, are not copied."""
    sch = Schedule(
        function("""
def main(a: T.Buffer((1, 3), "float32"), y: T.Buffer((4, 3), "float32")):
    for i, j in T.grid(4, 3):
        with T.sblock("y"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = T.if_then_else(vi < 1, a[vi, vj], T.float32(0))
""")
    )
    (i, _) = sch.get_loops(sch.get_block("y"))
    sch.pack(sch.get_block("y"), 0, i)
    assert_well_formed(sch.func)
    assert_same(sch.original, sch.func, np.random.default_rng(1), [1])


def test_parts_of_a_triangle_have_axes_as_long_as_its_rows() -> None:
    sch = Schedule(
        function("""
def main(a: T.Buffer((6, 6), "float32"), y: T.Buffer((6,), "float32")):
    for i in range(6):
        for k in range(i + 1):
            with T.sblock("y"):
                v = T.axis.spatial(6, i)
                vk = T.axis.reduce(6, k)
                with T.init():
                    y[v] = T.float32(0)
                y[v] = y[v] + a[v, vk]
""")
    )
    sch.loop_partition(sch.get_loops(sch.get_block("y"))[0], [None, 2])
    assert_well_formed(sch.func)
    assert "T.axis.reduce(4, k)" in sch.func.script()


def test_a_part_of_a_loop_in_which_a_block_never_runs() -> None:
    """The remainder of n + 2 iterations, split in twos, is an iteration that the guard excludes."""
    sch = Schedule(
        function("""
def main(a: T.Buffer(("n",), "float32"), y: T.Buffer(("n",), "float32")):
    for i in range(n + 2):
        with T.sblock("y"):
            v = T.axis.spatial(n + 2, i)
            T.where(i >= 1 and i <= n)
            y[v - 1] = a[v - 1]
""")
    )
    sch.partition(sch.get_loops(sch.get_block("y"))[0], 2)
    assert_well_formed(sch.func)
    assert_same(sch.original, sch.func, np.random.default_rng(1), [1, 2, 5])


def test_loops_that_may_be_empty_are_not_asked_for_their_last_extents() -> None:
    """The rest of a sequence without rows has none whose words could be counted."""
    sch = Schedule(RAGGED_CASES["nested"]())
    j, rest = sch.partition(sch.get_loops(sch.get_block("Y"))[1], 4)
    with pytest.raises(ScheduleError, match="in which those inside load their extents"):
        sch.split(rest, [8, None])
    sch.split(j, [None, 8])
    assert_same(sch.original, sch.func, np.random.default_rng(1), [1, 3, 8])


@pytest.mark.parametrize("padded", ["v >= 2", "v < 7", "v >= 2 and v < 9"])
def test_padding_in_loops_that_run_beyond_the_axis(padded: str) -> None:
    """Both parts keep the guard of the last iterations, each about its own loops."""
    sch = Schedule(
        function(f"""
def main(a: T.Buffer((11,), "float32"), y: T.Buffer((11,), "float32")):
    b = T.alloc_buffer((11,), "float32")
    for i in range(11):
        with T.sblock("b"):
            v = T.axis.spatial(11, i)
            b[v] = T.if_then_else({padded}, a[v], T.float32(0))
    for i in range(11):
        with T.sblock("y"):
            v = T.axis.spatial(11, i)
            y[v] = b[v]
""")
    )
    for splits in (False, True):
        made = sch.copy()
        (loop,) = made.get_loops(block := made.get_block("b"))
        if splits:
            loop, _ = made.split(loop, [None, 4])
        else:
            made.pad_loop(loop, 4)
        made.decompose_padding(block, loop)
        assert_well_formed(made.func)
        assert_same(sch.original, made.func, np.random.default_rng(1), [1])


def test_panels_that_move_are_filled_by_the_same_iteration() -> None:
    """Each iteration of i fills the panel's one element; farther inside, still with its own."""
    sch = Schedule(RAGGED_CASES["summed"]())
    block = sch.get_block("y")
    i, _, j = sch.get_loops(block)
    number = [r.buffer.name for r in sch.get(block).reads].index("c")  # type: ignore[union-attr]
    panel = sch.pack(block, number, i)
    sch.compute_at(panel, j)
    assert_same(sch.original, sch.func, np.random.default_rng(1), [1, 5])


def test_of_several_values_of_an_element_the_last_stays() -> None:
    sch = Schedule(
        function("""
def main(a: T.Buffer((4, 8), "float32"), y: T.Buffer((4,), "float32")):
    b = T.alloc_buffer((4,), "float32")
    for i, j in T.grid(4, 8):
        with T.sblock("b"):
            vi, vj = T.axis.remap("SS", [i, j])
            b[vi] = a[vi, vj]
    for i in range(4):
        with T.sblock("y"):
            v = T.axis.spatial(4, i)
            y[v] = b[v]
""")
    )
    at, *_ = sch.get_loops(sch.get_block("y"))
    with pytest.raises(ScheduleError, match="several differ in vj"):
        sch.compute_at(sch.get_block("b"), at)


def test_axes_are_as_long_as_whole_tiles_past_the_end() -> None:
    """The last of five times two tiles of two rows has none of the 18 rows."""
    sch = Schedule(PROGRAMS["stencil_even"]())
    block = sch.get_block("Q")
    copy = sch.cache_write(block, 0, "local")
    at, inner = sch.split(sch.get_loops(block)[0], [None, 4])
    tile, _ = sch.split(inner, [None, 2])
    sch.reverse_compute_at(copy, tile)
    sch.compact_buffers()
    sch.round_up_tails()
    assert at and "T.axis.spatial(20, i_0 * 4 + i_1_0 * 2 + i_1_1)" in sch.func.script()
    assert_well_formed(sch.func)
    assert_same(sch.original, sch.func, np.random.default_rng(1), [1])


def test_parts_of_a_triangle_that_a_predicate_cuts() -> None:
    """The first four rows have four terms at most, of five."""
    sch = Schedule(
        function("""
def main(a: T.Buffer((5, 5), "float32"), y: T.Buffer((5,), "float32")):
    for l, i, k in T.grid(3, 5, 2):
        with T.sblock("y"):
            vi = T.axis.spatial(5, i)
            vk = T.axis.reduce(5, l * 2 + k)
            T.where(l * 2 + k <= i)
            with T.init():
                y[vi] = T.float32(0)
            y[vi] = y[vi] + a[vi, vk]
""")
    )
    sch.partition(sch.get_loops(sch.get_block("y"))[1], 2)
    assert_well_formed(sch.func)
    assert "T.axis.reduce(4, l * 2 + k)" in sch.func.script()
    assert_same(sch.original, sch.func, np.random.default_rng(1), [1])


@pytest.mark.parametrize("primitive", ["cache_read", "read_at"])
def test_extents_are_read_where_they_are(primitive: str) -> None:
    """A copy of the numbers of terms would not say that they are not negative."""
    sch = Schedule(RAGGED_CASES["vgemm"]())
    block = sch.get_block("C")
    at = [r.buffer.name for r in sch.get(block).reads].index("k")  # type: ignore[union-attr]
    with pytest.raises(ScheduleError, match="no extent is an element of k"):
        if primitive == "cache_read":
            sch.cache_read(block, at, "local")
        else:
            sch.read_at(sch.get_loops(block)[0], block, at, "local")


@pytest.mark.parametrize("together", ["vectorize", "unroll_and_jam"])
@pytest.mark.parametrize("primitive", ["pack", "privatize"])
def test_one_buffer_is_not_filled_by_iterations_made_side_by_side(
    primitive: str, together: str
) -> None:
    """Loops between would run for all iterations before what was filled is read."""
    sch = Schedule(PROGRAMS["matmul"]())
    block = sch.get_block("C")
    outer, inner = sch.split(sch.get_loops(block)[1], [None, 4])
    at = sch.get_loops(block)[-1] if primitive == "pack" else inner
    getattr(sch, together)(inner)
    with pytest.raises(ScheduleError, match="since each fills .* anew"):
        sch.pack(block, 1, at) if primitive == "pack" else sch.privatize(block, at)
    if primitive == "privatize":
        sch.privatize(block, outer)
    assert_same(sch.original, sch.func, np.random.default_rng(1), [3, 5])


@pytest.mark.parametrize("together", ["vectorize", "unroll_and_jam"])
def test_iterations_that_fill_one_buffer_are_not_made_side_by_side(together: str) -> None:
    """The other order: the panel is there when the loop around it is to be jammed."""
    sch = Schedule(
        function("""
def main(a: T.Buffer((6, 4), "float32"), y: T.Buffer((6, 4), "float32")):
    for i, j in T.grid(6, 4):
        with T.sblock("y"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = a[vi, vj] * a[vi, vj]
""")
    )
    outer, inner = sch.get_loops(block := sch.get_block("y"))
    sch.pack(block, 0, inner)
    with pytest.raises(ScheduleError, match="with different .* may write one element of a_panel"):
        getattr(sch, together)(inner)
    sch.parallel(outer)  # each thread has a panel of its own
    assert_same(sch.original, sch.func, np.random.default_rng(1), [1])


@pytest.mark.parametrize("together", ["parallel", "vectorize", "unroll_and_jam"])
def test_blocks_that_sort_in_place_do_not_run_at_once(together: str) -> None:
    """Each iteration makes the whole scratch anew, and reads what it stored before."""
    sch = Schedule(
        function("""
def main(a: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
    b = T.sblock_alloc_buffer((8,), "float32")
    for i in range(8):
        with T.sblock("b"):
            v = T.axis.spatial(1, 0)
            T.reads(a[0:8])
            T.writes(b[0:8])
            for p in range(8):
                b[p] = a[p]
                if p > 0:
                    b[p] = b[p] + b[p - 1]
        with T.sblock("y"):
            v = T.axis.spatial(8, i)
            y[v] = b[v] * b[v]
""")
    )
    (loop,) = sch.get_loops(sch.get_block("y"))
    with pytest.raises(ScheduleError, match="builds them up in several stores"):
        getattr(sch, together)(loop)


def test_vectors_of_copies_of_scalars_are_rounded_up() -> None:
    """A scalar has no last index along which its neighbours would be."""
    sch = Schedule(
        function("""
def main(a: T.Buffer((), "int64"), y: T.Buffer((5,), "int64")):
    for i in range(5):
        with T.sblock("y"):
            v = T.axis.spatial(5, i)
            y[v] = a[()]
""")
    )
    block = sch.get_block("y")
    copy = sch.cache_write(block, 0, "local")
    outer, inner = sch.split(sch.get_loops(block)[0], [None, 4])
    sch.reverse_compute_at(copy, outer)
    sch.vectorize(inner)
    sch.round_up_vectors()
    assert_same(sch.original, sch.func, np.random.default_rng(1), [1])


def test_readers_of_compacted_buffers_stay_in_their_iteration() -> None:
    """An element of a buffer that is indexed by `vi - i` holds the row of the iteration."""
    sch = Schedule(
        function("""
def main(a: T.Buffer((16, 3), "float32"), y: T.Buffer((16, 3), "float32")):
    for i, j in T.grid(16, 3):
        with T.sblock("y"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = a[vi, vj] + a[vi, vj]
""")
    )
    block = sch.get_block("y")
    copy = sch.cache_write(block, 0, "local")
    outer, inner = sch.split(sch.get_loops(block)[1], [None, 8])
    sch.reverse_compute_at(copy, outer)
    sch.vectorize(inner)
    sch.compact_buffers()
    assert "y_local[vi - i, vj]" in sch.func.script()
    with pytest.raises(ScheduleError, match="together provably reach"):
        sch.reverse_compute_at(copy, inner)
    assert_same(sch.original, sch.func, np.random.default_rng(1), [1])


def test_readers_with_other_instances_are_not_inlined() -> None:
    """A concatenation reads its first operand for the first rows only."""
    sch = Schedule(
        function("""
def main(a: T.Buffer((4,), "float32"), w: T.Buffer((3,), "float32"), y: T.Buffer((7,), "float32")):
    b = T.sblock_alloc_buffer((4,), "float32")
    for i in range(4):
        with T.sblock("b"):
            v = T.axis.spatial(4, i)
            b[v] = a[3 - v]
    for i in range(7):
        with T.sblock("y"):
            v = T.axis.spatial(7, i)
            y[v] = T.if_then_else(v < 4, b[v], w[v - 4])
""")
    )
    with pytest.raises(ScheduleError, match="reads elements 0 to 6 of 4"):
        sch.reverse_compute_inline(sch.get_block("y"))
    sch.compute_inline(sch.get_block("b"))
    assert_same(sch.original, sch.func, np.random.default_rng(1), [1])


@pytest.mark.parametrize("inner", ["for u in range(1)", "for u in range(2)"])
def test_readers_of_panels_stay_in_the_iterations_that_fill_them(inner: str) -> None:
    """One element tells nothing of the iteration whose value it holds."""
    sch = Schedule(
        function(f"""
def main(a: T.Buffer((6,), "float32"), y: T.Buffer((6,), "float32")):
    panel = T.sblock_alloc_buffer((1,), "float32", scope="local")
    for i in range(6):
        {inner}:
            with T.sblock("panel"):
                v = T.axis.spatial(6, i)
                panel[0] = a[v]
        with T.sblock("y"):
            v = T.axis.spatial(6, i)
            y[v] = panel[0] * panel[0]
""")
    )
    sch.reverse_compute_at(sch.get_block("y"), loop_of(sch, "panel", 1))
    assert_same(sch.original, sch.func, np.random.default_rng(1), [1])
    assert "for ax0 in range(6)" not in sch.func.script()


@pytest.mark.parametrize("name", ["cache_read", "cache_write"])
def test_copies_are_made_before_blocks_without_regions(name: str) -> None:
    """After `compact_buffers` no block around its loops states their regions, so that a copy of S
    would be made before S is."""
    sch = Schedule(PROGRAMS["softmax"]())
    sch.pack(sch.get_block("S"), 0, sch.get_loops(sch.get_block("S"))[-1])
    sch.compact_buffers()
    with pytest.raises(ScheduleError, match=r"block 'l_body' does not\n.*compact_buffers"):
        getattr(sch, name)(sch.get_block("Y"), 0, "local")


def test_copies_of_triangles_in_parts_hold_all_rows() -> None:
    """A copy of a triangle has all rows, though the length of a row depends on its number."""
    sch = Schedule(RAGGED_CASES["triangular_add"]())
    _, j = sch.get_loops(sch.get_block("C"))
    sch.partition(j, 2)
    sch.cache_read(sch.get_block("C"), 0, "global")
    assert_well_formed(sch.func, except_for=("E0324",))
    assert_same(sch.original, sch.func, np.random.default_rng(1), [1, 5])
