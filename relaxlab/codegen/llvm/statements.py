"""Statements to LLVM IR, run by a team of threads.

All threads of a team execute a kernel together. A parallel loop's iterations are divided into
contiguous chunks, everything outside parallel loops is done by thread 0, and the team meets at a
barrier after each. Results therefore do not depend on the number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass

from relaxlab.codegen.llvm.access import Memory, linear_index, store
from relaxlab.codegen.llvm.arithmetic import binary, index_vector
from relaxlab.codegen.llvm.builder import Value, int_value, memory_type
from relaxlab.codegen.llvm.expressions import (
    CodegenError,
    Scope,
    emit_expr,
    memory_of,
    require_scalar,
)
from relaxlab.ir import expr, loops
from relaxlab.ir.dtypes import bits_of
from relaxlab.ir.node import walk

MAX_UNROLL = 4096


@dataclass(slots=True)
class Team:
    """The thread's number and the team's size, as SSA names."""

    thread: str = "%thread"
    threads: str = "%threads"


def emit_team(s: Scope, team: Team, stmt: loops.Stmt) -> None:
    """Emit a statement that the whole team reaches."""
    match stmt:
        case loops.SeqStmt(stmts):
            for part in stmts:
                emit_team(s, team, part)
        case loops.For(kind="parallel"):
            _parallel(s, team, stmt)
            barrier(s, team)
        case loops.LetStmt(var, value, body) if _has_parallel(body):
            s.values[var] = emit_expr(s, value)
            emit_team(s, team, body)
        case loops.IfThenElse(cond, then_case, else_case) if _has_parallel(stmt):
            _uniform_if(s, team, cond, then_case, else_case)
        case loops.For(kind="serial" | "unrolled") if _has_parallel(stmt):
            _serial(s, stmt, lambda body: emit_team(s, team, body))
        case _:
            first = s.builder.emit(f"icmp eq i64 {team.thread}, 0")
            with s.builder.when(first):
                emit_stmt(s, stmt)
            barrier(s, team)


def _has_parallel(stmt: loops.Stmt) -> bool:
    return any(isinstance(n, loops.For) and n.kind == "parallel" for n in walk(stmt))


def barrier(s: Scope, team: Team) -> None:
    """Wait for the team; nothing to do for a team of one."""
    b = s.builder
    several = b.emit(f"icmp ugt i64 {team.threads}, 1")
    with b.when(several):
        b.call("relaxlab_barrier", "void", [])


def _uniform_if(
    s: Scope, team: Team, cond: expr.PrimExpr, then: loops.Stmt, other: loops.Stmt | None
) -> None:
    b = s.builder
    test = require_scalar(emit_expr(s, cond), "a condition around a parallel loop", s)
    yes, no, done = b.label("then"), b.label("else"), b.label("endif")
    b.branch(b.materialise(test), yes, no)
    b.place(yes)
    emit_team(s, team, then)
    b.jump(done)
    b.place(no)
    if other is not None:
        emit_team(s, team, other)
    b.jump(done)
    b.place(done)


def _parallel(s: Scope, team: Team, loop: loops.For) -> None:
    """This thread's contiguous share of the iterations."""
    b = s.builder
    start, extent = emit_expr(s, loop.min), emit_expr(s, loop.extent)
    thread = Value("int64", team.thread, nonneg=True)
    threads = Value("int64", team.threads, nonneg=True)
    extent.nonneg = True
    after = binary(b, expr.Add, thread, int_value(1))
    low = binary(b, expr.FloorDiv, binary(b, expr.Mul, extent, thread), threads)
    high = binary(b, expr.FloorDiv, binary(b, expr.Mul, extent, after), threads)
    low, high = binary(b, expr.Add, start, low), binary(b, expr.Add, start, high)
    _counted(s, loop.loop_var, low, high, lambda: emit_stmt(s, loop.body))


def emit_stmt(s: Scope, stmt: loops.Stmt) -> None:
    """Emit a statement for one thread."""
    b = s.builder
    match stmt:
        case loops.SeqStmt(stmts):
            for part in stmts:
                emit_stmt(s, part)
        case loops.BufferStore(buffer, value, indices):
            memory = memory_of(s, buffer)
            stored = emit_expr(s, value)
            index = linear_index(b, memory, [emit_expr(s, i) for i in indices])
            store(b, memory, index, stored, s.mask)
        case loops.For(kind="vectorized"):
            _vectorized(s, stmt)
        case loops.For(kind="serial" | "unrolled" | "parallel"):
            _serial(s, stmt, lambda body: emit_stmt(s, body))
        case loops.IfThenElse(cond, then_case, else_case):
            _if(s, cond, then_case, else_case)
        case loops.LetStmt(var, value, body):
            s.values[var] = emit_expr(s, value)
            emit_stmt(s, body)
        case loops.While(cond, body):
            _while(s, cond, body)
        case loops.Evaluate(value):
            emit_expr(s, value)
        case loops.AssertStmt(cond, _):
            test = require_scalar(emit_expr(s, cond), "an assertion", s)
            failed = b.emit(f"xor i1 {b.materialise(test)}, true")
            with b.when(failed):
                b.call("llvm.trap", "void", [])
        case loops.For(kind=kind):
            raise CodegenError(f"a {kind} loop cannot run on a CPU ({s.function!r})")
        case _:
            raise CodegenError(f"no LLVM row for {type(stmt).__name__} in {s.function!r}")


def _vectorized(s: Scope, loop: loops.For) -> None:
    extent = loop.extent
    if not isinstance(extent, expr.IntImm):
        raise CodegenError(
            f"vectorized loop {loop.loop_var.name!r} of {s.function!r} has extent {extent}; "
            "split it by a constant first"
        )
    if extent.value == 0:
        return
    start = emit_expr(s, loop.min)
    if extent.value == 1:
        s.values[loop.loop_var] = start
    else:
        s.values[loop.loop_var] = index_vector(start, extent.value)
    emit_stmt(s, loop.body)


def _serial(s: Scope, loop: loops.For, emit_body) -> None:  # type: ignore[no-untyped-def]
    b = s.builder
    start, extent = emit_expr(s, loop.min), emit_expr(s, loop.extent)
    count = extent.const
    if isinstance(count, int):
        unroll = loop.kind == "unrolled" and count <= MAX_UNROLL
        if count == 1 or unroll:
            for i in range(count):
                s.values[loop.loop_var] = binary(b, expr.Add, start, int_value(i))
                emit_body(loop.body)
            return
    high = binary(b, expr.Add, start, extent)
    _counted(s, loop.loop_var, start, high, lambda: emit_body(loop.body))


def _counted(s: Scope, var: expr.Var, low: Value, high: Value, emit_body) -> None:  # type: ignore
    """for (var = low; var < high; ++var)"""
    b = s.builder
    begin, body, done = b.label("loop"), b.label("body"), b.label("done")
    lt, ht = b.materialise(low), b.materialise(high)
    previous = b.block
    b.jump(begin)
    b.place(begin)
    iv = b.name("i")
    phi_at = len(b.lines)
    b.lines.append("")
    b.branch(b.emit(f"icmp slt i64 {iv}, {ht}"), body, done)
    b.place(body)
    s.values[var] = Value("int64", iv, nonneg=low.nonneg)
    emit_body()
    step = b.emit(f"add nsw i64 {iv}, 1")
    b.lines[phi_at] = f"  {iv} = phi i64 [ {lt}, %{previous} ], [ {step}, %{b.block} ]"
    b.jump(begin)
    b.place(done)


def _while(s: Scope, cond: expr.PrimExpr, body: loops.Stmt) -> None:
    b = s.builder
    begin, inside, done = b.label("while"), b.label("body"), b.label("done")
    b.jump(begin)
    b.place(begin)
    test = require_scalar(emit_expr(s, cond), "a while condition", s)
    b.branch(b.materialise(test), inside, done)
    b.place(inside)
    emit_stmt(s, body)
    b.jump(begin)
    b.place(done)


def _if(s: Scope, cond: expr.PrimExpr, then: loops.Stmt, other: loops.Stmt | None) -> None:
    b = s.builder
    test = emit_expr(s, cond)
    if test.const is not None:
        chosen = then if test.const else other
        if chosen is not None:
            emit_stmt(s, chosen)
        return
    if test.lanes > 1:
        _masked_if(s, test, then, other)
        return
    yes, no, done = b.label("then"), b.label("else"), b.label("endif")
    b.branch(b.materialise(test), yes, no if other is not None else done)
    b.place(yes)
    emit_stmt(s, then)
    b.jump(done)
    if other is not None:
        b.place(no)
        emit_stmt(s, other)
        b.jump(done)
    b.place(done)


def _masked_if(s: Scope, test: Value, then: loops.Stmt, other: loops.Stmt | None) -> None:
    """Full vectors take a version without masks; a vector with some lanes off is masked."""
    b, outer = s.builder, s.mask
    mask = test if outer is None else binary(b, expr.And, outer, test)
    if other is None and outer is None:
        bits = _mask_bits(s, mask)
        full = b.emit(f"icmp eq i{mask.lanes} {bits}, -1")
        whole, partial, done = b.label("full"), b.label("tail"), b.label("endif")
        b.branch(full, whole, partial)
        b.place(whole)
        emit_stmt(s, then)
        b.jump(done)
        b.place(partial)
        _masked(s, mask, then)
        b.jump(done)
        b.place(done)
        return
    _masked(s, mask, then)
    if other is not None:
        flipped = b.widen(int_value(1, "bool"), test.lanes)
        inverse = Value(
            test.dtype,
            b.emit(f"xor {test.ty} {b.materialise(test)}, {b.materialise(flipped)}"),
        )
        rest = inverse if outer is None else binary(b, expr.And, outer, inverse)
        _masked(s, rest, other)


def _mask_bits(s: Scope, mask: Value) -> str:
    b = s.builder
    return b.emit(f"bitcast {mask.ty} {b.materialise(mask)} to i{mask.lanes}")


def _masked(s: Scope, mask: Value, body: loops.Stmt) -> None:
    """The body with lanes off; skipped when all are."""
    b, outer = s.builder, s.mask
    some = b.emit(f"icmp ne i{mask.lanes} {_mask_bits(s, mask)}, 0")
    with b.when(some):
        s.mask = mask
        emit_stmt(s, body)
        s.mask = outer


def declare_local(s: Scope, buffer: loops.Buffer) -> Memory:
    """Stack memory for a buffer of constant size, private to the thread."""
    count, strides = 1, list[Value]()
    for dim in reversed(buffer.shape):
        if not isinstance(dim, expr.IntImm):
            raise CodegenError(
                f"local buffer {buffer.name!r} of {s.function!r} has the size "
                f"{[str(d) for d in buffer.shape]}, which is not constant"
            )
        strides.insert(0, int_value(count))
        count *= dim.value
    pointer = s.builder.alloca(max(count, 1), memory_type(buffer.dtype))
    if count * bits_of(buffer.dtype) // 8 > 1 << 20:
        raise CodegenError(
            f"local buffer {buffer.name!r} of {s.function!r} would take "
            f"{count * bits_of(buffer.dtype) // 8} bytes of stack; give it the scope 'global'"
        )
    return Memory(pointer, buffer.dtype, tuple(strides), 64)
