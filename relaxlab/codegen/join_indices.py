"""Indices that take a flat index apart, `A[f // m, f % m]` where rows of `A` are m long, are put
together again: `A[0, f]`, the same element of a dense array. Fusing loops over neighbouring
dimensions makes such indices; this way they cost no division, and neighbours stay neighbours across
rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr, Var, all_of
from relaxlab.ir.loops import Buffer, BufferLoad, BufferStore, For, Range, Stmt
from relaxlab.ir.node import Node, map_children, replace, walk


def join_indices(stmt: Stmt, sizes: Sequence[Var]) -> Stmt:
    """Apply to every access of a block-free statement over dense buffers; `sizes` are not negative.
    Only code that computes addresses from indices understands the result: `f` is not below the
    dimension's size."""
    an = Analyzer.for_shapes(*(v for v in sizes if v.dtype == "int64"))

    def joined(n: Node) -> Node:
        if isinstance(n, For):
            with an.scope():
                an.bind_range(n.loop_var, Range(n.min, n.extent))
                return map_children(n, joined)
        n = map_children(n, joined)
        if not isinstance(n, BufferLoad | BufferStore):
            return n
        # Most accesses divide nothing, and proofs are what this pass costs.
        if not any(map(_divisions, n.indices)):
            return n
        plain = _joined(n.buffer, n.indices, an)
        # An array that is accessed has elements: divisions by its dimensions are defined. Knowing
        # that takes divisions apart, too, after which parts may not fit: the better attempt counts.
        with an.assuming(all_of([expr.GE(dim, expr.const(1)) for dim in n.buffer.shape])):
            known = _joined(n.buffer, n.indices, an)
        indices = min(plain, known, key=lambda found: sum(map(_divisions, found)))
        return n if indices == n.indices else replace(n, indices=indices)

    return joined(stmt)  # type: ignore[return-value]


def _joined(
    buffer: Buffer, indices: tuple[PrimExpr, ...], an: Analyzer
) -> tuple[PrimExpr, ...]:
    """Return the indices with the quotients and remainders of one index replaced by zeros and that
    index."""
    result, end = list(indices), len(indices) - 1
    # From the last dimension on: the innermost index is the remainder that a flat index ends with.
    while end > 0:
        start, flat = _whole(result, buffer.shape, end, an)
        if start < end:
            result[start : end + 1] = [expr.const(0)] * (end - start) + [flat]
        end = start - 1
    return tuple(result)


def _whole(
    indices: Sequence[PrimExpr], shape: Sequence[PrimExpr], end: int, an: Analyzer
) -> tuple[int, PrimExpr]:
    """Return the first of the indices up to `end` that are quotients and remainders of one index,
    and that index; `end` if there are none. Dimensions of size 1 may stand between them. Each
    joined index saves at least two divisions: its quotient and the remainder of the next."""
    if not _divisions(indices[end]):
        return end, indices[end]
    found, flat, size = (end, indices[end]), indices[end], shape[end]
    before, joined = _divisions(flat), 0
    for start in range(end - 1, -1, -1):
        if (indices[start], shape[start]) == (expr.const(0), expr.const(1)):
            continue
        # Indices that data decides may be narrower than the others, and than sizes.
        if not _divisions(indices[start]) or {indices[start].dtype, flat.dtype} != {size.dtype}:
            break
        flat = an.simplify(indices[start] * size + flat)
        before += _divisions(indices[start])
        size = size * shape[start]
        joined += 1
        if before - _divisions(flat) >= 2 * joined:
            found = start, flat
    return found


def _divisions(e: PrimExpr) -> int:
    return sum(isinstance(n, expr.FloorDiv | expr.FloorMod) for n in walk(e))
