"""Calls of BLAS from host functions: every thread of the team computes a share of the product.

A share is a range of batches where there are as many as threads, else a range of rows of each
product, or of columns where there are more of them. No two threads write to one element, and the
sums are BLAS's own, so a result depends on the number of threads only as far as BLAS's does on
the size of a matrix.
"""

from __future__ import annotations

from typing import TypeAlias

from relaxlab.codegen.llvm.arithmetic import binary
from relaxlab.codegen.llvm.builder import Value, int_value
from relaxlab.codegen.llvm.context import GEMM
from relaxlab.codegen.llvm.host_frame import HostFrame
from relaxlab.codegen.llvm.lowlevel import (
    NULL,
    Address,
    Array,
    Flag,
    Int,
    Word,
    address_of,
    external,
    low_level,
)
from relaxlab.codegen.llvm.lowlevel_text import NUMBERS, low_level_text
from relaxlab.codegen.llvm.team import Team, barrier
from relaxlab.ir import expr, host, types
from relaxlab.ir.dtypes import bytes_of

FUNCTIONS = ("relaxlab.blas.matmul", "relaxlab.blas.matmul_bias")
"""The functions that `passes.blas_patterns` calls."""
Real: TypeAlias = float
"""The type of the elements, which is put in its place."""
BYTES = 0
"""The bytes of an element."""
ROW_MAJOR, NO_TRANS, TRANS = 101, 111, 112
"""Numbers of CBLAS."""
UNIT = 16
"""Shares of rows and columns are multiples of this, so that tiles are not cut."""


def call_blas(e: HostFrame, i: host.CallPacked) -> None:
    """Emit a call of one of `FUNCTIONS`, which the whole team reaches."""
    regs = [a for a in i.args if isinstance(a, int)]
    flags = [a.value for a in i.args if isinstance(a, expr.IntImm)]
    a, b, *bias, out = regs
    ty = e.type_of(out)
    assert isinstance(ty, types.TensorType) and ty.dtype is not None
    dims = e.dims(out)
    batch, (m, n) = dims[:-2], dims[-2:]
    k = e.dims(a)[-2 if flags[0] else -1]
    if len(e.dims(b)) == 2 and not flags[0]:  # one product of all rows
        batch, m = [], _product(e, [*batch, m])
    # A matrix without batch axes is the same one in every product.
    steps = [_product(e, e.dims(x)[-2:]) if len(e.dims(x)) > 2 else int_value(0) for x in (a, b)]
    sizes = [_product(e, batch), *steps, m, n, k, *map(int_value, flags)]
    pointers = [e.regs[a].address, e.regs[b].address, e.regs[out].address]
    pointers.insert(2, e.regs[bias[0]].address if bias else "null")
    args = [("ptr", p) for p in pointers] + [("i64", s.text or "") for s in sizes]
    args += [("i64", "%thread"), ("i64", "%threads")]
    e.b.call(f"relaxlab_gemm_{ty.dtype}", "void", args)
    # Each thread has written a part of the result, and reads all of it later.
    barrier(e.scope, Team())


def _product(e: HostFrame, dims: list[Value]) -> Value:
    total = int_value(1)
    for d in dims:
        total = binary(e.b, expr.Mul, total, d)
    e.b.materialise(total)
    return total


def blas_functions(declarations: dict[str, str]) -> list[str]:
    """Return the functions of BLAS calls that a program's host functions call; their own callees
    are added to `declarations`."""
    used = [d for d in GEMM if f"relaxlab_gemm_{d}" in declarations]
    if not used:
        return []
    texts = [low_level_text(share, declarations)]
    return texts + [_gemm_text(dtype, declarations) for dtype in used]


@external("llvm.memcpy.p0.p0.i64")
def memcpy(to: Address, source: Address, count: Word, is_volatile: Flag) -> None: ...
@external("cblas_gemm")
def gemm(
    order: Int, op_a: Int, op_b: Int, m: Word, n: Word, k: Word, alpha: Real, a: Address,
    lda: Word, b: Address, ldb: Word, beta: Real, c: Address, ldc: Word,
) -> None: ...  # fmt: skip


@low_level
def share(size: Word, thread: Word, threads: Word, unit: Word) -> Word:
    """The start of a thread's share of a range; it ends where the next one starts."""
    each = (size + threads - 1) // threads
    start = (each + unit - 1) // unit * unit * thread
    return start if start < size else size


@low_level
def shared_gemm(
    a: Array[Real], b: Array[Real], bias: Array[Real], c: Array[Real], batch: Word, step_a: Word,
    step_b: Word, m: Word, n: Word, k: Word, ta: Word, tb: Word, thread: Word, threads: Word,
) -> None:  # fmt: skip
    """Compute a thread's share of `batch` products. bias: a row that is added to every row, or
    null. step_a, step_b: elements from one matrix to the next. ta, tb: not 0 for transposed ones.
    """
    first, last, row, end_row, column, end_column = 0, batch, 0, m, 0, n
    # Threads share whole products where there are enough of them, else the longer side of each.
    if batch >= threads:
        first = share(batch, thread, threads, 1)
        last = share(batch, thread + 1, threads, 1)
    elif m >= n:
        row, end_row = share(m, thread, threads, UNIT), share(m, thread + 1, threads, UNIT)
    else:
        column, end_column = share(n, thread, threads, UNIT), share(n, thread + 1, threads, UNIT)
    rows, columns = end_row - row, end_column - column
    if rows == 0 or columns == 0:
        return
    columns_a, columns_b = m if ta else k, k if tb else n
    for i in range(last - first):
        at_a = (first + i) * step_a + (row if ta else row * k)
        at_b = (first + i) * step_b + (column * k if tb else column)
        out = Array[Real](address_of(c[(first + i) * m * n + row * n + column]))
        # A bias is copied to the result first, and then added to.
        if bias != NULL:
            for r in range(rows):
                memcpy(address_of(out[r * n]), address_of(bias[column]), columns * BYTES, False)
        # BLAS refuses leading dimensions of 0 even for empty matrices.
        gemm(
            ROW_MAJOR, TRANS if ta else NO_TRANS, TRANS if tb else NO_TRANS, rows, columns, k, 1.0,
            address_of(a[at_a]), columns_a if columns_a else 1, address_of(b[at_b]),
            columns_b if columns_b else 1, 0.0 if bias == NULL else 1.0, out, n,
        )  # fmt: skip


def _gemm_text(dtype: str, declarations: dict[str, str]) -> str:
    given = {"Real": NUMBERS[dtype], "BYTES": bytes_of(dtype), "gemm": GEMM[dtype]}
    return low_level_text(shared_gemm, declarations, f"relaxlab_gemm_{dtype}", given)
