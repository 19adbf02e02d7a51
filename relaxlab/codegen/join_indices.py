"""Indices that take a flat index apart, `A[f // m, f % m]` where rows of `A` are m long, are put
together again: `A[0, f]`, the same element of a dense array. Fusing the loops over a whole array
makes such indices; this way they cost no division, and neighbours stay neighbours across rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import Buffer, BufferLoad, BufferStore, Stmt
from relaxlab.ir.node import Node, replace, rewrite


def join_indices(stmt: Stmt, sizes: Sequence[Var]) -> Stmt:
    """Apply to every access of a block-free statement over dense buffers; `sizes` are not negative.
    Only code that computes addresses from indices understands the result: `f` is not below the
    dimension's size."""
    an = Analyzer.for_shapes(*(v for v in sizes if v.dtype == "int64"))

    def joined(n: Node) -> Node | None:
        if not isinstance(n, BufferLoad | BufferStore):
            return None
        flat = _flat_index(n.buffer, n.indices, an)
        if flat is None:
            return None
        return replace(n, indices=(*[expr.const(0)] * (len(n.indices) - 1), flat))

    return rewrite(stmt, joined)


def _flat_index(buffer: Buffer, indices: tuple[PrimExpr, ...], an: Analyzer) -> PrimExpr | None:
    """The index that `indices` are the parts of; None if they are not."""
    if len(indices) < 2:
        return None
    whole = indices[0]
    for index, dim in zip(indices[1:], buffer.shape[1:], strict=True):
        match index:
            case expr.FloorMod(flat, size) if size == dim and an.prove_equal(whole, flat // dim):
                whole = flat
            case _:
                return None
    return whole
