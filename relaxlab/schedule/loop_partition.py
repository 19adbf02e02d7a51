"""loop_partition: consecutive loops in place of one, each in a block of its own."""

from __future__ import annotations

from collections.abc import Sequence

from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import (
    Block,
    BlockRealize,
    For,
    IterVar,
    PrimFunc,
    Range,
    Stmt,
    seq,
)
from relaxlab.ir.node import replace
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.ragged_loops import axis_of, named_anew
from relaxlab.schedule.ranges import ZERO, analyzer_at, binding_of, values_taken
from relaxlab.schedule.regions import refreshed
from relaxlab.schedule.scope import axes_bound_to
from relaxlab.schedule.split_fuse_reorder import require_plain
from relaxlab.schedule.tree import (
    TRUE,
    LoopPlace,
    describe_block,
    describe_loop,
    find_loop,
    fresh_block_name,
    map_realizes,
    realizes_under,
    vars_in,
    walk_stmts,
    with_fresh_binders,
)

PRIMITIVE = "loop_partition"


def loop_partition(
    func: PrimFunc, var: Var, factors: Sequence[PrimExpr | int | None]
) -> tuple[PrimFunc, tuple[Var, ...]]:
    """Split a loop into loops of the given numbers of iterations, after each other, of which one
    may be None, and one more over the rest.

    Each is in a block of its own, so that primitives see one block that writes there. A block X
    becomes X_i0, X_i1 and so on, for loop i.
    """
    place = find_loop(func, var, PRIMITIVE)
    loop = place.loop
    require_plain(PRIMITIVE, loop)
    blocks = realizes_under(loop.body)
    for r, iv in axes_bound_to(var, loop.body):
        if iv.kind != "spatial" and r.block.init is not None:
            raise ScheduleError(
                PRIMITIVE, describe_loop(loop),
                f"block {r.block.name!r} initialises its result before the loop, not in each part",
                suggestion="decompose_reduction first", about=(r.block.name,),
            )  # fmt: skip
    an = analyzer_at(place)
    starts = [*_starts(place, factors), loop.extent]
    name = f"{blocks[0].block.name}_{var.name}" if blocks else var.name
    new = tuple(Var(f"{var.name}{k}") for k in range(len(starts) - 1))
    parts: list[Stmt] = []
    for k, v in enumerate(new):
        first, count = an.simplify(loop.min + starts[k]), an.simplify(starts[k + 1] - starts[k])
        part = Range(first, count)
        body = map_realizes(loop.body, lambda r, part=part: _restricted(r, place, part))
        body = named_anew(func, with_fresh_binders(substitute(body, {var: v})), f"{var.name}{k}")
        inner = For(v, first, count, "serial", body, span=loop.span)
        part_name = fresh_block_name(func, f"{name}{k}_partition")
        block = Block(part_name, (), (), (), inner)
        parts.append(BlockRealize((), TRUE, refreshed(block)))
    common = fresh_block_name(func, f"{name}_common")
    return place.replaced(_over_loops(place, common, seq(*parts))), new


def _over_loops(place: LoopPlace, name: str, body: Stmt) -> BlockRealize:
    """A block whose axes are the loops around it."""
    axes: list[IterVar] = []
    table: dict[Var, PrimExpr] = {}
    for s in place.loops:
        kinds = {iv.kind for _, iv in axes_bound_to(s.loop_var, place.loop.body)}
        kind = next((k for k in ("opaque", "scan", "reduce") if k in kinds), "spatial")
        var = Var(f"v{s.loop_var.name}")
        dom = substitute(Range(s.min, s.extent), table)
        axes.append(IterVar(var, dom, kind))  # type: ignore[arg-type]
        table[s.loop_var] = var
    # The block around the parts declares their accesses in terms of its own axes.
    block = Block(name, tuple(axes), (), (), substitute(body, table))
    values = tuple(s.loop_var for s in place.loops)
    return BlockRealize(values, TRUE, refreshed(block))


def _starts(place: LoopPlace, factors: Sequence[PrimExpr | int | None]) -> list[PrimExpr]:
    """The iterations at which the parts begin, all of which provably have some."""
    loop, an = place.loop, analyzer_at(place)
    given = [None if f is None else expr.as_expr(f) for f in factors]
    if not given or given.count(None) > 1:
        raise ScheduleError(
            PRIMITIVE, describe_loop(loop), "there are factors, at most one of them None"
        )
    known: PrimExpr = ZERO
    for f in given:
        known = known + f if f is not None else known
    rest = an.simplify(loop.extent - known)
    counts = [rest if f is None else f for f in given] + ([] if None in given else [rest])
    for count in counts:
        if not an.prove(expr.GT(count, ZERO)):
            raise ScheduleError(
                PRIMITIVE, describe_loop(loop),
                f"each part has iterations: the factors are positive, and their sum, "
                f"{an.simplify(known)}, is less than the extent {loop.extent}",
                about=(loop.loop_var,),
            )  # fmt: skip
    starts: list[PrimExpr] = [ZERO]
    for count in counts[:-1]:
        starts.append(an.simplify(starts[-1] + count))
    return starts


def _restricted(r: BlockRealize, place: LoopPlace, part: Range) -> BlockRealize:
    """A block in one of the parts: the axis that is the loop has the values that occur there."""
    loop, an = place.loop, analyzer_at(place)
    iv = axis_of(r, loop, PRIMITIVE)
    dom = substitute(iv.dom, binding_of(r))
    if not (an.prove_equal(dom.extent, loop.extent) and an.prove_equal(dom.min, loop.min)):
        raise ScheduleError(
            PRIMITIVE, describe_block(r.block), f"axis {iv.var.name} has the values of the loop",
            suggestion="loop_partition before pad_loop", about=(r.block.name, loop.loop_var),
        )  # fmt: skip
    an.bind_range(loop.loop_var, part)
    if loop.loop_var in vars_in(r.predicate) and not an.prove(r.predicate):
        raise ScheduleError(
            PRIMITIVE, describe_block(r.block),
            f"no predicate leaves out iterations of the loop; there is T.where({r.predicate})",
            suggestion="loop_partition before split", about=(r.block.name, loop.loop_var),
        )  # fmt: skip
    for s in walk_stmts(loop.body):
        if isinstance(s, For) and any(s.loop_var in vars_in(v) for v in r.iter_values):
            an.bind_range(s.loop_var, Range(s.min, s.extent))
    axes = tuple(
        replace(x, dom=part) if x is iv else values_taken(x, v, an)
        for x, v in zip(r.block.iter_vars, r.iter_values, strict=True)
    )
    return _inside(replace(r, block=replace(r.block, iter_vars=axes)), place)


def _inside(r: BlockRealize, place: LoopPlace) -> BlockRealize:
    """A block with the axes that run inside of the loop or with it; others have one value there."""
    outside = {s.loop_var for s in place.loops}
    kept: list[tuple[IterVar, PrimExpr]] = []
    fixed: dict[Var, PrimExpr] = {}
    for iv, value in zip(r.block.iter_vars, r.iter_values, strict=True):
        used = vars_in(value)
        if not used & outside:
            kept.append((iv, value))
            continue
        fixed[iv.var] = value
        initialises = iv.kind != "spatial" and r.block.init is not None
        if initialises or used - outside - _fixed(place):
            raise ScheduleError(
                PRIMITIVE, describe_block(r.block),
                f"axis {iv.var.name} is spatial, and of loops outside of the partitioned one or "
                f"of those inside; it is {iv.kind}, bound to {value}",
                suggestion="loop_partition before split and reorder", about=(r.block.name,),
            )  # fmt: skip
    block = substitute(replace(r.block, iter_vars=tuple(iv for iv, _ in kept)), fixed)
    return replace(r, iter_values=tuple(v for _, v in kept), block=block)


def _fixed(place: LoopPlace) -> set[Var]:
    """The variables that are fixed where the loop is, other than loops."""
    inner = {s.loop_var for s in walk_stmts(place.loop) if isinstance(s, For)}
    return set(vars_in(place.loop)) - inner
