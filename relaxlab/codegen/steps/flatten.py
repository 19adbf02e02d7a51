"""flatten_buffers: memory of one dimension."""

from __future__ import annotations

from math import prod

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import row_major
from relaxlab.ir.expr import PrimExpr, const
from relaxlab.ir.loops import Block, Buffer, BufferLoad, BufferStore, For, PrimFunc, Range
from relaxlab.ir.node import Node, map_children, replace
from relaxlab.schedule.ranges import shape_analyzer
from relaxlab.schedule.regions import refreshed
from relaxlab.schedule.tree import all_blocks


def flatten_buffers(func: PrimFunc) -> PrimFunc:
    """The function, without blocks, whose intermediate buffers have one dimension: elements lie at
    their row-major place. Parameters keep the shapes that callers pass."""
    blocks = all_blocks(func)
    for block in blocks:
        views = bool(block.match_buffers)
        if block.iter_vars or views or (block.name != "root" and not block.alloc_buffers):
            raise ValueError(
                f"block {block.name!r} says which regions it accesses: take the blocks away first, "
                "by LowerOpaqueBlock"
            )
    flat = {b: _flat(b) for block in blocks for b in block.alloc_buffers if b.ndim != 1}
    return _visited(func, flat, shape_analyzer(func)) if flat else func


def _flat(buffer: Buffer) -> Buffer:
    size = prod(buffer.shape, start=const(1))
    if buffer.strides:
        size = buffer.shape[0] * buffer.strides[0]
    return replace(buffer, shape=(size,), strides=())


def _place(buffer: Buffer, indices: tuple[PrimExpr, ...], an: Analyzer) -> PrimExpr:
    strides = buffer.strides or row_major.strides(buffer.shape)
    total: PrimExpr = const(0)
    for i, stride in zip(indices, strides, strict=True):
        total = total + i * stride
    return an.simplify(total)


def _visited(n: Node, flat: dict[Buffer, Buffer], an: Analyzer) -> PrimFunc:
    def visit(n: Node) -> Node:
        match n:
            case For(var, low, extent):
                with an.scope():
                    an.bind_range(var, Range(low, extent))
                    return map_children(n, visit)
            case Block(alloc_buffers=allocated):
                kept = tuple(flat.get(b, b) for b in allocated)
                new = map_children(replace(n, alloc_buffers=kept), visit)
                return refreshed(new) if n.reads or n.writes else new
            case BufferLoad() | BufferStore() if n.buffer in flat:
                new = map_children(n, visit)
                assert isinstance(new, BufferLoad | BufferStore)
                at = (_place(n.buffer, new.indices, an),)
                return replace(new, buffer=flat[n.buffer], indices=at)
            case _:
                return map_children(n, visit)

    return visit(n)  # type: ignore[return-value]
