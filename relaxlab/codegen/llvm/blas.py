"""Calls of BLAS from host functions: every thread of the team computes a share of the product.

A share is a range of batches where there are as many as threads, else a range of rows of each
product, or of columns where there are more of them. No two threads write to one element, and the
sums are BLAS's own, so a result depends on the number of threads only as far as BLAS's does on
the size of a matrix.
"""

from __future__ import annotations

from relaxlab.codegen.llvm.arithmetic import binary
from relaxlab.codegen.llvm.builder import Value, int_value, llvm_type
from relaxlab.codegen.llvm.host_frame import HostFrame
from relaxlab.codegen.llvm.statements import Team, barrier
from relaxlab.codegen.llvm.support import GEMM
from relaxlab.ir import expr, host, types
from relaxlab.ir.dtypes import bytes_of

FUNCTIONS = ("relaxlab.blas.matmul", "relaxlab.blas.matmul_bias")
"""The functions that `passes.blas_patterns` calls."""
_UNIT = 16
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
    for dtype in used:
        t, name = llvm_type(dtype), GEMM[dtype]
        signature = f"i32, i32, i32, i64, i64, i64, {t}, ptr, i64, ptr, i64, {t}, ptr, i64"
        declarations[name] = f"declare void @{name}({signature})"
        declarations |= _INTRINSICS
    return [_SHARE, *map(_gemm_text, used)] if used else []


_INTRINSICS = {
    "llvm.memcpy.p0.p0.i64": "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
    "llvm.umax.i64": "declare i64 @llvm.umax.i64(i64, i64)",
}

_SHARE = """define i64 @relaxlab_share(i64 %size, i64 %thread, i64 %threads, i64 %unit) #0 {
  %s0 = add i64 %size, %threads
  %s1 = sub i64 %s0, 1
  %each = udiv i64 %s1, %threads
  %e0 = add i64 %each, %unit
  %e1 = sub i64 %e0, 1
  %units = udiv i64 %e1, %unit
  %chunk = mul i64 %units, %unit
  %at = mul i64 %chunk, %thread
  %over = icmp ugt i64 %at, %size
  %start = select i1 %over, i64 %size, i64 %at
  ret i64 %start
}
"""
"""The function that returns the start of a thread's share of a range; it ends at the next one."""


def _share(name: str, size: str, thread: str, threads: str, unit: int) -> str:
    args = f"i64 {size}, i64 %{thread}, i64 %{threads}, i64 {unit}"
    return f"""  %{name}_next = add i64 %{thread}, 1
  %{name}_lo = call i64 @relaxlab_share({args})
  %{name}_hi = call i64 @relaxlab_share({args.replace(f"%{thread},", f"%{name}_next,")})
"""


# Threads share whole products where there are enough of them, else the longer side of each. Leading
# dimensions are at least 1, as BLAS refuses 0 even for empty matrices. A bias is copied to the
# result first and then added to, by beta = 1.
_TEMPLATE = (
    """define void @relaxlab_gemm_<dtype>(
    ptr %a, ptr %b, ptr %bias, ptr %c, i64 %batch, i64 %step_a, i64 %step_b,
    i64 %m, i64 %n, i64 %k, i64 %ta, i64 %tb, i64 %thread, i64 %threads) #0 {
entry:
  %swap_a = icmp ne i64 %ta, 0
  %swap_b = icmp ne i64 %tb, 0
  %many = icmp uge i64 %batch, %threads
"""
    + _share("b", "%batch", "thread", "threads", 1)
    + """
  %first = select i1 %many, i64 %b_lo, i64 0
  %last = select i1 %many, i64 %b_hi, i64 %batch
  %t = select i1 %many, i64 0, i64 %thread
  %ts = select i1 %many, i64 1, i64 %threads
"""
    + _share("m", "%m", "t", "ts", _UNIT)
    + """
"""
    + _share("n", "%n", "t", "ts", _UNIT)
    + """
  %tall = icmp uge i64 %m, %n
  %i0 = select i1 %tall, i64 %m_lo, i64 0
  %i1 = select i1 %tall, i64 %m_hi, i64 %m
  %j0 = select i1 %tall, i64 0, i64 %n_lo
  %j1 = select i1 %tall, i64 %n, i64 %n_hi
  %rows = sub i64 %i1, %i0
  %columns = sub i64 %j1, %j0
  %area = mul i64 %rows, %columns
  %a_cols = select i1 %swap_a, i64 %m, i64 %k
  %b_cols = select i1 %swap_b, i64 %k, i64 %n
  %lda = call i64 @llvm.umax.i64(i64 %a_cols, i64 1)
  %ldb = call i64 @llvm.umax.i64(i64 %b_cols, i64 1)
  %a_row = mul i64 %i0, %k
  %a_at = select i1 %swap_a, i64 %i0, i64 %a_row
  %b_row = mul i64 %j0, %k
  %b_at = select i1 %swap_b, i64 %b_row, i64 %j0
  %c_row = mul i64 %i0, %n
  %c_at = add i64 %c_row, %j0
  %step_c = mul i64 %m, %n
  %op_a = select i1 %swap_a, i32 112, i32 111
  %op_b = select i1 %swap_b, i32 112, i32 111
  %plain = icmp eq ptr %bias, null
  %beta = select i1 %plain, <type> 0.0, <type> 1.0
  %bias_from = getelementptr <type>, ptr %bias, i64 %j0
  %bias_bytes = mul i64 %columns, <bytes>
  %empty = icmp eq i64 %area, 0
  br i1 %empty, label %done, label %batches
batches:
  %index = phi i64 [ %first, %entry ], [ %next, %product ]
  %more = icmp ult i64 %index, %last
  br i1 %more, label %body, label %done
body:
  %a_batch = mul i64 %index, %step_a
  %a_off = add i64 %a_batch, %a_at
  %b_batch = mul i64 %index, %step_b
  %b_off = add i64 %b_batch, %b_at
  %c_batch = mul i64 %index, %step_c
  %c_off = add i64 %c_batch, %c_at
  %pa = getelementptr <type>, ptr %a, i64 %a_off
  %pb = getelementptr <type>, ptr %b, i64 %b_off
  %pc = getelementptr <type>, ptr %c, i64 %c_off
  br i1 %plain, label %product, label %fill
fill:
  %row = phi i64 [ 0, %body ], [ %row_next, %fill ]
  %to_off = mul i64 %row, %n
  %to = getelementptr <type>, ptr %pc, i64 %to_off
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %bias_from, i64 %bias_bytes, i1 false)
  %row_next = add i64 %row, 1
  %again = icmp ult i64 %row_next, %rows
  br i1 %again, label %fill, label %product
product:
  call void @<gemm>(i32 101, i32 %op_a, i32 %op_b, i64 %rows, i64 %columns, i64 %k,
    <type> 1.0, ptr %pa, i64 %lda, ptr %pb, i64 %ldb, <type> %beta, ptr %pc, i64 %n)
  %next = add i64 %index, 1
  br label %batches
done:
  ret void
}
"""
)


def _gemm_text(dtype: str) -> str:
    text = _TEMPLATE
    given = {"dtype": dtype, "type": llvm_type(dtype), "bytes": bytes_of(dtype)}
    for name, value in {**given, "gemm": GEMM[dtype]}.items():
        text = text.replace(f"<{name}>", str(value))
    return text
