"""One loop function to one LLVM function."""

from __future__ import annotations

from relaxlab.codegen.hoist_guards import hoist_guards
from relaxlab.codegen.llvm.access import Memory
from relaxlab.codegen.llvm.arithmetic import binary
from relaxlab.codegen.llvm.builder import Builder, Value, int_value, llvm_type
from relaxlab.codegen.llvm.expressions import CodegenError, Scope, emit_expr
from relaxlab.codegen.llvm.statements import Team, declare_local, emit_team
from relaxlab.codegen.lower_blocks import lower_blocks
from relaxlab.codegen.prefetch import insert_prefetches
from relaxlab.codegen.simplify_indices import simplify_indices
from relaxlab.ir import expr, loops
from relaxlab.ir.dtypes import element_of
from relaxlab.passes.host import kernel_symbols


def emit_kernel(func: loops.PrimFunc, name: str, declarations: dict[str, str]) -> str:
    """LLVM IR of `void name(ptr buffers…, i64 symbols…, i64 thread, i64 threads)`.

    Scalar parameters keep their own type. Raises CodegenError for anything without a row.
    """
    b = Builder(declarations)
    s = Scope(b, name)
    params: list[str] = []
    symbols = kernel_symbols(func)
    for var in symbols:
        s.values[var] = Value(var.dtype, f"%{_safe(var.name)}.{len(params)}", nonneg=_counts(var))
        params.append(f"{llvm_type(var.dtype)} {s.values[var].text}")
    pointers: list[str] = []
    for i, buffer in enumerate(func.buffers):
        pointer = f"%{_safe(buffer.name)}.p{i}"
        pointers.append(f"ptr noalias {pointer}")
        s.memory[buffer] = _parameter(s, buffer, pointer)
    body, allocated = lower_blocks(func.body)
    for buffer in allocated:
        if buffer.scope == "global":
            raise CodegenError(
                f"{name!r} allocates {buffer.name!r} in main memory; run lift_workspace first"
            )
        s.memory[buffer] = declare_local(s, buffer)
    emit_team(s, Team(), lower_loops(body, symbols))
    signature = ", ".join([*pointers, *params, "i64 %thread", "i64 %threads"])
    lines = ["entry:", *b.allocas, *b.lines, "  ret void"]
    return f"define void @{name}({signature}) #0 {{\n" + "\n".join(lines) + "\n}\n"


def lower_loops(body: loops.Stmt, symbols: tuple[expr.Var, ...]) -> loops.Stmt:
    """What happens to block-free loops before they become instructions."""
    return insert_prefetches(hoist_guards(simplify_indices(body, symbols)))


def _counts(var: expr.Var) -> bool:
    """Sizes are never negative; a scalar parameter of another dtype may be."""
    return element_of(var.dtype) == "int64"


def _safe(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name)


def _parameter(s: Scope, buffer: loops.Buffer, pointer: str) -> Memory:
    strides: list[Value] = []
    if buffer.strides:
        strides = [emit_expr(s, e) for e in buffer.strides]
    else:
        total = int_value(1)
        for dim in reversed(buffer.shape):
            strides.insert(0, total)
            total = binary(s.builder, expr.Mul, total, emit_expr(s, dim))
    return Memory(pointer, buffer.dtype, tuple(strides), 1)
