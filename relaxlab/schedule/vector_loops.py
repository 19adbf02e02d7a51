"""Loops inside of a block that LLVM makes vectors of.

Rules schedule loops around blocks. Those inside of one, which could not be taken apart, stay as
they are written; LLVM's own vectoriser knows sums, conditions and places a few elements apart in
them. It sees the loops alone of which it is likely to make vectors.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from relaxlab.ir import expr
from relaxlab.ir.dtypes import is_float
from relaxlab.ir.expr import IntImm, PrimExpr, Var
from relaxlab.ir.loops import (
    Block,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    IfThenElse,
    LetStmt,
    Stmt,
    While,
)
from relaxlab.ir.node import Node, map_children, replace, walk
from relaxlab.ir.substitute import symbols_in
from relaxlab.schedule.own_elements import written
from relaxlab.schedule.ranges import by_data, distance
from relaxlab.schedule.rfactor import reduction_of

VECTORIZE = "vectorize"
"""The annotation of such a loop."""
FEWEST = 8
"""Iterations of a loop at least: of fewer, LLVM's vectors are mostly its scalar rest."""
FARTHEST = 4
"""Elements at most between what neighbouring iterations access: LLVM loads and shuffles them, as it
does those of two to four interleaved arrays."""

Access = BufferLoad | BufferStore


def with_vector_loops(body: Stmt, own: Collection[Buffer], keeps_order: bool) -> Stmt:
    """Return the body of a block with the loops marked that become vectors. `own`: the block's own
    buffers; `keeps_order`: sums of floats are made in the order of the loops."""

    def visit(n: Node) -> Node:
        if isinstance(n, For) and _fits(n, own, keeps_order):
            return replace(n, annotations={**n.annotations, VECTORIZE: True})
        return map_children(n, visit)

    made = visit(body)
    assert isinstance(made, Stmt)
    return made


def _fits(loop: For, own: Collection[Buffer], keeps_order: bool) -> bool:
    inside = list(walk(loop.body))
    if any(isinstance(n, For | While | LetStmt) for n in inside):
        return False
    if isinstance(loop.extent, IntImm) and loop.extent.value < FEWEST:
        return False
    accesses = [n for n in inside if isinstance(n, Access)]
    if not all(n.buffer in own or _goes_along(n, loop.loop_var) for n in accesses):
        return False
    if any(loop.loop_var in symbols_in(n.indices) for n in accesses if n.buffer in own):
        return False
    return all(_shares_sums_alone(loop, b, keeps_order) for b in written([loop.body]))


def _goes_along(n: Access, var: Var) -> bool:
    """True if iterations access one element, or some a few elements apart."""
    if any(map(by_data, n.indices)):
        return False
    outer, last = _in_rows(n)
    if var in symbols_in(outer):
        return False
    steps = (distance(last, var * step) for step in range(FARTHEST + 1))
    return any(var not in symbols_in(rest) for rest in steps)


def _in_rows(n: Access) -> tuple[tuple[PrimExpr, ...], PrimExpr]:
    """The indices of an access but the last, and that; a last dimension of a few elements, such as
    the colours of a pixel, is one with that before it."""
    *outer, last = n.indices or (expr.const(0),)
    size = n.buffer.shape[-1] if outer else None
    if isinstance(size, IntImm) and size.value <= FARTHEST and outer[-1].dtype == last.dtype:
        last = outer.pop() * size + last
    return tuple(outer), last


def interleaves(stmts: Sequence[Stmt]) -> bool:
    """True if statements store to elements next to each other, the same number of them in each
    iteration of a loop: red, green and blue of each pixel."""
    places: dict[Buffer, list[tuple[PrimExpr, ...]]] = {}
    for n in stmts:
        if not isinstance(n, BufferStore) or any(map(by_data, n.indices)):
            return False
        places.setdefault(n.buffer, []).append(n.indices)
    return any(1 < len(found) <= FARTHEST and _are_neighbours(found) for found in places.values())


def _are_neighbours(places: Sequence[tuple[PrimExpr, ...]]) -> bool:
    (*outer, last), *others = places
    distances = [distance(i[-1], last) for i in others if list(i[:-1]) == outer]
    found = {0, *(d.value for d in distances if isinstance(d, IntImm))}
    return len(found) == len(places) == max(found) - min(found) + 1


def _shares_sums_alone(loop: For, buffer: Buffer, keeps_order: bool) -> bool:
    """True if iterations share nothing of a buffer but a sum of terms that depend on no sum."""
    if _has_own_elements(loop, buffer) or _fills_first(loop.body, buffer):
        return True
    accesses = [n for n in walk(loop.body) if isinstance(n, Access) and n.buffer is buffer]
    stores = [n for n in accesses if isinstance(n, BufferStore)]
    found = reduction_of(Block("", (), (), (), stores[0])) if len(stores) == 1 else None
    if found is None or len(accesses) > 2:
        return False
    ordered = is_float(buffer.dtype) and keeps_order
    loaded = {n.buffer for n in walk(found.value) if isinstance(n, BufferLoad)}
    made = loaded & written([loop.body])
    alone = all(_has_own_elements(loop, b) or _fills_first(loop.body, b) for b in made)
    return alone and not ordered


def _has_own_elements(loop: For, buffer: Buffer) -> bool:
    """True if no two iterations access the same element of a buffer that one of them writes."""
    var = loop.loop_var
    accesses = [n for n in walk(loop.body) if isinstance(n, Access) and n.buffer is buffer]
    outer, last = _in_rows(accesses[0])
    if any(map(by_data, (*outer, last))):
        return False
    steps = range(1, FARTHEST + 1)
    step = next((s for s in steps if var not in symbols_in(distance(last, var * s))), 0)
    rows = [_in_rows(n) for n in accesses]
    distances = (distance(at, last) for _, at in rows)
    near = all(isinstance(d, IntImm) and abs(d.value) < step for d in distances)
    return near and all(row == outer for row, _ in rows)


def _fills_first(body: Stmt, buffer: Buffer) -> bool:
    """True if a statement stores to the one element of a buffer before it loads it, under no
    condition."""
    places = {n.indices for n in walk(body) if isinstance(n, Access) and n.buffer is buffer}
    if len(places) > 1:
        return False
    for n in walk(body):
        if isinstance(n, IfThenElse):
            return False
        if isinstance(n, BufferStore):
            loads = any(isinstance(x, BufferLoad) and x.buffer is buffer for x in walk(n))
            if loads or n.buffer is buffer:
                return not loads
    return False
