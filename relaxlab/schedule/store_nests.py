"""Stores in loops, which `form_blocks` makes blocks of: which loops are axes, and sums."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import Block, Buffer, BufferLoad, BufferStore, For, PrimFunc
from relaxlab.ir.node import replace, walk
from relaxlab.ir.substitute import symbols_in
from relaxlab.schedule.determined import determines
from relaxlab.schedule.ranges import ZERO, Env, Span, bind_stmt, by_data, distance, shape_analyzer
from relaxlab.schedule.rfactor import Reduction, reduction_of
from relaxlab.schedule.tree import TRUE


@dataclass(frozen=True, slots=True)
class Nest:
    """A store inside loops, outermost first, and the store of its initial value before those of
    them that are not in its indices. `around`: the serial loops that stay around blocks; `where`:
    the condition on their variables under which the store is made."""

    loops: tuple[For, ...]
    store: BufferStore
    init: BufferStore | None = None
    around: tuple[For, ...] = ()
    where: PrimExpr = TRUE


def are_fixed(loops: Sequence[For]) -> bool:
    """True if the extents of the loops depend on no memory and on none of the loops."""
    outer = {loop.loop_var for loop in loops}
    return not any(
        by_data(loop.extent) or not outer.isdisjoint(symbols_in(loop.extent)) for loop in loops
    )


def depend_on(loops: Sequence[For], around: Sequence[For]) -> bool:
    """True if extents of the loops depend on loops around them."""
    outer = {loop.loop_var for loop in around}
    return any(not outer.isdisjoint(symbols_in(loop.extent)) for loop in loops)


def variable_of(index: PrimExpr, variables: Collection[Var]) -> Var | None:
    """The one of the variables that an index is, plus something that mentions none of them; None if
    it is anything else."""
    mentioned = [v for v in symbols_in(index) if v in variables]
    if len(mentioned) != 1 or by_data(index):
        return None
    rest = distance(index, mentioned[0])
    return None if mentioned[0] in symbols_in(rest) else mentioned[0]


def spatial_loops(nest: Nest) -> list[For]:
    """The loops whose variables are indices of the store, in the order of its dimensions; where
    extents depend on other loops or places on index functions, those that the place determines, in
    their own order."""
    loops = {loop.loop_var: loop for loop in nest.loops}
    if are_fixed(nest.loops) and not any(map(by_data, nest.store.indices)):
        found = dict.fromkeys(variable_of(index, loops) for index in nest.store.indices)
        return [loops[v] for v in found if v is not None and v in loops]
    shapes = symbols_in((nest.store.buffer.shape, tuple(loop.extent for loop in nest.loops)))
    an = Analyzer.for_shapes(*(v for v in shapes if v not in loops))
    for loop in nest.loops:
        bind_stmt(an, loop)
    spans: Env = {v: Span(s.min, an.simplify(s.min + s.extent - 1)) for v, s in loops.items()}
    place = [an.simplify(index) for index in nest.store.indices]
    return [loop for v, loop in loops.items() if determines(place, v, spans, an)]


def plain_block(nest: Nest) -> Block:
    """The store as a block without axes."""
    return Block("", (), (), (), nest.store)


def reduction_of_nest(nest: Nest) -> Reduction | None:
    """The reduction that a store is, a difference taken for a sum; None if it is none."""
    store, value = nest.store, nest.store.value
    if isinstance(value, expr.Sub) and value.a == BufferLoad(store.buffer, store.indices):
        return Reduction(expr.Add, store.buffer, store.indices, value.b, True)
    return reduction_of(plain_block(nest))


def terms_are_free(nest: Nest) -> bool:
    """True if the terms of a reduction do not depend on the element that they change."""
    found = reduction_of_nest(nest)
    assert found is not None
    own = BufferLoad(nest.store.buffer, nest.store.indices)
    return all(n != own for n in walk(found.value))


def summed_apart(nest: Nest, func: PrimFunc) -> tuple[list[Nest], list[Buffer]]:
    """Return a reduction onto what is there as two nests, the reduction of its terms alone and its
    combination with what is there, and the buffer between them; any other nest as it is."""
    if nest.init is not None:
        return [nest], []
    spatial, store, reduction = spatial_loops(nest), nest.store, reduction_of_nest(nest)
    if len(spatial) == len(nest.loops) or reduction is None or any(map(by_data, store.indices)):
        return [nest], []
    if depend_on(spatial, nest.around) or any(by_data(loop.extent) for loop in spatial):
        return [nest], []
    where = _where_there_are_terms(nest, spatial, shape_analyzer(func))
    if where is None:
        return [nest], []
    places = tuple(loop.loop_var for loop in spatial)
    shape = tuple(loop.extent for loop in spatial)
    if not are_fixed(spatial):  # triangles: the sums are where their elements are
        if where is not TRUE:
            return [nest], []
        places, shape = store.indices, store.buffer.shape
    total = Buffer(f"{store.buffer.name}_sum", shape, store.buffer.dtype, span=store.span)
    before = BufferLoad(total, places)
    terms = dataclasses.replace(
        nest,
        store=BufferStore(total, reduction.combined(before, reduction.value), places),
        init=BufferStore(total, reduction.identity, places),
    )
    own = BufferLoad(store.buffer, store.indices)
    op = type(store.value) if isinstance(store.value, expr.Sub) else reduction.op
    ends = op(own, before) if reduction.accumulator_first else op(before, own)
    end = Nest(tuple(spatial), replace(store, value=ends), around=nest.around, where=where)
    return [terms, end], [total]


def _where_there_are_terms(nest: Nest, spatial: Sequence[For], an: Analyzer) -> PrimExpr | None:
    """Return the condition under which elements get terms, as far as they may be outside of the
    buffer where they get none: what is not there is not accessed. None where it has none."""
    store, reduce = nest.store, [loop for loop in nest.loops if loop not in spatial]
    for loop in (*nest.around, *spatial):
        bind_stmt(an, loop)
    pairs = zip(store.indices, store.buffer.shape, strict=True)
    inside = (expr.And(expr.GE(i, ZERO), expr.LT(i, dim)) for i, dim in pairs)
    if all(an.prove(condition) is True for condition in inside):
        return TRUE
    some: list[PrimExpr] = [expr.GT(loop.extent, ZERO) for loop in reduce]
    some = [condition for condition in some if an.prove(condition) is not True]
    terms = {loop.loop_var for loop in reduce}
    is_known = terms.isdisjoint(symbols_in(tuple(some))) and not any(map(by_data, some))
    return expr.all_of(some) if is_known else None
