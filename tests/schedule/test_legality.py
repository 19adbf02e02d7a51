"""Primitives on blocks that do not run for all of their axes, on symbolic extents, and on buffers
that change in place: refused, or the predicate is kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from relaxlab.ir.loops import PrimFunc
from relaxlab.runtime.check.races import find_race
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.schedule import Schedule, ScheduleError
from relaxlab.script import parse
from relaxlab.script import tir as T
from tests.schedule.programs import assert_same, loop_of, matmul, sized


@T.prim_func
def scaled(
    A: T.Buffer((7, 6), "float32"), S: T.Buffer((7,), "float32"), C: T.Buffer((7,), "float32")
):
    for i, k in T.grid(7, 6):
        with T.block("C"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[vi] = T.float32(0)
            C[vi] = C[vi] + A[vi, vk] * S[vi]


@T.prim_func
def triangle(
    A: T.Buffer((7, 7), "int32"), B: T.Buffer((7, 7), "int32"), D: T.Buffer((7,), "int32")
):
    C = T.alloc_buffer((7,), "int32")
    for i in range(7):
        with T.block("C"):
            vi = T.axis.spatial(7, i)
            C[vi] = A[vi, 0] * 2
    for i, k in T.grid(7, 7):
        with T.block("D"):
            vi, vk = T.axis.remap("SR", [i, k])
            T.where(k <= i)
            with T.init():
                D[vi] = 0
            D[vi] = D[vi] + B[vi, vk] * C[vi]


@T.prim_func
def stencil(A: T.Buffer((13,), "int32"), D: T.Buffer((13,), "int32")):
    B = T.alloc_buffer((13,), "int32")
    for i in range(13):
        with T.block("B"):
            vi = T.axis.spatial(13, i)
            B[vi] = A[vi] * 10
    for i in range(13):
        with T.block("D"):
            vi = T.axis.spatial(13, i)
            D[vi] = B[vi] + B[T.min(vi + 2, 12)]


@T.prim_func
def evens(A: T.Buffer((8,), "int32"), D: T.Buffer((8,), "int32")):
    B = T.alloc_buffer((8,), "int32")
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi] * 10
    for i in range(8):
        with T.block("D"):
            vi = T.axis.spatial(8, i)
            T.where(i % 2 == 0)
            D[vi] = B[vi] + 1


@T.prim_func
def updated(A: T.Buffer((8,), "int32"), D: T.Buffer((8,), "int32")):
    B = T.alloc_buffer((8,), "int32")
    C = T.alloc_buffer((8,), "int32")
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi] * 10
    for i in range(8):
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi] = B[vi] + 1
    for i in range(8):
        with T.block("B_update"):
            vi = T.axis.spatial(8, i)
            B[vi] = B[vi] + A[vi]
    for i in range(8):
        with T.block("D"):
            vi = T.axis.spatial(8, i)
            D[vi] = B[vi] + C[vi]


@T.prim_func
def overlapping(A: T.Buffer((16, 4), "int32"), D: T.Buffer((12,), "int32")):
    C = T.alloc_buffer((16,), "int32")
    for i, k in T.grid(16, 4):
        with T.block("C"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[vi] = 0
            C[vi] = C[vi] + A[vi, vk]
    for i in range(12):
        with T.block("D"):
            vi = T.axis.spatial(12, i)
            D[vi] = C[vi] + C[vi + 3]


@T.prim_func
def sums_of_prefixes(A: T.Buffer((5, 5), "int32"), D: T.Buffer((5,), "int32")):
    B = T.alloc_buffer((5,), "int32")
    for i in range(5):
        for k in range(i + 1):
            with T.block("B"):
                vi = T.axis.spatial(5, i)
                vk = T.axis.reduce(5, k)
                with T.init():
                    B[vi] = 0
                B[vi] = B[vi] + A[vi, vk]
    for i in range(5):
        with T.block("D"):
            vi = T.axis.spatial(5, i)
            D[vi] = B[vi] * 2


def _stencil_under_threes(sch: Schedule) -> None:
    outer, _ = sch.split(loop_of(sch, "B"), factors=[None, 3])
    sch.reverse_compute_at(sch.get_block("D"), outer)


def _parallel_overlap(sch: Schedule) -> None:
    outer, _ = sch.split(loop_of(sch, "D"), factors=[None, 4])
    sch.compute_at(sch.get_block("C"), outer)
    sch.parallel(outer)


def _matmul() -> PrimFunc:
    return sized(matmul, "n", 4, 4)


def _at(index: str, other: str = "", *, adds: bool = False) -> PrimFunc:
    """A block that stores to C[index], or adds to it, and perhaps one that stores to C[other]."""
    blocks = [("C", index, adds), *([("other", other, False)] if other else [])]
    lines = [
        f"""
        with T.sblock("{name}"):
            v = T.axis.spatial(16, i)
            C[{place}] = {f"C[{place}] + A[v]" if added else "A[v] + X[v]"}"""
        for name, place, added in blocks
    ]
    return parse(f"""
@T.prim_func
def f(A: T.Buffer((16,), "int32"), X: T.Buffer((16,), "int32"), P: T.Buffer((1,), "int32"),
      C: T.Buffer((64,), "int32")):
    for i in range(16):{"".join(lines)}
""")["f"]


def _reorder(sch: Schedule) -> None:
    outer, inner = sch.split(loop_of(sch, "C"), factors=[None, 4])
    sch.reorder(inner, outer)


def _parallel(sch: Schedule) -> None:
    sch.parallel(loop_of(sch, "C"))


REFUSED: list[tuple[Callable[[], PrimFunc], Callable[[Schedule], object], list[str]]] = [
    (_matmul, lambda sch: sch.split(loop_of(sch, "C"), factors=[5, 5]),
     ["product 25 is at least the extent n", "leave one factor None"]),
    (_matmul, lambda sch: sch.split(loop_of(sch, "C"), 8),
     ["factors are a list", "factors=[None, 8]"]),
    (_matmul, lambda sch: sch.split(loop_of(sch, "C"), factor=8),
     ["factors are a list", "factors=[None, 8]"]),
    (lambda: triangle, lambda sch: sch.pad_einsum(sch.get_block("D"), [4, 1]),
     ["every instance", "k <= i"]),
    (lambda: scaled, lambda sch: sch.pad_einsum(sch.get_block("C"), [1, 4]),
     ["a product of operands that depend on it"]),
    (lambda: stencil, _stencil_under_threes, ["all of axis vi, without gaps", "further out"]),
    (lambda: evens, lambda sch: sch.reverse_compute_inline(sch.get_block("D")),
     ["every instance", "i % 2"]),
    (lambda: evens, lambda sch: sch.cache_write(sch.get_block("D"), 0, "local"),
     ["every instance", "i % 2"]),
    (lambda: updated, lambda sch: sch.compute_inline(sch.get_block("C")),
     ["block 'B_update' does"]),
    (lambda: updated, lambda sch: sch.cache_read(
        sch.get_block("C"), 0, "local", [sch.get_block("C"), sch.get_block("D")]),
     ["block 'B_update' writes it"]),
    (lambda: updated, lambda sch: sch.reverse_compute_at(
        sch.get_block("C"), loop_of(sch, "B_update")),
     ["the loop is before block 'C'"]),
    (lambda: overlapping, _parallel_overlap, ["elements of C that no other", "set_scope('C'"]),
    (lambda: _at("v // 2", adds=True), _parallel, ["elements of C that no other"]),
    (lambda: _at("v // 2", adds=True), lambda sch: sch.bind(loop_of(sch, "C"), "threadIdx.x"),
     ["elements of C that no other"]),
    (lambda: _at("X[v]", adds=True), _parallel, ["elements of C that no other"]),
    (lambda: _at("v", "15 - v"), _parallel, ["elements of C that no other"]),
    (lambda: _at("v // 2"), _parallel, ["with different v may write one element of C"]),
    (lambda: _at("X[v]"), _parallel, ["with different v may write one element of C"]),
    (lambda: _at("X[v]"), _reorder, ["the order of iterations does not matter"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("func", "action", "parts"), REFUSED, ids=[parts[0] for _, _, parts in REFUSED]
)
def test_refused(
    func: Callable[[], PrimFunc], action: Callable[[Schedule], object], parts: list[str]
) -> None:
    sch = Schedule(func())
    with pytest.raises(ScheduleError) as caught:
        action(sch)
    text = str(caught.value)
    for part in parts:
        assert part in text


INDICES = (
    "v", "v", "15 - v", "v + P[0]", "v * 3", "v // 4 * 8 + v % 4", "v // 4 + v % 4 * 5", "v % 4",
    "v // 2", "X[v]", "v // 4 + v % 4", "v * 4 + X[0]", "P[P[0]]",
)  # fmt: skip


def test_concurrent_loops_do_not_race(rng: np.random.Generator) -> None:
    """Random loops that `parallel` and `vectorize` accept run without a race."""
    outcomes = Counter[bool]()
    for _ in range(60):
        other = str(rng.choice(INDICES)) if rng.random() < 0.4 else ""
        sch = Schedule(_at(str(rng.choice(INDICES)), other, adds=bool(rng.random() < 0.5)))
        loop = loop_of(sch, "C")
        if rng.random() < 0.4:
            factors = [None, int(rng.choice([2, 3, 4]))]
            loop = sch.split(loop, factors=factors)[int(rng.integers(2))]
        try:
            (sch.parallel if rng.random() < 0.5 else sch.vectorize)(loop)
        except ScheduleError:
            outcomes[False] += 1
            continue
        outcomes[True] += 1
        given = [rng.integers(0, 8, 16, "int32"), rng.integers(0, 8, 16, "int32")]
        p, c = np.zeros(1, "int32"), np.zeros(64, "int32")
        assert find_race(sch.func, [*given, p, c]) is None, sch.func
    assert min(outcomes.values()) > 5


def test_moves_keep_the_predicate(rng) -> None:
    sch = Schedule(triangle)
    sch.reverse_compute_at(sch.get_block("D"), loop_of(sch, "C"))
    assert_same(triangle, sch.func, rng, [1])
    sch = Schedule(triangle)
    sch.compute_at(sch.get_block("C"), loop_of(sch, "D"))
    assert_same(triangle, sch.func, rng, [1])


def test_a_triangle_of_loops_stays_one(rng) -> None:
    sch = Schedule(sums_of_prefixes)
    sch.compute_at(sch.get_block("B"), loop_of(sch, "D"))
    assert_same(sums_of_prefixes, sch.func, rng, [1])


def test_split_covers_a_symbolic_extent_with_a_symbolic_factor(rng) -> None:
    sch = Schedule(_matmul())
    loop = loop_of(sch, "C")
    n = sch.func.buffers[0].shape[0]
    sch.split(loop, factors=[(n + 3) // 4, 4])
    assert_same(_matmul(), sch.func, rng, [1, 4, 9])


def test_a_sum_of_no_terms_is_zero_after_a_split_into_one_tile(
    rng: np.random.Generator,
) -> None:
    """The loop over tiles, of which there is one at most, is in no binding of the block."""
    func = parse("""
@T.prim_func
def f(A: T.Buffer((3, "n"), "float32"), D: T.Buffer((3,), "float32")):
    T.func_attr({"tir_var_upper_bound": {"n": 16}})
    for i, j in T.grid(3, n):
        with T.block("D"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                D[vi] = T.float32(0)
            D[vi] = D[vi] + A[vi, vj]
""")["f"]
    sch = Schedule(func)
    _, terms = sch.get_loops(sch.get_block("D"))
    outer, lane = sch.split(terms, factors=[None, 16])
    sch.rfactor(lane, 1)
    sch.reverse_compute_at(sch.get_block("D"), outer)
    assert_same(func, sch.func, rng, [0, 5, 16])


@T.prim_func
def row_sums(A: T.Buffer((5, 7, 6), "float32"), C: T.Buffer((5, 7), "float32")):
    for i, j, k in T.grid(5, 7, 6):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vj, vk]


def test_sums_in_tiles_of_a_fused_loop_are_independent() -> None:
    """35 sums in tiles of 4: a condition leaves the last one out, so that what a tile initialises
    is no box, but a sum's place determines its tile."""
    sch = Schedule(row_sums)
    i, j, k = sch.get_loops(sch.get_block("C"))
    tile, _ = sch.split(sch.fuse(i, j), factors=[None, 4])
    sch.decompose_reduction(sch.get_block("C"), k)
    sch.parallel(tile)
    a, c = np.random.default_rng(0).random((5, 7, 6), "float32"), np.zeros((5, 7), "float32")
    assert find_race(sch.func, [a, c]) is None
    interpret_prim_func(sch.func, [a, c])
    np.testing.assert_allclose(c, a.sum(2), rtol=1e-5)


@T.prim_func
def limited(A: T.Buffer((5,), "int32"), D: T.Buffer((5,), "int32")):
    B = T.alloc_buffer((5,), "int32")
    for i in range(5):
        with T.sblock("B"):
            vi = T.axis.spatial(5, i)
            B[vi] = A[vi] * 2
    for i in range(5):
        with T.sblock("D"):
            vi = T.axis.spatial(5, i)
            T.where(B[0] < i)
            D[vi] = B[vi] + 1


def test_what_a_predicate_reads_is_made_before_all_iterations():
    """Each needs B[0], of which no region says anything: moved, only the first would have it."""
    sch = Schedule(limited)
    made, read = sch.get_block("B"), sch.get_block("D")
    with pytest.raises(ScheduleError, match="blocks alone read B; a condition does"):
        sch.compute_at(made, sch.get_loops(read)[0])
    with pytest.raises(ScheduleError, match="blocks alone read B; a condition does"):
        sch.reverse_compute_at(read, sch.get_loops(made)[0])


@T.prim_func
def cleared_behind(A: T.Buffer((8,), "int32"), D: T.Buffer((8,), "int32")):
    B = T.alloc_buffer((8,), "int32")
    C = T.alloc_buffer((8,), "int32")
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi] * 10
    for i in range(8):
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi] = B[vi] + 1
    for i in range(8):
        with T.block("D"):
            vi = T.axis.spatial(8, i)
            D[vi] = C[vi] * 2
    for i in range(8):
        with T.block("cleared"):
            vi = T.axis.spatial(8, i)
            B[vi] = 7


@T.prim_func
def cleared_inside(A: T.Buffer((8,), "int32"), D: T.Buffer((8,), "int32")):
    B = T.alloc_buffer((8,), "int32")
    C = T.alloc_buffer((8,), "int32")
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi] * 10
    for i in range(8):
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi] = B[vi] + 1
    for i in range(8):
        with T.block("D"):
            vi = T.axis.spatial(8, i)
            D[vi] = C[vi] * 2
        with T.block("cleared"):
            vi = T.axis.spatial(8, 7 - i)
            B[vi] = 7


def test_what_is_overwritten_behind_the_loop_does_not_matter(rng) -> None:
    sch = Schedule(cleared_behind)
    sch.compute_at(sch.get_block("C"), loop_of(sch, "D"))
    assert_same(cleared_behind, sch.func, rng, [1])
    sch = Schedule(cleared_inside)
    with pytest.raises(ScheduleError, match="overwrites its inputs; block 'cleared' does"):
        sch.compute_at(sch.get_block("C"), loop_of(sch, "D"))
