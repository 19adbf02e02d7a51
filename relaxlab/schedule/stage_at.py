"""read_at and write_at: the part of a buffer that one iteration of a loop touches, copied as a
whole by one block."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

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
    IterVar,
    PrimFunc,
    Range,
    Stmt,
    nest_over,
    seq,
)
from relaxlab.ir.node import Attrs, replace
from relaxlab.schedule.cache import (
    buffer_of,
    cache_buffer,
    insert,
    require_extents_kept,
    statements,
)
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.exact_region import region_written
from relaxlab.schedule.ranges import (
    ZERO,
    Span,
    analyzer_in,
    loop_env,
    span_of,
    spans_under,
    union,
)
from relaxlab.schedule.regions import redirect, with_alloc
from relaxlab.schedule.scope import axes_bound_to, require_filled_for_init
from relaxlab.schedule.tree import (
    TRUE,
    LoopPlace,
    describe_block,
    describe_loop,
    find_block,
    find_loop,
    fresh_block_name,
    realizes_under,
    vars_in,
)


def read_at(
    func: PrimFunc, var: Var, name: str, read_index: int, scope: str
) -> tuple[PrimFunc, str]:
    """Copy what one iteration of a loop reads of a buffer, when the iteration begins; the blocks
    under the loop read the copy. Returns the function and the name of the copying block."""
    place, target = find_block(func, name, "read_at"), find_loop(func, var, "read_at")
    buffer = buffer_of(place.block, "read", read_index, "read_at")
    require_extents_kept(realizes_under(target.loop.body), buffer, "read_at")
    an = _analyzer_around(target, place.realize, "read_at")
    require_filled_for_init("read_at", target, buffer)
    regions: list[tuple[Span, ...]] = []
    for r in realizes_under(target.loop.body):
        if any(w.buffer is buffer for w in r.block.writes):
            raise ScheduleError(
                "read_at", describe_loop(target.loop),
                f"no block under the loop writes {buffer.name}; {r.block.name!r} does",
                about=(r.block.name, buffer),
            )  # fmt: skip
        reads = [x for x in r.block.reads if x.buffer is buffer]
        regions += [spans_under(x, r, target, an) for x in reads]
    spans = reduce(lambda a, b: _hull(a, b, an), regions)
    cache = cache_buffer(func, buffer, scope)
    copy = _copy(func, target, buffer, cache, spans, an, "read_at")
    first = next(
        i for i, s in enumerate(statements(target.loop.body))
        if any(x.buffer is buffer for r in realizes_under(s) for x in r.block.reads)
    )  # fmt: skip
    body = insert(redirect(target.loop.body, buffer, cache), first, copy)
    return _with_copy(target, body, cache), copy.block.name


def write_at(
    func: PrimFunc, var: Var, name: str, write_index: int, scope: str
) -> tuple[PrimFunc, str]:
    """Let the block write to a new buffer, of which one iteration of a loop copies what it made
    when it ends. Returns the function and the name of the copying block."""
    place, target = find_block(func, name, "write_at"), find_loop(func, var, "write_at")
    buffer = buffer_of(place.block, "write", write_index, "write_at")
    an = _analyzer_around(target, place.realize, "write_at")
    for r in realizes_under(target.loop.body):
        touched = {x.buffer for x in (*r.block.reads, *r.block.writes)}
        if r is not place.realize and buffer in touched:
            raise ScheduleError(
                "write_at", describe_loop(target.loop),
                f"no other block under the loop touches {buffer.name}; {r.block.name!r} does",
                about=(r.block.name, buffer),
            )  # fmt: skip
    for loop in (*target.loops, target.loop):
        if any(r is place.realize and iv.kind != "spatial" for r, iv in axes_bound_to(
            loop.loop_var, loop.body
        )):  # fmt: skip
            raise ScheduleError(
                "write_at", describe_loop(loop), f"the sums of block {name!r} are complete inside",
                suggestion="choose a loop further out", about=(name,),
            )  # fmt: skip
    region = next(w for w in place.block.writes if w.buffer is buffer)
    spans = region_written(region, place.realize, target, an)
    updates = place.block.init is None and any(x.buffer is buffer for x in place.block.reads)
    if spans is None or updates:
        raise ScheduleError(
            "write_at", describe_block(place.block),
            f"one iteration of {describe_loop(target.loop)} writes a whole part of {buffer.name}, "
            "and reads none of it before",
            about=(buffer,),
        )  # fmt: skip
    cache = cache_buffer(func, buffer, scope)
    copy = _copy(func, target, cache, buffer, spans, an, "write_at")
    body = seq(redirect(target.loop.body, buffer, cache), copy)
    return _with_copy(target, body, cache), copy.block.name


def _analyzer_around(target: LoopPlace, realize: BlockRealize, primitive: str) -> Analyzer:
    """Return `analyzer_in` of a loop. Raises ScheduleError unless the block is inside of it."""
    if not any(r is realize for r in realizes_under(target.loop.body)):
        raise ScheduleError(
            primitive, describe_loop(target.loop),
            f"the loop is around block {realize.block.name!r}", about=(realize.block.name,),
        )  # fmt: skip
    return analyzer_in(target)


def _hull(a: Sequence[Span], b: Sequence[Span], an: Analyzer) -> tuple[Span, ...]:
    return tuple(union(x, y, an) for x, y in zip(a, b, strict=True))


def _with_copy(target: LoopPlace, body: Stmt, cache: Buffer) -> PrimFunc:
    func = target.replaced(replace(target.loop, body=body))
    return with_alloc(func, target.scope.name, cache)


def _copy(
    func: PrimFunc, target: LoopPlace, source: Buffer, dest: Buffer, spans: Sequence[Span],
    an: Analyzer, primitive: str,
) -> BlockRealize:  # fmt: skip
    """A block that copies a region of tiles: an axis counts the tiles of each dimension that is
    not copied as a whole, from the first to the last that the loops reach."""
    axes: list[IterVar] = []
    values: list[PrimExpr] = []
    ranges: list[Range] = []
    loop_vars = [Var(f"ax{d}") for d in range(len(spans))]
    around = loop_env((*target.loops, target.loop), an)
    for span, dim in zip(spans, source.shape, strict=True):
        extent, low = span.extent(an), an.simplify(span.lo)
        if low == ZERO and an.prove_equal(extent, dim):
            ranges.append(Range(ZERO, dim))
            continue
        number = an.simplify(low // extent)
        inside = an.prove(expr.GE(low, ZERO)) and an.prove(expr.LE(low + extent, dim))
        if vars_in(extent) & around.keys():
            raise ScheduleError(
                primitive, describe_loop(target.loop),
                f"all iterations touch as many elements of {source.name}; one touches {extent}",
                suggestion="choose a loop further out", about=(target.loop.loop_var,),
            )  # fmt: skip
        if not inside or not an.prove_equal(number * extent, low):
            raise ScheduleError(
                primitive, describe_loop(target.loop),
                f"one iteration touches a tile of {source.name}; it touches {extent} elements "
                f"from {low}", about=(target.loop.loop_var,),
            )  # fmt: skip
        tiles = Range(ZERO, an.simplify((dim + extent - 1) // extent))
        reached = span_of(number, around, an)
        if reached is not None:
            tiles = Range(reached.lo, reached.extent(an))
        axes.append(IterVar(Var(f"v{len(axes)}"), tiles, "spatial"))
        values.append(number)
        ranges.append(Range(an.simplify(axes[-1].var * extent), extent))
    index = tuple(r.min + v for r, v in zip(ranges, loop_vars, strict=True))
    body: Stmt = BufferStore(dest, BufferLoad(source, index), index)
    body = nest_over(loop_vars, [r.extent for r in ranges], body)
    into = dest.name.startswith(source.name)
    name = f"{source.name}_{dest.scope}" if into else f"{dest.name}_{source.scope}"
    block = Block(
        fresh_block_name(func, name),
        tuple(axes),
        (BufferRegion(source, tuple(ranges)),),
        (BufferRegion(dest, tuple(ranges)),),
        body,
        annotations=Attrs(auto_copy=True),
    )
    return BlockRealize(tuple(values), TRUE, block)
