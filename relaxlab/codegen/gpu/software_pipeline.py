"""Software pipelining: copies of later iterations under way while one is computed.

A loop annotated with `software_pipeline` = n copies slices of main memory into shared memory and
computes with them. What is the same in all iterations is copied once. The other shared buffers get
n slots, used in turns: the first n - 1 copies are issued before the loop, and each iteration
waits for its own, issues the one n - 1 iterations ahead, and computes. Copies of up to 16
neighbouring bytes are asynchronous (`cp.async`); the others, at edges, are made at once. One
barrier per iteration suffices: the slot that is written was read in the iteration before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from relaxlab.analysis.arith import Analyzer
from relaxlab.codegen.errors import CodegenError
from relaxlab.codegen.gpu.launch import ThreadAxis
from relaxlab.codegen.gpu.thread_loops import SYNC, is_sync
from relaxlab.codegen.gpu.vectors import vector_loop
from relaxlab.ir import expr
from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.errors import counted
from relaxlab.ir.expr import Call, IntImm, PrimExpr, StringImm, Var, const
from relaxlab.ir.facts import Facts
from relaxlab.ir.loops import (
    Buffer,
    BufferLoad,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    Range,
    SeqStmt,
    Stmt,
    seq,
)
from relaxlab.ir.node import Node, map_children, replace, walk
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.schedule.annotate import DOUBLE_BUFFER, PIPELINE

ASYNC_BYTES = (4, 8, 16)
"""Bytes that an instruction copies."""
COMMIT = Evaluate(Call("void", "cp_async_commit", ()))


def software_pipeline(
    body: Stmt,
    allocated: Sequence[Buffer],
    axes: Sequence[ThreadAxis],
    sizes: Sequence[Var],
    name: str,
    facts: Facts,
) -> tuple[Stmt, tuple[Buffer, ...]]:
    """Return the program of a thread with its annotated loops pipelined, and the allocations.

    Raises CodegenError for fewer than two stages, and for a loop that is not copies into shared
    memory and a computation.
    """
    if not any(isinstance(n, For) and PIPELINE in n.annotations for n in walk(body)):
        return body, tuple(allocated)
    an = Analyzer()
    for symbol in sizes:
        an.bind_shape(symbol)
    for axis in axes:
        an.bind_range(axis.var, Range(const(0), axis.extent))
    pass_ = _Pipeline(an, name, facts)
    body = pass_.visit(body, False)
    changed = pass_.staged | pass_.doubled
    return body, tuple(changed.get(b, b) for b in allocated)


@dataclass(slots=True)
class _Pipeline:
    """`staged` are the shared buffers with slots, `doubled` the private ones with two."""

    an: Analyzer
    name: str
    facts: Facts
    staged: dict[Buffer, Buffer] = field(default_factory=dict[Buffer, Buffer])
    doubled: dict[Buffer, Buffer] = field(default_factory=dict[Buffer, Buffer])

    def visit(self, s: Stmt, repeated: bool) -> Stmt:
        """`repeated`: the statement is inside of a loop."""
        match s:
            case For():
                with self.an.scope():
                    self.an.bind_range(s.loop_var, Range(s.min, s.extent))
                    if PIPELINE in s.annotations:
                        made = self.loop(s)
                        return seq(SYNC, made) if repeated else made
                    return replace(s, body=self.visit(s.body, True))
            case SeqStmt(stmts):
                return seq(*(self.visit(part, repeated) for part in stmts))
            case IfThenElse(condition, then, other):
                with self.an.assuming(condition):
                    then = self.visit(then, repeated)
                other = None if other is None else self.visit(other, repeated)
                return replace(s, then_case=then, else_case=other)
            case _:
                return s

    def loop(self, s: For) -> Stmt:
        count = int(s.annotations[PIPELINE])
        if count < 2:
            raise CodegenError(
                f"the pipelined loop {s.loop_var.name} of {self.name!r} has "
                f"{counted(count, 'stage')}; to copy ahead of what is computed takes 2 or more"
            )
        copies, compute = copies_of(s, self.name)
        if s.min != const(0):
            raise CodegenError(f"the pipelined loop {s.loop_var.name} of {self.name!r} starts at 0")
        same = [c for c in copies if s.loop_var not in symbols_in(c)]
        moving = [c for c in copies if c not in same]
        for buffer in {n.buffer for c in moving for n in walk(c) if isinstance(n, BufferStore)}:
            self.staged[buffer] = replace(buffer, shape=(const(count), *buffer.shape), strides=())
        asked = seq(*(self.asynchronous(c) for c in moving))
        ahead = count - 1
        before: list[Stmt] = [self.asynchronous(c) for c in same]
        for n in range(ahead):
            before += [self.ask(asked, s, const(n)), COMMIT]
        wait = Evaluate(Call("void", "cp_async_wait", (const(ahead - 1),)))
        ask = seq(self.ask(asked, s, s.loop_var + ahead), COMMIT)
        inner = _double_buffered(compute)
        if inner is None:
            body = seq(wait, SYNC, ask, self.in_slot(compute, s.loop_var % count))
        else:
            first, body = self.overlapped(s, inner, seq(wait, SYNC), ask)
            before += [wait, SYNC, first]
        annotations = s.annotations.with_(**{PIPELINE: None})
        return seq(*before, replace(s, body=body, annotations=annotations))

    def overlapped(self, s: For, inner: For, wait: Stmt, ask: Stmt) -> tuple[Stmt, Stmt]:
        """The loads before the loop over slices, and its body: in the last step of a slice, the
        next one is waited for and its first values are loaded."""
        count = int(s.annotations[PIPELINE])
        loads, rest = self.loads(inner)
        assert isinstance(inner.extent, IntImm)
        steps = inner.extent.value
        if steps % 2:
            raise CodegenError(
                f"the loop {inner.loop_var.name} of {self.name!r} has {steps} iterations; those "
                "that use two buffers in turns are of an even number"
            )
        for stmt in loads:
            for buffer in {n.buffer for n in walk(stmt) if isinstance(n, BufferLoad | BufferStore)}:
                if buffer.scope == "local":
                    shape = (const(2), *buffer.shape)
                    self.doubled[buffer] = replace(buffer, shape=shape, strides=())

        def load(step: int, number: PrimExpr) -> Stmt:
            stmt = substitute(seq(*loads), {inner.loop_var: const(step)})
            slot = self.an.simplify(number % count)
            return self.in_slot(self.in_slot(stmt, slot), const(step % 2), self.doubled)

        parts: list[Stmt] = []
        following = s.loop_var + 1
        for step in range(steps):
            if step < steps - 1:
                parts.append(load(step + 1, s.loop_var))
            else:
                parts += [wait, IfThenElse(expr.LT(following, s.extent), load(0, following))]
            parts += [ask] if step == 0 else []
            stmt = substitute(seq(*rest), {inner.loop_var: const(step)})
            parts.append(self.in_slot(stmt, const(step % 2), self.doubled))
        return load(0, const(0)), seq(*parts)

    def loads(self, inner: For) -> tuple[list[Stmt], list[Stmt]]:
        """The loads from shared memory at the beginning of an iteration, and the rest."""
        stmts = [*inner.body.stmts] if isinstance(inner.body, SeqStmt) else [inner.body]

        def reads(stmt: Stmt) -> bool:
            found = (n for n in walk(stmt) if isinstance(n, BufferLoad))
            return any(n.buffer in self.staged for n in found)

        last = max((i for i, stmt in enumerate(stmts) if reads(stmt)), default=-1)
        return stmts[: last + 1], stmts[last + 1 :]

    def ask(self, asked: Stmt, s: For, number: PrimExpr) -> Stmt:
        """The copies of iteration `number`, where there is one."""
        count = int(s.annotations[PIPELINE])
        at = substitute(asked, {s.loop_var: number})
        at = self.in_slot(at, self.an.simplify(number % count))
        inside = expr.LT(number, s.extent)
        return at if self.an.prove(inside) else IfThenElse(inside, at)

    def in_slot(
        self, s: Stmt, slot: PrimExpr, buffers: Mapping[Buffer, Buffer] | None = None
    ) -> Stmt:
        """The statement on one of the slots of `buffers`, by default of the staged ones."""
        return in_slot(s, slot, self.staged if buffers is None else buffers)

    def asynchronous(self, s: Stmt) -> Stmt:
        """The statement with its vectorized loops as asynchronous copies, where they are such."""
        match s:
            case For(kind="vectorized"):
                return self.copied(s)
            case For():
                with self.an.scope():
                    self.an.bind_range(s.loop_var, Range(s.min, s.extent))
                    return replace(s, body=self.asynchronous(s.body))
            case SeqStmt(stmts):
                return seq(*map(self.asynchronous, stmts))
            case IfThenElse(condition, then, None):
                with self.an.assuming(condition):
                    return replace(s, then_case=self.asynchronous(then))
            case _:
                return s

    def copied(self, s: For) -> Stmt:
        with self.an.scope():
            self.an.bind_range(s.loop_var, Range(s.min, s.extent))
            found = vector_loop(s, self.an, self.facts)
        if found is None or not found.wide_store or not isinstance(s.extent, IntImm):
            return s
        store, size = found.store, s.extent.value * bytes_of(found.store.buffer.dtype)
        load = store.value
        if not isinstance(load, BufferLoad) or load not in found.loads or size not in ASYNC_BYTES:
            return s
        first = {s.loop_var: s.min}
        to = substitute(BufferLoad(store.buffer, store.indices), first)
        source = substitute(load, first)
        handles = (Call("handle", "address_of", (to,)), Call("handle", "address_of", (source,)))
        copy = Evaluate(Call("void", "cp_async", (*handles, const(size))), span=s.span)
        if found.full == IntImm(1, "bool"):
            return copy
        return IfThenElse(found.full, copy, None if found.agree else s)


def copies_of(s: For, name: str) -> tuple[list[Stmt], Stmt]:
    """The copies of an iteration of a pipelined loop, and the rest. Raises CodegenError for a loop
    that is not both."""
    stmts = s.body.stmts if isinstance(s.body, SeqStmt) else (s.body,)
    copies: list[Stmt] = []
    compute: list[Stmt] = []
    comments: list[Stmt] = []
    for part in stmts:
        if isinstance(part, Evaluate) and isinstance(part.value, StringImm):
            comments.append(part)
        elif not is_sync(part):
            (copies if _copies(part) else compute).extend([*comments, part])
            comments = []
    stored = {n.buffer for c in compute for n in walk(c) if isinstance(n, BufferStore)}
    copied = {n.buffer for c in copies for n in walk(c) if isinstance(n, BufferLoad)}
    if not copies or not compute or stored & copied or any(b.scope == "shared" for b in stored):
        raise CodegenError(
            f"the pipelined loop {s.loop_var.name} of {name!r} is not copies into shared "
            "memory and a computation that stores to no shared memory and to nothing copied"
        )
    return copies, seq(*compute)


def in_slot(s: Stmt, slot: PrimExpr, buffers: Mapping[Buffer, Buffer]) -> Stmt:
    """The statement on a slot of the buffers that have several."""

    def visit(n: Node) -> Node:
        new = map_children(n, visit)
        if isinstance(new, BufferLoad | BufferStore) and new.buffer in buffers:
            return replace(new, buffer=buffers[new.buffer], indices=(slot, *new.indices))
        return new

    return visit(s)  # type: ignore[return-value]


def _double_buffered(s: Stmt) -> For | None:
    """The loop that a computation consists of, if its values are to be loaded ahead."""
    stmts = s.stmts if isinstance(s, SeqStmt) else (s,)
    code = [p for p in stmts if not (isinstance(p, Evaluate) and isinstance(p.value, StringImm))]
    match code:
        case [For(extent=IntImm()) as loop] if loop.annotations.get(DOUBLE_BUFFER):
            return loop
        case _:
            return None


def _copies(s: Stmt) -> bool:
    """True if a statement stores to shared memory, from main memory."""
    stores = [n for n in walk(s) if isinstance(n, BufferStore)]
    loads = [n for n in walk(s) if isinstance(n, BufferLoad)]
    return (
        bool(stores)
        and all(n.buffer.scope == "shared" for n in stores)
        and all(n.buffer.scope == "global" for n in loads)
    )
