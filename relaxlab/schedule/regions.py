"""Rewriting buffer accesses, with the declared regions of blocks kept true."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import TypeVar

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.regions import access_regions
from relaxlab.ir.expr import Call, PrimExpr, Var
from relaxlab.ir.loops import (
    Block,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    PrimFunc,
    Range,
    Stmt,
)
from relaxlab.ir.node import Attrs, Node, replace, rewrite, walk
from relaxlab.schedule.tree import all_blocks, child_stmts, vars_in, with_child

S = TypeVar("S", bound=Node)
IndexFn = Callable[[Sequence[PrimExpr]], tuple[PrimExpr, ...]]
RegionFn = Callable[[tuple[Range, ...]], tuple[Range, ...]]


STATED = {"read": "explicit_read_region", "write": "explicit_write_region"}
"""The annotations of a block with the numbers of the regions that its author states
(`stated_regions.py`), by kind."""


def without_stated(annotations: Attrs) -> Attrs:
    """Annotations of a block for another one, whose regions its author did not state."""
    return annotations.with_(**dict.fromkeys(STATED.values()))


def refreshed(block: Block) -> Block:
    """Return `block` with its regions computed anew from its body, except for those that its author
    stated.

    A reduction reads the buffer it accumulates into only when its initialisation is elsewhere.
    """
    reads, writes = access_regions(block)
    new = replace(block, reads=reads, writes=writes)
    return _with_stated(_with_stated(new, block, "read"), block, "write")


def _with_stated(new: Block, old: Block, kind: str) -> Block:
    """`new` with the regions of a kind that `old` states; those made of axes that are gone are
    computed."""
    numbers: tuple[int, ...] = old.annotations.get(STATED[kind], ())
    if not numbers:
        return new
    before, after = (b.reads if kind == "read" else b.writes for b in (old, new))
    known = {iv.var for iv in new.iter_vars} | vars_in(new.body)
    stated = {before[i].buffer: before[i] for i in numbers if _is_made_of(before[i], known)}
    regions = tuple(stated.get(r.buffer, r) for r in after)
    kept = tuple(i for i, r in enumerate(regions) if r.buffer in stated)
    annotations = new.annotations.with_(**{STATED[kind]: kept or None})
    return replace(new, annotations=annotations, **{f"{kind}s": regions})


def _is_made_of(region: BufferRegion, known: Set[Var]) -> bool:
    """True if a region is made of these variables, and of the symbols of the buffer's shape."""
    symbols = {v for dim in region.buffer.shape for v in vars_in(dim)}
    return all(vars_in(e) <= known | symbols for r in region.region for e in (r.min, r.extent))


def mentions(block: Block, buffer: Buffer) -> bool:
    """True if the block declares to touch the buffer."""
    return any(r.buffer is buffer for r in (*block.reads, *block.writes))


def replace_loads(root: Stmt, buffer: Buffer, value: Callable[[BufferLoad], PrimExpr]) -> Stmt:
    """`root` with each load of `buffer` replaced, regions of the blocks refreshed."""

    def visit(n: Node) -> Node | None:
        match n:
            case BufferLoad() if n.buffer is buffer:
                return value(n)
            case Block() if mentions(n, buffer):
                return refreshed(n)
            case _:
                return None

    return rewrite(root, visit)


def rewrite_accesses(
    root: Stmt, old: Buffer, new: Buffer, index: IndexFn, region: RegionFn
) -> Stmt:
    """`root` with every access of `old` made to `new`, indices and regions mapped."""

    def visit(n: Node) -> Node | None:
        match n:
            case BufferLoad(b, indices) if b is old:
                return replace(n, buffer=new, indices=index(indices))
            case BufferStore(b, _, indices) if b is old:
                return replace(n, buffer=new, indices=index(indices))
            case BufferRegion(b, ranges) if b is old:
                return replace(n, buffer=new, region=region(ranges))
            case _:
                return None

    return rewrite(root, visit)


def simplified(root: S, an: Analyzer) -> S:
    """`root` with the indices of its accesses and regions simplified."""

    def visit(n: Node) -> Node | None:
        match n:
            case BufferLoad(_, indices) | BufferStore(_, _, indices):
                return replace(n, indices=tuple(an.simplify_index(i) for i in indices))
            case Range(lo, extent):
                return Range(an.simplify_index(lo), an.simplify(extent))
            case _:
                return None

    return rewrite(root, visit)


def redirect(root: Stmt, old: Buffer, new: Buffer) -> Stmt:
    """`root` with every access of `old` made to `new`, at the same indices."""
    return rewrite_accesses(root, old, new, tuple, lambda ranges: ranges)


def without_alloc(func: PrimFunc, buffer: Buffer) -> PrimFunc:
    """`func` without the allocation of `buffer`."""

    def visit(n: Node) -> Node | None:
        if isinstance(n, Block) and any(a is buffer for a in n.alloc_buffers):
            kept = tuple(a for a in n.alloc_buffers if a is not buffer)
            return replace(n, alloc_buffers=kept)
        return None

    return replace(func, body=_rewrite_stmts(func.body, visit))


def with_alloc_as(func: PrimFunc, old: Buffer, new: Buffer) -> PrimFunc:
    """`func` with `new` allocated in place of `old`."""

    def visit(n: Node) -> Node | None:
        if isinstance(n, Block) and any(a is old for a in n.alloc_buffers):
            return replace(n, alloc_buffers=tuple(new if a is old else a for a in n.alloc_buffers))
        return None

    return replace(func, body=_rewrite_stmts(func.body, visit))


def with_alloc(func: PrimFunc, site: str, buffer: Buffer) -> PrimFunc:
    """`func` with `buffer` allocated by the block called `site`."""

    def visit(n: Node) -> Node | None:
        if isinstance(n, Block) and n.name == site:
            return replace(n, alloc_buffers=(*n.alloc_buffers, buffer))
        return None

    return replace(func, body=_rewrite_stmts(func.body, visit))


def _rewrite_stmts(s: Stmt, fn: Callable[[Node], Node | None]) -> Stmt:
    new = s
    for c in child_stmts(s):
        mapped = _rewrite_stmts(c, fn)
        if mapped is not c:
            new = with_child(new, c, mapped) or new
    return fn(new) or new  # type: ignore[return-value]


def opaque_buffers(root: Stmt) -> set[Buffer]:
    """The buffers that something other than a plain load or store refers to."""
    matched = {m.source.buffer for b in all_blocks(root) for m in b.match_buffers}
    return matched | addressed_buffers(root)


def addressed_buffers(root: Stmt) -> set[Buffer]:
    """The buffers that the address of an element is taken of."""
    calls = (n.args[0] for n in walk(root) if isinstance(n, Call) and n.op == "address_of")
    return {target.buffer for target in calls if isinstance(target, BufferLoad)}
