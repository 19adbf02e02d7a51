"""The instances of a block that run, given predicates and the conditions around it.

A primitive that makes the loops around a block anew, or that takes what a block writes to be a
whole region, must account for every condition; a condition that it cannot account for is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import BlockRealize, BufferLoad, For, IfThenElse, While
from relaxlab.ir.node import Node, children, replace
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.exact_region import beyond_domain, exact_region
from relaxlab.schedule.ranges import ONE, ZERO, Span, analyzer_at, assume_iterations, covers
from relaxlab.schedule.tree import BlockPlace, describe_block, find_block, vars_in, walk_stmts


def require_only_loops(primitive: str, place: BlockPlace) -> None:
    """Raise ScheduleError if something other than loops is between the block and its scope."""
    for s in place.path[place.scope_depth + 1 : -1]:
        if type(s).__name__ in _AROUND:
            raise ScheduleError(
                primitive, describe_block(place.block),
                f"nothing but loops is around the block; there is {_AROUND[type(s).__name__]}",
            )  # fmt: skip


def _require_fixed_domains(primitive: str, place: BlockPlace) -> None:
    """The domains of the axes do not change with the loops around the block."""
    loops = {loop.loop_var for loop in place.loops}
    for iv in place.block.iter_vars:
        if (vars_in(iv.dom.min) | vars_in(iv.dom.extent)) & loops:
            raise ScheduleError(
                primitive, describe_block(place.block),
                f"the domains of the axes do not depend on loops; axis {iv.var.name} has "
                f"{iv.dom.extent} values",
                suggestion="give the axis its whole domain; the loops may still leave values out",
            )  # fmt: skip


_AROUND = {"IfThenElse": "a condition", "LetStmt": "the value of a variable", "While": "a `while`"}


def restrictions(place: BlockPlace, an: Analyzer) -> list[PrimExpr]:
    """Return the conditions that leave instances of the block out: those of its predicate, and
    bounds of loops whose extents depend on other loops (triangles), which `an` assumes."""
    found = beyond_domain(place.realize, an)
    loops = {loop.loop_var for loop in place.loops}
    for loop in place.loops:
        if (vars_in(loop.min) | vars_in(loop.extent)) & loops:
            found.append(expr.GE(loop.loop_var, loop.min))
            found.append(expr.LT(loop.loop_var, loop.min + loop.extent))
    return found


def require_unrestricted(primitive: str, place: BlockPlace) -> None:
    """Raise ScheduleError unless every instance of the block provably runs."""
    require_only_loops(primitive, place)
    _require_fixed_domains(primitive, place)
    unmet = restrictions(place, analyzer_at(place))
    if unmet or not _reaches_domain(place, unmet):
        raise _incomplete(primitive, place, unmet)


def require_all_written(primitive: str, place: BlockPlace) -> None:
    """Raise ScheduleError unless the block provably writes something for all values of its spatial
    axes: a predicate that holds where the reduction starts leaves no element unwritten."""
    require_only_loops(primitive, place)
    unmet = _unwritten(place, analyzer_at(place))
    if not _reaches_domain(place, unmet):
        raise _incomplete(primitive, place, unmet)


def require_inside(primitive: str, place: BlockPlace, loads: Sequence[BufferLoad]) -> None:
    """Raise ScheduleError where loads of the block, done for every instance before it, may read
    outside of their buffers: the block asks a condition first, or has no instances."""
    block, an = place.block, analyzer_at(place)
    assume_iterations(an, place)
    # The program itself answers for what the block reads in any case.
    always = set(evaluated_always(block.body))
    runs = all(an.prove(expr.GT(iv.dom.extent, ZERO)) for iv in block.iter_vars)
    if runs and always.issuperset(loads):
        return
    for iv in block.iter_vars:
        an.bind_range(iv.var, iv.dom)
    for load in loads:
        for i, dim in zip(load.indices, load.buffer.shape, strict=True):
            if not (an.prove(expr.GE(i, ZERO)) and an.prove(expr.LT(i, dim))):
                raise ScheduleError(
                    primitive, describe_block(block),
                    f"every instance reads inside of {load.buffer.name}; index {i} may be outside",
                    about=(load.buffer,),
                )  # fmt: skip


def evaluated_always(n: Node) -> Iterator[Node]:
    """The nodes below and including `n` that no condition and no loop is around."""
    yield n
    choice = isinstance(n, expr.Call) and n.op == "if_then_else"
    if not choice and not isinstance(n, _MAY_SKIP):
        for child in children(n):
            yield from evaluated_always(child)


_MAY_SKIP = (expr.Select, expr.And, expr.Or, IfThenElse, For, While, BlockRealize)


def _incomplete(primitive: str, place: BlockPlace, unmet: list[PrimExpr]) -> ScheduleError:
    if unmet:
        text = f"every instance of the block runs; T.where({expr.all_of(unmet)}) leaves some out"
    else:
        text = "the loops around the block reach all values of its axes"
    return ScheduleError(primitive, describe_block(place.block), text, about=(place.block.name,))


def _unwritten(place: BlockPlace, an: Analyzer) -> list[PrimExpr]:
    """Return the conditions that leave elements of the block's result unwritten. Reduce axes are
    taken not to be empty: the result of an empty reduction is initialised separately."""
    start = _first_of_reduction(place)
    unwritten: list[PrimExpr] = []
    conditions = restrictions(place, an)
    with an.scope():
        for iv in place.block.iter_vars:
            if iv.kind == "reduce":
                an.assume(expr.GE(iv.dom.extent, ONE))
        for c in conditions:
            # The first term initialises an element: a condition that holds for it leaves none
            # unwritten.
            at_start = an.simplify(substitute(c, start))
            of_reduction = bool(vars_in(c) & start.keys())
            if not (of_reduction and an.prove(at_start)):
                unwritten.append(at_start)
    return unwritten


def require_body_unconditional(primitive: str, place: BlockPlace) -> None:
    """Raise ScheduleError unless everything inside the block runs in each of its instances."""
    for s in walk_stmts(place.block.body):
        if isinstance(s, BlockRealize):
            inner = find_block(place.func, s.block.name)
            unmet = _unwritten(inner, analyzer_at(inner))
            if unmet:
                raise _incomplete(primitive, inner, unmet)
        elif isinstance(s, While) or (isinstance(s, IfThenElse) and s.else_case is None):
            raise ScheduleError(
                primitive, describe_block(place.block),
                f"the block always stores its result; there is {_AROUND[type(s).__name__]}",
            )  # fmt: skip


def _first_of_reduction(place: BlockPlace) -> dict[Var, PrimExpr]:
    """The first value of each loop that only reduce axes are bound to."""
    pairs = list(zip(place.block.iter_vars, place.realize.iter_values, strict=True))
    spatial = {v for iv, value in pairs if iv.kind == "spatial" for v in vars_in(value)}
    reduced = {v for iv, value in pairs if iv.kind == "reduce" for v in vars_in(value)} - spatial
    return {loop.loop_var: loop.min for loop in place.loops if loop.loop_var in reduced}


def _reaches_domain(place: BlockPlace, conditions: list[PrimExpr]) -> bool:
    """True if the loops take the spatial axes through their domains, under these conditions.

    Where there is no condition and the bindings are not understood, a well-formed function is
    trusted to do so.
    """
    axes = [iv for iv in place.block.iter_vars if iv.kind == "spatial"]
    realize = replace(place.realize, predicate=expr.all_of(conditions))
    an = analyzer_at(place)
    written = exact_region([Span(iv.var, iv.var) for iv in axes], (*place.loops, realize), an)
    if written is None:
        return not conditions
    return all(
        covers(b, Span(iv.dom.min, iv.dom.min + iv.dom.extent - 1), an)
        for b, iv in zip(written, axes, strict=True)
    )


def predicate_of_axes(primitive: str, place: BlockPlace) -> list[PrimExpr]:
    """Return the conditions that leave instances out, in terms of the block's axes instead of its
    loops.

    Raises ScheduleError for a condition on loops that no axis is bound to.
    """
    require_only_loops(primitive, place)
    _require_fixed_domains(primitive, place)
    an = analyzer_at(place)
    loops = {loop.loop_var for loop in place.loops}
    table: dict[Var, PrimExpr] = {}
    for iv, value in zip(place.block.iter_vars, place.realize.iter_values, strict=True):
        for v in vars_in(value) & loops:
            offset = an.simplify(value - v)
            if not vars_in(offset) & loops:
                table[v] = an.simplify(iv.var - offset)
    found = [substitute(c, table) for c in restrictions(place, an)]
    for c in found:
        if vars_in(c) & loops:
            raise ScheduleError(
                primitive, describe_block(place.block),
                f"the predicate can be said of the block's axes; {c} cannot",
                about=(place.block.name,),
            )  # fmt: skip
    # Those that the domains of the axes say, too, leave nothing out.
    with an.scope():
        for iv in place.block.iter_vars:
            an.bind_range(iv.var, iv.dom)
        return [c for c in found if not an.prove(c)]


def reaches_all(
    loops: Iterable[For], realize: BlockRealize, axes: Iterable[Var], an: Analyzer
) -> bool:
    """True if the loops, with the block inside, take the axes through all combinations of the
    values of their domains."""
    wanted = set(axes)
    domains = [iv for iv in realize.block.iter_vars if iv.var in wanted]
    path = (*loops, realize)
    written = exact_region([Span(iv.var, iv.var) for iv in domains], path, an)
    return written is not None and all(
        covers(b, Span(iv.dom.min, iv.dom.min + iv.dom.extent - 1), an)
        for b, iv in zip(written, domains, strict=True)
    )
