"""Elements that an iteration of a block updates again and again are private variables meanwhile.

Scalar replacement (Kennedy and Allen, *Optimizing Compilers for Modern Architectures*, section
8.3): `O[i, j] = O[i, j] + 1` in a loop over something else loads and stores one place of main
memory each time, and where it is under a condition, no later step may take it out of the loop.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr
from relaxlab.ir.expr import IntImm, PrimExpr, Var
from relaxlab.ir.loops import (
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    LetStmt,
    SeqStmt,
    Stmt,
    While,
    nest_over,
    seq,
)
from relaxlab.ir.node import walk
from relaxlab.ir.substitute import symbols_in
from relaxlab.schedule.ranges import ZERO, by_data
from relaxlab.schedule.regions import rewrite_accesses

MOST_ELEMENTS = 16
"""Elements of an array at most that become private: half of the vector registers, where each is
one."""

Access = BufferLoad | BufferStore


def with_private_elements(
    body: Stmt, buffers: Collection[Buffer], an: Analyzer
) -> tuple[Stmt, list[Buffer]]:
    """Return the body of a block, in which no iteration accesses elements of the buffers that
    another one writes, with private copies of the few elements that its loops update, and these.
    `an` knows what holds around the body."""
    made: list[Buffer] = []
    for buffer in buffers:
        inner = [n for n in walk(body) if isinstance(n, For | While)]
        repeated = [n for loop in inner for n in _accesses(loop, buffer)]
        free = _free_dimensions(body, buffer, an)
        if not repeated or free is None:
            continue
        own = Buffer(
            f"{buffer.name}_own", tuple(buffer.shape[d] for d in free) or (expr.const(1),),
            buffer.dtype, scope="local", span=buffer.span,
        )  # fmt: skip

        def place(indices: Sequence[PrimExpr], free: list[int] = free) -> tuple[PrimExpr, ...]:
            return tuple(indices[d] for d in free) or (ZERO,)

        first, *_ = _accesses(body, buffer)
        inside = rewrite_accesses(body, buffer, own, place, lambda region: region)
        before = () if _begins_with_fill(body, buffer, free) else (_copy(first, free, own, False),)
        body = seq(*before, inside, _copy(first, free, own, True))
        made.append(own)
    return body, made


def _accesses(s: Stmt, buffer: Buffer) -> list[Access]:
    return [n for n in walk(s) if isinstance(n, Access) and n.buffer is buffer]


def _free_dimensions(body: Stmt, buffer: Buffer, an: Analyzer) -> list[int] | None:
    """The dimensions in which the accesses of a buffer differ, all others having one index inside
    of the buffer throughout the body. None where their elements are many or chosen by data."""
    bound = {n.loop_var for n in walk(body) if isinstance(n, For)}
    bound |= {n.var for n in walk(body) if isinstance(n, LetStmt | expr.Let)}
    places = [n.indices for n in _accesses(body, buffer)]
    free: list[int] = []
    for d, (index, dim) in enumerate(zip(places[0], buffer.shape, strict=True)):
        if all(p[d] == index for p in places) and not _varies(index, bound):
            if not an.prove(expr.GE(index, ZERO)) or not an.prove(expr.LT(index, dim)):
                return None
        elif any(by_data(p[d]) for p in places) or not isinstance(dim, IntImm):
            return None
        else:
            free.append(d)
    sizes = (dim.value for d in free if isinstance(dim := buffer.shape[d], IntImm))
    return free if math.prod(sizes) <= MOST_ELEMENTS else None


def _varies(index: PrimExpr, bound: Collection[Var]) -> bool:
    return by_data(index) or not set(bound).isdisjoint(symbols_in(index))


def _begins_with_fill(body: Stmt, buffer: Buffer, free: Sequence[int]) -> bool:
    """True if a single element is stored to before anything else happens to it."""
    stmts = body.stmts if isinstance(body, SeqStmt) else (body,)
    first = next(s for s in stmts if _accesses(s, buffer))
    is_store = isinstance(first, BufferStore) and first.buffer is buffer
    return not free and is_store and len(_accesses(first, buffer)) == 1


def _copy(access: Access, free: Sequence[int], own: Buffer, back: bool) -> Stmt:
    """Loops that copy the elements to the private buffer, or back."""
    buffer, indices = access.buffer, list(access.indices)
    axes = [Var(f"e{d}") for d in free]
    for d, var in zip(free, axes, strict=True):
        indices[d] = var
    place = tuple(axes) or (ZERO,)
    moved: Stmt = BufferStore(own, BufferLoad(buffer, tuple(indices)), place)
    if back:
        moved = BufferStore(buffer, BufferLoad(own, place), tuple(indices))
    return nest_over(axes, [buffer.shape[d] for d in free], moved)
