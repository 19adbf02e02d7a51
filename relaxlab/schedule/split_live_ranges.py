"""One variable in several loops after each other becomes one for each of them.

Array renaming (Kennedy and Allen, *Optimizing Compilers for Modern Architectures*, section 5.4): a
loop function that sums rows in `s` and then columns in `s` uses two variables that share a name.
Told apart, each is private to the iterations of its own loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from relaxlab.ir.loops import (
    BlockRealize,
    Buffer,
    For,
    PrimFunc,
    SeqStmt,
    Stmt,
)
from relaxlab.ir.node import Node, map_children, replace, walk
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.compact import loops_around_uses
from relaxlab.schedule.own_elements import buffers_in


def split_live_ranges(
    func: PrimFunc, owned: Sequence[Buffer]
) -> tuple[PrimFunc, tuple[Buffer, ...]]:
    """Return the function with a buffer for each of the loops in a sequence that fill one of the
    owned buffers before they read it, in each of their iterations, and all owned buffers."""
    buffers = list(owned)
    for buffer in owned:
        sequences = [n for n in walk(func.body) if isinstance(n, SeqStmt)]
        found = next((s for s in sequences if _is_filled_by_each(func, s, buffer)), None)
        if found is None:
            continue
        parts = list(found.stmts)
        users = [i for i, part in enumerate(parts) if buffer in buffers_in(part)]
        for number, i in enumerate(users[1:], 2):
            buffers.append(replace(buffer, name=f"{buffer.name}_{number}"))
            parts[i] = substitute(parts[i], buffers={buffer: buffers[-1]})
        func = _with(func, found, SeqStmt(tuple(parts)))
    return _allocating(func, buffers), tuple(buffers)


def _is_filled_by_each(func: PrimFunc, sequence: SeqStmt, buffer: Buffer) -> bool:
    """True if several loops of the sequence use the buffer, and all that do fill it first."""
    users = [part for part in sequence.stmts if buffer in buffers_in(part)]
    return len(users) > 1 and all(
        isinstance(part, For)
        and any(loop is part for loop in loops_around_uses(_with(func, sequence, part), buffer))
        for part in users
    )


def _with(func: PrimFunc, old: Stmt, new: Stmt) -> PrimFunc:
    """The function with a statement in another one's place; all others are the same objects."""

    def visit(n: Node) -> Node:
        return new if n is old else map_children(n, visit)

    return replace(func, body=cast("Stmt", visit(func.body)))


def _allocating(func: PrimFunc, buffers: Sequence[Buffer]) -> PrimFunc:
    """The function with these buffers in its root block, if it has one."""
    root = func.body
    if not isinstance(root, BlockRealize):
        return func
    block = replace(root.block, alloc_buffers=tuple(buffers))
    return replace(func, body=replace(root, block=block))
