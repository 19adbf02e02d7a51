"""Terms of a cascade that are not there: beyond the end of the shared axis, or behind a mask.

Chunks of the axis are rounded up to whole vectors, and chunks that a mask hides are left out. Both
are right where the terms change no result: a score of minus infinity no maximum, and its weight of
zero no sum.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import Block, Buffer, BufferLoad, BufferStore, Range
from relaxlab.ir.node import Node, replace, rewrite
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.schedule.cascade import Cascade, loads_in, written
from relaxlab.schedule.combiners import without_cast
from relaxlab.schedule.correction import in_terms_of_results, reduction, results_read
from relaxlab.schedule.ranges import ZERO
from relaxlab.schedule.rfactor import reduction_of


def nothings(cascade: Cascade) -> dict[Buffer, float]:
    """The values of the buffers inside the cascade that change no result, for those that are the
    terms of a reduction and depend on no result."""
    found: dict[Buffer, float] = {}
    for block in cascade.reductions:
        term, nothing = without_cast(reduction(block).value), reduction(block).identity
        if isinstance(term, BufferLoad) and isinstance(nothing, expr.FloatImm):
            maker = cascade.maker(term.buffer)
            depends = results_read(cascade, in_terms_of_results(cascade, term))
            if maker in cascade.inside and reduction_of(maker) is None and not depends:
                found.setdefault(term.buffer, nothing.value)
    return found


def changes_nothing(cascade: Cascade, block: Block, *, reads: bool) -> bool:
    """True if the reduction's term is the identity where the buffers of `nothings` have their
    values; with `reads` other arrays may be read there, and are taken to be finite."""
    found, nothing = reduction(block), reduction(block).identity
    term = in_terms_of_results(cascade, found.value)
    if not reads and _reads_beyond(cascade, found.value):
        return False
    value = _value(term, nothings(cascade))
    return isinstance(nothing, expr.FloatImm) and value == nothing.value


def _value(e: PrimExpr, known: Mapping[Buffer, float]) -> float | None:
    """The value of an expression where loads have known values and all others are finite."""
    match without_cast(e):
        case expr.FloatImm(value):
            return value
        case BufferLoad(buffer):
            return known.get(buffer)
        case expr.Select(expr.EQ(a, b), yes, no):
            x, y = _value(a, known), _value(b, known)
            return None if x is None or y is None else _value(yes if x == y else no, known)
        case expr.Call(_, "exp" | "exp2", (exponent,)):
            return 0.0 if _value(exponent, known) == -math.inf else None
        case expr.Add(a, b):
            return next((x for s in (a, b) if math.isinf(x := _value(s, known) or 0)), None)
        case expr.Sub(a, b):
            x, y = _value(a, known) or 0, _value(b, known) or 0
            return x if math.isinf(x) else -y if math.isinf(y) else None
        case expr.Mul(a, b):
            return 0.0 if 0 in (_value(a, known), _value(b, known)) else None
        case _:
            return None


def _reads_beyond(cascade: Cascade, e: Node) -> bool:
    """True if other arrays than the cascade's are read by the shared axis."""
    return any(
        cascade.axis in symbols_in(n.indices) for n in loads_in(e) if n.buffer not in cascade.dims
    )


# --- masks --------------------------------------------------------------------------------------


def visible_range(
    cascade: Cascade, row: Var, place: Mapping[Var, PrimExpr], last_row: PrimExpr
) -> tuple[PrimExpr, PrimExpr]:
    """Return the first point of the shared axis that the mask leaves visible to any of the rows
    from `place[row]` to `last_row`, and the one after the last. `place` has all outer axes.

    The mask is `position <= limit(row)`, and maybe `floor(row) < position`, with bounds that do not
    fall from row to row.
    """
    count = cascade.extents[cascade.axis]
    if not all(changes_nothing(cascade, b, reads=True) for b in cascade.reductions):
        return ZERO, count
    for block in cascade.inside:
        limit, floor = _mask_bounds(cascade, block)
        if limit is not None:
            break
    else:
        return ZERO, count
    an = Analyzer.for_shapes(*symbols_in(tuple(cascade.extents.values())))

    def rises(bound: PrimExpr) -> bool:
        return bool(an.prove(expr.LE(bound, substitute(bound, {row: row + 1}))))

    if not rises(limit) or (floor is not None and not rises(floor)):
        # Without the order of bounds no row is the first or the last to see a position, so all
        # positions are visited.
        return ZERO, count
    end = substitute(limit, {**place, row: last_row}) + 1
    stop = count if an.prove_equal(count, end) else expr.Min(count, end)
    if floor is None:
        return ZERO, stop
    return expr.Max(substitute(floor, place) + 1, ZERO), stop


def _mask_bounds(cascade: Cascade, block: Block) -> tuple[PrimExpr | None, PrimExpr | None]:
    """`limit` and `floor` where the block's value is `select(position <= limit, value, nothing)`,
    or that with `position <= limit and floor < position`."""
    nothing, position = nothings(cascade).get(written(block)), cascade.axis
    match block.body:
        case BufferStore(_, expr.Select(mask, _, expr.FloatImm(value))) if value == nothing:
            pass
        case _:
            return None, None
    limit, floor = (mask.a, mask.b) if isinstance(mask, expr.And) else (mask, None)
    match limit:
        case expr.LE(at, upper) if at == position and position not in symbols_in(upper):
            pass
        case _:
            return None, None
    match floor:
        case None:
            return upper, None
        case expr.LT(lower, at) if at == position and position not in symbols_in(lower):
            return upper, lower
        case _:
            return None, None


# --- the end of the axis ------------------------------------------------------------------------


def guarded(cascade: Cascade, block: Block) -> Block:
    """Return a block inside the cascade that may be asked for points beyond the end of the shared
    axis: it reads nothing that is not there, and terms of reductions change nothing."""
    nothing = nothings(cascade).get(written(block))
    reads_beyond = _reads_beyond(cascade, block.body)
    if nothing is None and not reads_beyond:
        return block
    if nothing is not None and not reads_beyond and _is_masked_beyond(cascade, block):
        # The mask already hides every position beyond the end, and the score reads no other array
        # there, so a second condition would only cost instructions.
        return block
    position, count = cascade.axis, cascade.extents[cascade.axis]
    exists = expr.LT(position, count)
    assert isinstance(block.body, BufferStore)
    sums = reduction_of(block)
    if sums is None:
        value = block.body.value
        value = expr.if_then_else(exists, value, expr.const(nothing or 0, value.dtype))
        return replace(block, body=replace(block.body, value=value))
    loads = [n for n in loads_in(block.body) if n.buffer is not sums.buffer]
    # Reading the last block or row again costs less than a condition for each vector of a sum.
    if all(_is_blocked(n, position) for n in loads):

        def visit(n: Node) -> Node | None:
            match n:
                case expr.FloorDiv(at, size) if at == position:
                    return expr.Min(n, (count - 1) // size)
                case _:
                    return None

        return replace(block, body=rewrite(block.body, visit))
    if all(_is_row(n, position) for n in loads):
        last = expr.Min(position, count - 1)
        return replace(block, body=substitute(block.body, {position: last}))
    value = expr.if_then_else(exists, sums.value, expr.const(0, sums.value.dtype))
    so_far = BufferLoad(sums.buffer, sums.indices)
    return replace(block, body=replace(block.body, value=sums.combined(so_far, value)))


def within(cascade: Cascade, block: Block) -> Block:
    """Return a reduction that may be asked for points beyond the end of the shared axis: other
    arrays are read at the last point instead where their terms change nothing, and are no terms
    else."""
    position, count = cascade.axis, cascade.extents[cascade.axis]
    arrays = [n for n in loads_in(reduction(block).value)
              if n.buffer not in cascade.dims and position in symbols_in(n.indices)]  # fmt: skip
    if not changes_nothing(cascade, block, reads=True) or not all(
        _is_row(n, position) for n in arrays
    ):
        form, exists = reduction(block), expr.LT(position, count)
        value = expr.if_then_else(exists, form.value, form.identity)
        total = form.combined(BufferLoad(form.buffer, form.indices), value)
        return replace(block, body=BufferStore(form.buffer, total, form.indices))
    last = expr.Min(position, count - 1)

    def visit(n: Node) -> Node | None:
        return substitute(n, {position: last}) if n in arrays else None

    return replace(block, body=rewrite(block.body, visit))


def guarded_along(block: Block, axis: Var, count: PrimExpr) -> Block:
    """Return a reduction that may be asked for points of another axis beyond its end: what is read
    there is zero."""
    exists, made = expr.LT(axis, count), written(block)

    def visit(n: Node) -> Node | None:
        if isinstance(n, BufferLoad) and n.buffer is not made and axis in symbols_in(n.indices):
            return expr.if_then_else(exists, n, expr.const(0, n.dtype))
        return None

    return replace(block, body=rewrite(block.body, visit))


def _is_masked_beyond(cascade: Cascade, block: Block) -> bool:
    limit, _ = _mask_bounds(cascade, block)
    an = Analyzer.for_shapes(*symbols_in(tuple(cascade.extents.values())))
    for axis in cascade.outer:
        an.bind_range(axis, Range(ZERO, cascade.extents[axis]))
    return limit is not None and bool(an.prove(expr.LT(limit, cascade.extents[cascade.axis])))


def _is_row(load: BufferLoad, position: Var) -> bool:
    """True if positions are whole rows of the load: they index none of its neighbours in memory."""
    *outer, last = load.indices
    return position not in symbols_in(last) and all(
        at == position or position not in symbols_in(at) for at in outer
    )


def _is_blocked(load: BufferLoad, position: Var) -> bool:
    """True if positions index the load in blocks of a constant size, all of which are there."""
    sizes: set[PrimExpr] = set()
    for index, dim in zip(load.indices, load.buffer.shape, strict=True):
        match index:
            case expr.FloorDiv(at, expr.IntImm() as size) if at == position:
                sizes.add(size)
            case expr.FloorMod(at, expr.IntImm() as size) if at == position:
                sizes.add(size)
                if dim != size:
                    return False
            case _:
                if position in symbols_in(index):
                    return False
    return len(sizes) <= 1
