"""Rewriting buffer accesses, with the declared regions of blocks kept true."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir.expr import Call, Let, PrimExpr, Var, const
from relaxlab.ir.loops import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    For,
    LetStmt,
    MatchBufferRegion,
    PrimFunc,
    Range,
    Stmt,
)
from relaxlab.ir.node import Node, children, replace, rewrite, walk
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.ranges import Span, binding_of, loop_env, span_of
from relaxlab.schedule.tree import child_stmts, with_child

IndexFn = Callable[[Sequence[PrimExpr]], tuple[PrimExpr, ...]]
RegionFn = Callable[[tuple[Range, ...]], tuple[Range, ...]]


def refreshed(block: Block) -> Block:
    """`block` with its regions computed anew from its body.

    A reduction reads what it accumulates into only when its initialisation is elsewhere.
    """
    reads, writes = access_regions(block.body)
    own = set(block.alloc_buffers)
    if block.init is not None:
        own |= {w.buffer for w in writes}
    reads = tuple(r for r in reads if r.buffer not in own)
    writes = tuple(w for w in writes if w.buffer not in block.alloc_buffers)
    return replace(block, reads=reads, writes=writes)


Regions = tuple[BufferRegion, ...]
Found = dict[BufferRegion, None]


def access_regions(s: Stmt) -> tuple[Regions, Regions]:
    """What a statement reads and writes, each distinct place once; inner loops are relaxed."""
    reads: Found = {}
    writes: Found = {}
    _collect(s, {}, reads, writes)
    return _distinct(reads), _distinct(writes)


def _distinct(found: Found) -> Regions:
    keyed = {(r.buffer, tuple((x.min, x.extent) for x in r.region)): r for r in found}
    return tuple(keyed.values())


def _collect(n: Node, env: dict[Var, Span | None], reads: Found, writes: Found) -> None:
    match n:
        case For():
            env = env | loop_env([n], Analyzer(), env)
        case BlockRealize():
            binding = binding_of(n)
            for target, regions in ((reads, n.block.reads), (writes, n.block.writes)):
                for r in regions:
                    target[_relaxed(substitute(r, binding), env)] = None
            return
        case LetStmt(var) | Let(var):
            env = env | {var: None}
        case BufferLoad(buffer, indices):
            reads[_relaxed(point_region(buffer, indices), env)] = None
        case BufferStore(buffer, _, indices):
            writes[_relaxed(point_region(buffer, indices), env)] = None
        case _:
            pass
    for c in children(n):
        _collect(c, env, reads, writes)


def _relaxed(region: BufferRegion, env: dict[Var, Span | None]) -> BufferRegion:
    """The region while the loops of `env` run; whole where an index depends on data."""
    if not env and not any(isinstance(n, BufferLoad) for n in walk(region)):
        return region
    an = Analyzer()
    ranges: list[Range] = []
    for r, dim in zip(region.region, region.buffer.shape, strict=True):
        first, last = span_of(r.min, env, an), span_of(r.min + r.extent - 1, env, an)
        by_data = any(isinstance(n, BufferLoad) for n in walk(r))
        if by_data or first is None or last is None:
            ranges.append(Range(const(0), dim))
        else:
            ranges.append(Range(first.lo, an.simplify(last.hi - first.lo + 1)))
    return replace(region, region=tuple(ranges))


def mentions(block: Block, buffer: Buffer) -> bool:
    """Whether the block declares to touch the buffer."""
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


def redirect(root: Stmt, old: Buffer, new: Buffer) -> Stmt:
    """`root` with every access of `old` made to `new`, at the same indices."""
    return rewrite_accesses(root, old, new, tuple, tuple)


def full_region(buffer: Buffer) -> BufferRegion:
    """The whole of a buffer."""
    return BufferRegion(buffer, tuple(Range(const(0), d) for d in buffer.shape))


def point_region(buffer: Buffer, indices: Sequence[PrimExpr]) -> BufferRegion:
    """One element of a buffer."""
    return BufferRegion(buffer, tuple(Range(i, const(1)) for i in indices))


def without_alloc(func: PrimFunc, buffer: Buffer) -> PrimFunc:
    """`func` without the allocation of `buffer`."""

    def visit(n: Node) -> Node | None:
        if isinstance(n, Block) and any(a is buffer for a in n.alloc_buffers):
            kept = tuple(a for a in n.alloc_buffers if a is not buffer)
            return replace(n, alloc_buffers=kept)
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


def has_opaque_access(root: Stmt, buffer: Buffer) -> bool:
    """Whether something other than a plain load or store refers to the buffer."""
    for n in walk(root):
        if isinstance(n, MatchBufferRegion) and n.source.buffer is buffer:
            return True
        if isinstance(n, Call) and n.op == "address_of":
            target = n.args[0]
            if isinstance(target, BufferLoad) and target.buffer is buffer:
                return True
    return False
