"""Loop structure: split, fuse, reorder, add_unit_loop."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.arith.conditions import FALSE
from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import BlockRealize, For, PrimFunc, Stmt, nest_over, nested
from relaxlab.ir.node import map_children, replace, walk
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.dependence import require_order_free
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.fuse_ragged import fuse_ragged
from relaxlab.schedule.order import require_reassociable
from relaxlab.schedule.ranges import ONE, ZERO, analyzer_at, bind_loop, bind_stmt, by_data
from relaxlab.schedule.scope import axes_bound_to, axis_kinds
from relaxlab.schedule.tree import (
    LoopPlace,
    Place,
    describe_loop,
    find_block,
    find_loop,
    guard,
    map_realizes,
    reading_within,
    realizes_under,
    vars_in,
    walk_stmts,
)

MOST_ITERATIONS = 2**62
"""The product of the factors of a split is less than this, so that int64 holds each index of the
loop before it is compared with the loop's extent."""


def split(
    func: PrimFunc,
    var: Var,
    factors: Sequence[PrimExpr | int | None] | PrimExpr | int | None,
    *,
    preserve_unit_iters: bool = False,
) -> tuple[PrimFunc, tuple[Var, ...]]:
    """Replace a loop by a nest of `len(factors)` loops, outermost first.

    One factor may be None: it becomes the extent divided by the others, rounded up. Where the
    factors' product is more than the extent, the blocks below get a predicate. With
    `preserve_unit_iters`, loops of one iteration stay in the bindings and in the predicate, though
    their variables are 0, and quotients of a loop become quotients of a sum of the new loops.

    Raises ScheduleError unless it is proved that the loops reach every iteration.
    """
    place = find_loop(func, var, "split")
    loop = place.loop
    require_plain("split", loop)
    extents = _factor_extents(place, factors)
    listed = factors if isinstance(factors, Sequence) else [factors]
    an = analyzer_at(place, preserve_unit_iters)
    new_vars = tuple(Var(f"{var.name}_{i}") for i in range(len(extents)))
    index: PrimExpr = ZERO
    total: PrimExpr = ONE
    for v, extent in zip(new_vars, extents, strict=True):
        bind_loop(an, v, ZERO, extent, preserve_unit_iters)
        index = index * extent + v
        total = total * extent
    written = index
    index = an.simplify(index)
    guarded = not an.prove_equal(total, loop.extent)
    last = loop.min + loop.extent - 1
    body = reading_within(loop.body, var, last) if guarded else loop.body
    if any(isinstance(n, expr.Min) and n.b is last for n in walk(body)):
        rounded = [e for f, e in zip(listed, extents, strict=True) if f is None]
        _require_last(place, rounded)
    body = substitute(body, {var: loop.min + index})
    # The guard is a predicate of the blocks, not an `if` around them: primitives that come later
    # can move and weaken it.
    if guarded and not preserve_unit_iters:
        body = guard(body, expr.LT(index, loop.extent))
    body = _simplified(body, an, preserve_unit_iters)
    if guarded and preserve_unit_iters:
        body = guard(body, expr.LT(written, loop.extent))
    body = nest_over(new_vars, extents, body)
    return place.replaced(replace(body, span=loop.span)), new_vars


def _require_last(place: LoopPlace, rounded: Sequence[PrimExpr]) -> None:
    """Raise ScheduleError unless the loop has a last iteration wherever the new loops have some, as
    where one of them has the quotient as its extent, `rounded` up: what loops inside of it load in
    iterations beyond is what they load in the last one."""
    loop, an = place.loop, analyzer_at(place)
    if an.prove(expr.GE(loop.extent, ONE)) or any(not an.prove(expr.GE(e, ONE)) for e in rounded):
        return
    raise ScheduleError(
        "split", describe_loop(loop),
        f"the loop has iterations, in which those inside load their extents; there are "
        f"{loop.extent}, perhaps none",
        about=(loop.loop_var,),
    )  # fmt: skip


def _factor_extents(
    place: LoopPlace, factors: Sequence[PrimExpr | int | None] | PrimExpr | int | None
) -> tuple[PrimExpr, ...]:
    """The extents of the new loops, whose product is at least the loop's. Raises ScheduleError."""
    loop, an = place.loop, analyzer_at(place)
    if not isinstance(factors, Sequence):
        raise ScheduleError(
            "split", describe_loop(loop), f"the factors are a list; {factors} is not",
            suggestion=f"factors=[None, {factors}]",
        )  # fmt: skip
    if list(factors).count(None) > 1 or not factors:
        raise ScheduleError(
            "split", describe_loop(loop), "there are factors, at most one of them None"
        )
    product: PrimExpr = ONE
    for f in factors:
        if isinstance(f, float | str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ScheduleError("split", describe_loop(loop), f"factor {f!r} is a whole number")
        if f is not None:
            factor = expr.as_expr(f)
            fixed = isinstance(factor, expr.IntImm) or None in factors
            if not an.prove((expr.GT if fixed else expr.GE)(factor, ZERO)):
                raise ScheduleError("split", describe_loop(loop), f"factor {f} is positive")
            product = product * factor
    if isinstance(product, expr.IntImm) and product.value >= MOST_ITERATIONS:
        raise ScheduleError(
            "split", describe_loop(loop),
            f"the factors' product {product} is less than 2**62, so that indices stay int64",
        )  # fmt: skip
    if None not in factors and not an.prove(expr.GE(product, loop.extent)):
        raise ScheduleError(
            "split", describe_loop(loop),
            f"the factors' product {an.simplify(product)} is at least the extent {loop.extent}, "
            "for every value of its symbols",
            suggestion="leave one factor None",
        )  # fmt: skip
    # Rounded up, since the last iteration of the outer loop may be partial.
    rest = an.simplify((loop.extent + (product - 1)) // product)
    # One that is one at most is one: a loop that may not run, and whose variable is always zero, is
    # in no binding, so that a reduction inside would seem to run where it has no terms.
    most = an.upper_bound(rest)
    rest = ONE if most is not None and most <= 1 else rest
    return tuple(rest if f is None else expr.as_expr(f) for f in factors)


def _simplified(
    body: Stmt, an: Analyzer, preserve_unit_iters: bool, as_written: bool = False
) -> Stmt:
    """`body` with the bindings and predicates of its blocks simplified; `an` knows the outside.
    Predicates stay as they are if they are to be `as_written`."""
    form = partial(_with_quotients, an) if preserve_unit_iters else an.simplify
    for s in walk_stmts(body):
        if isinstance(s, BlockRealize):
            break
        bind_stmt(an, s, preserve_unit_iters)

    def simplify(r: BlockRealize) -> BlockRealize:
        values = tuple(form(v) for v in r.iter_values)
        predicate = r.predicate if as_written else form(r.predicate)
        # Where there are no terms, the guard of their loop stays as it is: the initialisation runs
        # without it, and not at all under False.
        kept = r.predicate if predicate == FALSE else predicate
        return replace(r, iter_values=values, predicate=kept)

    return map_realizes(body, simplify)


def _with_quotients(an: Analyzer, e: PrimExpr) -> PrimExpr:
    """An expression in simplified form, but for quotients and remainders of sums, whose operands
    alone are simplified."""
    kept: dict[PrimExpr, Var] = {}

    def whole(n: PrimExpr) -> PrimExpr:
        for quotient, var in reversed(kept.items()):
            n = substitute(n, {var: quotient})
        return n

    def visit(n: Any) -> Any:
        n = map_children(n, visit)
        match n:
            case expr.FloorDiv(a, b) | expr.FloorMod(a, b):
                a, b = an.index_form(a), an.index_form(b)
                if isinstance(a, expr.Add | expr.Sub):
                    quotient = type(n)(a, b)
                    bounds = an.bounds_of(whole(quotient))
                    an.bind(kept.setdefault(quotient, Var("quotient", n.dtype)), *bounds)
                    return kept[quotient]
                return n
            case _:
                return n

    with an.scope():
        return whole(an.index_form(visit(e)))


def fuse(
    func: PrimFunc, variables: Sequence[Var], *, preserve_unit_iters: bool = False
) -> tuple[PrimFunc, Var]:
    """Replace perfectly nested loops, given outermost first, by one loop over all of them.

    With `preserve_unit_iters`, loops of one iteration stay in the bindings, as in `split`.
    """
    chain = _chain(func, variables, "fuse")
    places = [find_loop(func, v, "fuse") for v in variables]
    for outer, inner in zip(chain, chain[1:], strict=False):
        if inner.loop_var not in variables or outer.body is not inner:
            raise ScheduleError(
                "fuse", describe_loop(outer),
                f"the loops are perfectly nested; {inner.loop_var.name} does not follow directly",
                suggestion="reorder the loops next to each other first",
                about=(inner.loop_var,),
            )  # fmt: skip
    if [c.loop_var for c in chain] != list(variables):
        raise ScheduleError("fuse", describe_loop(chain[0]), "loops are given outermost first")
    earlier: set[Var] = set()
    for loop in chain:
        require_plain("fuse", loop)
        if vars_in(loop.extent) & earlier or vars_in(loop.min) & earlier:
            if len(chain) == 2:
                return fuse_ragged(func, *variables)
            raise ScheduleError(
                "fuse", describe_loop(loop), "the extent does not depend on the loops outside",
                suggestion="fuse it with the one loop that it depends on", about=(loop.loop_var,),
            )  # fmt: skip
        earlier.add(loop.loop_var)
    kinds = {iv.kind for c in chain for _, iv in axes_bound_to(c.loop_var, chain[-1].body)}
    mixed = {"spatial", "reduce"} <= kinds
    counted = next((c for c in chain if mixed and _may_be_empty(c, places[0])), None)
    if counted is not None:
        # Where there is no term, the fused loop has no iteration that gives a result its value.
        raise ScheduleError(
            "fuse", describe_loop(counted),
            "neither data nor loops outside leave a loop of terms that is fused with a loop of "
            "results without iterations",
            suggestion="decompose_reduction first", about=(counted.loop_var,),
        )  # fmt: skip
    empty = next((c for c in chain if c.extent == ZERO), None)
    if empty is not None and mixed:
        # The fused loop has no iterations, in which results would get their initial values.
        raise ScheduleError(
            "fuse", describe_loop(empty),
            "a loop of terms that is fused with a loop of results has iterations",
            about=(empty.loop_var,),
        )  # fmt: skip
    fused = Var("_".join(v.name for v in variables) + "_fused")
    if empty is not None:
        # There are no quotients by its extent. Each variable becomes the fused one, so that it
        # still shows which axes the loop is for.
        body = substitute(chain[-1].body, dict.fromkeys(variables, fused))
        place = places[0]
        return place.replaced(For(fused, ZERO, ZERO, "serial", body, span=place.loop.span)), fused
    return _one_loop(places[0], chain, fused, preserve_unit_iters), fused


def _may_be_empty(loop: For, place: LoopPlace) -> bool:
    """True if data, or loops around `place`, may leave a loop without iterations."""
    if by_data(loop.extent):
        return True
    outer = {s.loop_var for s in place.path if isinstance(s, For)}
    some = expr.GE(loop.extent, ONE)
    return bool(vars_in(loop.extent) & outer) and analyzer_at(place).prove(some) is not True


def _one_loop(
    place: LoopPlace, chain: list[For], fused: Var, preserve_unit_iters: bool
) -> PrimFunc:
    """The function with a loop over `fused` in place of loops that have iterations, the outermost
    of them at `place`."""
    values: dict[Var, PrimExpr] = {}
    rest: PrimExpr = fused
    total: PrimExpr = ONE
    an = analyzer_at(place, preserve_unit_iters)
    signed = [c for c in chain if an.prove(expr.GE(c.extent, ZERO)) is not True]
    # The product of two negative extents, as of range(n - 2) for n = 0, would be positive.
    least = ZERO if len(signed) > 1 else None
    for i, loop in enumerate(reversed(chain)):
        last = i == len(chain) - 1
        # The outermost loop needs no modulo: the fused variable is less than the product of all
        # extents.
        values[loop.loop_var] = loop.min + (rest if last else rest % loop.extent)
        rest = rest // loop.extent
        runs = loop.extent if least is None or loop not in signed else expr.Max(loop.extent, least)
        total = runs * total
    total = an.simplify(total)
    bind_loop(an, fused, ZERO, total, preserve_unit_iters)
    body = substitute(chain[-1].body, values)
    body = _simplified(body, an, preserve_unit_iters, as_written=preserve_unit_iters)
    return place.replaced(For(fused, ZERO, total, "serial", body, span=place.loop.span))


def _chain(func: PrimFunc, variables: Sequence[Var], primitive: str) -> list[For]:
    """The loops from the outermost to the innermost of `variables`, with those in between."""
    if not variables or len(set(variables)) != len(variables):
        raise ScheduleError(primitive, "the arguments", "there are loops, all different")
    places = [find_loop(func, v, primitive) for v in variables]
    inner = max(places, key=lambda p: len(p.path))
    outer = min(places, key=lambda p: len(p.path))
    for p in places:
        if p.loop not in inner.path:
            raise ScheduleError(
                primitive, describe_loop(p.loop),
                f"all loops are around one block; {p.loop.loop_var.name} is not around "
                f"{inner.loop.loop_var.name}",
                about=(p.loop.loop_var,),
            )  # fmt: skip
    section = inner.path[len(outer.path) - 1 :]
    return [s for s in section if isinstance(s, For)]


def reorder(func: PrimFunc, variables: Sequence[Var]) -> PrimFunc:
    """Permute loops of one nest into the given order; loops not named keep their position."""
    chain = _chain(func, variables, "reorder")
    top = find_loop(func, chain[0].loop_var, "reorder")
    for outer, inner in zip(chain, chain[1:], strict=False):
        if outer.body is not inner:
            what = type(outer.body).__name__
            raise ScheduleError(
                "reorder", describe_loop(outer),
                f"nothing but the next loop is inside the loop; there is a {what}",
                about=(outer.loop_var,),
            )  # fmt: skip
    require_order_free("reorder", find_loop(func, chain[-1].loop_var, "reorder"))
    _require_init_first(chain, analyzer_at(top))
    named = {c.loop_var: c for c in chain if c.loop_var in variables}
    queue = [named[v] for v in variables]
    order = [queue.pop(0) if c.loop_var in named else c for c in chain]
    inside: set[Var] = {c.loop_var for c in order}
    for loop in order:
        inside.discard(loop.loop_var)
        needed = (vars_in(loop.extent) | vars_in(loop.min)) & (inside | {loop.loop_var})
        if needed:
            names = ", ".join(v.name for v in needed)
            raise ScheduleError(
                "reorder", describe_loop(loop),
                f"the extent does not depend on loops that would be inside it: {names}",
                about=tuple(needed),
            )  # fmt: skip
    _require_same_order(func, chain, order)
    return top.replaced(nested(order, chain[-1].body))


def _require_same_order(func: PrimFunc, before: list[For], after: list[For]) -> None:
    """Blocks that keep their order keep that of the loops over their reduce axes."""
    for realize in realizes_under(before[-1].body):
        reduced = {
            v
            for iv, value in zip(realize.block.iter_vars, realize.iter_values, strict=True)
            if iv.kind != "spatial"
            for v in vars_in(value)
        }
        old, new = ([s for s in nest if s.loop_var in reduced] for nest in (before, after))
        if old != new:
            require_reassociable("reorder", func, realize.block)


def _require_init_first(chain: list[For], an: Analyzer) -> None:
    """Raise unless a block that initialises where its reduce axes are at their first values comes
    there first; a loop over spatial and reduce axes at once decides that together with the
    others, and one over none initialises it again."""
    for loop in chain:
        # An axis that one iteration is bound to is bound to a number, as j is under i = 0 in
        # `for j in range(min(n, i + 1))`.
        again = an.prove(expr.LE(loop.extent, ONE)) is not True
        bind_stmt(an, loop)
        for realize in realizes_under(loop.body) if again else ():
            if realize.block.init is not None and not axis_kinds(realize, loop.loop_var):
                raise ScheduleError(
                    "reorder", describe_loop(loop),
                    f"each loop runs over axes of block {realize.block.name!r}, which initialises "
                    "itself",
                    suggestion="decompose_reduction first", about=(loop.loop_var,),
                )  # fmt: skip
        bound = axes_bound_to(loop.loop_var, loop.body)
        for realize, _ in bound:
            kinds = {iv.kind for r, iv in bound if r is realize}
            if realize.block.init is not None and len(kinds) > 1:
                raise ScheduleError(
                    "reorder", describe_loop(loop),
                    f"no loop runs over spatial and reduce axes of block {realize.block.name!r} "
                    "at once while it initialises itself",
                    suggestion="reorder before fuse", about=(loop.loop_var,),
                )  # fmt: skip


def add_unit_loop(func: PrimFunc, target: Var | str) -> tuple[PrimFunc, Var]:
    """Put a loop of extent 1 around a loop (given by its variable) or a block (by its name)."""
    place: Place
    if isinstance(target, Var):
        place = find_loop(func, target, "add_unit_loop")
    else:
        place = find_block(func, target, "add_unit_loop")
    unit = Var("u")
    return place.replaced(For(unit, ZERO, ONE, "serial", place.stmt)), unit


def require_plain(primitive: str, loop: For) -> None:
    """Raise ScheduleError for a loop that is marked: the marks would be lost."""
    if loop.kind != "serial" or loop.annotations:
        state = loop.kind if loop.kind != "serial" else f"annotated {dict(loop.annotations)}"
        raise ScheduleError(
            primitive, describe_loop(loop), f"the loop is serial and not annotated; it is {state}",
            suggestion=f"{primitive} first, then mark the resulting loop",
            about=(loop.loop_var,),
        )  # fmt: skip
