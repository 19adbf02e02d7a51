"""Refusals name the primitive, the place, the condition that failed, the step behind it and a way
out, in a few lines, and leave the function as it was."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from relaxlab.ir.loops import PrimFunc
from relaxlab.schedule import Schedule, ScheduleError
from relaxlab.script import tir as T
from tests.golden import Golden
from tests.schedule.programs import PROGRAMS, loop_of


@T.prim_func
def recurrence(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    for i in range(7):
        with T.block("B"):
            vi = T.axis.spatial(7, i)
            B[vi + 1] = B[vi] + A[vi]


@T.prim_func
def exchange(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    B = T.alloc_buffer((9,), "float32")
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi]
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi] = B[T.max(vi - 1, 0)]


@T.prim_func
def gram(A: T.Buffer((4, 8), "float32"), C: T.Buffer((4, 4), "float32")):
    B = T.alloc_buffer((4, 8), "float32")
    for i, j in T.grid(4, 8):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = T.exp(A[vi, vj])
    for i, j, k in T.grid(4, 4, 8):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            T.reads(B[vi, vk], B[vj, vk])
            T.writes(C[vi, vj])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + B[vi, vk] * B[vj, vk]


def _split_then_vectorize(sch: Schedule) -> None:
    outer, _ = sch.split(loop_of(sch, "C"), factors=[None, 4])
    sch.vectorize(outer)


def _stale_loop(sch: Schedule) -> None:
    i, j, _ = sch.get_loops(sch.get_block("C"))
    sch.fuse(i, j)
    sch.unroll(i)


def _renamed_block(sch: Schedule) -> None:
    block = sch.get_block("C")
    sch.decompose_reduction(block, sch.get_loops(block)[0])
    sch.get_block("C")


def _fuse_marked(sch: Schedule) -> None:
    i, j, _ = sch.get_loops(sch.get_block("C"))
    sch.parallel(i)
    sch.fuse(i, j)


def _reorder_around_sibling(sch: Schedule) -> None:
    sch.compute_at(sch.get_block("D"), loop_of(sch, "E"))
    sch.reorder(*reversed(sch.get_loops(sch.get_block("E"))))


def _unfinished_producer(sch: Schedule) -> None:
    i, j, k = sch.get_loops(sch.get_block("C"))
    sch.reorder(k, i, j)
    sch.reverse_compute_at(sch.get_block("D"), k)


def _every_fourth_row(sch: Schedule) -> None:
    outer, inner = sch.split(loop_of(sch, "C"), factors=[None, 4])
    sch.reorder(inner, outer)
    sch.reverse_compute_at(sch.get_block("D"), inner)


def _split_of_a_split(sch: Schedule) -> None:
    _, ii = sch.split(loop_of(sch, "C"), factors=[None, 16])
    sixes, _ = sch.split(ii, factors=[None, 6])
    sch.reverse_compute_at(sch.get_block("D"), sixes)


def _decompose_inside(sch: Schedule) -> None:
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    sch.reorder(k, i, j)
    sch.decompose_reduction(block, j)


def _cache_after_compute_at(sch: Schedule) -> None:
    block = sch.get_block("D")
    sch.compute_at(block, loop_of(sch, "E"))
    sch.cache_write(block, 0, "local")


def _blockize_two(sch: Schedule) -> None:
    i = loop_of(sch, "E")
    sch.compute_at(sch.get_block("D"), i)
    sch.blockize(i)


CASES: dict[str, Callable[[Schedule], object]] = {
    "matmul: split then vectorize": _split_then_vectorize,
    "matmul: parallel reduction": lambda sch: sch.parallel(loop_of(sch, "C", 2)),
    "matmul: stale loop": _stale_loop,
    "matmul: renamed block": _renamed_block,
    "matmul: fuse marked": _fuse_marked,
    "matmul: fuse apart": lambda sch: sch.fuse(loop_of(sch, "C"), loop_of(sch, "C", 2)),
    "matmul: reorder around sibling": _reorder_around_sibling,
    "matmul: inline reduction": lambda sch: sch.compute_inline(sch.get_block("C")),
    "matmul: inline output": lambda sch: sch.compute_inline(sch.get_block("E")),
    "matmul: compute at inside itself": lambda sch: sch.compute_at(
        sch.get_block("D"), loop_of(sch, "D")
    ),
    "softmax: compute at missing consumer": lambda sch: sch.compute_at(
        sch.get_block("X"), loop_of(sch, "S")
    ),
    "matmul: unfinished producer": _unfinished_producer,
    "stencil: stencil in pieces": lambda sch: sch.reverse_compute_at(
        sch.get_block("C"), loop_of(sch, "Q")
    ),
    "matmul: every fourth row": _every_fourth_row,
    "matmul: split of a split": _split_of_a_split,
    "softmax: reorder fused reduction": lambda sch: sch.reorder(
        *reversed(sch.split(sch.fuse(*sch.get_loops(sch.get_block("S"))), [3, None]))
    ),
    "matmul: decompose inside": _decompose_inside,
    "matmul: rfactor spatial": lambda sch: sch.rfactor(loop_of(sch, "C"), 0),
    "matmul: cache index": lambda sch: sch.cache_read(sch.get_block("C"), 5, "local"),
    "matmul: cache after compute at": _cache_after_compute_at,
    "matmul: scope of parameter": lambda sch: sch.set_scope(sch.get_block("E"), 0, "local"),
    "matmul: blockize two": _blockize_two,
    "matmul: unknown intrinsic": lambda sch: sch.tensorize(
        loop_of(sch, "D"), "no_such_instruction"
    ),
    "matmul: overlapping layout": lambda sch: sch.transform_layout(
        sch.get_block("D"), "D", lambda i, j: (i, j // 2)
    ),
    "reshape: lost symbol": lambda sch: sch.transform_layout(
        sch.get_block("B"), "A", lambda i, j: (i // 4, j, i % 4)
    ),
    "matmul_even: small factors": lambda sch: sch.split(loop_of(sch, "C"), factors=[2, 2]),
    "softmax_odd: pad maximum": lambda sch: sch.pad_einsum(sch.get_block("M"), [1, 4]),
    "matmul: bad thread": lambda sch: sch.bind(loop_of(sch, "C"), "threadIdx.w"),
    "gram: rows of both sides": lambda sch: sch.reverse_compute_at(
        sch.get_block("C"), loop_of(sch, "B")
    ),
    "recurrence: parallel recurrence": lambda sch: sch.parallel(loop_of(sch, "B")),
    "exchange: parallel exchange": lambda sch: sch.parallel(loop_of(sch, "C")),
}
"""Steps that are refused, by the program and a name of them."""


def _program(name: str) -> PrimFunc:
    own = {"recurrence": recurrence, "exchange": exchange, "gram": gram}
    return own.get(name) or PROGRAMS[name]()


def test_refusals(golden: Golden) -> None:
    texts: dict[str, str] = {}
    for case, steps in CASES.items():
        sch = Schedule(_program(case.partition(":")[0]))
        with pytest.raises(ScheduleError) as caught:
            steps(sch)
        texts[case] = str(caught.value)
    golden.file("schedule/refusals", texts)
    for text in texts.values():
        assert 2 <= len(text.splitlines()) <= 4
        assert max(len(line) for line in text.splitlines()) < 260


def test_refusal_changes_nothing() -> None:
    sch = Schedule(PROGRAMS["matmul"]())
    loop = loop_of(sch, "C", 2)
    func, steps = sch.func, len(sch.trace)
    with pytest.raises(ScheduleError):
        sch.parallel(loop)
    assert sch.func is func
    assert len(sch.trace) == steps


def test_handle_of_another_schedule() -> None:
    one, two = Schedule(PROGRAMS["chain"]()), Schedule(PROGRAMS["chain"]())
    block = one.get_block("B")
    with pytest.raises(TypeError, match="not a block of this schedule"):
        two.get_loops(block)
