"""Primitives on blocks that do not run for all of their axes, on symbolic extents, and on buffers
that change in place: refused, or the predicate is kept."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from relaxlab.ir.loops import PrimFunc
from relaxlab.schedule import Schedule, ScheduleError
from relaxlab.script import tir as T
from tests.schedule.programs import assert_same, matmul, sized


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


def _loop(sch: Schedule, block: str, number: int = 0):
    return sch.get_loops(sch.get_block(block))[number]


def _split_symbolic(sch: Schedule) -> None:
    sch.split(_loop(sch, "C"), factors=[5, 5])


def _split_one_factor(sch: Schedule) -> None:
    sch.split(_loop(sch, "C"), 8)  # type: ignore[arg-type]


def _split_keyword(sch: Schedule) -> None:
    sch.split(_loop(sch, "C"), factor=8)


def _pad_predicate(sch: Schedule) -> None:
    sch.pad_einsum(sch.get_block("D"), [4, 1])


def _stencil_under_threes(sch: Schedule) -> None:
    outer, _ = sch.split(_loop(sch, "B"), factors=[None, 3])
    sch.reverse_compute_at(sch.get_block("D"), outer)


def _inline_predicate(sch: Schedule) -> None:
    sch.reverse_compute_inline(sch.get_block("D"))


def _cache_part(sch: Schedule) -> None:
    sch.cache_write(sch.get_block("D"), 0, "local")


def _inline_changed_input(sch: Schedule) -> None:
    sch.compute_inline(sch.get_block("C"))


def _cache_changed_input(sch: Schedule) -> None:
    sch.cache_read(sch.get_block("C"), 0, "local", [sch.get_block("C"), sch.get_block("D")])


def _move_under_earlier_update(sch: Schedule) -> None:
    sch.reverse_compute_at(sch.get_block("C"), _loop(sch, "B_update"))


def _parallel_overlap(sch: Schedule) -> None:
    outer, _ = sch.split(_loop(sch, "D"), factors=[None, 4])
    sch.compute_at(sch.get_block("C"), outer)
    sch.parallel(outer)


def _matmul() -> PrimFunc:
    return sized(matmul, "n", 4, 4)


REFUSED: list[tuple[Callable[[], PrimFunc], Callable[[Schedule], None], list[str]]] = [
    (_matmul, _split_symbolic, ["product 25 is at least the extent n", "leave one factor None"]),
    (_matmul, _split_one_factor, ["factors are a list", "factors=[None, 8]"]),
    (_matmul, _split_keyword, ["factors are a list", "factors=[None, 8]"]),
    (lambda: triangle, _pad_predicate, ["every instance", "k <= i"]),
    (lambda: stencil, _stencil_under_threes, ["all of axis vi, without gaps", "further out"]),
    (lambda: evens, _inline_predicate, ["every instance", "i % 2"]),
    (lambda: evens, _cache_part, ["every instance", "i % 2"]),
    (lambda: updated, _inline_changed_input, ["block 'B_update' does"]),
    (lambda: updated, _cache_changed_input, ["block 'B_update' writes it"]),
    (lambda: updated, _move_under_earlier_update, ["the loop is before block 'C'"]),
    (lambda: overlapping, _parallel_overlap, ["elements of C that no other", "set_scope('C'"]),
]


@pytest.mark.parametrize(("func", "action", "parts"), REFUSED, ids=[c[1].__name__ for c in REFUSED])
def test_refused(
    func: Callable[[], PrimFunc], action: Callable[[Schedule], None], parts: list[str]
) -> None:
    sch = Schedule(func())
    with pytest.raises(ScheduleError) as caught:
        action(sch)
    text = str(caught.value)
    for part in parts:
        assert part in text


def test_moves_keep_the_predicate(rng) -> None:
    sch = Schedule(triangle)
    sch.reverse_compute_at(sch.get_block("D"), _loop(sch, "C"))
    assert_same(triangle, sch.func, rng, [1])
    sch = Schedule(triangle)
    sch.compute_at(sch.get_block("C"), _loop(sch, "D"))
    assert_same(triangle, sch.func, rng, [1])


def test_a_triangle_of_loops_stays_one(rng) -> None:
    sch = Schedule(sums_of_prefixes)
    sch.compute_at(sch.get_block("B"), _loop(sch, "D"))
    assert_same(sums_of_prefixes, sch.func, rng, [1])


def test_split_covers_a_symbolic_extent_with_a_symbolic_factor(rng) -> None:
    sch = Schedule(_matmul())
    loop = _loop(sch, "C")
    n = sch.func.buffers[0].shape[0]
    sch.split(loop, factors=[(n + 3) // 4, 4])
    assert_same(_matmul(), sch.func, rng, [1, 4, 9])
