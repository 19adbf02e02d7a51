"""Shrink intermediate buffers to what is alive in one iteration of the loop around their uses.

A buffer of any scope but `global` that is filled and used within one iteration of a loop is
allocated inside that loop, over the region the iteration touches (the allocation of TVM's
PlanAndUpdateBufferAllocationLocation and CompactBufferAllocation). This is a lowering step: the
indices of the result mention loop variables inside blocks, so no primitive applies afterwards.
Global buffers stay where they are: they are planned with the rest of main memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product, takewhile

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    Range,
    Stmt,
    While,
)
from relaxlab.ir.node import Node, children, replace, walk
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.annotate import is_together
from relaxlab.schedule.exact_region import exact_region
from relaxlab.schedule.ranges import (
    ZERO,
    Env,
    Span,
    bind_stmt,
    binding_of,
    by_data,
    covers_inside,
    loop_env,
    shape_analyzer,
    span_of,
    union,
)
from relaxlab.schedule.regions import (
    addressed_buffers,
    rewrite_accesses,
    without_alloc,
)
from relaxlab.schedule.scope import shares
from relaxlab.schedule.tree import (
    TRUE,
    LoopPlace,
    Place,
    all_blocks,
    child_stmts,
    fresh_block_name,
    path_to,
    realizes_under,
    vars_in,
)

FEW = 64
"""Elements of which each may be written by a statement of its own: a variable of a hand-written
loop that stays in registers."""


@dataclass(frozen=True, slots=True)
class Access:
    """One access of a buffer: the statements around it and the first and last index touched."""

    path: tuple[Stmt, ...]
    bounds: tuple[Span, ...]
    write: bool
    order: int


def compact_buffers(func: PrimFunc) -> PrimFunc:
    """`func` with its private buffers allocated and sized per iteration."""
    lets: Env = {n.var: None for n in walk(func.body) if isinstance(n, (expr.Let, LetStmt))}
    # Whoever takes an address may reach all elements from it, as tile instructions do with a row
    # stride: such a buffer keeps its place and its shape.
    fixed = addressed_buffers(func.body)
    for block in [b for b in all_blocks(func) if realizes_under(b.body)]:
        for buffer in block.alloc_buffers:
            if buffer.scope != "global" and buffer not in fixed:
                func = _compact(func, buffer, lets)
    return func


def _compact(func: PrimFunc, buffer: Buffer, lets: Env) -> PrimFunc:
    found = accesses(func, buffer)
    if not found:
        return without_alloc(func, buffer)
    site, spans, an = _innermost_site(func, found, _owner_depth(func, buffer), buffer, lets)
    spans, an = _of_iteration(func, found, buffer, lets) or (spans, an)
    return _placed(func, buffer, found[0].path[: site + 1], _hull(spans, an), an)


def narrowed(func: PrimFunc, buffer: Buffer) -> PrimFunc:
    """`func` with a buffer only as large as what is touched in one iteration of the loops around
    all of its uses that run one iteration after another. It stays with the block that allocates it,
    around which there are no loops: each iteration overwrites what the one before has left."""
    found = accesses(func, buffer)
    if not found or buffer in addressed_buffers(func.body):
        return func
    owner, path = _owner_depth(func, buffer), common_path(found)
    at_once = (d for d, s in enumerate(path) if isinstance(s, For) and not _runs_in_turn(s))
    lets: Env = {n.var: None for n in walk(func.body) if isinstance(n, (expr.Let, LetStmt))}
    end = next(at_once, len(path))
    site, spans, an = _innermost_site(func, found, owner, buffer, lets, end)
    if site == owner:
        return func
    inside = {v for s in path[owner + 1 : site + 1] for v in _bound_by(s)}
    total = [
        Span(ZERO, dim - 1) if vars_in(span.extent(an)) & inside else span
        for span, dim in zip(_hull(spans, an), buffer.shape, strict=True)
    ]
    return _placed(func, buffer, path[: owner + 1], total, an)


def _runs_in_turn(loop: For) -> bool:
    """True if the iterations of a loop run one after another."""
    return loop.kind in ("serial", "unrolled") and not is_together(loop)


def _bound_by(s: Stmt) -> list[Var]:
    """The variables that a statement defines."""
    match s:
        case For(var) | LetStmt(var):
            return [var]
        case Block(_, iter_vars):
            return [iv.var for iv in iter_vars]
        case _:
            return []


def _owner_depth(func: PrimFunc, buffer: Buffer) -> int:
    """Return the depth of the block that allocates a buffer."""
    path = path_to(func.body, lambda s: isinstance(s, Block) and buffer in s.alloc_buffers)
    assert path is not None
    return len(path) - 1


def _of_iteration(
    func: PrimFunc, found: list[Access], buffer: Buffer, lets: Env
) -> tuple[list[tuple[Span, ...]], Analyzer] | None:
    """Return what each access of a shared buffer spans in one iteration of a loop inside of the
    threads of a block, the innermost whose iterations can use the same memory one after another,
    and an analyzer there; None without such a loop."""
    path = common_path(found)
    loops = [s for s in path if isinstance(s, For) and not is_together(s)]
    threads = [loop for loop in loops if _at_once(loop, buffer)]
    limit = min((_accumulation_depth(a) for a in found if a.write), default=len(path))
    for site in range(min(len(path), limit) - 1, path.index(threads[0]) if threads else limit, -1):
        loop = path[site]
        if not isinstance(loop, For) or _at_once(loop, buffer):
            continue
        an = shape_analyzer(func)
        for s in path[: site + 1]:
            bind_stmt(an, s)
        around = [thread for thread in threads if any(s is thread for s in path[: site + 1])]
        spans = [_spans(a, site, lets, buffer, an, around) for a in found]
        if _filled_first(found, spans, site, buffer.shape, an):
            return spans, an
    return None


def loops_around_uses(func: PrimFunc, buffer: Buffer) -> tuple[For, ...]:
    """Return the loops, outermost first, in each iteration of which everything that is read of a
    buffer of the root block was written before: those that could have a buffer each."""
    found = accesses(func, buffer)
    if not found or buffer in addressed_buffers(func.body):
        return ()
    lets: Env = {n.var: None for n in walk(func.body) if isinstance(n, (expr.Let, LetStmt))}
    site, _, _ = _innermost_site(func, found, 1, buffer, lets)
    return tuple(s for s in found[0].path[: site + 1] if isinstance(s, For))


def innermost_loop(func: PrimFunc, buffer: Buffer) -> For | None:
    """Return the innermost loop in each iteration of which everything that is read of a buffer was
    written before; None where it stays with the block that allocates it."""
    found = accesses(func, buffer)
    if not found or buffer in addressed_buffers(func.body):
        return None
    lets: Env = {n.var: None for n in walk(func.body) if isinstance(n, (expr.Let, LetStmt))}
    site, _, _ = _innermost_site(func, found, _owner_depth(func, buffer), buffer, lets)
    loop = found[0].path[site]
    return loop if isinstance(loop, For) else None


def _innermost_site(
    func: PrimFunc, found: list[Access], owner: int, buffer: Buffer, lets: Env,
    end: int | None = None,
) -> tuple[int, list[tuple[Span, ...]], Analyzer]:  # fmt: skip
    """Return the depth at which a buffer may be allocated, less than `end` if that is given, what
    each access then spans, and an analyzer there. `owner`: the depth of the block that allocates
    it."""
    # The innermost place that works is the smallest buffer.
    for site in (d for d in _sites(found, owner, buffer) if end is None or d < end):
        an = shape_analyzer(func)
        for s in found[0].path[: site + 1]:
            bind_stmt(an, s)
        spans = [_spans(a, site, lets, buffer, an) for a in found]
        if site == owner or _filled_first(found, spans, site, buffer.shape, an):
            return site, spans, an
    raise AssertionError("the owning block is always a site")


def accesses(func: PrimFunc, buffer: Buffer) -> list[Access]:
    """Return all accesses in program order, initialisations before the bodies they belong to."""
    found: list[Access] = []

    def scan(n: Node, path: tuple[Stmt, ...]) -> None:
        if isinstance(n, BufferLoad) and n.buffer is buffer:
            found.append(Access(path, tuple(_lanes(i) for i in n.indices), False, len(found)))
        for c in children(n):
            if not isinstance(c, Stmt):
                scan(c, path)

    def visit(s: Stmt, path: tuple[Stmt, ...]) -> None:
        path = (*path, s)
        if isinstance(s, Block):
            for m in s.match_buffers:
                if m.source.buffer is buffer:
                    found.extend(_matched(s, m.source, path, len(found)))
        else:
            scan(s, path)
        for c in child_stmts(s):
            visit(c, path)
        if isinstance(s, BufferStore) and s.buffer is buffer:
            found.append(Access(path, tuple(_lanes(i) for i in s.indices), True, len(found)))

    visit(func.body, ())
    return found


def _matched(
    block: Block, source: BufferRegion, path: tuple[Stmt, ...], order: int
) -> Iterator[Access]:
    """A matched region counts as read, written or both, as the block declares."""
    spans = tuple(Span(r.min, r.min + r.extent - 1) for r in source.region)
    if any(r.buffer is source.buffer for r in block.reads):
        yield Access(path, spans, False, order)
    if any(w.buffer is source.buffer for w in block.writes):
        yield Access(path, spans, True, order)


def _lanes(index: PrimExpr) -> Span:
    """The first and last element of a vector index; a scalar index is both."""
    match index:
        case expr.Ramp(base, stride, lanes):
            last = base + stride * expr.const(lanes - 1, base.dtype)
            negative = isinstance(stride, expr.IntImm) and stride.value < 0
            return Span(last, base) if negative else Span(base, last)
        case expr.Broadcast(value):
            return Span(value, value)
        case _:
            return Span(index, index)


def _sites(found: list[Access], owner: int, buffer: Buffer) -> Iterator[int]:
    """Depths at which the buffer may be allocated, the innermost first, the owning block last.

    Every access is below; an element that accumulates lives outside the loops it accumulates over.
    """
    path = common_path(found)
    common = len(path)
    limit = min((_accumulation_depth(a) for a in found if a.write), default=common)
    # The lanes of a vectorized loop run at once, like threads, and so do the copies of one that is
    # jammed: nothing can be allocated for one of them, nor in the loops within.
    together = [d for d, s in enumerate(path) if isinstance(s, For) and _at_once(s, buffer)]
    for depth in range(min(common, limit, *together) - 1, owner, -1):
        if isinstance(path[depth], For):
            yield depth
    yield owner


def common_path(found: list[Access]) -> tuple[Stmt, ...]:
    """Return the statements around all accesses, outermost first."""
    common = len(found[0].path)
    for a in found:
        pairs = zip(found[0].path[:common], a.path, strict=False)
        common = sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], pairs))
    return found[0].path[:common]


def _at_once(loop: For, buffer: Buffer) -> bool:
    """True if the iterations of a loop share a buffer that is allocated inside of it."""
    if is_together(loop):
        return True
    return shares(loop, buffer)  # a copy for each thread would be `local`


def _accumulation_depth(a: Access) -> int:
    """The depth of the outermost loop that a reduce axis around the access is bound to."""
    reduced: set[Var] = set()
    for s in a.path:
        if isinstance(s, BlockRealize):
            for iv, value in zip(s.block.iter_vars, s.iter_values, strict=True):
                if iv.kind != "spatial":
                    reduced |= vars_in(value)
    for depth, s in enumerate(a.path):
        if isinstance(s, For) and s.loop_var in reduced:
            return depth
        if isinstance(s, Block) and reduced & {iv.var for iv in s.iter_vars}:
            return depth
    return len(a.path)


def _spans(
    a: Access, site: int, lets: Env, buffer: Buffer, an: Analyzer, around: Sequence[For] = ()
) -> tuple[Span, ...]:
    """Return the region of an access while everything inside the site runs, in all iterations of
    the loops `around` it, axes replaced by their bindings."""
    below = a.path[site + 1 :]
    env = loop_env([*around, *(s for s in below if isinstance(s, For))], an, lets)
    result: list[Span] = []
    for bound, dim in zip(a.bounds, buffer.shape, strict=True):
        lo, hi = bound.lo, bound.hi
        for s in reversed(below):
            if isinstance(s, BlockRealize):
                lo, hi = substitute(lo, binding_of(s)), substitute(hi, binding_of(s))
        first, last = span_of(an.simplify(lo), env, an), span_of(an.simplify(hi), env, an)
        # Indices from data reach any element, whatever the bounds of the data's own index are.
        whole = by_data(lo) or by_data(hi) or first is None or last is None
        result.append(Span(ZERO, dim - 1) if whole else Span(first.lo, last.hi))  # type: ignore
    return tuple(result)


def _filled_first(
    found: list[Access],
    spans: list[tuple[Span, ...]],
    site: int,
    shape: tuple[PrimExpr, ...],
    an: Analyzer,
) -> bool:
    """True if each read loads values that earlier writes of the same iteration stored."""
    writers = [(a, exact_region(a.bounds, a.path[site + 1 :], an)) for a in found if a.write]
    for a, needed in zip(found, spans, strict=True):
        if a.write:
            continue
        # A value of an earlier iteration would be lost if each iteration had a buffer of its own.
        before = [
            made
            for w, made in writers
            if made is not None and w.order < a.order and _runs_before(w, a, an)
        ]
        if not any(
            all(covers_inside(x, y, dim, an) for x, y, dim in zip(made, needed, shape, strict=True))
            for made in before
        ) and not _cover_together(before, needed):
            return False
    return True


def _cover_together(regions: Sequence[tuple[Span, ...]], needed: tuple[Span, ...]) -> bool:
    """True if several regions have all of a needed one: few elements, as of a vector that is
    written component by component."""
    elements = _elements(needed)
    made = (found for region in regions if (found := _elements(region)) is not None)
    return elements is not None and elements <= {at for found in made for at in found}


def _elements(region: tuple[Span, ...]) -> set[tuple[int, ...]] | None:
    """The indices of a region of at most `FEW` elements; None where it is larger or unknown."""
    sides: list[range] = []
    for span in region:
        match span:
            case Span(expr.IntImm(first), expr.IntImm(last)):
                sides.append(range(first, last + 1))
            case _:
                return None
    return {*product(*sides)} if math.prod(map(len, sides)) <= FEW else None


def _runs_before(writer: Access, reader: Access, an: Analyzer) -> bool:
    """True if the write happens wherever the read does: no condition is around it alone, nor a
    plain loop that may be empty and that its elements do not depend on."""
    pairs = zip(writer.path, reader.path, strict=False)
    shared = next((n for n, (x, y) in enumerate(pairs) if x is not y), len(reader.path))
    # The reader may be in the other branch of the innermost statement that is around both.
    conditions = [s for s in writer.path[shared - 1 :] if isinstance(s, IfThenElse | While)]
    alone = writer.path[shared:]
    plain: Sequence[Stmt] = () if any(isinstance(s, BlockRealize) for s in alone) else alone
    indices = {v for span in writer.bounds for v in (*vars_in(span.lo), *vars_in(span.hi))}
    return not conditions and all(
        s.loop_var in indices or an.prove(expr.GE(s.extent, expr.const(1)))
        for s in plain
        if isinstance(s, For)
    )


def _placed(
    func: PrimFunc,
    buffer: Buffer,
    path: tuple[Stmt, ...],
    total: Sequence[Span],
    an: Analyzer,
) -> PrimFunc:
    """`func` with the buffer allocated at the end of `path`, over the region `total`."""
    starts: list[PrimExpr] = []
    shape: list[PrimExpr] = []
    for span, dim in zip(total, buffer.shape, strict=True):
        start, extent = _kept(span, dim, an)
        starts.append(start)
        shape.append(extent)
    site = path[-1]
    # Nothing would change; the same object tells passes that there is nothing left to do.
    if tuple(shape) == buffer.shape and isinstance(site, Block):
        return func
    new = replace(buffer, shape=tuple(shape), strides=())

    def index(indices: Sequence[PrimExpr]) -> tuple[PrimExpr, ...]:
        return tuple(_shifted(i, lo) for i, lo in zip(indices, starts, strict=True))

    def region(ranges: tuple[Range, ...]) -> tuple[Range, ...]:
        pairs = zip(ranges, starts, strict=True)
        return tuple(Range(_shifted(r.min, lo), r.extent) for r, lo in pairs)

    if isinstance(site, Block):
        with_new = replace(site, alloc_buffers=(*site.alloc_buffers, new))
        func = Place(func, path).replaced(with_new)
    func = without_alloc(func, buffer)
    func = replace(func, body=rewrite_accesses(func.body, buffer, new, index, region))
    return allocated_in_loop(func, site.loop_var, new) if isinstance(site, For) else func


def _hull(spans: list[tuple[Span, ...]], an: Analyzer) -> list[Span]:
    """The smallest region that holds all of some regions."""
    total = list(spans[0])
    for s in spans[1:]:
        total = [union(a, b, an) for a, b in zip(total, s, strict=True)]
    return total


def _kept(span: Span, dim: PrimExpr, an: Analyzer) -> tuple[PrimExpr, PrimExpr]:
    """Start and extent of a dimension: the span, as a constant if possible, or the whole."""
    extent = span.extent(an)
    if not isinstance(extent, expr.IntImm):
        _, upper = an.bounds_of(extent)
        if upper is not None:
            # A constant extent is taken even where it is larger than the span: only buffers of
            # constant size can be registers.
            extent = expr.const(upper)
    if an.prove(expr.LE(dim, extent)):
        is_fixed = isinstance(extent, expr.IntImm) and not isinstance(dim, expr.IntImm)
        return ZERO, extent if is_fixed else dim
    if isinstance(extent, expr.IntImm) or an.prove(expr.LE(extent, dim)):
        return an.simplify(span.lo), extent
    return ZERO, dim


def _shifted(index: PrimExpr, start: PrimExpr) -> PrimExpr:
    match index:
        case expr.Ramp(base):
            return replace(index, base=base - start)
        case expr.Broadcast(value):
            return replace(index, value=value - start)
        case _:
            return index - start


def allocated_in_loop(func: PrimFunc, var: Var, buffer: Buffer) -> PrimFunc:
    """`func` with `buffer` allocated by a block that is the body of the loop over `var` around what
    uses it. Versions of a kernel may have a loop over one variable each."""

    def is_around(s: Stmt) -> bool:
        return isinstance(s, For) and s.loop_var == var and any(map(uses, walk(s)))

    def uses(n: Node) -> bool:
        return isinstance(n, BufferLoad | BufferStore | BufferRegion) and n.buffer is buffer

    path = path_to(func.body, is_around)
    assert path is not None
    place = LoopPlace(func, path)
    body = place.loop.body
    if isinstance(body, BlockRealize) and not body.iter_values and not body.block.writes:
        block = body.block
        buffers = (*block.alloc_buffers, buffer)
        return Place(func, (*place.path, body, block)).replaced(
            replace(block, alloc_buffers=buffers)
        )
    name = fresh_block_name(func, f"{var.name}_body")
    wrapped = BlockRealize((), TRUE, Block(name, (), (), (), body, alloc_buffers=(buffer,)))
    return place.replaced(replace(place.loop, body=wrapped))
