"""decompose_padding: fill a padded buffer first, then write what is inside."""

from __future__ import annotations

from dataclasses import dataclass

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import (
    Block,
    BlockRealize,
    BufferStore,
    For,
    PrimFunc,
    Range,
    Stmt,
    seq,
)
from relaxlab.ir.node import replace
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.instances import require_unrestricted
from relaxlab.schedule.ranges import ZERO, analyzer_at
from relaxlab.schedule.regions import refreshed, simplified
from relaxlab.schedule.scope import is_complete
from relaxlab.schedule.tree import (
    BlockPlace,
    conjuncts,
    describe_block,
    describe_loop,
    find_block,
    find_loop,
    fresh_block_name,
    vars_in,
)

PRIMITIVE = "decompose_padding"


@dataclass(frozen=True, slots=True)
class _Inside:
    """The part of an axis where the padded value is used: `extent` values from `first`."""

    first: PrimExpr
    extent: PrimExpr


def decompose_padding(func: PrimFunc, name: str, var: Var) -> tuple[PrimFunc, str]:
    """Fill what a block of the form `X[…] = if_then_else(inside, value, constant)` writes before a
    loop around it, then write the values alone.

    Returns the function and the name of the filling block.
    """
    place = find_block(func, name, PRIMITIVE)
    store, condition, value, constant = _padding_of(place)
    around = _nest_under(place, var)
    an = analyzer_at(place)
    for iv in place.block.iter_vars:
        an.bind_range(iv.var, iv.dom)
    inside = _regions(place, condition, an)
    fill_name = fresh_block_name(func, f"{name}_pad_const")
    fill = _fill(place, store, constant, around, fill_name, an)
    values = _values(place, store, value, inside, around, an)
    new = seq(fill, values)
    return place.replaced(new, place.path.index(around[0])), fill_name


def _refused(place: BlockPlace, condition: str) -> ScheduleError:
    return ScheduleError(PRIMITIVE, describe_block(place.block), condition)


def _padding_of(place: BlockPlace) -> tuple[BufferStore, PrimExpr, PrimExpr, PrimExpr]:
    """The store of a padding block, its condition, the value inside and the constant around it."""
    if not is_complete(place.block, place.scope):
        raise _refused(place, "the block alone writes its buffer, over spatial axes")
    require_unrestricted(PRIMITIVE, place)
    match place.block.body:
        case BufferStore(_, expr.Call(_, "if_then_else", (condition, value, constant))) as store:
            if not vars_in(constant):
                return store, condition, value, constant
        case _:
            pass
    raise _refused(place, "the body is one store of if_then_else(inside, value, constant)")


def _nest_under(place: BlockPlace, var: Var) -> list[For]:
    """The loops from the one over `var` to the block, which is alone in them."""
    loop = find_loop(place.func, var, PRIMITIVE).loop
    if loop not in place.loops:
        raise ScheduleError(
            PRIMITIVE, describe_loop(loop), f"the loop is around block {place.block.name!r}"
        )
    around = [*place.loops[place.loops.index(loop) :]]
    below: Stmt = place.realize
    for s in reversed(around):
        if s.body is not below:
            raise ScheduleError(PRIMITIVE, describe_loop(s), "nothing but the block is inside")
        below = s
    return around


def _regions(place: BlockPlace, condition: PrimExpr, an: Analyzer) -> dict[Var, _Inside]:
    """The part of each axis where the condition holds. Raises ScheduleError unless the condition
    bounds each axis by itself."""
    lows: dict[Var, PrimExpr] = {}
    highs: dict[Var, PrimExpr] = {}
    axes = {iv.var: iv for iv in place.block.iter_vars}
    for c in conjuncts(condition):
        match c:
            case expr.GE(a, b):
                e = a - b
            case expr.GT(a, b):
                e = a - b - 1
            case expr.LE(a, b):
                e = b - a
            case expr.LT(a, b):
                e = b - a - 1
            case _:
                raise _refused(place, f"the condition is bounds on axes; {c} is none")
        used = [v for v in axes if v in vars_in(e)]
        rest = [an.simplify(e - used[0]), an.simplify(e + used[0])] if len(used) == 1 else []
        if rest and not vars_in(rest[0]) & axes.keys():
            low = an.simplify(ZERO - rest[0])
            lows[used[0]] = low if used[0] not in lows else expr.Max(lows[used[0]], low)
        elif rest and not vars_in(rest[1]) & axes.keys():
            high = an.simplify(rest[1] + 1)
            highs[used[0]] = high if used[0] not in highs else expr.Min(highs[used[0]], high)
        else:
            raise _refused(place, f"the condition bounds each axis by itself; {c} does not")
    found: dict[Var, _Inside] = {}
    for v, iv in axes.items():
        low, high = lows.get(v, ZERO), highs.get(v, iv.dom.extent)
        within = an.prove(expr.GE(low, ZERO)) and an.prove(expr.LE(high, iv.dom.extent))
        if not (within and an.prove(expr.LE(low, high))):
            raise _refused(place, f"the values of {v} inside, {low} to {high}, are some of its own")
        found[v] = _Inside(low, an.simplify(high - low))
    return found


def _fill(
    place: BlockPlace, store: BufferStore, constant: PrimExpr, around: list[For], name: str,
    an: Analyzer,
) -> Stmt:  # fmt: skip
    """The loops that write the constant everywhere."""
    axes: dict[Var, PrimExpr] = {iv.var: Var(iv.var.name) for iv in place.block.iter_vars}
    fresh: dict[Var, PrimExpr] = {s.loop_var: Var(s.loop_var.name) for s in around}
    iter_vars = tuple(replace(iv, var=axes[iv.var]) for iv in place.block.iter_vars)  # type: ignore
    body = substitute(replace(store, value=constant), axes)
    block = refreshed(Block(name, iter_vars, (), (), body))
    bindings = place.realize.iter_values
    values = tuple(substitute(v if v in fresh else an.index_form(v), fresh) for v in bindings)
    nest: Stmt = BlockRealize(values, substitute(place.realize.predicate, fresh), block)
    for s in reversed(around):
        var = fresh[s.loop_var]
        assert isinstance(var, Var)
        nest = For(var, substitute(s.min, fresh), substitute(s.extent, fresh), "serial", nest)
    return nest


def _values(
    place: BlockPlace, store: BufferStore, value: PrimExpr, inside: dict[Var, _Inside],
    around: list[For], an: Analyzer,
) -> Stmt:  # fmt: skip
    """The loops that write the values inside. Loops farther out, and those that are a part of an
    axis, stay as they are, and a predicate leaves their iterations in the padding out."""
    block = place.block
    moved: dict[Var, PrimExpr] = {
        iv.var: iv.var + inside[iv.var].first for iv in block.iter_vars
    }
    iter_vars = tuple(
        replace(iv, dom=Range(ZERO, inside[iv.var].extent)) for iv in block.iter_vars
    )
    fitted = an.fork()
    for iv in iter_vars:
        fitted.bind_range(iv.var, iv.dom)
    body = substitute(replace(store, value=value), moved)
    written = refreshed(simplified(replace(block, iter_vars=iter_vars, body=body), fitted))
    bindings = place.realize.iter_values
    shrunk = {s.loop_var for s in around if s.min == ZERO and _is_one_axis(s.loop_var, bindings)}
    values: list[PrimExpr] = []
    conditions: list[PrimExpr] = []
    extents: dict[Var, PrimExpr] = {}
    for iv, v in zip(block.iter_vars, bindings, strict=True):
        part = inside[iv.var]
        if v in shrunk:
            assert isinstance(v, Var)
            values.append(v)
            extents[v] = part.extent
            fitted.bind_range(v, Range(ZERO, part.extent))
            continue
        values.append(an.index_form(v - part.first))
        if part.first != ZERO:
            conditions.append(expr.LE(part.first, v))
        if not an.prove_equal(part.first + part.extent, iv.dom.extent):
            conditions.append(expr.LT(v, an.simplify(part.first + part.extent)))
    # Conditions on the axes' ranges stay where the loops are as long as before.
    conditions += [c for c in conjuncts(place.realize.predicate) if not fitted.prove(c)]
    nest: Stmt = BlockRealize(tuple(values), expr.all_of(conditions), written)
    for s in reversed(around):
        nest = replace(s, extent=extents.get(s.loop_var, s.extent), body=nest)
    return nest


def _is_one_axis(var: Var, bindings: tuple[PrimExpr, ...]) -> bool:
    """True if the loop is an axis of the block, and no other axis depends on it."""
    return [e for e in bindings if var in vars_in(e)] == [var]
