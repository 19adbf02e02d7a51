"""Private buffers that do not stay within one thread's work.

A buffer that is not in main memory belongs to the thread that uses it. A team of threads divides
each parallel loop and leaves everything outside to its first thread, so a value that one of these
pieces of work writes into a private buffer is not there for another.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

from relaxlab.ir import loops
from relaxlab.ir.loops import Block, BlockRealize, Buffer, For, IfThenElse, LetStmt, SeqStmt, Stmt
from relaxlab.ir.node import Node, walk

Who: TypeAlias = Literal["divided", "first", "all"]


def shared_private_buffer(stmt: Stmt) -> Buffer | None:
    """A private buffer used by more than one piece of work, unless the first thread does them
    all; None if there is no such buffer."""
    blocks = (n for n in walk(stmt) if isinstance(n, Block))
    buffers = {b for block in blocks for b in block.alloc_buffers if b.scope != "global"}
    if not buffers or not _divides(stmt):
        return None
    uses: dict[Buffer, list[Who]] = {}
    for who, part in _work(stmt):
        for buffer in buffers & _buffers_in(part):
            uses.setdefault(buffer, []).append(who)
    for buffer, users in uses.items():
        if "all" in users or ("divided" in users and len(users) > 1):
            return buffer
    return None


def _divides(n: Node) -> bool:
    return any(isinstance(x, For) and x.kind == "parallel" for x in walk(n))


def _buffers_in(n: Node) -> set[Buffer]:
    found: set[Buffer] = set()
    for x in walk(n):
        match x:
            case loops.BufferLoad(buffer) | loops.BufferStore(buffer):
                found.add(buffer)
            case loops.MatchBufferRegion(_, source):
                found.add(source.buffer)
            case _:
                pass
    return found


def _by_all(*values: Node) -> Iterator[tuple[Who, Node]]:
    for value in values:
        yield "all", value


def _work(stmt: Stmt) -> Iterator[tuple[Who, Node]]:
    """The pieces of work, and who does each."""
    if isinstance(stmt, For) and stmt.kind == "parallel":
        yield from _by_all(stmt.min, stmt.extent)
        yield "divided", stmt.body
        return
    if not _divides(stmt):
        yield "first", stmt
        return
    match stmt:
        case SeqStmt(stmts):
            for part in stmts:
                yield from _work(part)
        case For(_, low, extent, _, body):
            yield from _by_all(low, extent)
            yield from _work(body)
        case LetStmt(_, value, body):
            yield "all", value
            yield from _work(body)
        case IfThenElse(condition, then_case, else_case):
            yield "all", condition
            yield from _work(then_case)
            if else_case is not None:
                yield from _work(else_case)
        case BlockRealize(values, predicate, block):
            yield from _by_all(*values, predicate)
            if block.init is not None:
                yield "first", block.init
            yield from _work(block.body)
        case _:
            yield "first", stmt
