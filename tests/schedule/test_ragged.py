"""Primitives for loops that are not equally long, against NumPy on random lengths."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest

from relaxlab.analysis.private_buffers import shared_private_buffer
from relaxlab.codegen.errors import CodegenError
from relaxlab.codegen.gpu.lower import lower_launches
from relaxlab.ir.equal import assert_structural_equal
from relaxlab.ir.loops import For, PrimFunc
from relaxlab.ir.module import Module
from relaxlab.runtime.build import compile as build
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.runtime.simt.simt import simt_prim_func
from relaxlab.schedule import Schedule, ScheduleError, apply_trace
from relaxlab.schedule.rules.ragged import outermost_loops
from relaxlab.script import parse
from relaxlab.script import tir as T
from tests.schedule.programs import assert_well_formed
from tests.schedule.ragged_cases import RAGGED_CASES

Array = np.ndarray
SEED = int(os.environ.get("RELAXLAB_SEED", "1"))
LENGTHS = [[0], [1], [7, 7, 7, 7], [0, 1, 40, 0, 3], [1, 1, 1], [5, 0, 0, 9], [17, 2, 31, 16, 8, 0]]


scaled, summed = RAGGED_CASES["scaled"](), RAGGED_CASES["summed"]()


def inputs(lengths: list[int], rng: np.random.Generator) -> list[Array]:
    """Lengths, offsets, segment ids, the order longest first and its inverse, rows, factors."""
    s = np.array(lengths, "int64")
    o = np.concatenate([[0], np.cumsum(s)]).astype("int64")
    p = np.argsort(-s, kind="stable")
    rows = rng.random((int(o[-1]), 4), dtype="float32")
    return [s, o, np.repeat(np.arange(len(s)), s), p, np.argsort(p), rows,
            rng.random(len(s), dtype="float32")]  # fmt: skip


def expected(func: PrimFunc, args: list[Array]) -> Array:
    s, o, ids, _, _, x, c = args
    scaled_rows = x * c[ids][:, None]
    if func is scaled:
        return scaled_rows
    return np.stack([scaled_rows[a : a + n].sum(0) for a, n in zip(o, s, strict=False)])


def check(
    sch: Schedule, *, native: bool = False, vectors: list[list[int]] | None = None
) -> None:
    """The schedule is well-formed, keeps the result on all lengths, and replays from its trace."""
    assert_well_formed(sch.func)
    replayed = apply_trace(sch.original, sch.trace_json())
    assert_structural_equal(replayed.func, sch.func)
    run = build(sch, use_cache=False) if native else None
    for lengths in LENGTHS if vectors is None else vectors:
        args = inputs(lengths, np.random.default_rng(SEED))
        want = expected(sch.original, args)
        got = np.full_like(want, 7)
        if run is None:
            interpret_prim_func(sch.func, [*args, got])
        else:
            run[sch.name](*args, got)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6, err_msg=str(lengths))


def random_step(sch: Schedule, rng: np.random.Generator) -> None:
    """A primitive on random loops; it may be refused."""
    made = "y y_init y_load y_update y_store y_rest y_rest_1 y_update_rest".split()
    names = [n for n in made if f'"{n}"' in sch.func.script()]
    block = sch.get_block(str(rng.choice(names)))
    around = sch.get_loops(block)
    if not around:
        return
    at = int(rng.integers(len(around)))
    loop, m = around[at], int(rng.integers(1, 9))
    steps: list[Callable[[], object]] = [
        lambda: sch.pad_loop(loop, m),
        lambda: sch.partition(loop, m),
        lambda: sch.split(loop, factors=[None, m]),
        lambda: sch.fuse(*around[at : at + 2]),
        lambda: sch.reorder(*around[at : at + 2][::-1]),
        lambda: sch.remap(loop, "p"),
        lambda: sch.parallel(loop),
        lambda: sch.balance(loop, *around[at + 1 : at + 1 + int(rng.integers(2))]),
        lambda: sch.rectangularize(loop, around[int(rng.integers(len(around)))]),
        lambda: sch.privatize(block, loop, around[-1] if rng.integers(2) else None),
        lambda: sch.pack(block, int(rng.integers(4)), loop),
        lambda: sch.vectorize(loop),
        lambda: sch.decompose_reduction(block, loop),
        lambda: sch.unroll(loop),
    ]
    steps[int(rng.integers(len(steps)))]()


def drawn(rng: np.random.Generator) -> list[list[int]]:
    """Vectors of lengths: zeros, ones, all equal, one huge, and unsorted ones."""
    n, huge = int(rng.integers(1, 9)), rng.integers(0, 4, 5)
    huge[rng.integers(5)] = rng.integers(60, 90)
    equal = [int(rng.integers(2, 18))] * n
    return [[0] * n, [1] * n, equal, huge.tolist(), rng.integers(0, 34, n).tolist()]


@pytest.mark.parametrize("case", range(24))
@pytest.mark.parametrize("func", [scaled, summed], ids=["scaled", "summed"])
def test_primitives_in_random_orders_keep_the_result(func: PrimFunc, case: int) -> None:
    print(f"RELAXLAB_SEED={SEED}: case {case}")
    rng = np.random.default_rng([SEED, case])
    sch = Schedule(func)
    for _ in range(8):
        try:
            random_step(sch, rng)
        except ScheduleError:
            continue
    native = case % 6 == 0 and shared_private_buffer(sch.func.body) is None
    check(sch, native=native, vectors=drawn(rng))


def on_blocks(sch: Schedule) -> None:
    """Bind the outermost loop of each nest, whose iterations blocks of threads share."""
    for loop in outermost_loops(sch):
        around = sch.get(loop)
        if isinstance(around, For) and around.kind == "serial":
            sch.bind(loop, "blockIdx.x")


@pytest.mark.parametrize("func", [scaled, summed], ids=["scaled", "summed"])
def test_primitives_in_random_orders_keep_the_result_on_a_gpu(func: PrimFunc) -> None:
    print(f"RELAXLAB_SEED={SEED}")
    ran = 0
    for case in range(24):
        rng = np.random.default_rng([SEED, case, 1])
        sch = Schedule(func)
        for _ in range(6):
            with suppress(ScheduleError):
                random_step(sch, rng)
        try:
            sch.compact_buffers()
            on_blocks(sch)
            lower_launches(sch.func, sch.name)
        except (ScheduleError, CodegenError):  # its loops are none of a grid
            continue
        for lengths in drawn(rng)[-2:]:
            args = inputs(lengths, rng)
            want = expected(func, args)
            got = np.full_like(want, 7)
            simt_prim_func(sch.func, [*args, got], name=sch.name).check()
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6, err_msg=str(lengths))
        ran += 1
        if ran == 6:
            return
    raise AssertionError(f"{ran} of 24 schedules could be bound")


def test_fuse_makes_one_loop_over_all_rows_and_reads_a_table_only_where_it_must() -> None:
    sch = Schedule(scaled)
    i, j, _ = sch.get_loops(sch.get_block("y"))
    rows = sch.fuse(i, j)
    text = sch.func.script()
    assert "y[vi_vj, vk] = x[vi_vj, vk] * c[r[vi_vj]]" in text and "T.grid(t, 4)" in text
    _, inner = sch.split(rows, factors=[None, 8])
    sch.unroll(inner)
    check(sch, native=True)


def test_fuse_asks_for_prefix_sums_and_for_the_segments_of_rows() -> None:
    text = Module.of({"scaled": scaled}).script()
    plain = parse(text.replace(", T.prefix_sums(lambda i: s[i])", ""))["scaled"]
    sch = Schedule(plain)
    with pytest.raises(ScheduleError, match=r"an index function has its prefix sums"):
        sch.fuse(*sch.get_loops(sch.get_block("y"))[:2])
    ids = "T.segment_ids(lambda i: o[i])"
    sch = Schedule(parse(text.replace(ids, "T.range(0, b)"))["scaled"])
    with pytest.raises(ScheduleError, match=r"gives the segment of each row"):
        sch.fuse(*sch.get_loops(sch.get_block("y"))[:2])


def test_fuse_refuses_a_sum_over_the_inner_loop() -> None:
    sch = Schedule(summed)
    i, k, j = sch.get_loops(sch.get_block("y"))
    sch.reorder(i, k)
    with pytest.raises(ScheduleError, match="is one spatial axis|perfectly nested"):
        sch.fuse(i, j)
    sch.reorder(j, k)
    with pytest.raises(ScheduleError, match="is one spatial axis"):
        sch.fuse(i, j)


def test_the_first_part_of_a_partition_has_no_guard() -> None:
    sch = Schedule(scaled)
    _, j, _ = sch.get_loops(sch.get_block("y"))
    main, _ = sch.partition(j, 8)
    outer, lanes = sch.split(main, factors=[None, 8])
    first = sch.func.script().split("y_rest")[0]
    assert "T.where" not in first and str(sch.get(outer).extent) == "s[i] // 8"
    sch.unroll(lanes)
    check(sch, native=True)


def test_a_partition_of_a_sum_needs_its_initialisation_before() -> None:
    sch = Schedule(summed)
    block = sch.get_block("y")
    _, _, j = sch.get_loops(block)
    with pytest.raises(ScheduleError, match="decompose_reduction first"):
        sch.partition(j, 4)
    sch.decompose_reduction(block, j)
    sch.partition(j, 4)
    check(sch, native=True)


def test_sums_of_no_terms_are_zero_where_a_remainder_by_lengths_numbers_the_terms() -> None:
    sch = Schedule(summed)
    _, k, j = sch.get_loops(sch.get_block("y"))
    sch.pad_loop(j, 2)
    outer, inner = sch.split(k, factors=[None, 5])
    sch.reorder(j, inner)
    _, part = sch.split(outer, factors=[None, 8])
    sch.fuse(part, j)
    assert "% ((s[i] + 1) // 2 * 2)" in sch.func.script()
    check(sch, native=True)


@pytest.mark.parametrize("func", [scaled, summed], ids=["scaled", "summed"])
def test_longest_first_and_dealt_out_to_threads(func: PrimFunc) -> None:
    sch = Schedule(func)
    i = sch.get_loops(sch.get_block("y"))[0]
    sch.remap(i, "p")
    rounds, threads = sch.split(i, factors=[None, 2])
    sch.reorder(threads, rounds)
    sch.parallel(threads)
    check(sch, native=True)


def test_remap_asks_for_a_permutation_of_the_iterations() -> None:
    sch = Schedule(scaled)
    _, j, _ = sch.get_loops(sch.get_block("y"))
    with pytest.raises(ScheduleError, match="q is an index function that is a permutation"):
        sch.remap(j, "q")
    with pytest.raises(ScheduleError, match="the loop has the b iterations that p permutes"):
        sch.remap(j, "p")


def test_what_a_padded_loop_adds_reads_no_length_beyond_the_last() -> None:
    sch = Schedule(scaled)
    i, j, _ = sch.get_loops(sch.get_block("y"))
    sch.pad_loop(i, 4)
    sch.pad_loop(j, 8)
    assert "s[T.min(i, b - 1)]" in sch.func.script()
    check(sch, native=True)
    with pytest.raises(ScheduleError, match="the multiple is positive"):
        sch.pad_loop(j, 0)


@T.prim_func
def apart(
    A: T.Buffer((9,), "float32"), C: T.Buffer((9,), "float32"), D: T.Buffer((14,), "float32")
):
    for i in range(9):
        with T.sblock("C"):
            vi = T.axis.spatial(9, i)
            C[vi] = A[vi] * T.float32(2)
    for j in range(14):
        with T.sblock("D"):
            vj = T.axis.spatial(14, j)
            D[vj] = T.float32(1)
    for k in range(9):
        with T.sblock("E"):
            vk = T.axis.spatial(9, k)
            D[vk] = D[vk] + C[vk]


def test_horizontal_fusion_takes_loops_that_have_nothing_to_do_with_each_other() -> None:
    sch = Schedule(apart)
    (i,), (j,), (k,) = (sch.get_loops(sch.get_block(n)) for n in "CDE")
    with pytest.raises(ScheduleError, match="both touch D"):
        sch.horizontal_fuse(j, k)
    with pytest.raises(ScheduleError, match="the loop follows i directly"):
        sch.horizontal_fuse(i, k)
    both = sch.horizontal_fuse(i, j)
    sch.parallel(both)
    assert_well_formed(sch.func)
    assert_structural_equal(apply_trace(apart, sch.trace_json()).func, sch.func)
    a = np.arange(9, dtype="float32")
    want = np.concatenate([a * 2 + 1, np.ones(5)])
    c, d = np.zeros(9, "float32"), np.zeros(14, "float32")
    interpret_prim_func(sch.func, [a, c, d])
    np.testing.assert_array_equal(d, want)
    build(sch, use_cache=False)["apart"](a, c, np.zeros(14, "float32"))
    np.testing.assert_array_equal(c, a * 2)


def test_storage_is_padded_where_nothing_sees_it() -> None:
    sch = Schedule(scaled)
    block = sch.get_block("y")
    i, j, _ = sch.get_loops(block)
    sch.fuse(i, j)
    sch.cache_write(block, 0, "global")
    sch.pad_dim(block, 0, 1, 8)
    assert 'T.sblock_alloc_buffer((t, 8), "float32")' in sch.func.script()
    check(sch, native=True)
    copy = next(b for b in sch.get_consumers(block))
    with pytest.raises(ScheduleError, match="y is an intermediate buffer"):
        sch.pad_dim(copy, 0, 1, 8)


def test_a_packed_row_is_copied_once_and_only_where_it_is_read() -> None:
    sch = Schedule(scaled)
    block = sch.get_block("y")
    i, j, k = sch.get_loops(block)
    sch.reorder(k, j)
    _, part = sch.split(k, factors=[None, 2])
    reads = [r.buffer.name for r in sch.get(block).reads]  # type: ignore[union-attr]
    sch.pack(block, reads.index("c"), i)
    assert "c_panel[0] = c[vi]" in sch.func.script()
    check(sch, native=True)
    with pytest.raises(ScheduleError, match="o is no index function"):
        sch.pack(block, reads.index("o"), part)
    with pytest.raises(ScheduleError, match="starts at 0 and has a constant extent"):
        sch.pack(block, reads.index("x"), i)


@T.prim_func
def late(x: T.Buffer((16,), "float32"), q: T.Buffer((1,), "int64"), y: T.Buffer((4, 4), "float32")):
    for u, r, c in T.grid(1, 4, 4):
        with T.sblock("y"):
            vu, vr, vc = T.axis.remap("SSS", [u, r, c])
            T.where(r >= 2)
            y[vr, vc] = x[q[0] + vc]


def test_what_later_iterations_alone_read_is_packed() -> None:
    sch = Schedule(late)
    block = sch.get_block("y")
    reads = [r.buffer.name for r in sch.get(block).reads]  # type: ignore[union-attr]
    sch.pack(block, reads.index("x"), sch.get_loops(block)[0])
    y = np.zeros((4, 4), "float32")
    interpret_prim_func(sch.func, [np.arange(16, dtype="float32"), np.array([5]), y])
    assert y.tolist() == [[0] * 4] * 2 + [[5, 6, 7, 8]] * 2


@T.prim_func
def joined(
    x: T.Buffer((3,), "float32"), y: T.Buffer((2,), "float32"), z: T.Buffer((5,), "float32")
):
    for j, u in T.grid(5, 1):
        with T.sblock("z"):
            vj = T.axis.spatial(5, j)
            vu = T.axis.spatial(1, u)
            z[vj + vu] = T.if_then_else(vj < 3, x[vj], y[vj - 3])


def test_what_a_block_may_not_read_is_packed_where_it_is_in_the_buffer() -> None:
    sch = Schedule(joined)
    block = sch.get_block("z")
    reads = [r.buffer.name for r in sch.get(block).reads]  # type: ignore[union-attr]
    sch.pack(block, reads.index("y"), sch.get_loops(block)[0])
    z = [np.zeros(5, "float32") for _ in range(2)]
    given = [np.arange(3, dtype="float32"), np.array([8, 9], "float32")]
    interpret_prim_func(sch.func, [*given, z[0]])
    build(sch, use_cache=False, checks="all")["joined"](*given, z[1])
    assert [each.tolist() for each in z] == [[0, 1, 2, 8, 9]] * 2


@T.prim_func
def one_segment(s_: T.handle, x_: T.handle, most_: T.handle, sum_: T.handle):
    t = T.int64()
    s = T.index_function(s_, (2,), "int64", facts=[T.nondecreasing(first=0, last=t)])
    x = T.match_buffer(x_, (t,), "int64")
    most = T.match_buffer(most_, (1,), "int64")
    total = T.match_buffer(sum_, (1,), "int64")
    for i in range(1):
        for j in range(s[i + 1] - s[i]):
            with T.sblock("most"):
                vi = T.axis.spatial(1, i)
                vj = T.axis.reduce(s[vi + 1] - s[vi], j)
                with T.init():
                    most[vi] = T.int64(0)
                most[vi] = T.max(most[vi], x[s[vi] + vj])
    for i in range(1):
        for j in range(s[i + 1] - s[i]):
            with T.sblock("total"):
                vi = T.axis.spatial(1, i)
                vj = T.axis.reduce(s[vi + 1] - s[vi], j)
                with T.init():
                    total[vi] = T.int64(0)
                total[vi] = total[vi] + x[s[vi] + vj] * most[vi]


def test_a_loop_that_a_move_makes_mentions_no_axis_of_the_block() -> None:
    """Its extent does for an axis that depends on another."""
    sch = Schedule(one_segment)
    sch.reverse_compute_at(sch.get_block("total"), sch.get_loops(sch.get_block("most"))[0])
    assert_well_formed(sch.func)
    x = np.array([3, 5, 1, 4])
    results = np.zeros(1, "int64"), np.zeros(1, "int64")
    interpret_prim_func(sch.func, [np.array([0, 4]), x, *results])
    assert [int(r[0]) for r in results] == [5, 65]
    with pytest.raises(ScheduleError, match="depend on other loops or on arrays"):
        sch.rfactor(sch.get_loops(sch.get_block("total"))[-1], 0)


@T.prim_func
def triangle(x: T.Buffer(("n", "n"), "float32"), y: T.Buffer(("n", 4), "float32")):
    n = T.int64()
    for i in range(n):
        for k in range(4):
            for j in range(i):
                with T.sblock("y"):
                    vi = T.axis.spatial(n, i)
                    vk = T.axis.spatial(4, k)
                    vj = T.axis.reduce(vi, j)
                    with T.init():
                        y[vi, vk] = T.float32(0)
                    y[vi, vk] = y[vi, vk] + x[vi, vj]


@T.prim_func
def upper_triangle(x: T.Buffer(("n", "n"), "float32"), y: T.Buffer(("n", 4), "float32")):
    n = T.int64()
    for i in range(n):
        for k in range(4):
            for j in range(n - i):
                with T.sblock("y"):
                    vi = T.axis.spatial(n, i)
                    vk = T.axis.spatial(4, k)
                    vj = T.axis.reduce(n - vi, j)
                    with T.init():
                        y[vi, vk] = T.float32(0)
                    y[vi, vk] = y[vi, vk] + x[vi, vj]


def check_triangle(sch: Schedule) -> None:
    assert_well_formed(sch.func)
    run = build(sch, use_cache=False, checks="all")[sch.name]
    for n in (0, 1, 5, 6, 9):
        x = np.random.default_rng(SEED).random((n, n), dtype="float32")
        kept = np.tril(x, -1) if sch.original is triangle else np.tril(x[::-1])[::-1]
        want = np.repeat(kept.sum(1, keepdims=True), 4, 1)
        for each in (lambda *a: interpret_prim_func(sch.func, list(a)), run):
            y = np.full((n, 4), 7, "float32")
            each(x, y)
            np.testing.assert_allclose(y, want, 1e-5)


def test_sums_of_no_terms_are_zero_where_the_row_numbers_the_terms() -> None:
    """Loops of terms are fused in an order in which the row's number is in a remainder."""
    sch = Schedule(triangle)
    j = sch.get_loops(sch.get_block("y"))[2]
    whole, part = sch.split(j, factors=[None, 2])
    sch.reorder(part, whole)
    sch.fuse(part, whole)
    assert "% ((i + 1) // 2)" in sch.func.script()
    check_triangle(sch)


def test_terms_that_a_row_may_not_have_are_not_fused_with_results() -> None:
    sch = Schedule(triangle)
    _, k, j = sch.get_loops(sch.get_block("y"))
    with pytest.raises(ScheduleError, match="loops outside leave a loop of terms"):
        sch.fuse(k, j)
    first = Schedule(upper_triangle)
    _, k, j = first.get_loops(first.get_block("y"))
    first.fuse(k, j)  # each row has a term
    check_triangle(first)


def test_rows_that_a_split_adds_are_not_initialised() -> None:
    """Terms need no guard of rows, as rows that are added have none; the initialisation does."""
    sch = Schedule(upper_triangle)
    sch.split(sch.get_loops(sch.get_block("y"))[0], factors=[None, 4])
    check_triangle(sch)


def test_blockize_where_an_axis_is_as_long_as_another_says() -> None:
    sch = Schedule(scaled)
    k = sch.get_loops(sch.get_block("y"))[2]
    sch.blockize(k)
    assert "vj_o = T.axis.spatial(s[vi_o], j)" in sch.func.script()
    check(sch, native=True)
    sch = Schedule(scaled)
    _, j, _ = sch.get_loops(sch.get_block("y"))
    _, part = sch.split(j, factors=[None, 4])
    sch.blockize(part)
    assert "T.axis.spatial((s[vi_o] + 3) // 4, j_0)" in sch.func.script()
    check(sch, native=True)
