"""Indices that take a flat index apart, `A[f // m, f % m]` where rows of `A` are m long, are put
together again: `A[0, f]`, the same element of a dense array. Fusing loops over neighbouring
dimensions makes such indices; this way they cost no division, and neighbours stay neighbours across
rows.
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
        indices = _joined(n.buffer, n.indices, an)
        return None if indices == n.indices else replace(n, indices=indices)

    return rewrite(stmt, joined)


def _joined(
    buffer: Buffer, indices: tuple[PrimExpr, ...], an: Analyzer
) -> tuple[PrimExpr, ...]:
    """The indices with those that are the parts of one replaced by zeros and that one."""
    result = list(indices)
    for at in range(1, len(indices)):
        match indices[at]:
            case expr.FloorMod(flat, size) if (
                size == buffer.shape[at] and an.prove_equal(result[at - 1], flat // size)
            ):
                result[at - 1 : at + 1] = [expr.const(0), flat]
            case _:
                pass
    return tuple(result)
