"""Statements to LLVM IR, as one thread executes them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace

from relaxlab.codegen.check_messages import literal
from relaxlab.codegen.llvm.access import Memory, linear_index, store
from relaxlab.codegen.llvm.arithmetic import binary, index_vector
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
from relaxlab.ir import expr, loops
from relaxlab.ir.dtypes import bits_of
from relaxlab.ir.expr import Var
from relaxlab.ir.node import Node, rewrite, walk
from relaxlab.schedule.vector_loops import VECTORIZE

MAX_UNROLL = 4096
"""Most copies of a loop body: LLVM's time grows with the code."""


MOST_BLENDED = 64
"""Nodes of a statement at most whose lanes are all computed, on or off."""


@contextmanager
def located(s: Scope, stmt: loops.Stmt) -> Generator[None, None, None]:
    """Give instructions emitted inside the place of `stmt`, if it has one."""
    outer = s.builder.line, s.place
    if stmt.span is not None:
        s.builder.line, s.place = stmt.span.line, f" at {stmt.span}"
    yield
    s.builder.line, s.place = outer


def emit_stmt(s: Scope, stmt: loops.Stmt) -> None:
    """Emit a statement for one thread."""
    with located(s, stmt):
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
            serial_loop(s, stmt, start, extent, lambda body: emit_stmt(s, body))
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


def failure_text(s: Scope, stmt: loops.AssertStmt) -> tuple[str, tuple[str, str] | None]:
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
    s.fail_when(failed, *failure_text(s, stmt))
    good = b.label("ok")
    b.branch(failed, s.exit, good)
    b.place(good)
    s.exits = True


@contextmanager
def inside_loop(s: Scope, loop: loops.For) -> Generator[None, None, None]:
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


def serial_loop(
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
    with inside_loop(s, loop):
        if VECTORIZE not in loop.annotations or s.in_vector:
            counted_loop(s, loop.loop_var, start, high, lambda: emit_body(loop.body))
            return
        # LLVM makes vectors of a sum if it may change its order.
        reassociates = b.reassociates
        b.reassociates = b.target.reassociate
        counted_loop(s, loop.loop_var, start, high, lambda: emit_body(loop.body), VECTOR_LOOP)
        b.reassociates = reassociates


def counted_loop(
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
    # Whole vectors: the last one of a row, under a mask, is a register then. A masked load of what
    # a masked store wrote waits until that is in the cache: variances of 4000 rows of 20 took 122
    # us, now 28. One element at least: a buffer without any still has an address.
    lanes = s.builder.target.lanes(buffer.dtype)
    size = -(-count // lanes) * lanes if count > lanes else max(count, 1)
    pointer = s.builder.alloca(size, memory_type(buffer.dtype))
    return Memory(pointer, buffer.dtype, strides, 64, size, count)
