"""A step that gives buffers the memory of others that nobody needs any more."""

from __future__ import annotations

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr
from relaxlab.ir.loops import (
    Block,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    PrimFunc,
    SeqStmt,
    Stmt,
)
from relaxlab.ir.node import Node, replace, rewrite, walk
from relaxlab.schedule.ranges import shape_analyzer
from relaxlab.schedule.regions import opaque_buffers, redirect


def storage_reused(func: PrimFunc) -> PrimFunc:
    """The function whose buffers are those that were last accessed before, where these have the
    scope and dtype, and the shape or, with one dimension, enough elements; buffers that nothing
    accesses are not allocated. A buffer whose address is taken keeps its memory for itself."""
    an = shape_analyzer(func)

    def visit(n: Node) -> Node | None:
        return _shared(n, an) if isinstance(n, Block) and n.alloc_buffers else None

    return rewrite(func, visit)


def _shared(block: Block, an: Analyzer) -> Block | None:
    """A block that allocates fewer buffers, None if it needs all of them."""
    body: Stmt = block.body
    parts = body.stmts if isinstance(body, SeqStmt) else (body,)
    uses = {
        b: [k for k, part in enumerate(parts) if _accesses(part, b)] for b in block.alloc_buffers
    }
    kept: dict[Buffer, int] = {}  # with the last statement that accesses their memory
    views = bool(block.init or block.match_buffers)
    fixed: set[Buffer] = {*uses} if views else opaque_buffers(body) & uses.keys()
    for buffer in sorted((b for b in uses if uses[b]), key=lambda b: uses[b][0]):
        first, last = uses[buffer][0], uses[buffer][-1]
        free = (
            other for other, end in kept.items()
            if end < first and not {buffer, other} & fixed and _has_room(other, buffer, an)
        )  # fmt: skip
        place = next(free, None)
        if place is not None:
            body = redirect(body, buffer, place)
        kept[place or buffer] = last
    kept.update(dict.fromkeys(fixed, len(parts)))
    if len(kept) == len(uses):
        return None
    allocated = tuple(b for b in block.alloc_buffers if b in kept)
    return replace(block, body=body, alloc_buffers=allocated)


def _accesses(s: Stmt, buffer: Buffer) -> bool:
    accesses = (n for n in walk(s) if isinstance(n, BufferLoad | BufferStore | BufferRegion))
    return any(n.buffer is buffer for n in accesses)


def _has_room(place: Buffer, buffer: Buffer, an: Analyzer) -> bool:
    """True if a buffer may lie where another one does."""
    alike = place.scope == buffer.scope and place.dtype == buffer.dtype
    plain = not any(b.strides or b.facts or b.elem_offset for b in (place, buffer))
    if not alike or not plain or place.ndim != buffer.ndim or place.align < buffer.align:
        return False
    if buffer.ndim == 1:
        return an.prove(expr.LE(buffer.shape[0], place.shape[0])) is True
    pairs = zip(buffer.shape, place.shape, strict=True)
    return all(an.prove_equal(a, b) is True for a, b in pairs)
