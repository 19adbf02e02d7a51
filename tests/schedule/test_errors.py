"""Refusals name the primitive, the place, the condition that failed, the step behind it and a way
out, in a few lines, and leave the function as it was."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from relaxlab.ir.loops import PrimFunc
from relaxlab.schedule import Schedule, ScheduleError
from relaxlab.script import tir as T
from tests.golden import Golden
from tests.schedule.programs import PROGRAMS


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


def _rows_of_both_sides(sch: Schedule) -> None:
    i, _ = sch.get_loops(sch.get_block("B"))
    sch.reverse_compute_at(sch.get_block("C"), i)


def _split_then_vectorize(sch: Schedule) -> None:
    i, _, _ = sch.get_loops(sch.get_block("C"))
    outer, _ = sch.split(i, factors=[None, 4])
    sch.vectorize(outer)


def _parallel_reduction(sch: Schedule) -> None:
    sch.parallel(sch.get_loops(sch.get_block("C"))[2])


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


def _fuse_apart(sch: Schedule) -> None:
    i, _, k = sch.get_loops(sch.get_block("C"))
    sch.fuse(i, k)


def _reorder_around_sibling(sch: Schedule) -> None:
    i, _ = sch.get_loops(sch.get_block("E"))
    sch.compute_at(sch.get_block("D"), i)
    sch.reorder(*reversed(sch.get_loops(sch.get_block("E"))))


def _inline_reduction(sch: Schedule) -> None:
    sch.compute_inline(sch.get_block("C"))


def _inline_output(sch: Schedule) -> None:
    sch.compute_inline(sch.get_block("E"))


def _compute_at_inside_itself(sch: Schedule) -> None:
    block = sch.get_block("D")
    sch.compute_at(block, sch.get_loops(block)[0])


def _compute_at_missing_consumer(sch: Schedule) -> None:
    sch.compute_at(sch.get_block("X"), sch.get_loops(sch.get_block("S"))[0])


def _unfinished_producer(sch: Schedule) -> None:
    i, j, k = sch.get_loops(sch.get_block("C"))
    sch.reorder(k, i, j)
    sch.reverse_compute_at(sch.get_block("D"), k)


def _stencil_in_pieces(sch: Schedule) -> None:
    (i,) = sch.get_loops(sch.get_block("Q"))
    sch.reverse_compute_at(sch.get_block("C"), i)


def _every_fourth_row(sch: Schedule) -> None:
    i, j, k = sch.get_loops(sch.get_block("C"))
    outer, inner = sch.split(i, factors=[None, 4])
    sch.reorder(inner, outer)
    sch.reverse_compute_at(sch.get_block("D"), inner)


def _split_of_a_split(sch: Schedule) -> None:
    i, j, k = sch.get_loops(sch.get_block("C"))
    _, ii = sch.split(i, factors=[None, 16])
    sixes, _ = sch.split(ii, factors=[None, 6])
    sch.reverse_compute_at(sch.get_block("D"), sixes)


def _reorder_fused_reduction(sch: Schedule) -> None:
    sch.reorder(*reversed(sch.split(sch.fuse(*sch.get_loops(sch.get_block("S"))), [3, None])))


def _decompose_inside(sch: Schedule) -> None:
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    sch.reorder(k, i, j)
    sch.decompose_reduction(block, j)


def _rfactor_spatial(sch: Schedule) -> None:
    sch.rfactor(sch.get_loops(sch.get_block("C"))[0], 0)


def _cache_index(sch: Schedule) -> None:
    sch.cache_read(sch.get_block("C"), 5, "local")


def _cache_after_compute_at(sch: Schedule) -> None:
    block = sch.get_block("D")
    sch.compute_at(block, sch.get_loops(sch.get_block("E"))[0])
    sch.cache_write(block, 0, "local")


def _scope_of_parameter(sch: Schedule) -> None:
    sch.set_scope(sch.get_block("E"), 0, "local")


def _blockize_two(sch: Schedule) -> None:
    i, _ = sch.get_loops(sch.get_block("E"))
    sch.compute_at(sch.get_block("D"), i)
    sch.blockize(i)


def _unknown_intrinsic(sch: Schedule) -> None:
    sch.tensorize(sch.get_loops(sch.get_block("D"))[0], "no_such_instruction")


def _overlapping_layout(sch: Schedule) -> None:
    sch.transform_layout(sch.get_block("D"), "D", lambda i, j: (i, j // 2))


def _lost_symbol(sch: Schedule) -> None:
    sch.transform_layout(sch.get_block("B"), "A", lambda i, j: (i // 4, j, i % 4))


def _small_factors(sch: Schedule) -> None:
    sch.split(sch.get_loops(sch.get_block("C"))[0], factors=[2, 2])


def _pad_maximum(sch: Schedule) -> None:
    sch.pad_einsum(sch.get_block("M"), [1, 4])


def _bad_thread(sch: Schedule) -> None:
    sch.bind(sch.get_loops(sch.get_block("C"))[0], "threadIdx.w")


def _parallel_recurrence(sch: Schedule) -> None:
    sch.parallel(sch.get_loops(sch.get_block("B"))[0])


def _parallel_exchange(sch: Schedule) -> None:
    sch.parallel(sch.get_loops(sch.get_block("C"))[0])


CASES: list[tuple[str, Callable[[Schedule], None]]] = [
    ("matmul", _split_then_vectorize),
    ("matmul", _parallel_reduction),
    ("matmul", _stale_loop),
    ("matmul", _renamed_block),
    ("matmul", _fuse_marked),
    ("matmul", _fuse_apart),
    ("matmul", _reorder_around_sibling),
    ("matmul", _inline_reduction),
    ("matmul", _inline_output),
    ("matmul", _compute_at_inside_itself),
    ("softmax", _compute_at_missing_consumer),
    ("matmul", _unfinished_producer),
    ("stencil", _stencil_in_pieces),
    ("matmul", _every_fourth_row),
    ("matmul", _split_of_a_split),
    ("softmax", _reorder_fused_reduction),
    ("matmul", _decompose_inside),
    ("matmul", _rfactor_spatial),
    ("matmul", _cache_index),
    ("matmul", _cache_after_compute_at),
    ("matmul", _scope_of_parameter),
    ("matmul", _blockize_two),
    ("matmul", _unknown_intrinsic),
    ("matmul", _overlapping_layout),
    ("reshape", _lost_symbol),
    ("matmul_even", _small_factors),
    ("softmax_odd", _pad_maximum),
    ("matmul", _bad_thread),
    ("gram", _rows_of_both_sides),
    ("recurrence", _parallel_recurrence),
    ("exchange", _parallel_exchange),
]


def _program(name: str) -> PrimFunc:
    own = {"recurrence": recurrence, "exchange": exchange, "gram": gram}
    return own.get(name) or PROGRAMS[name]()


def test_refusals(golden: Golden) -> None:
    texts: dict[str, str] = {}
    for program, action in CASES:
        with pytest.raises(ScheduleError) as caught:
            action(Schedule(_program(program)))
        texts[f"{program}: {action.__name__.strip('_').replace('_', ' ')}"] = str(caught.value)
    golden.file("schedule/refusals", texts)
    for text in texts.values():
        assert 2 <= len(text.splitlines()) <= 4
        assert max(len(line) for line in text.splitlines()) < 260


def test_refusal_changes_nothing() -> None:
    sch = Schedule(PROGRAMS["matmul"]())
    loop = sch.get_loops(sch.get_block("C"))[2]
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
