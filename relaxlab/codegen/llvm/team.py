"""Kernels as a team of threads runs them.

All threads of a team execute a kernel together. A parallel loop's iterations are divided into
contiguous chunks, everything outside parallel loops is done by thread 0, and the team meets at a
barrier after each. Results therefore do not depend on the number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from relaxlab.codegen.llvm.access import Memory
from relaxlab.codegen.llvm.arithmetic import binary
from relaxlab.codegen.llvm.balance import is_balanced, part_of_loop, work_of_loop
from relaxlab.codegen.llvm.builder import (
    Value,
    int_value,
)
from relaxlab.codegen.llvm.expressions import (
    Scope,
    emit_expr,
    require_scalar,
)
from relaxlab.codegen.llvm.statements import (
    counted_loop,
    declare_local,
    emit_stmt,
    failure_text,
    inside_loop,
    located,
    serial_loop,
)
from relaxlab.codegen.positive import is_positive
from relaxlab.codegen.prefetch import without_prefetches
from relaxlab.codegen.unfuse import unfuse
from relaxlab.ir import expr, loops
from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.expr import Var
from relaxlab.ir.node import walk
from relaxlab.schedule.streams import NON_TEMPORAL, streamed_bytes


@dataclass(slots=True)
class Team:
    """The thread's number and the team's size, as SSA names."""

    thread: str = "%thread"
    threads: str = "%threads"


def emit_team(s: Scope, team: Team, stmt: loops.Stmt) -> None:
    """Emit a statement that the whole team reaches."""
    with located(s, stmt):
        _emit_team(s, team, stmt)


def _emit_team(s: Scope, team: Team, stmt: loops.Stmt) -> None:
    match stmt:
        case loops.SeqStmt(stmts):
            for part in stmts:
                emit_team(s, team, part)
        case loops.For(kind="parallel"):
            with _team_section(s, team):
                _parallel(s, team, stmt)
        # A statement with a parallel loop inside is walked by all threads, which therefore must see
        # the same values of what surrounds the loop.
        case loops.LetStmt(var, value, body) if _has_parallel(body):
            s.values[var] = _uniform(s, team, value)
            emit_team(s, team, body)
        case loops.IfThenElse(cond, then_case, else_case) if _has_parallel(stmt):
            _uniform_if(s, team, cond, then_case, else_case)
        case loops.For(kind="serial" | "unrolled") if _has_parallel(stmt):
            start, extent = _uniform(s, team, stmt.min), _uniform(s, team, stmt.extent)
            serial_loop(s, stmt, start, extent, lambda body: emit_team(s, team, body))
        # One that reads memory is the first thread's work, whose private buffers no other one has.
        case loops.AssertStmt(cond) if not any(isinstance(n, loops.BufferLoad) for n in walk(stmt)):
            test = require_scalar(emit_expr(s, cond), "an assertion", s)
            failed = s.builder.emit(f"xor i1 {s.builder.materialise(test)}, true")
            number = s.fail_when(failed, *failure_text(s, stmt))
            _return_if(s, failed, str(number))
        case _:
            with _team_section(s, team):
                # Serial work: if every thread did it, they would store to the same elements.
                first = s.builder.emit(f"icmp eq i64 {team.thread}, 0")
                with s.builder.when(first):
                    emit_stmt(s, stmt)


@contextmanager
def _team_section(s: Scope, team: Team) -> Generator[None, None, None]:
    """A section that ends with a barrier of the team; if a thread failed in it, all threads return
    from the kernel."""
    s.exit, s.exits = s.builder.label("leave"), False
    yield
    if s.exits:
        s.builder.jump(s.exit)
        s.builder.place(s.exit)
    s.exit = ""
    barrier(s, team)
    if s.exits:
        code = failure(s, team)
        _return_if(s, s.builder.emit(f"icmp ne i64 {code}, 0"), code)


def failure(s: Scope, team: Team) -> str:
    """The number of a failure that happened in any thread, or 0, the same for the whole team."""
    # Monotonic is enough: barriers order it against the stores.
    code = s.builder.emit("load atomic i64, ptr %failed monotonic, align 8")
    barrier(s, team)  # before it, a faster thread could report the next failure
    return code


def _return_if(s: Scope, cond: str, code: str) -> None:
    b = s.builder
    bad, good = b.label("failed"), b.label("ok")
    b.branch(cond, bad, good)
    b.place(bad)
    b.raw(f"ret i64 {code}")
    b.place(good)


def _uniform(s: Scope, team: Team, e: expr.PrimExpr) -> Value:
    """Emit a value that is the same in every thread of the team. If it loads from memory, a barrier
    follows, so that no thread stores there before all have loaded."""
    value = emit_expr(s, e)
    if any(isinstance(n, loops.BufferLoad) for n in walk(e)):
        # An index vector is emitted when it is used; the load must be before the barrier.
        s.builder.materialise(value)
        barrier(s, team)
    return value


def _has_parallel(stmt: loops.Stmt) -> bool:
    return any(isinstance(n, loops.For) and n.kind == "parallel" for n in walk(stmt))


def barrier(s: Scope, team: Team) -> None:
    """Wait for the team; nothing to do for a team of one."""
    b = s.builder
    # Kernels that a thread runs alone come here with a team of one, and must not wait for the
    # others.
    several = b.emit(f"icmp ugt i64 {team.threads}, 1")
    with b.when(several):
        b.call("relaxlab_barrier", "void", [])


def _uniform_if(
    s: Scope, team: Team, cond: expr.PrimExpr, then: loops.Stmt, other: loops.Stmt | None
) -> None:
    b = s.builder
    test = require_scalar(_uniform(s, team, cond), "a condition around a parallel loop", s)
    yes, no, done = b.label("then"), b.label("else"), b.label("endif")
    b.branch(b.materialise(test), yes, no)
    b.place(yes)
    with _knowing(s, cond):
        emit_team(s, team, then)
    b.jump(done)
    b.place(no)
    if other is not None:
        emit_team(s, team, other)
    b.jump(done)
    b.place(done)


@contextmanager
def _knowing(s: Scope, cond: expr.PrimExpr) -> Generator[None, None, None]:
    """The version of a kernel for one value of a symbol, `if m == 1`: a column of an array of `m`
    columns then is one piece of memory."""
    outer = s.values, s.memory
    match cond:
        case expr.EQ(expr.Var() as var, expr.IntImm(value)):
            s.values = s.values | {var: int_value(value)}
            s.memory = {
                buffer: memory if memory.size else replace(memory, strides=dense_strides(s, buffer))
                for buffer, memory in s.memory.items()
            }
        case _:
            pass
    yield
    s.values, s.memory = outer


def dense_strides(s: Scope, buffer: loops.Buffer) -> tuple[Value, ...]:
    """Return the strides of a dense array, row by row, in elements."""
    strides: list[Value] = []
    total = int_value(1)
    for dim in reversed(buffer.shape):
        strides.insert(0, total)
        total = binary(s.builder, expr.Mul, total, emit_expr(s, dim))
    return tuple(strides)


def _parallel(s: Scope, team: Team, loop: loops.For) -> None:
    """This thread's contiguous share of the iterations."""
    if is_balanced(loop):
        _by_work(s, team, loop)
        return
    b = s.builder
    # All threads must agree on the bounds, or some would wait at a barrier that others never reach.
    start, extent = _uniform(s, team, loop.min), _uniform(s, team, loop.extent)
    if isinstance(extent.const, int) and extent.const <= 0:
        return
    # A negative extent is an empty loop; divided into shares it would be one that ends before it
    # starts.
    extent = replace(binary(b, expr.Max, extent, int_value(0)), index=True)
    thread = Value("int64", team.thread, nonneg=True, index=True)
    threads = Value("int64", team.threads, nonneg=True, index=True)
    after = binary(b, expr.Add, thread, int_value(1))
    # One contiguous share per thread: neighbours in memory stay with one core.
    low = binary(b, expr.FloorDiv, binary(b, expr.Mul, extent, thread), threads)
    high = binary(b, expr.FloorDiv, binary(b, expr.Mul, extent, after), threads)
    low, high = binary(b, expr.Add, start, low), binary(b, expr.Add, start, high)

    first, past = Var("first"), Var("past")

    def taken_apart(loop: loops.For) -> loops.Stmt | None:
        with inside_loop(s, loop):
            return unfuse(loop, first, past, lambda e: is_positive(e, s.positive, s.sizes))

    def share(loop: loops.For, nest: loops.Stmt | None) -> None:
        with inside_loop(s, loop):
            if nest is None:
                counted_loop(s, loop.loop_var, low, high, lambda: emit_stmt(s, loop.body))
                return
            s.values[first], s.values[past] = low, high
            emit_stmt(s, nest)

    nest = taken_apart(loop)
    names = loop.annotations.get(NON_TEMPORAL, ())
    streamed = [buffer for buffer in s.memory if buffer.name in names]
    if not streamed:
        share(loop, nest)
        return
    # Two copies of the loop: the size decides, which is known only now.
    large, small, done = b.label("large"), b.label("small"), b.label("done")
    b.branch(_may_stream(s, streamed), large, small)
    b.place(large)
    plain = {buffer: s.memory[buffer] for buffer in streamed}
    line = b.target.facts.cache_line
    s.memory |= {buffer: _streamed(memory, line) for buffer, memory in plain.items()}
    share(loop, nest)
    b.raw("fence seq_cst")  # such stores overtake others, and the barrier after the loop, too
    b.jump(done)
    s.memory |= plain
    b.place(small)
    plain_loop = without_prefetches(loop)
    share(plain_loop, nest if plain_loop is loop else taken_apart(plain_loop))
    b.jump(done)
    b.place(done)


def _by_work(s: Scope, team: Team, loop: loops.For) -> None:
    """This thread's contiguous share of the work."""
    b = s.builder
    work = loops.Buffer("work", (expr.const(1),), "int64", scope="local")
    s.memory[work] = declare_local(s, work)
    emit_stmt(s, work_of_loop(loop, work))
    total = emit_expr(s, loops.BufferLoad(work, (expr.const(0),)))
    low, high = Var("low"), Var("high")
    after = b.emit(f"add i64 {team.thread}, 1")
    for bound, thread in ((low, team.thread), (high, after)):
        part = b.emit(f"mul i64 {b.materialise(total)}, {thread}")
        s.values[bound] = Value("int64", b.emit(f"udiv i64 {part}, {team.threads}"), nonneg=True)
    with inside_loop(s, loop):
        emit_stmt(s, part_of_loop(loop, work, low, high))


def _may_stream(s: Scope, buffers: list[loops.Buffer]) -> str:
    """True if buffers are large, and all their rows begin with a cache line, as an i1."""
    b, all_ = s.builder, "true"
    facts = b.target.facts
    for buffer in buffers:
        memory, size = s.memory[buffer], bytes_of(buffer.dtype)
        count = emit_expr(s, math.prod(buffer.shape, start=expr.const(1)))
        # Smaller results are read from the caches soon after, for which non-temporal stores would
        # be up to ten times slower (NOTES, *Non-temporal stores*).
        large = b.emit(f"icmp uge i64 {b.materialise(count)}, {streamed_bytes(facts) // size}")
        places = b.emit(f"ptrtoint ptr {memory.pointer} to i64")
        for stride in memory.strides[:-1]:
            row = b.emit(f"mul i64 {b.materialise(stride)}, {size}")
            places = b.emit(f"or i64 {places}, {row}")
        aligned = b.emit(f"icmp eq i64 {b.emit(f'and i64 {places}, {facts.cache_line - 1}')}, 0")
        all_ = b.emit(f"and i1 {all_}, {b.emit(f'and i1 {large}, {aligned}')}")
    return all_


def _streamed(memory: Memory, line: int) -> Memory:
    """The memory as `_may_stream` found it, for cache lines of so many bytes."""
    unit = line // bytes_of(memory.dtype)
    strides = [replace(x, multiple=math.lcm(unit, x.multiple)) for x in memory.strides[:-1]]
    return replace(memory, strides=(*strides, memory.strides[-1]), align=line, streamed=True)
