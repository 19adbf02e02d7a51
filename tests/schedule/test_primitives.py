"""Each primitive on a small program: before and after, in the script language."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from relaxlab.ir.equal import assert_structural_equal
from relaxlab.ir.loops import PrimFunc
from relaxlab.runtime.build import compile as build
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.schedule import Schedule, ScheduleError, apply_trace
from relaxlab.schedule.state import marked_as_scheduled
from relaxlab.schedule.tree import normalized
from relaxlab.script import parse
from relaxlab.script import tir as T
from tests.schedule.programs import assert_same, assert_well_formed

HEADS = {
    "matmul": """
@T.prim_func
def main(a: T.handle, B: T.Buffer((6, 8), "float32"), c: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n, 6), "float32")
    C = T.match_buffer(c, (n, 8), "float32")
""",
    "chain": """
@T.prim_func
def main(a: T.handle, c: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    C = T.match_buffer(c, (n,), "float32")
""",
    "rows": """
@T.prim_func
def main(a: T.handle, y: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n, 5), "float32")
    Y = T.match_buffer(y, (n, 5), "float32")
""",
}
"""The parameters of the programs, which no primitive changes."""


def program(name: str, body: str) -> PrimFunc:
    """The function of these parameters and a body."""
    ((_, func),) = parse(HEADS[name] + body).functions
    return func


matmul = program("matmul", """
    for i, j, k in T.grid(n, 8, 6):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
""")
chain = program("chain", """
    B = T.alloc_buffer((n,), "float32")
    for i in range(n):
        with T.block("B"):
            vi = T.axis.spatial(n, i)
            B[vi] = A[vi] * T.float32(2)
    for i in range(n):
        with T.block("C"):
            vi = T.axis.spatial(n, i)
            C[vi] = B[vi] + T.float32(1)
""")
rows = program("rows", """
    S = T.alloc_buffer((n,), "float32")
    for i, k in T.grid(n, 5):
        with T.block("S"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                S[vi] = T.float32(0)
            S[vi] = S[vi] + A[vi, vk]
    for i, j in T.grid(n, 5):
        with T.block("Y"):
            vi, vj = T.axis.remap("SS", [i, j])
            Y[vi, vj] = A[vi, vj] - S[vi]
""")
PROGRAMS = {"matmul": matmul, "chain": chain, "rows": rows}


def check(name: str, apply: Callable[[Schedule], None], body: str) -> None:
    """The primitive gives the program of this body, well-formed and of the same meaning, and
    replays.

    The regions of that are the parser's: what the bodies touch.
    """
    before = PROGRAMS[name]
    sch = Schedule(before)
    apply(sch)
    assert_structural_equal(sch.func, marked_as_scheduled(normalized(program(name, body))))
    assert_well_formed(sch.func)
    assert_same(before, sch.func, np.random.default_rng(0), [1, 7, 16, 21])
    assert_structural_equal(apply_trace(before, sch.trace_json()).func, sch.func)


@pytest.mark.parametrize("factor", [2**62, 2**70])
def test_split_keeps_indices_in_64_bits(factor: int) -> None:
    sch = Schedule(matmul)
    with pytest.raises(ScheduleError, match=rf"product {factor} is less than 2\*\*62"):
        sch.split(sch.get_loops(sch.get_block("C"))[0], [None, factor])


def test_names_for_numbers_are_refused() -> None:
    sch = Schedule(matmul)
    block = sch.get_block("C")
    i, _, k = sch.get_loops(block)
    with pytest.raises(ScheduleError, match="read region number 'B'; it has 0: A, 1: B"):
        sch.cache_read(block, "B", "global")  # type: ignore[arg-type]
    with pytest.raises(ScheduleError, match="factor_axis 'C' is from"):
        sch.rfactor(k, "C")  # type: ignore[arg-type]
    copy = sch.cache_read(block, 0, "global")
    with pytest.raises(ScheduleError, match="before what reads it: index 0 to 0"):
        sch.compute_at(copy, i, index="C")  # type: ignore[arg-type]
    with pytest.raises(ScheduleError, match="axis 'A' is one of 2 dimensions"):
        sch.storage_align(copy, 0, "A", 16, 8)  # type: ignore[arg-type]


def test_split() -> None:
    def apply(sch: Schedule) -> None:
        i, _, _ = sch.get_loops(sch.get_block("C"))
        sch.split(i, factors=[None, 4])

    check("matmul", apply, """
    for i_0, i_1, j, k in T.grid((n + 3) // 4, 4, 8, 6):
        with T.block("C"):
            vi = T.axis.spatial(n, i_0 * 4 + i_1)
            vj = T.axis.spatial(8, j)
            vk = T.axis.reduce(6, k)
            T.where(i_0 * 4 + i_1 < n)
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
""")


def test_fuse() -> None:
    def apply(sch: Schedule) -> None:
        i, j, _ = sch.get_loops(sch.get_block("C"))
        sch.fuse(i, j)

    check("matmul", apply, """
    for i_j_fused, k in T.grid(n * 8, 6):
        with T.block("C"):
            vi = T.axis.spatial(n, i_j_fused // 8)
            vj = T.axis.spatial(8, i_j_fused % 8)
            vk = T.axis.reduce(6, k)
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
""")


def test_reorder() -> None:
    def apply(sch: Schedule) -> None:
        i, j, k = sch.get_loops(sch.get_block("C"))
        sch.reorder(k, i)

    check("matmul", apply, """
    for k, j, i in T.grid(6, 8, n):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
""")


def test_loop_kinds() -> None:
    def apply(sch: Schedule) -> None:
        i, j, k = sch.get_loops(sch.get_block("C"))
        sch.parallel(i)
        sch.vectorize(j)
        sch.unroll(k)
        sch.annotate(i, "grain", 4)

    check("matmul", apply, """
    for i in T.parallel(n, annotations={"grain": 4}):
        for j in T.vectorized(8):
            for k in T.unroll(6):
                with T.block("C"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    with T.init():
                        C[vi, vj] = T.float32(0)
                    C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
""")


def test_add_unit_loop() -> None:
    def apply(sch: Schedule) -> None:
        sch.add_unit_loop(sch.get_block("B"))

    check("chain", apply, """
    B = T.alloc_buffer((n,), "float32")
    for i, _ in T.grid(n, 1):
        with T.block("B"):
            vi = T.axis.spatial(n, i)
            B[vi] = A[vi] * T.float32(2)
    for i in range(n):
        with T.block("C"):
            vi = T.axis.spatial(n, i)
            C[vi] = B[vi] + T.float32(1)
""")


def test_compute_inline() -> None:
    def apply(sch: Schedule) -> None:
        sch.compute_inline(sch.get_block("B"))

    check("chain", apply, """
    for i in range(n):
        with T.block("C"):
            vi = T.axis.spatial(n, i)
            C[vi] = A[vi] * T.float32(2) + T.float32(1)
""")


def test_reverse_compute_inline() -> None:
    def apply(sch: Schedule) -> None:
        sch.reverse_compute_inline(sch.get_block("C"))

    check("chain", apply, """
    for i in range(n):
        with T.block("B"):
            vi = T.axis.spatial(n, i)
            C[vi] = A[vi] * T.float32(2) + T.float32(1)
""")


def test_compute_at() -> None:
    def apply(sch: Schedule) -> None:
        i, _ = sch.get_loops(sch.get_block("Y"))
        io, _ = sch.split(i, factors=[None, 4])
        sch.compute_at(sch.get_block("S"), io)

    check("rows", apply, """
    S = T.alloc_buffer((n,), "float32")
    for i_0 in range((n + 3) // 4):
        for ax0, ax1 in T.grid(4, 5):
            with T.block("S"):
                vi = T.axis.spatial(n, i_0 * 4 + ax0)
                vk = T.axis.reduce(5, ax1)
                T.where(i_0 * 4 + ax0 < n)
                with T.init():
                    S[vi] = T.float32(0)
                S[vi] = S[vi] + A[vi, vk]
        for i_1, j in T.grid(4, 5):
            with T.block("Y"):
                vi = T.axis.spatial(n, i_0 * 4 + i_1)
                vj = T.axis.spatial(5, j)
                T.where(i_0 * 4 + i_1 < n)
                Y[vi, vj] = A[vi, vj] - S[vi]
""")


def test_reverse_compute_at() -> None:
    def apply(sch: Schedule) -> None:
        i, _ = sch.get_loops(sch.get_block("S"))
        io, _ = sch.split(i, factors=[None, 4])
        sch.reverse_compute_at(sch.get_block("Y"), io)

    check("rows", apply, """
    S = T.alloc_buffer((n,), "float32")
    for i_0 in range((n + 3) // 4):
        for i_1, k in T.grid(4, 5):
            with T.block("S"):
                vi = T.axis.spatial(n, i_0 * 4 + i_1)
                vk = T.axis.reduce(5, k)
                T.where(i_0 * 4 + i_1 < n)
                with T.init():
                    S[vi] = T.float32(0)
                S[vi] = S[vi] + A[vi, vk]
        for ax0, ax1 in T.grid(4, 5):
            with T.block("Y"):
                vi = T.axis.spatial(n, i_0 * 4 + ax0)
                vj = T.axis.spatial(5, ax1)
                T.where(i_0 * 4 + ax0 < n)
                Y[vi, vj] = A[vi, vj] - S[vi]
""")


def test_cache_read() -> None:
    def apply(sch: Schedule) -> None:
        sch.cache_read(sch.get_block("C"), 0, "local")

    check("chain", apply, """
    B = T.alloc_buffer((n,), "float32")
    B_local = T.alloc_buffer((n,), "float32", scope="local")
    for i in range(n):
        with T.block("B"):
            vi = T.axis.spatial(n, i)
            B[vi] = A[vi] * T.float32(2)
    for ax0 in range(n):
        with T.block("B_local"):
            v0 = T.axis.spatial(n, ax0)
            B_local[v0] = B[v0]
    for i in range(n):
        with T.block("C"):
            vi = T.axis.spatial(n, i)
            C[vi] = B_local[vi] + T.float32(1)
""")


def test_cache_write() -> None:
    def apply(sch: Schedule) -> None:
        sch.cache_write(sch.get_block("C"), 0, "local")

    check("matmul", apply, """
    C_local = T.alloc_buffer((n, 8), "float32", scope="local")
    for i, j, k in T.grid(n, 8, 6):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C_local[vi, vj] = T.float32(0)
            C_local[vi, vj] = C_local[vi, vj] + A[vi, vk] * B[vk, vj]
    for ax0, ax1 in T.grid(n, 8):
        with T.block("C_local"):
            v0, v1 = T.axis.remap("SS", [ax0, ax1])
            C[v0, v1] = C_local[v0, v1]
""")


def test_set_scope() -> None:
    def apply(sch: Schedule) -> None:
        sch.set_scope(sch.get_block("B"), 0, "local")

    check("chain", apply, """
    B = T.alloc_buffer((n,), "float32", scope="local")
    for i in range(n):
        with T.block("B"):
            vi = T.axis.spatial(n, i)
            B[vi] = A[vi] * T.float32(2)
    for i in range(n):
        with T.block("C"):
            vi = T.axis.spatial(n, i)
            C[vi] = B[vi] + T.float32(1)
""")


def test_storage_align() -> None:
    def apply(sch: Schedule) -> None:
        sch.storage_align(sch.get_block("B"), 0, axis=-1, factor=16, offset=4)

    check("chain", apply, """
    B = T.alloc_buffer((n,), "float32")
    for i in range(n):
        with T.block("B"):
            vi = T.axis.spatial(n, i)
            T.block_attr({"buffer_dim_align": [[0, 0, 16, 4]]})
            B[vi] = A[vi] * T.float32(2)
    for i in range(n):
        with T.block("C"):
            vi = T.axis.spatial(n, i)
            C[vi] = B[vi] + T.float32(1)
""")


def test_pad_axis() -> None:
    check("chain", lambda sch: sch.pad_axis(sch.get_block("B"), 0, 8), """
    B = T.alloc_buffer(((n + 7) // 8 * 8,), "float32")
    for i in range((n + 7) // 8 * 8):
        with T.block("B"):
            vi = T.axis.spatial((n + 7) // 8 * 8, i)
            B[vi] = T.if_then_else(vi < n, A[vi] * T.float32(2), T.float32(0))
    for i in range(n):
        with T.block("C"):
            vi = T.axis.spatial(n, i)
            C[vi] = B[vi] + T.float32(1)
""")


def test_pad_axis_is_refused_where_others_see_the_axis() -> None:
    sch = Schedule(chain)
    with pytest.raises(ScheduleError, match="C is an intermediate buffer"):
        sch.pad_axis(sch.get_block("C"), 0, 8)
    with pytest.raises(ScheduleError, match="a positive multiple"):
        sch.pad_axis(sch.get_block("B"), 1, 8)
    sch.split(sch.get_loops(sch.get_block("B"))[0], factors=[None, 4])
    with pytest.raises(ScheduleError, match="a loop over all n values of vi"):
        sch.pad_axis(sch.get_block("B"), 0, 8)


def test_decompose_reduction() -> None:
    def apply(sch: Schedule) -> None:
        block = sch.get_block("C")
        i, j, k = sch.get_loops(block)
        sch.reorder(i, k, j)
        sch.decompose_reduction(block, k)

    check("matmul", apply, """
    for i in range(n):
        for j_init in range(8):
            with T.block("C_init"):
                vi_init, vj_init = T.axis.remap("SS", [i, j_init])
                C[vi_init, vj_init] = T.float32(0)
        for k, j in T.grid(6, 8):
            with T.block("C_update"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
""")


def test_rfactor() -> None:
    def apply(sch: Schedule) -> None:
        _, k = sch.get_loops(sch.get_block("S"))
        _, ki = sch.split(k, factors=[None, 2])
        sch.rfactor(ki, factor_axis=1)

    check("rows", apply, """
    S = T.alloc_buffer((n,), "float32")
    S_rf = T.alloc_buffer((n, 2), "float32")
    for i, k_0, k_1 in T.grid(n, 3, 2):
        with T.block("S_rf"):
            vk_1, vi, vk_0 = T.axis.remap("SSR", [k_1, i, k_0])
            with T.init():
                S_rf[vi, vk_1] = T.float32(0)
            S_rf[vi, vk_1] = S_rf[vi, vk_1] + T.if_then_else(
                vk_0 * 2 + vk_1 < 5, A[vi, vk_0 * 2 + vk_1], T.float32(0)
            )
    for i, k_1 in T.grid(n, 2):
        with T.block("S"):
            vk_1, vi = T.axis.remap("RS", [k_1, i])
            with T.init():
                S[vi] = T.float32(0)
            S[vi] = S[vi] + S_rf[vi, vk_1]
    for i, j in T.grid(n, 5):
        with T.block("Y"):
            vi, vj = T.axis.remap("SS", [i, j])
            Y[vi, vj] = A[vi, vj] - S[vi]
""")


def test_rfactor_of_loops_that_were_fused() -> None:
    """Both axes of a fused loop go over its parts: neither keeps a binding of its own."""

    @T.prim_func
    def total(A: T.Buffer((6, 8), "int32"), S: T.Buffer((), "int32")):
        for i, j in T.grid(6, 8):
            with T.block("S"):
                vi, vj = T.axis.remap("RR", [i, j])
                with T.init():
                    S[()] = 0
                S[()] = S[()] + A[vi, vj]

    sch = Schedule(total)
    block = sch.get_block("S")
    outer, _ = sch.split(sch.fuse(*sch.get_loops(block)), factors=[None, 16])
    partial = sch.rfactor(outer)
    sch.compute_at(partial, sch.get_loops(block)[0])
    assert_same(total, sch.func, np.random.default_rng(0), [1])


def test_blockize() -> None:
    def apply(sch: Schedule) -> None:
        i, j, k = sch.get_loops(sch.get_block("C"))
        jo, ji = sch.split(j, factors=[None, 4])
        ko, ki = sch.split(k, factors=[None, 2])
        sch.reorder(i, jo, ko, ji, ki)
        sch.blockize(ji)

    check("matmul", apply, """
    for i, j_0, k_0 in T.grid(n, 2, 3):
        with T.block("C_o"):
            vi_o, vj_o, vk_o = T.axis.remap("SSR", [i, j_0, k_0])
            with T.init():
                for j_1_init in range(4):
                    with T.block("C_init"):
                        vj_i_init = T.axis.spatial(4, j_1_init)
                        C[vi_o, vj_o * 4 + vj_i_init] = T.float32(0)
            for j_1, k_1 in T.grid(4, 2):
                with T.block("C"):
                    vj_i, vk_i = T.axis.remap("SR", [j_1, k_1])
                    C[vi_o, vj_o * 4 + vj_i] = (
                        C[vi_o, vj_o * 4 + vj_i]
                        + A[vi_o, vk_o * 2 + vk_i] * B[vk_o * 2 + vk_i, vj_o * 4 + vj_i]
                    )
""")


def test_transform_layout() -> None:
    def apply(sch: Schedule) -> None:
        sch.transform_layout(sch.get_block("B"), "B", lambda i: (i // 4, i % 4))

    check("chain", apply, """
    B = T.alloc_buffer(((n + 3) // 4, 4), "float32")
    for i in range(n):
        with T.block("B"):
            vi = T.axis.spatial(n, i)
            B[vi // 4, vi % 4] = A[vi] * T.float32(2)
    for i in range(n):
        with T.block("C"):
            vi = T.axis.spatial(n, i)
            C[vi] = B[vi // 4, vi % 4] + T.float32(1)
""")


def test_transform_layout_padded() -> None:
    def apply(sch: Schedule) -> None:
        tiles = lambda i: (i // 4, i % 4)  # noqa: E731
        sch.transform_layout(sch.get_block("B"), ("write", 0), tiles, pad_value=0)

    check("chain", apply, """
    B = T.alloc_buffer(((n + 3) // 4, 4), "float32")
    for ax0, ax1 in T.grid((n + 3) // 4, 4):
        with T.block("B"):
            v0, v1 = T.axis.remap("SS", [ax0, ax1])
            B[v0, v1] = T.if_then_else(
                v0 * 4 + v1 < n, A[v0 * 4 + v1] * T.float32(2), T.float32(0)
            )
    for i in range(n):
        with T.block("C"):
            vi = T.axis.spatial(n, i)
            C[vi] = B[vi // 4, vi % 4] + T.float32(1)
""")


def test_results_are_padded() -> None:
    """Callers get a result in tiles: its elements, then the pad value."""
    sch = Schedule(PROGRAMS["chain"])
    tiles = lambda i: (i // 4, i % 4)  # noqa: E731
    with pytest.raises(ScheduleError, match="writes the padded buffer; A is an input"):
        sch.transform_layout(sch.get_block("B"), ("read", 0), tiles, pad_value=7)
    sch.transform_layout(sch.get_block("C"), ("write", 0), tiles, pad_value=7)
    x, out = np.arange(6, dtype="float32"), np.empty((2, 4), "float32")
    interpret_prim_func(sch.func, [x, out])
    np.testing.assert_array_equal(out.reshape(-1), [*(x * 2 + 1), 7, 7])


def test_pad_values_have_the_dtype_of_the_buffer() -> None:
    @T.prim_func
    def integers(A: T.Buffer((5,), "int32"), C: T.Buffer((5,), "int32")):
        B = T.alloc_buffer((5,), "int32")
        for i in range(5):
            with T.block("B"):
                vi = T.axis.spatial(5, i)
                B[vi] = A[vi] * 2
        for i in range(5):
            with T.block("C"):
                vi = T.axis.spatial(5, i)
                C[vi] = B[vi] + 1

    tiles = lambda i: (i // 4, i % 4)  # noqa: E731
    sch = Schedule(integers)
    with pytest.raises(ScheduleError, match="the pad value has the dtype of B, int32; 0.5 is"):
        sch.transform_layout(sch.get_block("B"), ("write", 0), tiles, pad_value=0.5)
    sch.transform_layout(sch.get_block("B"), ("write", 0), tiles, pad_value=0.0)
    x, out = np.arange(5, dtype="int32"), np.empty(5, "int32")
    build(sch, use_cache=False)["integers"](x, out)
    np.testing.assert_array_equal(out, x * 2 + 1)


def test_pad_einsum() -> None:
    def apply(sch: Schedule) -> None:
        sch.pad_einsum(sch.get_block("C"), [4, 1, 4])

    check("matmul", apply, """
    A_pad = T.alloc_buffer(((n + 3) // 4 * 4, 8), "float32")
    B_pad = T.alloc_buffer((8, 8), "float32")
    C_pad = T.alloc_buffer(((n + 3) // 4 * 4, 8), "float32")
    for i0, i1 in T.grid((n + 3) // 4 * 4, 8):
        with T.block("A_pad"):
            v0, v1 = T.axis.remap("SS", [i0, i1])
            A_pad[v0, v1] = T.if_then_else(v0 < n and v1 < 6, A[v0, v1], T.float32(0))
    for i0, i1 in T.grid(8, 8):
        with T.block("B_pad"):
            v0, v1 = T.axis.remap("SS", [i0, i1])
            B_pad[v0, v1] = T.if_then_else(v0 < 6, B[v0, v1], T.float32(0))
    for i0, i1, i2 in T.grid((n + 3) // 4 * 4, 8, 8):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i0, i1, i2])
            with T.init():
                C_pad[vi, vj] = T.float32(0)
            C_pad[vi, vj] = C_pad[vi, vj] + A_pad[vi, vk] * B_pad[vk, vj]
    for i0, i1 in T.grid(n, 8):
        with T.block("C_pad"):
            v0, v1 = T.axis.remap("SS", [i0, i1])
            C[v0, v1] = C_pad[v0, v1]
""")
