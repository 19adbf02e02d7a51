"""NVIDIA's tensor cores: 16 x 16 x 16 products of 16-bit floats by the lanes of a warp.

A tile of 16 x 16 elements lies in the registers of a warp, 8 of each lane, as PTX lays it out for
mma.sync: a row of four lanes has pairs of neighbours of eight columns. `rows_fragment` gives the
lane and the register of an element of the left operand and of the sums, `columns_fragment` of the
right operand, whose columns lie where the left one's rows do.

- `mma_fill`: C = 0
- `mma_rows_T`, `mma_columns_T`: an operand of dtype T from shared memory, row by row or column by
  column; `_trans`: where they are neighbours in memory
- `mma_T`: C += A * B

Their lanes are the 32 threads along x, with `_quads` behind the name 8 along y of 4 along x: of an
operand of rows and of the sums, those along y have a row each, which those along x share.

The lanes add products in another order and with one rounding more or less than the descriptions do.
"""

# Functions here are programs of the script language, whose annotations are buffers.
# pyright: basic, reportInvalidTypeForm=false

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from relaxlab.ir.expr import PrimExpr, Var, const
from relaxlab.ir.loops import For
from relaxlab.ir.node import Node, replace, rewrite
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.tensor_intrin import Functions, declare
from relaxlab.script import tir as T

SIZE = 16
"""Rows, columns and products of one intrinsic."""
DTYPES = ("float16", "bfloat16")
"""The dtypes of operands; sums are float32."""


def rows_fragment(i: PrimExpr, k: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """The lane and the register of an element of the left operand, or of the sums."""
    return i % 8 * 4 + k % 8 // 2, k % 16 // 8 * 4 + i % 16 // 8 * 2 + k % 2


def columns_fragment(j: PrimExpr, k: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """The lane and the register of an element of the right operand: column j, row k."""
    return j % 8 * 4 + k % 8 // 2, j % 16 // 8 * 4 + k % 16 // 8 * 2 + k % 2


def _fill() -> Functions:
    @T.prim_func
    def desc(C: T.Buffer((32, 8))):
        for i, j in T.grid(16, 16):
            C[i % 8 * 4 + j % 8 // 2, j // 8 * 4 + i // 8 * 2 + j % 2] = 0.0

    @T.prim_func
    def impl(C: T.Buffer((32, 8))):
        for lane in T.thread_binding(32, thread="threadIdx.x"):
            for r in T.unroll(8):
                C[lane, r] = 0.0

    return desc, impl


def _load_rows(dtype: str, trans: bool) -> Functions:
    if trans:

        @T.prim_func
        def desc(F: T.Buffer((32, 8), dtype), S: T.Buffer((16, 16), dtype)):
            for k, i in T.grid(16, 16):
                F[i % 8 * 4 + k % 8 // 2, k // 8 * 4 + i // 8 * 2 + k % 2] = S[k, i]

        @T.prim_func
        def impl(F: T.Buffer((32, 8), dtype), S: T.Buffer((16, 16), dtype)):
            for lane in T.thread_binding(32, thread="threadIdx.x"):
                T.ldmatrix_trans(
                    T.address_of(F[lane, 0]),
                    T.address_of(S[lane // 16 * 8 + lane % 8, lane // 8 % 2 * 8]),
                )

        return desc, impl

    @T.prim_func
    def desc(F: T.Buffer((32, 8), dtype), S: T.Buffer((16, 16), dtype)):
        for i, k in T.grid(16, 16):
            F[i % 8 * 4 + k % 8 // 2, k // 8 * 4 + i // 8 * 2 + k % 2] = S[i, k]

    @T.prim_func
    def impl(F: T.Buffer((32, 8), dtype), S: T.Buffer((16, 16), dtype)):
        for lane in T.thread_binding(32, thread="threadIdx.x"):
            T.ldmatrix(
                T.address_of(F[lane, 0]),
                T.address_of(S[lane % 16, lane // 16 * 8]),
            )

    return desc, impl


def _load_columns(dtype: str, trans: bool) -> Functions:
    if trans:

        @T.prim_func
        def desc(F: T.Buffer((32, 8), dtype), S: T.Buffer((16, 16), dtype)):
            for k, j in T.grid(16, 16):
                F[j % 8 * 4 + k % 8 // 2, j // 8 * 4 + k // 8 * 2 + k % 2] = S[k, j]

        @T.prim_func
        def impl(F: T.Buffer((32, 8), dtype), S: T.Buffer((16, 16), dtype)):
            for lane in T.thread_binding(32, thread="threadIdx.x"):
                T.ldmatrix_trans(
                    T.address_of(F[lane, 0]),
                    T.address_of(S[lane % 16, lane // 16 * 8]),
                )

        return desc, impl

    @T.prim_func
    def desc(F: T.Buffer((32, 8), dtype), S: T.Buffer((16, 16), dtype)):
        for j, k in T.grid(16, 16):
            F[j % 8 * 4 + k % 8 // 2, j // 8 * 4 + k // 8 * 2 + k % 2] = S[j, k]

    @T.prim_func
    def impl(F: T.Buffer((32, 8), dtype), S: T.Buffer((16, 16), dtype)):
        for lane in T.thread_binding(32, thread="threadIdx.x"):
            T.ldmatrix(
                T.address_of(F[lane, 0]),
                T.address_of(S[lane // 16 * 8 + lane % 8, lane // 8 % 2 * 8]),
            )

    return desc, impl


def _product(dtype: str) -> Functions:
    @T.prim_func
    def desc(C: T.Buffer((32, 8)), A: T.Buffer((32, 8), dtype), B: T.Buffer((32, 8), dtype)):
        for i, j, k in T.grid(16, 16, 16):
            C[i % 8 * 4 + j % 8 // 2, j // 8 * 4 + i // 8 * 2 + j % 2] += T.Cast(
                "float32", A[i % 8 * 4 + k % 8 // 2, k // 8 * 4 + i // 8 * 2 + k % 2]
            ) * T.Cast("float32", B[j % 8 * 4 + k % 8 // 2, j // 8 * 4 + k // 8 * 2 + k % 2])

    @T.prim_func
    def impl(C: T.Buffer((32, 8)), A: T.Buffer((32, 8), dtype), B: T.Buffer((32, 8), dtype)):
        for lane in T.thread_binding(32, thread="threadIdx.x"):
            T.mma_m16n8k16(
                T.address_of(C[lane, 0]), T.address_of(A[lane, 0]), T.address_of(B[lane, 0])
            )
            T.mma_m16n8k16(
                T.address_of(C[lane, 4]), T.address_of(A[lane, 0]), T.address_of(B[lane, 4])
            )

    return desc, impl


def by_quads(define: Callable[[], Functions]) -> Functions:
    """The functions with lanes along y and x."""
    desc, impl = define()

    def visit(n: Node) -> Node | None:
        if not (isinstance(n, For) and n.thread):
            return None
        y, x = Var("y"), Var("x")
        body = substitute(n.body, {n.loop_var: y * 4 + x})
        quad = replace(n, loop_var=x, extent=const(4), body=body)
        return replace(n, loop_var=y, extent=const(8), thread="threadIdx.y", body=quad)

    return desc, replace(impl, body=rewrite(impl.body, visit))


def _declare(name: str, define: Callable[[], Functions]) -> None:
    declare(name, define)
    declare(f"{name}_quads", partial(by_quads, define))


_declare("mma_fill", _fill)
for _dtype in DTYPES:
    for _trans in (False, True):
        _end = f"{_dtype}_trans" if _trans else _dtype
        _declare(f"mma_rows_{_end}", partial(_load_rows, _dtype, _trans))
        _declare(f"mma_columns_{_end}", partial(_load_columns, _dtype, _trans))
    _declare(f"mma_{_dtype}", partial(_product, _dtype))
