"""cache_inplace: a copy of what a block updates, made before it and copied back after it."""

from __future__ import annotations

from relaxlab.analysis.regions import point_region
from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    IterVar,
    PrimFunc,
    Range,
    Stmt,
    nest_over,
    seq,
)
from relaxlab.ir.names import fresh_name
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.cache import buffer_of, cache_buffer
from relaxlab.schedule.dependence import require_own_elements
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.ranges import (
    ZERO,
    Span,
    analyzer_at,
    binding_of,
    covers,
    loop_env,
    reached,
    union,
)
from relaxlab.schedule.regions import redirect, with_alloc
from relaxlab.schedule.scope import require_read_in_blocks
from relaxlab.schedule.tree import (
    BlockPlace,
    all_blocks,
    describe_block,
    find_block,
    find_loop,
    vars_in,
)

PRIMITIVE = "cache_inplace"


def cache_inplace(
    func: PrimFunc, name: str, read_index: int, scope: str
) -> tuple[PrimFunc, str, str]:
    """Let each instance of a block that updates a buffer do so in a new one of the given scope.

    What it reads is copied there before, what it writes is copied back after. Returns the function
    and the names of the two copying blocks.
    """
    place = find_block(func, name, PRIMITIVE)
    block, realize = place.block, place.realize
    buffer = buffer_of(block, "read", read_index, PRIMITIVE)
    reads = [r for r in block.reads if r.buffer is buffer]
    writes = [w for w in block.writes if w.buffer is buffer]
    if not writes:
        raise ScheduleError(
            PRIMITIVE, describe_block(block),
            f"the block reads and writes {buffer.name}; it only reads it",
            suggestion="cache_read", about=(buffer,),
        )  # fmt: skip
    require_read_in_blocks(PRIMITIVE, place)
    taken, made = _region(place, reads), _region(place, writes)
    an = analyzer_at(place)
    if not all(covers(t, m, an) for t, m in zip(taken, made, strict=True)):
        raise ScheduleError(
            PRIMITIVE, describe_block(block),
            f"the block reads all that it writes of {buffer.name}, so that what it leaves as it "
            "was can be copied back",
            about=(buffer,),
        )  # fmt: skip
    cache = cache_buffer(func, buffer, scope)
    names = {b.name for b in all_blocks(func)}
    first = fresh_name(cache.name, names.__contains__)
    second = fresh_name(cache.name, {*names, first}.__contains__)
    before = _copy(place, first, buffer, cache, taken)
    after = _copy(place, second, cache, buffer, made)
    func = place.replaced(seq(before, redirect(realize, buffer, cache), after))
    for loop in place.loops:
        # A copy may hold elements that are not written here, but by an iteration that runs at once.
        if loop.kind not in ("serial", "unrolled"):
            require_own_elements(PRIMITIVE, find_loop(func, loop.loop_var), ("global", "shared"))
    return with_alloc(func, place.scope.name, cache), first, second


def _region(place: BlockPlace, regions: list[BufferRegion]) -> tuple[Span, ...]:
    """The elements that one instance of the block touches."""
    an, values = analyzer_at(place), binding_of(place.realize)
    total: tuple[Span, ...] | None = None
    for region in regions:
        at = substitute(region, values)
        spans = tuple(
            Span(an.simplify(r.min), an.simplify(r.min + r.extent - 1)) for r in at.region
        )
        both = zip(total or spans, spans, strict=True)
        total = tuple(union(a, b, an) for a, b in both)
    assert total is not None
    return total


def _copy(
    place: BlockPlace, name: str, source: Buffer, dest: Buffer, spans: tuple[Span, ...]
) -> Stmt:
    """Loops over a region around a block that copies it, where the block at `place` runs."""
    an = analyzer_at(place)
    loop_vars = [Var(f"ax{d}") for d in range(len(spans))]
    axes = tuple(Var(f"v{d}") for d in range(len(spans)))
    values = tuple(an.simplify(s.lo) + v for s, v in zip(spans, loop_vars, strict=True))
    conditions: list[PrimExpr] = [place.realize.predicate]
    for s, value, dim in zip(spans, values, source.shape, strict=True):
        if not an.prove(expr.GE(s.lo, ZERO)):
            conditions.append(expr.GE(value, ZERO))
        if not an.prove(expr.LT(s.hi, dim)):
            conditions.append(expr.LT(value, dim))
    moving, env = {s.loop_var for s in place.outer_loops}, loop_env(place.outer_loops, an)
    domains = (
        reached(Span(ZERO, dim - 1), s, env, an)
        if vars_in(s.lo) & moving
        else Range(s.lo, s.extent(an))
        for s, dim in zip(spans, source.shape, strict=True)
    )
    block = Block(
        name,
        tuple(IterVar(v, dom, "spatial") for v, dom in zip(axes, domains, strict=True)),
        (point_region(source, axes),),
        (point_region(dest, axes),),
        BufferStore(dest, BufferLoad(source, axes), axes),
    )
    extents = [s.extent(an) for s in spans]
    return nest_over(loop_vars, extents, BlockRealize(values, expr.all_of(conditions), block))
