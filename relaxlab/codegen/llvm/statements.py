"""Statements to LLVM IR, run by a team of threads.

All threads of a team execute a kernel together. A parallel loop's iterations are divided into
contiguous chunks, everything outside parallel loops is done by thread 0, and the team meets at a
barrier after each. Results therefore do not depend on the number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from relaxlab.codegen.check_messages import literal
from relaxlab.codegen.llvm.access import Memory, linear_index, store
from relaxlab.codegen.llvm.arithmetic import binary, index_vector
from relaxlab.codegen.llvm.balance import is_balanced, part_of_loop, work_of_loop
from relaxlab.codegen.llvm.builder import (
    SCHEDULED_LOOP,
    VECTOR_LOOP,
    Value,
    int_value,
    memory_type,
)
from relaxlab.codegen.llvm.expressions import (
    CodegenError,
    Scope,
    any_lane,
    emit_expr,
    memory_of,
    require_scalar,
)
from relaxlab.codegen.positive import is_positive, is_size, positive_factors
from relaxlab.codegen.unfuse import unfuse
from relaxlab.ir import expr, loops
from relaxlab.ir.dtypes import bits_of, bytes_of
from relaxlab.ir.expr import Var
from relaxlab.ir.node import Node, rewrite, walk
from relaxlab.schedule.streams import NON_TEMPORAL, streamed_bytes
from relaxlab.schedule.vector_loops import VECTORIZE

MAX_UNROLL = 4096
"""Most copies of a loop body: LLVM's time grows with the code."""


MOST_BLENDED = 64
"""Nodes of a statement at most whose lanes are all computed, on or off."""


@dataclass(slots=True)
class Team:
    """The thread's number and the team's size, as SSA names."""

    thread: str = "%thread"
    threads: str = "%threads"


def emit_team(s: Scope, team: Team, stmt: loops.Stmt) -> None:
    """Emit a statement that the whole team reaches."""
    with _at(s, stmt):
        _emit_team(s, team, stmt)


@contextmanager
def _at(s: Scope, stmt: loops.Stmt) -> Generator[None, None, None]:
    """Give instructions emitted inside the place of `stmt`, if it has one."""
    outer = s.builder.line, s.place
    if stmt.span is not None:
        s.builder.line, s.place = stmt.span.line, f" at {stmt.span}"
    yield
    s.builder.line, s.place = outer


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
            _serial(s, stmt, start, extent, lambda body: emit_team(s, team, body))
        # One that reads memory is the first thread's work, whose private buffers no other one has.
        case loops.AssertStmt(cond) if not any(isinstance(n, loops.BufferLoad) for n in walk(stmt)):
            test = require_scalar(emit_expr(s, cond), "an assertion", s)
            failed = s.builder.emit(f"xor i1 {s.builder.materialise(test)}, true")
            number = s.fail_when(failed, *_failure_text(s, stmt))
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

    def share() -> None:
        with _inside(s, loop):
            first, past = Var("first"), Var("past")
            nest = unfuse(loop, first, past, lambda e: is_positive(e, s.positive, s.sizes))
            if nest is None:
                _counted(s, loop.loop_var, low, high, lambda: emit_stmt(s, loop.body))
                return
            s.values[first], s.values[past] = low, high
            emit_stmt(s, nest)

    names = loop.annotations.get(NON_TEMPORAL, ())
    streamed = [buffer for buffer in s.memory if buffer.name in names]
    if not streamed:
        share()
        return
    # Two copies of the loop: the size decides, which is known only now.
    large, small, done = b.label("large"), b.label("small"), b.label("done")
    b.branch(_may_stream(s, streamed), large, small)
    b.place(large)
    plain = {buffer: s.memory[buffer] for buffer in streamed}
    line = b.target.facts.cache_line
    s.memory |= {buffer: _streamed(memory, line) for buffer, memory in plain.items()}
    share()
    b.raw("fence seq_cst")  # such stores overtake others, and the barrier after the loop, too
    b.jump(done)
    s.memory |= plain
    b.place(small)
    share()
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
    with _inside(s, loop):
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


def emit_stmt(s: Scope, stmt: loops.Stmt) -> None:
    """Emit a statement for one thread."""
    with _at(s, stmt):
        _emit_stmt(s, stmt)


def _emit_stmt(s: Scope, stmt: loops.Stmt) -> None:
    b = s.builder
    match stmt:
        case loops.SeqStmt(stmts):
            for part in stmts:
                emit_stmt(s, part)
        case loops.BufferStore(buffer) if expr.const(0) in buffer.shape:
            pass  # never reached: there is no element to store into
        case loops.BufferStore(buffer, value, indices):
            memory = memory_of(s, buffer)
            stored = emit_expr(s, value)
            at = [emit_expr(s, i) for i in indices]
            if s.on_access is not None:
                s.on_access(s, buffer, at)
            index = linear_index(b, memory, at)
            _require_distinct(s, buffer, index, stored)
            store(b, memory, index, stored, s.mask)
        case loops.For(kind="vectorized"):
            _vectorized(s, stmt)
        case loops.For(kind="serial" | "unrolled" | "parallel"):
            start, extent = emit_expr(s, stmt.min), emit_expr(s, stmt.extent)
            if start.lanes > 1 or extent.lanes > 1:
                stmt, start, extent = _for_all_lanes(s, stmt, start, extent)
            _serial(s, stmt, start, extent, lambda body: emit_stmt(s, body))
        case loops.IfThenElse(cond, then_case, else_case):
            _if(s, cond, then_case, else_case)
        case loops.LetStmt(var, value, body):
            s.values[var] = emit_expr(s, value)
            emit_stmt(s, body)
        case loops.While(cond, body):
            _while(s, cond, body)
        case loops.Evaluate(value):
            emit_expr(s, value)
        case loops.AssertStmt(cond):
            _assert(s, emit_expr(s, cond), stmt)
        case loops.For(kind=kind):
            raise CodegenError(f"a {kind} loop cannot run on a CPU ({s.function!r})")
        case _:
            raise CodegenError(f"no LLVM row for {type(stmt).__name__} in {s.function!r}")


def _require_distinct(s: Scope, buffer: loops.Buffer, index: Value, value: Value) -> None:
    """Lanes that hold different values go to different elements."""
    places = index.offsets if index.lanes > 1 else (0,) * value.lanes
    same = value.lanes == 1 or (value.offsets is not None and len(set(value.offsets)) == 1)
    # Where lanes store to one element, the last one wins: the other terms of a sum would be lost
    # in silence.
    if not same and places is not None and len(set(places)) < value.lanes:
        raise CodegenError(
            f"{value.lanes} lanes of a vectorized loop store into one element of {buffer.name!r} "
            f"in {s.function!r}; give each lane its own (rfactor) or do not vectorize the loop"
        )


def _failure_text(s: Scope, stmt: loops.AssertStmt) -> tuple[str, tuple[str, str] | None]:
    """The text of a failed assertion, open for two numbers, and these."""
    text = f"assertion failed: {literal(stmt.message)}"
    if not stmt.values:
        return text, None
    for place in ("{got}", "{expected}")[: len(stmt.values)]:
        text = text.replace("{{}}", place, 1)
    values = [emit_expr(s, expr.Cast("int64", v)) for v in stmt.values]
    numbers = [s.builder.materialise(require_scalar(v, "a message", s)) for v in values]
    return text, (numbers[0], numbers[-1])


def _assert(s: Scope, test: Value, stmt: loops.AssertStmt) -> None:
    """End the thread's work where the condition fails (in any lane)."""
    b = s.builder
    wrong = binary(b, expr.EQ, test, int_value(0, "bool"))
    if s.mask is not None:
        wrong = binary(b, expr.And, wrong, s.mask)
    failed = any_lane(b, wrong)
    s.fail_when(failed, *_failure_text(s, stmt))
    good = b.label("ok")
    b.branch(failed, s.exit, good)
    b.place(good)
    s.exits = True


@contextmanager
def _inside(s: Scope, loop: loops.For) -> Generator[None, None, None]:
    """The body of a loop: if it runs, the extent is above zero."""
    outer = s.positive, s.sizes
    s.positive |= positive_factors(loop.extent)
    if is_positive(loop.min, s.positive, s.sizes):
        s.positive |= {loop.loop_var}
    if is_size(loop.min, s.positive, s.sizes):
        s.sizes |= {loop.loop_var}
    yield
    s.positive, s.sizes = outer


def _vectorized(s: Scope, loop: loops.For) -> None:
    extent = loop.extent
    if not isinstance(extent, expr.IntImm):
        raise CodegenError(
            f"vectorized loop {loop.loop_var.name!r} of {s.function!r} has extent {extent}; "
            "split it by a constant first"
        )
    if extent.value == 0:
        return
    start = require_scalar(emit_expr(s, loop.min), f"the start of {loop.loop_var.name!r}", s)
    if extent.value == 1 or s.in_vector:  # lanes have one direction: what is inside, repeats
        for i in range(extent.value):
            s.values[loop.loop_var] = binary(s.builder, expr.Add, start, int_value(i))
            emit_stmt(s, loop.body)
        return
    s.values[loop.loop_var] = index_vector(start, extent.value)
    s.in_vector = True
    emit_stmt(s, loop.body)
    s.in_vector = False


def _for_all_lanes(
    s: Scope, loop: loops.For, start: Value, extent: Value
) -> tuple[loops.For, Value, Value]:
    """A loop whose bounds differ from lane to lane, as one from the least start to the greatest end
    in which each lane is off outside of its own bounds; and that loop's start and extent."""
    b, var = s.builder, loop.loop_var
    first, past = Var("first"), Var("past")
    s.values[first], s.values[past] = start, binary(b, expr.Add, start, extent)
    low = emit_expr(s, expr.Call("int64", "vector_reduce_min", (first,)))
    high = emit_expr(s, expr.Call("int64", "vector_reduce_max", (past,)))
    body = loops.IfThenElse(expr.And(expr.LE(first, var), expr.LT(var, past)), loop.body, None)
    nest = replace(loop, kind="serial", min=first, extent=past - first, body=body)
    return nest, low, binary(b, expr.Sub, high, low)


def _serial(
    s: Scope,
    loop: loops.For,
    start: Value,
    extent: Value,
    emit_body: Callable[[loops.Stmt], None],
) -> None:
    b = s.builder
    what = f"a bound of the loop over {loop.loop_var.name!r}"
    start, extent = require_scalar(start, what, s), require_scalar(extent, what, s)
    count = extent.const
    if isinstance(count, int):
        if count <= 0:
            return  # what is proved of the body's indices there is anything
        unroll = loop.kind == "unrolled" and count <= MAX_UNROLL
        if count == 1 or unroll:
            for i in range(count):
                s.values[loop.loop_var] = binary(b, expr.Add, start, int_value(i))
                emit_body(loop.body)
            return
    high = binary(b, expr.Add, start, extent)
    with _inside(s, loop):
        if VECTORIZE not in loop.annotations or s.in_vector:
            _counted(s, loop.loop_var, start, high, lambda: emit_body(loop.body))
            return
        # LLVM makes vectors of a sum if it may change its order.
        reassociates = b.reassociates
        b.reassociates = b.target.reassociate
        _counted(s, loop.loop_var, start, high, lambda: emit_body(loop.body), VECTOR_LOOP)
        b.reassociates = reassociates


def _counted(
    s: Scope,
    var: expr.Var,
    low: Value,
    high: Value,
    emit_body: Callable[[], None],
    kind: str = SCHEDULED_LOOP,
) -> None:
    """for (var = low; var < high; ++var)"""
    b = s.builder
    begin, body, done = b.label("loop"), b.label("body"), b.label("done")
    lt, ht = b.materialise(low), b.materialise(high)
    previous = b.block
    b.jump(begin)
    b.place(begin)
    iv = b.name("i")
    phi_at = len(b.lines)
    # The place of the phi: it needs the label from which the body jumps back, known after the body.
    b.lines.append("")
    b.branch(b.emit(f"icmp slt i64 {iv}, {ht}"), body, done)
    b.place(body)
    s.values[var] = Value("int64", iv, nonneg=low.nonneg, index=True)
    emit_body()
    # `nsw` lets LLVM widen the counter and fold it into addresses.
    step = b.emit(f"add nsw i64 {iv}, 1")
    b.lines[phi_at] = f"  {iv} = phi i64 [ {lt}, %{previous} ], [ {step}, %{b.block} ]"
    b.jump_back(begin, kind)
    b.place(done)


def _while(s: Scope, cond: expr.PrimExpr, body: loops.Stmt) -> None:
    b = s.builder
    begin, inside, done = b.label("while"), b.label("body"), b.label("done")
    b.jump(begin)
    b.place(begin)
    test, outer = emit_expr(s, cond), s.mask
    if test.lanes > 1:  # until the condition fails for all lanes, each off where it does
        s.mask = test if outer is None else binary(b, expr.And, outer, test)
        b.branch(b.emit(f"icmp ne i{test.lanes} {_mask_bits(s, s.mask)}, 0"), inside, done)
    else:
        b.branch(b.materialise(test), inside, done)
    b.place(inside)
    emit_stmt(s, body)
    s.mask = outer
    b.jump(begin)
    b.place(done)


def _if(s: Scope, cond: expr.PrimExpr, then: loops.Stmt, other: loops.Stmt | None) -> None:
    b = s.builder
    if s.in_vector:
        cond, then, other = _with_common_loads(s, cond, then, other)
    test = emit_expr(s, cond)
    # Where the condition is known, as inside the version for one value of a symbol, so is the
    # branch.
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


def _with_common_loads(
    s: Scope, cond: expr.PrimExpr, then: loops.Stmt, other: loops.Stmt | None
) -> tuple[expr.PrimExpr, loops.Stmt, loops.Stmt | None]:
    """The parts of a conditional statement with variables for what its condition loads and a branch
    loads again: all lanes have it then, where a branch would load with a mask."""
    branches = [then] if other is None else [then, other]
    nodes = [n for branch in branches for n in walk(branch)]
    stored = {n.buffer for n in nodes if isinstance(n, loops.BufferStore)}
    again = {n for n in nodes if isinstance(n, loops.BufferLoad) and n.buffer not in stored}
    named = {load: Var("loaded", load.dtype) for load in _always_loaded(cond) if load in again}
    for load, var in named.items():
        s.values[var] = emit_expr(s, load)

    def visit(n: Node) -> Node | None:
        return named.get(n) if isinstance(n, loops.BufferLoad) else None

    new = other if other is None else rewrite(other, visit)
    return rewrite(cond, visit), rewrite(then, visit), new


def _always_loaded(e: expr.PrimExpr) -> Iterator[loops.BufferLoad]:
    """The loads that an expression makes whatever it finds."""
    match e:
        case loops.BufferLoad():
            yield e
        case expr.And(a, _) | expr.Or(a, _):
            yield from _always_loaded(a)
        case expr.BinaryOp(a, b):
            yield from _always_loaded(a)
            yield from _always_loaded(b)
        case expr.Cast(_, value) | expr.Not(value):
            yield from _always_loaded(value)
        case _:
            pass


def _masked_if(s: Scope, test: Value, then: loops.Stmt, other: loops.Stmt | None) -> None:
    """Full vectors take a version without masks; a vector with some lanes off is masked."""
    b, outer = s.builder, s.mask
    mask = test if outer is None else binary(b, expr.And, outer, test)
    # One test for the whole vector keeps masks, and the gathers that they may force, out of all but
    # the last vector of a row (NOTES, *Chains that memory bounds*).
    # Nested masks are not tested for being full: code would double at each level.
    if other is None and outer is None and not _is_blend(s, then):
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


def _is_blend(s: Scope, body: loops.Stmt) -> bool:
    """True if a statement is a few operations on private memory, which exists for all lanes: then
    to select what lanes keep takes less time than to ask whether all are off."""
    stmts = body.stmts if isinstance(body, loops.SeqStmt) else (body,)
    nodes = list(walk(body))
    used = (n.buffer for n in nodes if isinstance(n, loops.BufferLoad | loops.BufferStore))
    stores = all(isinstance(part, loops.BufferStore) for part in stmts)
    faults = any(isinstance(n, expr.Call | expr.FloorDiv | expr.FloorMod | expr.Mod) for n in nodes)
    private = all(s.memory[buffer].size for buffer in used)
    return stores and private and not faults and len(nodes) <= MOST_BLENDED


def _mask_bits(s: Scope, mask: Value) -> str:
    b = s.builder
    return b.emit(f"bitcast {mask.ty} {b.materialise(mask)} to i{mask.lanes}")


def _masked(s: Scope, mask: Value, body: loops.Stmt) -> None:
    """The body with lanes off; skipped when all are."""
    b, outer = s.builder, s.mask
    if _is_blend(s, body):
        s.mask = mask
        emit_stmt(s, body)
        s.mask = outer
        return
    # The body may load at indices that exist for no lane, or call functions.
    some = b.emit(f"icmp ne i{mask.lanes} {_mask_bits(s, mask)}, 0")
    with b.when(some):
        s.mask = mask
        emit_stmt(s, body)
        s.mask = outer


def local_strides(s: Scope, buffer: loops.Buffer) -> tuple[tuple[Value, ...], int]:
    """The strides of a private buffer and its number of elements. Raises CodegenError unless its
    size is constant and fits the stack."""
    count, strides = 1, list[Value]()
    for dim in reversed(buffer.shape):
        if not isinstance(dim, expr.IntImm):
            raise CodegenError(
                f"local buffer {buffer.name!r} of {s.function!r} has the size "
                f"{[str(d) for d in buffer.shape]}, which is not constant"
            )
        strides.insert(0, int_value(count))
        count *= dim.value
    if count * bits_of(buffer.dtype) // 8 > s.builder.target.facts.stack // 4:
        raise CodegenError(
            f"local buffer {buffer.name!r} of {s.function!r} would take "
            f"{count * bits_of(buffer.dtype) // 8} bytes of stack; give it the scope 'global'"
        )
    return tuple(strides), count


def declare_local(s: Scope, buffer: loops.Buffer) -> Memory:
    """Stack memory for a buffer of constant size, private to the thread."""
    strides, count = local_strides(s, buffer)
    # One element at least: a buffer without any still has an address.
    pointer = s.builder.alloca(max(count, 1), memory_type(buffer.dtype))
    return Memory(pointer, buffer.dtype, strides, 64, count)
