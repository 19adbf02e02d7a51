"""Vectors of lengths that LLVM keeps in registers.

A vector that fills several registers stays in them across a loop only where its length is a power
of two; 48 sums LLVM keeps as 48 scalars. So a loop of 48 lanes becomes one of 32 and one of 16.
What is left for less than a register stays one vector: LLVM widens it.
"""

from __future__ import annotations

from collections.abc import Iterator

from relaxlab.ir.expr import IntImm, const
from relaxlab.ir.loops import BufferLoad, BufferStore, For, Stmt, seq
from relaxlab.ir.node import Node, map_children, replace, walk
from relaxlab.ir.target import Target


def split_vectors(stmt: Stmt, target: Target) -> Stmt:
    """Apply to every vectorized loop of a block-free statement. Loops inside of one have no lanes
    of their own."""

    def visit(n: Node) -> Node:
        match n:
            case For(kind="vectorized", extent=IntImm(extent)):
                parts = [
                    replace(n, min=n.min + start, extent=const(lanes))
                    for start, lanes in _parts(extent, _register(n, target))
                ]
                return seq(*parts) if len(parts) > 1 else n
            case _:
                return map_children(n, visit)

    return visit(stmt)  # type: ignore[return-value]


def _register(loop: For, target: Target) -> int:
    """Return how many of the largest elements that a loop accesses fill a register."""
    accesses = (n for n in walk(loop) if isinstance(n, BufferLoad | BufferStore))
    return min((target.lanes(n.buffer.dtype) for n in accesses), default=1)


def _parts(extent: int, register: int) -> Iterator[tuple[int, int]]:
    """Yield the first lane and the number of lanes of each part, the largest first."""
    start = 0
    while extent - start > register:
        lanes = 1 << (extent - start).bit_length() - 1
        yield start, lanes
        start += lanes
    if start < extent:
        yield start, extent - start
