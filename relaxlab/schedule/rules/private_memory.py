"""A check that the private buffers of a scheduled kernel fit the memories that they are in."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from relaxlab.analysis.private_buffers import shared_private_buffer
from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.facts import Facts
from relaxlab.ir.loops import Block, Buffer, For, IfThenElse, PrimFunc, Stmt
from relaxlab.ir.names import among
from relaxlab.ir.node import Node, children, walk
from relaxlab.schedule.ranges import constant
from relaxlab.schedule.tensor_intrin import register_scope

SCOPES = ("local", "shared", "shared.dyn", "warp")
"""The storage scopes that every machine has a place for."""


def problem_of_private_buffers(func: PrimFunc, facts: Facts) -> str | None:
    """Return the reason why private buffers do not fit their memories; None if they do."""
    padding = _padding(func)
    sizes: dict[Buffer, int] = {}
    for buffer in (b for n in walk(func.body) if isinstance(n, Block) for b in n.alloc_buffers):
        if buffer.scope == "global":
            continue
        shape = [constant(d) for d in buffer.shape]
        if any(size is None for size in shape):
            return f"the size of {buffer.name} is not constant"
        for axis, more in padding.get(buffer, ()):
            shape[axis] = (shape[axis] or 0) + more
        sizes[buffer] = bytes_of(buffer.dtype) * math.prod(size or 0 for size in shape)
    totals = _totals(func.body, sizes)
    memories = [name for name, _ in facts.scratchpads]
    for scope, total in totals.items():
        if memories and total and scope not in (*memories, *SCOPES) and not register_scope(scope):
            return f"the machine has no memory `{scope}`; it has: {among(scope, memories)}"
        room = facts.room(scope)
        if room is not None and total > room:
            return f"its buffers in the memory `{scope}` would take {total} bytes, of {room}"
    shared = shared_private_buffer(func.body)
    return None if shared is None else f"{shared.name} would be used by more than one thread"


def _totals(n: Node, sizes: Mapping[Buffer, int], in_loop: bool = False) -> Counter[str]:
    """The bytes of the buffers that are allocated inside, by scope."""
    found: Counter[str] = Counter()
    if isinstance(n, Block):
        for b in n.alloc_buffers:
            found[b.scope] += sizes.get(b, 0)
    in_loop = in_loop or isinstance(n, For)
    inside = [_totals(c, sizes, in_loop) for c in children(n) if isinstance(c, Stmt | Block)]
    for more in inside:
        # Added up: nothing tells LLVM that two buffers are never in use at once.
        found.update(more)
    if isinstance(n, IfThenElse) and not in_loop:  # versions for a GPU are kernels of their own
        found["shared"] = max(more["shared"] for more in inside)
    return found


def _padding(func: PrimFunc) -> dict[Buffer, list[tuple[int, int]]]:
    """The axes of buffers that `storage_align` makes longer, and by how much at most."""
    found: dict[Buffer, list[tuple[int, int]]] = {}
    for block in (n for n in walk(func.body) if isinstance(n, Block)):
        asked: tuple[tuple[int, int, int, int], ...] = block.annotations.get("buffer_dim_align", ())
        for number, axis, factor, _ in asked:
            found.setdefault(block.writes[number].buffer, []).append((axis + 1, factor - 1))
    return found
