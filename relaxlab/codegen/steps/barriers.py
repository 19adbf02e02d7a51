"""A step that puts barriers between statements of threads that share memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import cast

from relaxlab.ir import expr, loops
from relaxlab.ir.errors import kind_of
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import (
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
    While,
)
from relaxlab.ir.node import Node, map_children, walk
from relaxlab.ir.node import replace as replace_node
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.tree import bound_inside, vars_in


def barriers_between(func: PrimFunc, scope: str) -> PrimFunc:
    """The function with `tvm_storage_sync(scope)` in loops over threads, before statements that
    touch memory of a scope that other threads may have written, or may be about to read.

    Raises ValueError where that is inside of a condition that not all threads need to meet.
    """

    def visit(n: Node) -> Node:
        if isinstance(n, For) and (n.thread or "").startswith("threadIdx"):
            return _Threads(scope).kernel(n)
        return map_children(n, visit)

    body = cast("Stmt", visit(func.body))
    return func if body is func.body else replace_node(func, body=body)


@dataclass(frozen=True, slots=True)
class _Access:
    buffer: Buffer
    indices: tuple[PrimExpr, ...]
    writes: bool


@dataclass(slots=True)
class _Threads:
    """The threads of a block; `since` is what they may have touched since a barrier."""

    scope: str
    axes: list[Var] = field(default_factory=list[Var])
    since: list[_Access] = field(default_factory=list[_Access])
    different: set[Var] = field(default_factory=set[Var])

    def kernel(self, loop: For) -> For:
        """A loop over threads with barriers in it."""
        self.axes.append(loop.loop_var)
        self.different.add(loop.loop_var)
        body = self.stmt(loop.body)
        self.axes.pop()
        return loop if body is loop.body else replace_node(loop, body=body)

    def stmt(self, s: Stmt) -> Stmt:
        """A statement with the barriers that it needs in it, or before it."""
        match s:
            case For(thread=str(axis)) if axis.startswith("threadIdx"):
                return self.kernel(s)
            case SeqStmt(stmts):
                new = [self.stmt(part) for part in stmts]
                same = all(a is b for a, b in zip(new, stmts, strict=True))
                return s if same else loops.seq(*new)
            case LetStmt(var, value, body):
                if vars_in(value) & self.different or _reads(value):
                    self.different.add(var)
                return self.before(s, self.accesses([value]), body)
            case For(_, low, extent):
                return self.loop(s, self.accesses([low, extent]))
            case While(condition):
                return self.loop(s, self.accesses([condition]))
            case BlockRealize():
                block = replace_node(s.block, body=self.stmt(s.block.body))
                return s if block.body is s.block.body else replace_node(s, block=block)
            case IfThenElse():
                return self.branch(s)
            case Evaluate(expr.Call(op="tvm_storage_sync")):
                self.since = []
                return s
            case _:
                return self.before(s, self.accesses([s]))

    def accesses(self, parts: Iterable[Node]) -> list[_Access]:
        """The accesses of parts of a program to memory of the scope."""
        return [
            _Access(n.buffer, n.indices, isinstance(n, BufferStore))
            for part in parts
            for n in walk(part)
            if isinstance(n, BufferLoad | BufferStore) and n.buffer.scope == self.scope
        ]

    def before(self, s: Stmt, touched: list[_Access], body: Stmt | None = None) -> Stmt:
        """The statement behind a barrier if what it touches itself needs one; `body` follows."""
        barrier = self.conflict(touched)
        self.since = touched if barrier else self.since + touched
        new = self.stmt(body) if body is not None else None
        if new is not None and new is not body:
            assert isinstance(s, LetStmt)
            s = replace_node(s, body=new)
        return loops.seq(barrier_of(self.scope), s) if barrier else s

    def conflict(self, touched: list[_Access]) -> bool:
        """True if threads may meet in an element that they touched and that they touch now."""
        return any(
            a.buffer is b.buffer and (a.writes or b.writes) and not self.own(a, b)
            for a in self.since
            for b in touched
        )

    def own(self, a: _Access, b: _Access) -> bool:
        """True if two accesses are of one element, which no other thread touches so."""
        used = {v for i in a.indices for v in vars_in(i)}
        return a.indices == b.indices and used >= {*self.axes}

    def loop(self, s: For | While, asked: list[_Access]) -> Stmt:
        """A loop whose iterations follow each other."""
        if isinstance(s, For) and (vars_in(s.min) | vars_in(s.extent)) & self.different:
            return self.atomic(s)
        barrier = self.conflict(asked)
        self.since = asked if barrier else self.since + asked
        first = _Threads(self.scope, [*self.axes], [*self.since], {*self.different})
        first.stmt(s.body)
        # An iteration meets what the one before left open, in which the variables were others.
        changing = bound_inside(s.body) | ({s.loop_var} if isinstance(s, For) else set[Var]())
        before: dict[Var, PrimExpr] = {v: Var(v.name, v.dtype) for v in changing}
        self.since += [
            replace(a, indices=tuple(substitute(i, before) for i in a.indices))
            for a in first.since
        ]
        body = self.stmt(s.body)
        new = s if body is s.body else replace_node(s, body=body)
        return loops.seq(barrier_of(self.scope), new) if barrier else new

    def branch(self, s: IfThenElse) -> Stmt:
        condition = s.condition
        if vars_in(condition) & self.different or _reads(condition):
            return self.atomic(s)
        start = self.since
        then = self.stmt(s.then_case)
        after, self.since = self.since, start
        other = None if s.else_case is None else self.stmt(s.else_case)
        self.since = after + self.since
        return replace_node(s, then_case=then, else_case=other)

    def atomic(self, s: Stmt) -> Stmt:
        """A statement that not all threads run alike, so that no barrier can be in it."""
        inside = _Threads(self.scope, [*self.axes], [], {*self.different})
        body = s.body if isinstance(s, For) else s
        parts = [body] if isinstance(s, For) else _sides(s)
        for part in parts:
            if inside.stmt(part) is not part:
                inner = f"inside of {kind_of(s)} that not all run alike"
                raise ValueError(f"threads need a barrier of {self.scope!r} {inner}")
        return self.before(s, self.accesses([s]))


def barrier_of(scope: str) -> Stmt:
    """The statement at which threads wait for what all have done to memory of a scope."""
    return Evaluate(expr.Call("int32", "tvm_storage_sync", (expr.StringImm(scope),)))


def _sides(s: Stmt) -> list[Stmt]:
    assert isinstance(s, IfThenElse)
    return [s.then_case] if s.else_case is None else [s.then_case, s.else_case]


def _reads(e: PrimExpr) -> bool:
    return any(isinstance(n, BufferLoad) for n in walk(e))
