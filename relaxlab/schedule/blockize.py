"""blockize: a subtree of loops becomes one block, the unit that tensorize replaces."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.regions import access_regions
from relaxlab.ir import expr
from relaxlab.ir.errors import kind_of
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import (
    Block,
    BlockRealize,
    For,
    IterVar,
    PrimFunc,
    Range,
    Stmt,
    nested,
)
from relaxlab.ir.node import map_children, replace
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.ranges import ONE, ZERO, analyzer_at, bind_stmt, loop_env, span_of
from relaxlab.schedule.regions import simplified
from relaxlab.schedule.tree import (
    LoopPlace,
    conjuncts,
    describe_block,
    describe_loop,
    find_loop,
    fresh_block_name,
    vars_in,
)


@dataclass(frozen=True, slots=True)
class _Axis:
    """An axis `v` taken apart: `v = outer * extent + inner`, `inner` over the loops inside.

    `outer` (an axis of the new block bound to `outer_value`) is None where `v` has no part outside,
    `inner` where it has none inside.
    """

    old: IterVar
    outer: IterVar | None
    outer_value: PrimExpr
    inner: IterVar | None
    inner_value: PrimExpr
    value: PrimExpr


def blockize(
    func: PrimFunc, var: Var, *, every_axis: bool = False, preserve_unit_iters: bool = False
) -> tuple[PrimFunc, str]:
    """Make a block of a loop and the perfect nest inside it; returns the new block's name.

    With `every_axis`, an axis that is whole inside has an outer part of one value. With
    `preserve_unit_iters`, outer parts of one value stay in bindings and indices, as in `split`.

    The axes of the block inside must split into a part over the outer loops times the extent of
    the part over the inner ones. The initialisation of a reduction moves to the new block.
    """
    place = find_loop(func, var, "blockize")
    inner, realize = _nest(place)
    an = analyzer_at(place, preserve_unit_iters)
    outside = {s.loop_var for s in place.outer_loops}
    for loop in inner:
        if (vars_in(loop.min) | vars_in(loop.extent)) & outside:
            raise ScheduleError(
                "blockize", describe_loop(loop),
                "the extent does not depend on loops outside the block", about=(loop.loop_var,),
            )  # fmt: skip
        bind_stmt(an, loop)
    axes = [
        _axis(iv, value, place, inner, an)
        for iv, value in zip(realize.block.iter_vars, realize.iter_values, strict=True)
    ]
    if every_axis:
        axes = [_with_outer_part(a) for a in axes]
    if not preserve_unit_iters:
        axes = [_without_unit(a) for a in axes]
    inside = {loop.loop_var for loop in inner}
    outer_conditions: list[PrimExpr] = []
    inner_conditions: list[PrimExpr] = []
    for c in conjuncts(realize.predicate):
        if vars_in(c) & inside:
            inner_conditions.append(_in_axes(c, axes, realize, place))
        else:
            outer_conditions.append(c)
    # Where the range of an axis depends on other axes, that is said in terms of the loops.
    at = dict(zip((a.old.var for a in axes), realize.iter_values, strict=True))
    ends = [(a, substitute(expr.LT(a.outer_value, a.outer.dom.min + a.outer.dom.extent), at))
            for a in axes if a.outer is not None]  # fmt: skip
    outer_conditions += [
        end for a, end in ends if a.inner is not None and an.prove(end) is not True
    ]  # without a part inside, the old predicate keeps the axis inside
    axes = _in_new_axes(axes, place)
    name = fresh_block_name(func, f"{realize.block.name}_o")
    predicate = expr.all_of(inner_conditions)
    block = _outer_block(func, name, axes, inner, realize.block, predicate)
    values = tuple(a.outer_value for a in axes if a.outer is not None)
    outer = BlockRealize(values, expr.all_of(outer_conditions), block)
    return place.replaced(outer), name


def _with_outer_part(a: _Axis) -> _Axis:
    if a.outer is not None:
        return a
    outer = IterVar(Var(f"{a.old.var.name}_o"), Range(ZERO, ONE), a.old.kind)
    return _Axis(a.old, outer, ZERO, a.inner, a.inner_value, a.value)


def _without_unit(a: _Axis) -> _Axis:
    """The axis, its only value in place of an outer part that is all of it and has one value."""
    if a.inner is not None or a.old.dom.extent != ONE:
        return a
    return dataclasses.replace(a, value=a.old.dom.min)


def _nest(place: LoopPlace) -> tuple[list[For], BlockRealize]:
    loops = [place.loop]
    body = place.loop.body
    while isinstance(body, For):
        loops.append(body)
        body = body.body
    if not isinstance(body, BlockRealize):
        raise ScheduleError(
            "blockize", describe_loop(place.loop),
            f"one block is inside, in a perfect nest; there is {kind_of(body)}",
            suggestion="decompose_reduction and compute_at after blockize, or reorder",
            about=(loops[-1].loop_var,),
        )  # fmt: skip
    return loops, body


def _axis(iv: IterVar, value: PrimExpr, place: LoopPlace, inner: list[For], an: Analyzer) -> _Axis:
    inside = {loop.loop_var for loop in inner}
    name = iv.var.name
    value = an.simplify(value)
    if not vars_in(value) & inside:
        outer = IterVar(Var(f"{name}_o"), iv.dom, iv.kind)
        return _Axis(iv, outer, value, None, ZERO, outer.var)
    outside = {v: ZERO for v in vars_in(value) - inside}
    inner_part = an.simplify(substitute(value, outside))
    outer_part = an.simplify(value - inner_part)
    span = span_of(inner_part, loop_env(inner, an), an)
    simple = span is not None and an.prove_equal(span.lo, ZERO) and not vars_in(outer_part) & inside
    if not simple or span is None:
        raise _cannot_split(iv, value, place)
    extent = an.simplify(span.hi + 1)
    if outer_part == ZERO:
        whole = IterVar(Var(f"{name}_i"), iv.dom, iv.kind)
        return _Axis(iv, None, ZERO, whole, inner_part, whole.var)
    # The number of outer values is a quotient, which is computed even where no loop inside runs.
    if not Analyzer.for_shapes(extent).prove(expr.GE(extent, ONE)):
        raise _may_be_empty(iv, extent, place)
    inner_iv = IterVar(Var(f"{name}_i"), Range(ZERO, extent), iv.kind)
    quotient = an.simplify(outer_part // extent)
    first = an.simplify(iv.dom.min // extent)
    exact = an.prove_equal(quotient * extent, outer_part) and an.prove_equal(
        first * extent, iv.dom.min
    )
    if not exact:
        raise _cannot_split(iv, value, place)
    count = an.simplify((iv.dom.extent + extent - 1) // extent)
    outer = IterVar(Var(f"{name}_o"), Range(first, count), iv.kind)
    return _Axis(iv, outer, quotient, inner_iv, inner_part, outer.var * extent + inner_iv.var)


def _in_new_axes(axes: list[_Axis], place: LoopPlace) -> list[_Axis]:
    """The axes with their ranges in terms of the new ones, where they depend on others."""
    table = {a.old.var: a.value for a in axes}
    inside = {a.inner.var for a in axes if a.inner is not None}

    def renamed(iv: IterVar | None) -> IterVar | None:
        return None if iv is None else replace(iv, dom=substitute(iv.dom, table))

    new = [
        _Axis(a.old, renamed(a.outer), a.outer_value, renamed(a.inner), a.inner_value, a.value)
        for a in axes
    ]
    for a in new:
        if a.outer is not None and vars_in(a.outer.dom) & inside:
            raise ScheduleError(
                "blockize", describe_loop(place.loop),
                f"the range of axis {a.old.var.name} depends on axes outside the block",
                about=(place.loop.loop_var,),
            )  # fmt: skip
    return new


def _may_be_empty(iv: IterVar, extent: PrimExpr, place: LoopPlace) -> ScheduleError:
    return ScheduleError(
        "blockize", describe_loop(place.loop),
        f"the loops inside have a value for axis `{iv.var.name}`; there are {extent}, perhaps none",
        suggestion="split by a constant inner factor", about=(place.loop.loop_var,),
    )  # fmt: skip


def _cannot_split(iv: IterVar, value: PrimExpr, place: LoopPlace) -> ScheduleError:
    return ScheduleError(
        "blockize", describe_loop(place.loop),
        f"axis {iv.var.name} = {value} is a multiple of the inner extent plus inner loops",
        suggestion="split the loop by the block's extent first", about=(place.loop.loop_var,),
    )  # fmt: skip


def _in_axes(
    condition: PrimExpr, axes: list[_Axis], realize: BlockRealize, place: LoopPlace
) -> PrimExpr:
    """A condition on loops as one on the inner loops and the axes of the outer block."""
    table: dict[PrimExpr, PrimExpr] = {}
    for a, value in zip(axes, realize.iter_values, strict=True):
        part = a.inner_value
        if a.outer is not None:
            part = a.value if a.inner is None else substitute(a.value, {a.inner.var: part})
        table[value] = part
        if a.outer is not None and isinstance(a.outer_value, Var):
            table[a.outer_value] = a.outer.var

    def visit(e: PrimExpr) -> PrimExpr:
        return table[e] if e in table else map_children(e, visit)  # type: ignore[arg-type]

    result = visit(condition)
    escaping = vars_in(result) & {loop.loop_var for loop in place.loops}
    if escaping:
        raise ScheduleError(
            "blockize", describe_loop(place.loop),
            f"the predicate {condition} is about the block's axes alone",
            about=tuple(escaping),
        )  # fmt: skip
    return result


def _outer_block(
    func: PrimFunc,
    name: str,
    axes: list[_Axis],
    inner: list[For],
    block: Block,
    predicate: PrimExpr,
) -> Block:
    table = {a.old.var: a.value for a in axes}
    split_reduction = block.init is not None and any(
        a.old.kind == "reduce" and a.outer is not None for a in axes
    )
    inside = replace(
        substitute(replace(block, iter_vars=()), table),
        iter_vars=tuple(a.inner for a in axes if a.inner is not None),
    )
    init: Stmt | None = None
    if split_reduction:
        init = _init_nest(func, axes, inner, inside, predicate)
        inside = replace(inside, init=None, reads=(*inside.writes, *inside.reads))
    inside = _simplified(inside, axes)
    values = tuple(a.inner_value for a in axes if a.inner is not None)
    body = nested(inner, BlockRealize(values, predicate, inside))
    outer_axes = tuple(a.outer for a in axes if a.outer is not None)
    outer = Block(name, outer_axes, (), (), body, init, span=block.span)
    reads, writes = access_regions(outer)
    return replace(outer, reads=reads, writes=writes)


def _simplified(inside: Block, axes: list[_Axis]) -> Block:
    """The inner block with the indices in terms of its new axes simplified."""
    an = Analyzer()
    for a in axes:
        for iv in (a.outer, a.inner):
            if iv is not None:
                an.bind_range(iv.var, iv.dom)

    return simplified(inside, an)


def _init_nest(
    func: PrimFunc, axes: list[_Axis], inner: list[For], inside: Block, predicate: PrimExpr
) -> Stmt:
    """The inner block's initialisation over the inner spatial loops."""
    spatial = [a for a in axes if a.inner is not None and a.old.kind == "spatial"]
    fresh: dict[Var, PrimExpr] = {}
    iter_vars: list[IterVar] = []
    for a in spatial:
        assert a.inner is not None
        new = Var(f"{a.inner.var.name}_init")
        fresh[a.inner.var] = new
        iter_vars.append(replace(a.inner, var=new))
    used = {v for a in spatial for v in vars_in(a.inner_value)}
    used_loops = [loop for loop in inner if loop.loop_var in used]
    for loop in used_loops:
        fresh[loop.loop_var] = Var(f"{loop.loop_var.name}_init")
    reduced = {loop.loop_var for loop in inner} - used
    conditions: list[PrimExpr] = []
    for c in conjuncts(predicate):
        if not vars_in(c) & reduced:
            conditions.append(substitute(c, fresh))
        elif vars_in(c) & used:
            raise ScheduleError(
                "blockize", describe_block(inside),
                f"no predicate mixes spatial and reduce loops; {c} does", about=(inside.name,),
            )  # fmt: skip
    assert inside.init is not None
    init = Block(
        fresh_block_name(func, f"{inside.name}_init"), tuple(iter_vars), (),
        tuple(substitute(w, fresh) for w in inside.writes), substitute(inside.init, fresh),
    )  # fmt: skip
    values = tuple(substitute(a.inner_value, fresh) for a in spatial)
    nest: Stmt = BlockRealize(values, expr.all_of(conditions), init)
    for loop in reversed(used_loops):
        var = fresh[loop.loop_var]
        assert isinstance(var, Var)
        nest = replace(loop, loop_var=var, body=nest)
    return nest
