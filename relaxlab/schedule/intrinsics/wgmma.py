"""Hopper's tensor cores: products of 64 rows by the 128 threads of a warpgroup, from shared memory.

The sums lie in registers as PTX lays them out for wgmma: 16 rows for each warp, in them as in a
tile of mma.sync. `accumulator` gives the thread and the register of an element. Operands are
swizzled rows of 128 bytes, as copies of boxes leave them (`codegen/gpu/warp_specialize.py`, which
also waits for the products).

- `wgmma_fill_N`: C = 0, of N columns
- `wgmma_T_N`: C += A * B for dtype T; the right operand is column by column, with `_trans` row by
  row, in blocks of 64 columns
- `wgmma_T_N_K_quads`: C = A * B of K terms, with `_trans` C += A * B, the part of one of the four
  neighbouring warps that run it together; the left operand and the sums lie in registers as tiles
  of mma.sync do, the right operand in blocks of 64 terms, with `_trans` of 64 columns
"""

# Functions here are programs of the script language, whose annotations are buffers.
# pyright: basic, reportInvalidTypeForm=false

from __future__ import annotations

from functools import partial

from relaxlab.ir.expr import PrimExpr
from relaxlab.schedule.intrinsics.mma import DTYPES, by_quads
from relaxlab.schedule.tensor_intrin import Functions, declare
from relaxlab.script import tir as T

ROWS, TERMS = 64, 16
"""Rows and products of one intrinsic."""
COLUMNS = (64, 128, 192, 256)
"""Its columns."""
LINE = 64
"""Elements of a line of 128 bytes."""


def accumulator(i: PrimExpr, j: PrimExpr, columns: int) -> tuple[PrimExpr, PrimExpr]:
    """The thread and the register of an element of a tile of so many columns."""
    thread = i % ROWS // 16 * 32 + i % 8 * 4 + j % 8 // 2
    return thread, j % columns // 8 * 4 + i % 16 // 8 * 2 + j % 2


def _fill(columns: int) -> Functions:
    count = columns // 2

    @T.prim_func
    def desc(C: T.Buffer((128, count))):
        for i, j in T.grid(64, columns):
            C[i // 16 * 32 + i % 8 * 4 + j % 8 // 2, j // 8 * 4 + i % 16 // 8 * 2 + j % 2] = 0.0

    @T.prim_func
    def impl(C: T.Buffer((128, count))):
        for t in T.thread_binding(128, thread="threadIdx.x"):
            for r in T.unroll(count):
                C[t, r] = 0.0

    return desc, impl


def _product(dtype: str, columns: int, trans: bool) -> Functions:
    count, blocks = columns // 2, columns // LINE
    if trans:

        @T.prim_func
        def desc(
            C: T.Buffer((128, count)),
            A: T.Buffer((64, 16), dtype),
            B: T.Buffer((blocks, 16, 64), dtype),
        ):
            for i, j, k in T.grid(64, columns, 16):
                C[
                    i // 16 * 32 + i % 8 * 4 + j % 8 // 2, j // 8 * 4 + i % 16 // 8 * 2 + j % 2
                ] += T.Cast("float32", A[i, k]) * T.Cast("float32", B[j // 64, k, j % 64])

        @T.prim_func
        def impl(
            C: T.Buffer((128, count)),
            A: T.Buffer((64, 16), dtype),
            B: T.Buffer((blocks, 16, 64), dtype),
        ):
            for t in T.thread_binding(128, thread="threadIdx.x"):
                T.wgmma(
                    T.address_of(C[t, 0]), T.address_of(A[0, 0]), T.address_of(B[0, 0, 0]),
                    columns, 1, 8192, 1,
                )  # fmt: skip

        return desc, impl

    @T.prim_func
    def desc(
        C: T.Buffer((128, count)),
        A: T.Buffer((64, 16), dtype),
        B: T.Buffer((columns, 16), dtype),
    ):
        for i, j, k in T.grid(64, columns, 16):
            C[
                i // 16 * 32 + i % 8 * 4 + j % 8 // 2, j // 8 * 4 + i % 16 // 8 * 2 + j % 2
            ] += T.Cast("float32", A[i, k]) * T.Cast("float32", B[j, k])

    @T.prim_func
    def impl(
        C: T.Buffer((128, count)),
        A: T.Buffer((64, 16), dtype),
        B: T.Buffer((columns, 16), dtype),
    ):
        for t in T.thread_binding(128, thread="threadIdx.x"):
            T.wgmma(
                T.address_of(C[t, 0]), T.address_of(A[0, 0]), T.address_of(B[0, 0]),
                columns, 0, 16, 1,
            )  # fmt: skip

    return desc, impl


def _of_warp_by_rows(dtype: str, columns: int, terms: int) -> Functions:
    """The sums of a warp plus a product whose right operand is row by row."""
    tiles, steps, blocks, size = columns // 16, terms // 16, columns // LINE, 128 * terms

    @T.prim_func
    def desc(
        C: T.Buffer((tiles, 32, 8)),
        A: T.Buffer((steps, 32, 8), dtype),
        B: T.Buffer((blocks, terms, 64), dtype),
    ):
        for i, j, k in T.grid(16, columns, terms):
            C[j // 16, i % 8 * 4 + j % 8 // 2, j % 16 // 8 * 4 + i // 8 * 2 + j % 2] += T.Cast(
                "float32",
                A[k // 16, i % 8 * 4 + k % 8 // 2, k % 16 // 8 * 4 + i // 8 * 2 + k % 2],
            ) * T.Cast("float32", B[j // 64, k, j % 64])

    @T.prim_func
    def impl(
        C: T.Buffer((tiles, 32, 8)),
        A: T.Buffer((steps, 32, 8), dtype),
        B: T.Buffer((blocks, terms, 64), dtype),
    ):
        for lane in T.thread_binding(32, thread="threadIdx.x"):
            for k in T.unroll(steps):
                T.wgmma(
                    T.address_of(C[0, lane, 0]), T.address_of(A[k, lane, 0]),
                    T.address_of(B[0, k * 16, 0]), columns, 1, size, 1,
                )  # fmt: skip

    return desc, impl


def _of_warp(dtype: str, columns: int, terms: int) -> Functions:
    """A product by the 32 lanes of one of four warps, whose left operand is in registers."""
    tiles, steps, blocks = columns // 16, terms // 16, terms // LINE

    @T.prim_func
    def desc(
        C: T.Buffer((tiles, 32, 8)),
        A: T.Buffer((steps, 32, 8), dtype),
        B: T.Buffer((blocks, columns, 64), dtype),
    ):
        for i, j, k in T.grid(16, columns, terms):
            if k == 0:
                C[j // 16, i % 8 * 4 + j % 8 // 2, j % 16 // 8 * 4 + i // 8 * 2 + j % 2] = 0.0
            C[j // 16, i % 8 * 4 + j % 8 // 2, j % 16 // 8 * 4 + i // 8 * 2 + j % 2] += T.Cast(
                "float32",
                A[k // 16, i % 8 * 4 + k % 8 // 2, k % 16 // 8 * 4 + i // 8 * 2 + k % 2],
            ) * T.Cast("float32", B[k // 64, j, k % 64])

    @T.prim_func
    def impl(
        C: T.Buffer((tiles, 32, 8)),
        A: T.Buffer((steps, 32, 8), dtype),
        B: T.Buffer((blocks, columns, 64), dtype),
    ):
        for lane in T.thread_binding(32, thread="threadIdx.x"):
            for k in T.unroll(steps):
                T.wgmma(
                    T.address_of(C[0, lane, 0]), T.address_of(A[k, lane, 0]),
                    T.address_of(B[k // 4, 0, k % 4 * 16]), columns, 0, 16, T.min(k, 1),
                )  # fmt: skip

    return desc, impl


for _columns in COLUMNS:
    declare(f"wgmma_fill_{_columns}", partial(_fill, _columns))
    for _dtype in DTYPES:
        declare(f"wgmma_{_dtype}_{_columns}", partial(_product, _dtype, _columns, False))
        declare(f"wgmma_{_dtype}_{_columns}_trans", partial(_product, _dtype, _columns, True))
        for _terms in COLUMNS:
            _name = f"wgmma_{_dtype}_{_columns}_{_terms}"
            _of = partial(_of_warp, _dtype, _columns, _terms)
            declare(f"{_name}_quads", partial(by_quads, _of))
            _of = partial(_of_warp_by_rows, _dtype, _columns, _terms)
            declare(f"{_name}_trans_quads", partial(by_quads, _of))
