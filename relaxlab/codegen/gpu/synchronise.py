"""Barriers between the accesses of different threads to the same memory.

Two accesses are by the same thread where, for every thread axis, the innermost loop bound to it is
the same loop: the iterations of a thread loop are independent. Every other read after a write, and
write after a read or write, waits for the block's threads. Barriers go as far out as possible, into
the sequence that holds both accesses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from dataclasses import replace as replace_access

from relaxlab.codegen.gpu.thread_loops import (
    SYNC,
    is_sync,
    is_thread_loop,
    reduces_across,
    thread_loops,
)
from relaxlab.ir.expr import Var, const
from relaxlab.ir.loops import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    While,
    seq,
)
from relaxlab.ir.node import Node, children, replace, walk

Threads = Mapping[str, object]
"""Per thread axis, the innermost loop bound to it (its variable, or a mark of another turn)."""


@dataclass(frozen=True, slots=True)
class _Access:
    """`place` is the block or statement: in another turn of a loop it writes other elements."""

    buffer: Buffer
    write: bool
    threads: Threads
    place: Node


def synchronise(nest: Stmt) -> Stmt:
    """The nest with barriers."""
    axes = {n.thread or "" for n in thread_loops(nest) if is_thread_loop(n)}
    written = {buffer for n in walk(nest) for buffer, write in _touched(n) if write}
    return _Synchroniser(axes, written).child(nest, {}, [])[0]


class _Synchroniser:
    """`axes` are the thread axes of the nest; `written` the buffers stored to somewhere in it:
    the others need no care."""

    def __init__(self, axes: set[str], written: set[Buffer]) -> None:
        self.axes, self.written = axes, written

    def child(
        self, s: Stmt, threads: Threads, pending: list[_Access]
    ) -> tuple[Stmt, list[_Access]]:
        """Return a statement, after a barrier if it needs one, and the accesses since the last
        barrier."""
        parts: list[Stmt] = []
        for part in s.stmts if isinstance(s, SeqStmt) else (s,):
            if self._conflict(pending, self._accesses(part, threads)):
                parts.append(SYNC)
                pending = []
            part, pending = self._inside(part, threads, pending)
            parts.append(part)
        new = seq(*parts)
        return (s if new == s else new), pending

    def _inside(
        self, s: Stmt, threads: Threads, pending: list[_Access]
    ) -> tuple[Stmt, list[_Access]]:
        """Barriers within one statement, none of whose accesses conflict with `pending`."""
        if is_sync(s):
            return s, []
        match s:
            case For() if is_thread_loop(s):
                body, after = self.child(s.body, {**threads, s.thread or "": s.loop_var}, pending)
                return replace(s, body=body), after
            case For(kind="serial" | "unrolled") | While():
                return self._repeated(s, threads, pending)
            case For(body=body):
                body, after = self.child(body, threads, pending)
                return replace(s, body=body), after
            case IfThenElse(_, then, other):
                then, after = self.child(then, threads, pending)
                if other is not None:
                    # Both branches start from the accesses before, and either may be the one that
                    # was taken.
                    other, also = self.child(other, threads, pending)
                    after = [*after, *also]
                else:
                    after = [*pending, *after]
                return replace(s, then_case=then, else_case=other), after
            case LetStmt(_, _, body):
                body, after = self.child(body, threads, pending)
                return replace(s, body=body), after
            case BlockRealize(_, _, block) if not _is_leaf(s):
                body, after = self.child(block.body, threads, pending)
                return replace(s, block=replace(block, body=body)), after
            case _:
                return s, [*pending, *self._accesses(s, threads)]

    def _repeated(
        self, s: For | While, threads: Threads, pending: list[_Access]
    ) -> tuple[Stmt, list[_Access]]:
        body, after = self.child(s.body, threads, pending)
        # Nothing follows the only iteration within the loop.
        if isinstance(s, For) and s.extent == const(1):
            return replace(s, body=body), after
        carried = [self._of_an_earlier_turn(a, threads) for a in after]
        # A second pass over the body, behind the accesses of the turn before: it places the
        # barriers that only a repetition needs.
        if self._conflict(carried, self._accesses(body, threads)):
            body, after = self.child(body, threads, carried)
        return replace(s, body=body), [*pending, *after]

    @staticmethod
    def _of_an_earlier_turn(a: _Access, outside: Threads) -> _Access:
        """Thread loops within the repeated statement start anew in the next turn."""
        # Its iterations are independent within one run of it, not of those of the run before.
        mine = {
            axis: v if outside.get(axis) is v else ("earlier", v) for axis, v in a.threads.items()
        }
        return replace_access(a, threads=mine)

    def _conflict(self, before: Iterable[_Access], after: list[_Access]) -> bool:
        return any(
            a.buffer is b.buffer
            and (a.write != b.write or (a.write and a.place is not b.place))
            and self._exchange(a.threads, b.threads)
            for a in before
            for b in after
        )

    def _exchange(self, a: Threads, b: Threads) -> bool:
        """True if the accesses may be by different threads."""
        return any(a.get(x) is None or a.get(x) != b.get(x) for x in self.axes)

    def _accesses(self, s: Node, threads: Threads, place: Node | None = None) -> list[_Access]:
        """Return all accesses of memory that threads share."""
        if isinstance(s, For) and is_thread_loop(s):
            return self._accesses(s.body, {**threads, s.thread or "": s.loop_var}, place)
        if place is None and (
            isinstance(s, BufferStore) or (isinstance(s, BlockRealize) and _is_leaf(s))
        ):
            place = s
        found: list[_Access] = []
        for buffer, write in _touched(s):
            # Registers belong to one thread, and what the nest only reads has no order.
            if buffer.scope != "local" and buffer in self.written:
                found.append(_Access(buffer, write, threads, place or s))
        for c in children(s):
            found += self._accesses(c, threads, place)
        if isinstance(s, BlockRealize) and reduces_across(s, _variables(threads)):
            # The result is of all threads along x: no single one of them is its writer, so every
            # read of it waits.
            alone = {k: v for k, v in threads.items() if k != "threadIdx.x"}
            found = [replace_access(a, threads=alone) if a.write else a for a in found]
        return found


def _touched(n: Node) -> Iterator[tuple[Buffer, bool]]:
    """The buffers that a node itself reads, and writes (True)."""
    match n:
        case BufferLoad(buffer):
            yield buffer, False
        case BufferStore(buffer):
            yield buffer, True
        case Block(match_buffers=views, body=body) if views:
            stored = {x.buffer for x in walk(body) if isinstance(x, BufferStore)}
            loaded = {x.buffer for x in walk(body) if isinstance(x, BufferLoad)}
            for view in views:
                if view.buffer in loaded:
                    yield view.source.buffer, False
                if view.buffer in stored:
                    yield view.source.buffer, True
        case _:
            pass


def _variables(threads: Threads) -> set[Var]:
    return {v for v in threads.values() if isinstance(v, Var)}


def _is_leaf(realize: BlockRealize) -> bool:
    return not any(isinstance(n, BlockRealize) for n in walk(realize.block.body))
