"""decompose_reduction: the initialisation of a reduction as a block of its own."""

from __future__ import annotations

from relaxlab.ir import expr, loops
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import Block, BlockRealize, For, IterVar, PrimFunc, Stmt
from relaxlab.ir.node import replace
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.instances import require_all_written
from relaxlab.schedule.ranges import ONE, analyzer_at
from relaxlab.schedule.regions import without_stated
from relaxlab.schedule.scope import axis_kinds, read, written
from relaxlab.schedule.tree import (
    BlockPlace,
    LoopPlace,
    conjuncts,
    describe_block,
    describe_loop,
    find_block,
    find_loop,
    fresh_block_name,
    realizes_under,
    vars_in,
)


def decompose_reduction(func: PrimFunc, name: str, var: Var) -> tuple[PrimFunc, str, str]:
    """Initialise just before a loop around the block instead of inside it.

    The loop is outside, or is, the outermost loop the reduce axes are bound to. Returns the
    function, the name of the initialising block (`X_init`) and the block's new name (`X_update`).
    """
    place = find_block(func, name, "decompose_reduction")
    block = place.block
    if block.init is None:
        raise ScheduleError(
            "decompose_reduction", describe_block(block), "the block has an initialisation",
            about=(name,),
        )  # fmt: skip
    target = find_loop(func, var, "decompose_reduction")
    if not any(loop is target.loop for loop in place.loops):
        raise ScheduleError(
            "decompose_reduction", describe_loop(target.loop), f"the loop is around block {name!r}",
            about=(var,),
        )  # fmt: skip
    _require_outside_reduction(place, target.loop)
    require_all_written("decompose_reduction", place)
    _require_untouched(place, target)
    inner = place.loops[place.loops.index(target.loop) :]
    init_name = fresh_block_name(func, f"{name}_init")
    update_name = fresh_block_name(func, f"{name}_update")
    init = _init_nest(place, inner, init_name)
    reads = (*block.writes, *block.reads)
    update = replace(block, name=update_name, init=None, reads=reads)
    func = place.replaced(replace(place.realize, block=update))
    target = find_loop(func, var)
    return target.replaced(loops.seq(init, target.loop)), init_name, update_name


def _require_outside_reduction(place: BlockPlace, target: For) -> None:
    for loop in place.loops:
        if loop is target:
            return
        if "reduce" in axis_kinds(place.realize, loop.loop_var):
            raise ScheduleError(
                "decompose_reduction", describe_loop(target),
                f"no loop outside it carries the reduction; {describe_loop(loop)} does",
                suggestion=f"decompose_reduction at loop {loop.loop_var.name}, or reorder",
                about=(loop.loop_var,),
            )  # fmt: skip


def _require_untouched(place: BlockPlace, target: LoopPlace) -> None:
    """The initialisation moves in front of everything under the loop: nothing there but the block
    writes the buffer, or reads it before the block."""
    mine = set(written(place.block))
    earlier = True
    for r in realizes_under(target.loop):
        if r.block is place.block:
            earlier = False
        elif mine & set(written(r.block)) or (earlier and mine & set(read(r.block))):
            raise ScheduleError(
                "decompose_reduction", describe_loop(target.loop),
                f"no other block under the loop touches what block {place.block.name!r} "
                f"initialises; block {r.block.name!r} does",
                about=(r.block.name,),
            )  # fmt: skip


def _init_nest(place: BlockPlace, inner: tuple[For, ...], name: str) -> Stmt:
    """The initialisation over the spatial ones of the `inner` loops."""
    block, realize = place.block, place.realize
    outer: list[For] = []
    dropped: set[Var] = set()
    fresh: dict[Var, PrimExpr] = {}
    an = analyzer_at(place)
    for loop in inner:
        kinds = axis_kinds(place.realize, loop.loop_var)
        if {"spatial", "reduce"} <= kinds:
            raise ScheduleError(
                "decompose_reduction", describe_loop(loop),
                "no loop runs over spatial and reduce axes at once", about=(loop.loop_var,),
            )  # fmt: skip
        if not kinds and not an.prove(expr.LE(loop.extent, ONE)):
            raise ScheduleError(
                "decompose_reduction", describe_loop(loop),
                f"every loop inside is bound to an axis of block {block.name!r}; this one repeats "
                "the whole reduction",
                suggestion=f"decompose_reduction inside loop {loop.loop_var.name}",
                about=(loop.loop_var,),
            )  # fmt: skip
        if (vars_in(loop.min) | vars_in(loop.extent)) & dropped:
            raise ScheduleError(
                "decompose_reduction", describe_loop(loop),
                "its extent does not depend on a loop over a reduce axis", about=(loop.loop_var,),
            )  # fmt: skip
        if "spatial" in kinds:
            outer.append(loop)
            fresh[loop.loop_var] = Var(f"{loop.loop_var.name}_init")
        else:
            dropped.add(loop.loop_var)
    axes: dict[Var, PrimExpr] = {}
    iter_vars: list[IterVar] = []
    values: list[PrimExpr] = []
    for iv, value in zip(block.iter_vars, realize.iter_values, strict=True):
        if iv.kind == "spatial":
            axes[iv.var] = Var(f"{iv.var.name}_init")
            iter_vars.append(replace(iv, var=axes[iv.var]))  # type: ignore[arg-type]
            values.append(substitute(value, fresh))
    assert block.init is not None
    init = Block(
        name, tuple(iter_vars), (), tuple(substitute(w, axes) for w in block.writes),
        substitute(block.init, axes), annotations=without_stated(block.annotations),
    )  # fmt: skip
    conditions = [
        substitute(c, fresh) for c in conjuncts(realize.predicate)
        if not _mentions_reduction(c, dropped, place)
    ]  # fmt: skip
    nest: Stmt = BlockRealize(tuple(values), expr.all_of(conditions), init)
    for loop in reversed(outer):
        nest = replace(
            loop, loop_var=fresh[loop.loop_var], min=substitute(loop.min, fresh),
            extent=substitute(loop.extent, fresh), body=nest,
        )  # fmt: skip
    return nest


def _mentions_reduction(condition: PrimExpr, dropped: set[Var], place: BlockPlace) -> bool:
    used = vars_in(condition)
    if not used & dropped:
        return False
    spatial = {v for v in used if "spatial" in axis_kinds(place.realize, v)}
    if spatial:
        raise ScheduleError(
            "decompose_reduction", describe_block(place.block),
            f"no predicate mixes spatial and reduce loops; {condition} does",
        )  # fmt: skip
    return True
