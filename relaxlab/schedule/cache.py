"""cache_read, cache_write, set_scope: staging data in another buffer."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from functools import partial

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.regions import point_region
from relaxlab.ir import expr, loops
from relaxlab.ir.errors import expect
from relaxlab.ir.expr import Var
from relaxlab.ir.loops import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    For,
    IterVar,
    PrimFunc,
    Range,
    SeqStmt,
    Stmt,
    nest_over,
)
from relaxlab.ir.node import replace, walk
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.exact_region import exact_region
from relaxlab.schedule.instances import (
    require_all_written,
    require_body_unconditional,
    require_only_loops,
)
from relaxlab.schedule.ranges import (
    ONE,
    ZERO,
    Span,
    analyzer_around,
    analyzer_at,
    bind_stmt,
    binding_of,
    by_data,
    covers,
    instance_env,
    loop_env,
    relaxed_region,
    union,
)
from relaxlab.schedule.regions import rewrite_accesses, with_alloc
from relaxlab.schedule.scope import is_output, is_sole_writer
from relaxlab.schedule.tree import (
    BlockPlace,
    Place,
    child_stmts,
    describe_block,
    find_block,
    fresh_block_name,
    fresh_buffer_name,
    path_to,
    realizes_under,
    vars_in,
    with_child,
)


def buffer_of(block: Block, kind: str, index: int, primitive: str) -> Buffer:
    """The buffer of the block's read (`kind` "read") or write region number `index`."""
    regions = block.reads if kind == "read" else block.writes
    if index not in range(len(regions)):
        names = ", ".join(f"{i}: {r.buffer.name}" for i, r in enumerate(regions))
        raise ScheduleError(
            primitive, describe_block(block),
            f"the block has {kind} region number {index!r}; it has {names or 'none'}",
        )  # fmt: skip
    return regions[index].buffer


def written_intermediate(place: BlockPlace, index: int, primitive: str) -> Buffer:
    """The buffer of the block's write region number `index`. Raises ScheduleError for a
    parameter."""
    buffer = buffer_of(place.block, "write", index, primitive)
    if is_output(buffer, place.func):
        raise ScheduleError(
            primitive, describe_block(place.block),
            f"{buffer.name} is an intermediate buffer; it is a parameter",
            suggestion="cache_write makes an intermediate buffer", about=(buffer,),
        )  # fmt: skip
    return buffer


def require_extents_kept(
    readers: Iterable[BlockRealize], buffer: Buffer, primitive: str
) -> None:
    """Raise ScheduleError for an index function that says how far axes or predicates of blocks
    reach: what is known of that are its facts, which a copy would not have."""
    for r in readers if buffer.facts else ():
        said = (r.predicate, *(iv.dom for iv in r.block.iter_vars))
        if any(isinstance(n, BufferLoad) and n.buffer is buffer for e in said for n in walk(e)):
            raise ScheduleError(
                primitive, describe_block(r.block),
                f"no extent is an element of {buffer.name}, an index function, whose facts a copy "
                "would not have", about=(buffer,),
            )  # fmt: skip


def cache_read(
    func: PrimFunc, name: str, read_index: int, scope: str, consumers: Sequence[str] = ()
) -> tuple[PrimFunc, str]:
    """Copy a buffer that the block reads into a new one of the given scope, read from there.

    `consumers` names the blocks that read the copy; empty means all that read the buffer. The
    copy is made at the start of the block's scope, or after the block that produces the buffer.
    Returns the function and the name of the copying block.
    """
    place = find_block(func, name, "cache_read")
    buffer = buffer_of(place.block, "read", read_index, "cache_read")
    readers = [r for r in realizes_under(place.scope.body)
               if any(x.buffer is buffer for x in r.block.reads)]  # fmt: skip
    if consumers:
        for c in consumers:
            find_block(func, c, "cache_read")
        readers = [r for r in readers if r.block.name in consumers]
    require_extents_kept(readers, buffer, "cache_read")
    for r in readers:
        if any(w.buffer is buffer for w in r.block.writes):
            raise ScheduleError(
                "cache_read", describe_block(r.block),
                f"the block does not write {buffer.name} itself",
                suggestion="cache_write", about=(buffer,),
            )  # fmt: skip
    an = analyzer_around(place)
    regions = [(r, region) for r in readers for region in r.block.reads]
    spans = _touched_region(place, buffer, regions)
    spans = tuple(_clipped(s, dim, an) for s, dim in zip(spans, buffer.shape, strict=True))
    window = _window(func, buffer, scope, spans, an)
    copy = window.copy_nest(func, buffer, window.cache)
    names = {r.block.name for r in readers}
    _require_one_value(place, buffer, names)
    body = window.redirected(place.scope.body, names)
    body = insert(body, after_writers(body, buffer, place, names), copy)
    func = place.replaced(replace(place.scope, body=body), place.scope_depth)
    return with_alloc(func, place.scope.name, window.cache), copy_name(copy)


def _require_one_value(place: BlockPlace, buffer: Buffer, readers: set[str]) -> None:
    """Raise ScheduleError if a block changes the buffer after one of the readers and before
    another: the copy holds one value per element."""
    blocks = [r.block for r in realizes_under(place.scope.body)]
    at = [i for i, b in enumerate(blocks) if b.name in readers]
    for b in blocks[at[0] + 1 : at[-1]]:
        if any(w.buffer is buffer for w in b.writes):
            raise ScheduleError(
                "cache_read", describe_block(place.block),
                f"{buffer.name} stays the same between its readers; block {b.name!r} writes it",
                suggestion="name the readers before it, or after it, in consumer_blocks",
                about=(b.name,),
            )  # fmt: skip


def cache_write(
    func: PrimFunc, name: str, write_index: int, scope: str, consumers: Sequence[str] = ()
) -> tuple[PrimFunc, str]:
    """Let the block write into a new buffer of the given scope, copied to the old one after.

    `consumers` names blocks that read the new buffer instead of the old one. Returns the function
    and the name of the copying block.
    """
    place = find_block(func, name, "cache_write")
    block, scope_block = place.block, place.scope
    buffer = buffer_of(block, "write", write_index, "cache_write")
    if not is_sole_writer(block, scope_block):
        raise ScheduleError(
            "cache_write", describe_block(block), f"no other block writes {buffer.name}",
            suggestion="cache_write before decompose_reduction", about=(buffer,),
        )  # fmt: skip
    region = next(w for w in block.writes if w.buffer is buffer)
    spans = _touched_region(place, buffer, [(place.realize, region)])
    if not _is_dense(place, region, spans):
        _require_dense_write(place, region)
        require_all_written("cache_write", place)
    require_only_loops("cache_write", place)
    require_body_unconditional("cache_write", place)
    if block.init is None and any(r.buffer is buffer for r in block.reads):
        raise ScheduleError(
            "cache_write", describe_block(block),
            f"the block does not update {buffer.name} in place", about=(buffer,),
        )  # fmt: skip
    window = _window(func, buffer, scope, spans, analyzer_around(place))
    copy = window.copy_nest(func, window.cache, buffer)
    names = {name, *consumers}
    stmts, writer = statements(scope_block.body), position_of(place)
    reading = (
        i for i, s in enumerate(stmts) if i > writer
        for r in realizes_under(s) if r.block.name in consumers
    )  # fmt: skip
    index = next(reading, writer) + 1
    others = [
        i for i, s in enumerate(stmts) if i > writer
        for r in realizes_under(s) if r.block.name not in names and _reads(r.block, buffer)
    ]  # fmt: skip
    if others and others[0] < index:
        index = writer + 1
    for r in realizes_under(stmts[writer]):
        if r.block.name not in names and _reads(r.block, buffer):
            raise ScheduleError(
                "cache_write", describe_block(block),
                f"{buffer.name} is read only after the copy; block {r.block.name!r} reads it "
                "before",
                suggestion="name it in consumer_blocks, or cache_write before compute_at",
                about=(r.block.name,),
            )  # fmt: skip
    body = insert(window.redirected(scope_block.body, names), index, copy)
    func = place.replaced(replace(scope_block, body=body), place.scope_depth)
    return with_alloc(func, scope_block.name, window.cache), copy_name(copy)


def set_scope(func: PrimFunc, name: str, write_index: int, scope: str) -> PrimFunc:
    """Change where an intermediate buffer that the block writes lives."""
    place = find_block(func, name, "set_scope")
    buffer = written_intermediate(place, write_index, "set_scope")
    return substitute(func, buffers={buffer: replace(buffer, scope=scope)})


def copy_name(copy: Stmt) -> str:
    """The name of the block in a copy nest."""
    return realizes_under(copy)[0].block.name


def cache_buffer(func: PrimFunc, buffer: Buffer, scope: str) -> Buffer:
    """A buffer of the given scope for a copy of another."""
    expect(scope, str, "the scope of a copy is a name such as 'local' or 'shared'")
    name = fresh_buffer_name(func, f"{buffer.name}_{scope.replace('.', '_')}")
    return Buffer(name, buffer.shape, buffer.dtype, scope=scope)


def _touched_region(
    place: BlockPlace, buffer: Buffer, regions: Sequence[tuple[BlockRealize, BufferRegion]]
) -> tuple[Span, ...]:
    """Return the region of `buffer` that blocks of the scope touch in all their instances, given
    each with a region."""
    an = analyzer_around(place)
    total: tuple[Span, ...] | None = None
    for realize, region in regions:
        if region.buffer is not buffer:
            continue
        path = path_to(place.scope.body, partial(operator.is_, realize)) or ()
        env = loop_env((s for s in path if isinstance(s, For)), an)
        whole = relaxed_region(region, {}, instance_env(realize.block, an), an)
        run = relaxed_region(region, binding_of(realize), env, an)
        # In a block inside of another, the axes have fewer values than their ranges say.
        spans = tuple(r if covers(w, r, an) else w for w, r in zip(whole, run, strict=True))
        total = spans if total is None else tuple(
            union(a, b, an) for a, b in zip(total, spans, strict=True)
        )  # fmt: skip
    assert total is not None
    return total


def _clipped(span: Span, dim: expr.PrimExpr, an: Analyzer) -> Span:
    """The span within the buffer: guarded reads may reach beyond its edges.

    Inside a block, a span that moves with the block's axes is cut by the copy's predicate instead.
    """
    lo = span.lo if an.prove(expr.GE(span.lo, ZERO)) else ZERO
    # A bound that moves is not cut here: `min(hi, dim - 1)` would make the extents of the copy's
    # loops irregular.
    hi = span.hi if _moves(span, dim) or an.prove(expr.LT(span.hi, dim)) else dim - 1
    return Span(lo, hi)


def _moves(span: Span, dim: expr.PrimExpr) -> bool:
    """True if the start of a span depends on more than the dimension, as on axes of a block."""
    return bool(vars_in(span.lo) - vars_in(dim))


def _reads(block: Block, buffer: Buffer) -> bool:
    return any(r.buffer is buffer for r in block.reads)


def _is_dense(place: BlockPlace, region: BufferRegion, spans: Sequence[Span]) -> bool:
    """True if the loops around the block, which writes one element, provably take it through all of
    `spans`."""
    if any(r.extent != ONE for r in region.region):
        return False
    an = analyzer_at(place)
    each = [Span(r.min, r.min) for r in region.region]
    written = exact_region(each, (*place.loops, place.realize), an)
    if written is None:
        return False
    return all(covers(w, s, an) for w, s in zip(written, spans, strict=True))


def _require_dense_write(place: BlockPlace, region: BufferRegion) -> None:
    """Raise ScheduleError unless the block writes all of a region: the copy back does."""
    block, seen = place.block, set[Var]()
    axes = {iv.var for iv in block.iter_vars}
    has_tiles = any(_is_tile(r) for r in region.region) and _is_filled(place, region)
    for r in region.region:
        used = vars_in(r.min) & axes
        single = r.extent == ONE and _is_shifted_axis(r.min, axes)
        alone = len(used) == 1 and not used & seen
        seen |= used
        dense = not used or (alone and (single or (has_tiles and _is_tile(r))))
        if not dense or by_data(r):
            raise ScheduleError(
                "cache_write", describe_block(block),
                f"the block writes a whole region of {region.buffer.name}, one axis per dimension; "
                f"one dimension is at {r.min}",
            )  # fmt: skip


def _is_tile(r: Range) -> bool:
    """True if the places of a tile begin where those of the tile before end."""
    match r.min:
        case expr.Mul(Var(), expr.IntImm() as size):
            return r.extent == size
        case _:
            return False


def _is_filled(place: BlockPlace, region: BufferRegion) -> bool:
    """True if a block in the block writes each element of its region."""
    an = analyzer_at(place)
    bind_stmt(an, place.block)
    wanted = [Span(r.min, r.min + r.extent - 1) for r in region.region]
    for inner in realizes_under(place.block.body):
        path = path_to(place.block.body, lambda s, inner=inner: s is inner)
        made = (w for w in inner.block.writes if w.buffer is region.buffer)
        for w in made if path else ():
            spans = exact_region(
                [Span(r.min, r.min + r.extent - 1) for r in w.region], path or (), an
            )
            if spans and all(covers(x, y, an) for x, y in zip(spans, wanted, strict=True)):
                return True
    return False


def _is_shifted_axis(e: expr.PrimExpr, axes: set[Var]) -> bool:
    match e:
        case Var():
            return True
        case expr.Add(a, b) if vars_in(a) & axes:
            return _is_shifted_axis(a, axes) and not vars_in(b) & axes
        case expr.Add(_, b):
            return _is_shifted_axis(b, axes)
        case expr.Sub(a, b):
            return _is_shifted_axis(a, axes) and not vars_in(b) & axes
        case _:
            return False


@dataclass(frozen=True, slots=True)
class _Window:
    """A region of `buffer`, and a buffer for a copy of it. Index i of a dimension is `i - base` in
    the copy."""

    buffer: Buffer
    cache: Buffer
    spans: tuple[Span, ...]
    bases: tuple[expr.PrimExpr, ...]
    an: Analyzer

    def copy_nest(self, func: PrimFunc, src: Buffer, dst: Buffer) -> Stmt:
        """Loops over the region around a block that copies it."""
        loop_vars = [Var(f"ax{d}") for d in range(len(self.spans))]
        axes: list[IterVar] = []
        values: list[expr.PrimExpr] = []
        conditions: list[expr.PrimExpr] = []
        extents = [s.extent(self.an) for s in self.spans]
        for d, (s, extent) in enumerate(zip(self.spans, extents, strict=True)):
            count, dim = extent, self.buffer.shape[d]
            first = ZERO if s.lo == self.bases[d] else s.lo
            values.append(first + loop_vars[d])
            # A span that does not move needs no predicate: `cache_read` has clipped it to the
            # buffer, and what `cache_write` copies is what its block writes unconditionally.
            if _moves(s, dim) and not self.an.prove(expr.LT(s.hi, dim)):
                # The loops keep their regular extent; the axis ends with the buffer, and the
                # predicate skips what is beyond.
                count = expr.Min(extent, dim - s.lo)
                conditions.append(expr.LT(s.lo + loop_vars[d], dim))
            axes.append(IterVar(Var(f"v{d}"), Range(first, count), "spatial"))
        at: dict[Buffer, tuple[expr.PrimExpr, ...]] = {
            self.cache: tuple(iv.var for iv in axes),
            self.buffer: tuple(b + iv.var for b, iv in zip(self.bases, axes, strict=True)),
        }
        block = Block(
            fresh_block_name(func, f"{self.buffer.name}_{self.cache.scope}"),
            tuple(axes),
            (point_region(src, at[src]),),
            (point_region(dst, at[dst]),),
            BufferStore(dst, BufferLoad(src, at[src]), at[dst]),
        )
        realize = BlockRealize(tuple(values), expr.all_of(conditions), block)
        return nest_over(loop_vars, extents, realize)

    def redirected(self, s: Stmt, names: Set[str]) -> Stmt:
        """`s` with what the blocks of these names access in the copy."""
        if not isinstance(s, BlockRealize):
            return _map_children(s, lambda child: self.redirected(child, names))
        if s.block.name not in names:
            return s
        return rewrite_accesses(s, self.buffer, self.cache, self._indices, self._ranges)

    def _indices(self, indices: Sequence[expr.PrimExpr]) -> tuple[expr.PrimExpr, ...]:
        return tuple(
            i if base == ZERO else self.an.index_form(i - base)
            for i, base in zip(indices, self.bases, strict=True)
        )

    def _ranges(self, region: tuple[Range, ...]) -> tuple[Range, ...]:
        firsts = self._indices([r.min for r in region])
        return tuple(Range(lo, r.extent) for lo, r in zip(firsts, region, strict=True))


def _window(
    func: PrimFunc, buffer: Buffer, scope: str, spans: tuple[Span, ...], an: Analyzer
) -> _Window:
    """A window on a region, no larger than it where its extents are known outside of its scope."""
    bases: list[expr.PrimExpr] = []
    shape: list[expr.PrimExpr] = []
    for s, dim in zip(spans, buffer.shape, strict=True):
        extent = s.extent(an)
        fits = vars_in(extent) <= vars_in(dim)
        bases.append(s.lo if fits else ZERO)
        shape.append(extent if fits and an.prove_equal(extent, dim) is not True else dim)
    cache = replace(cache_buffer(func, buffer, scope), shape=tuple(shape))
    return _Window(buffer, cache, spans, tuple(bases), an)


def statements(body: Stmt) -> list[Stmt]:
    """The statements of a body, in order."""
    return list(body.stmts) if isinstance(body, SeqStmt) else [body]


def position_of(place: Place) -> int:
    """The number of the statement in its scope's body that a place is in."""
    stmts = statements(place.scope.body)
    return next(i for i, s in enumerate(stmts) if any(s is p for p in place.path))


def insert(body: Stmt, index: int, new: Stmt) -> Stmt:
    """The body with a statement before statement number `index`."""
    stmts = statements(body)
    return loops.seq(*stmts[:index], new, *stmts[index:])


def _map_children(s: Stmt, fn: Callable[[Stmt], Stmt]) -> Stmt:
    new = s
    for c in child_stmts(s):
        mapped = fn(c)
        if mapped is not c:
            new = with_child(new, c, mapped) or new
    return new


def after_writers(
    body: Stmt, buffer: Buffer, place: BlockPlace, readers: set[str], primitive: str = "cache_read"
) -> int:
    """The position in the scope's body before the readers of `buffer`, at its start where nothing
    writes the buffer before them. Raises ScheduleError where the readers are among the writers."""
    first, last = 0, len(statements(body))
    for i, s in enumerate(statements(body)):
        blocks = [r.block for r in realizes_under(s)]
        if any(w.buffer is buffer for b in blocks for w in b.writes) and i < last:
            first = i + 1
        if any(b.name in readers for b in blocks):
            last = min(last, i)
    if first > last:
        raise ScheduleError(
            primitive, describe_block(place.block),
            f"{buffer.name} is finished before the loops around its readers start",
            suggestion="cache_read before compute_at", about=(buffer,),
        )  # fmt: skip
    return last if first else 0
