"""pack: a private copy of what a block reads of a buffer, in the order in which it is read."""

from __future__ import annotations

from typing import TypeAlias

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    IfThenElse,
    IterKind,
    IterVar,
    PrimFunc,
    Range,
    Stmt,
    seq,
)
from relaxlab.ir.node import Node, children, replace, rewrite, walk
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.annotate import require_in_turn
from relaxlab.schedule.cache import buffer_of
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.ranges import (
    ONE,
    ZERO,
    analyzer_in,
    binding_of,
    require_constant_extents,
    values_taken,
)
from relaxlab.schedule.regions import refreshed, with_alloc
from relaxlab.schedule.scope import written
from relaxlab.schedule.tree import (
    BlockPlace,
    LoopPlace,
    bound_inside,
    conjuncts,
    describe_block,
    describe_loop,
    find_block,
    find_loop,
    fresh_block_name,
    fresh_buffer_name,
    realizes_under,
    vars_in,
    with_fresh_binders,
)


def pack(
    func: PrimFunc, name: str, index: int, var: Var, number: int | None
) -> tuple[PrimFunc, str]:
    """Copy what a block reads of a buffer in one iteration of a loop to a private buffer, which has
    an element for each iteration of the loops inside that choose an element, in their order. Of a
    buffer of which the block reads several places, that of this number.

    Elements are copied that some iteration of the block reads, or that are in the buffer all the
    same. Returns the function and the name of the copying block.
    """
    place, target = find_block(func, name, "pack"), find_loop(func, var, "pack")
    buffer = buffer_of(place.block, "read", index, "pack")
    load, inner = _only_load(place, buffer, target, number), _inner(place, target)
    bound = binding_of(place.realize)
    chosen = {v for i in load.indices for v in vars_in(substitute(i, bound))}
    choosing = tuple(s for s in inner if s.loop_var in chosen)
    require_constant_extents("pack", choosing)
    panel = Buffer(
        fresh_buffer_name(func, f"{buffer.name}_panel"),
        tuple(loop.extent for loop in choosing) or (ONE,), buffer.dtype, scope="local",
    )  # fmt: skip
    require_in_turn("pack", (*target.loops, target.loop), panel.name)
    an = analyzer_in(target)
    conditions = _conditions(place, inner, choosing, load, an)
    copy_name = fresh_block_name(func, panel.name)
    copy = _copy(place, choosing, load, panel, conditions, an, copy_name)
    changed = place.replaced(_reading(place, choosing, load, panel))
    target = find_loop(changed, var)
    changed = target.replaced(replace(target.loop, body=seq(copy, target.loop.body)))
    return with_alloc(changed, place.scope.name, panel), copy_name


def _only_load(
    place: BlockPlace, buffer: Buffer, target: LoopPlace, number: int | None
) -> BufferLoad:
    """The one place in a buffer that a block reads, or that of a number, and nothing under the loop
    writes."""
    loads = list(dict.fromkeys(n for n in walk(place.block.body)
                               if isinstance(n, BufferLoad) and n.buffer is buffer))  # fmt: skip
    writers = [r.block.name for r in realizes_under(target.loop.body) if buffer in written(r.block)]
    if number is not None:
        loads = loads[number : number + 1]
    # Places that index functions give are known by their facts, which a copy would not have.
    if len(loads) != 1 or writers or buffer.facts:
        raise ScheduleError(
            "pack", describe_block(place.block),
            f"{buffer.name} is no index function, the block reads one place of it, or that of the "
            "number, and no block under the loop writes it",
            about=(buffer, *writers),
        )  # fmt: skip
    if {v for i in loads[0].indices for v in vars_in(i)} & bound_inside(place.block.body):
        raise ScheduleError(
            "pack", describe_block(place.block),
            f"axes of the block say which element of {buffer.name} is read, and not loops in it",
            about=(buffer,),
        )  # fmt: skip
    return loads[0]


def _inner(place: BlockPlace, target: LoopPlace) -> tuple[For, ...]:
    """The loops between a loop and a block inside of it."""
    if not any(s is target.loop for s in place.loops):
        raise ScheduleError(
            "pack", describe_loop(target.loop), f"the loop is around block {place.block.name!r}",
            about=(place.block.name,),
        )  # fmt: skip
    at = next(i for i, s in enumerate(place.loops) if s is target.loop)
    return place.loops[at + 1 :]


def _conditions(
    place: BlockPlace, inner: tuple[For, ...], choosing: tuple[For, ...], load: BufferLoad,
    an: Analyzer,
) -> list[PrimExpr]:  # fmt: skip
    """The conditions under which an element is copied. Those that the other loops take part in are
    asked of the first iteration of these loops, which then reads the element; where the loops that
    choose it take part in them, too, they may hold in later iterations alone, or the block itself
    decides whether to read, all elements are copied that are in the buffer."""
    others = {s.loop_var: s for s in inner if s not in choosing}
    given = conjuncts(place.realize.predicate)
    kept = [c for c in given if not vars_in(c) & others.keys()]
    outside = _not_inside(place, choosing, kept, load, an)
    if not outside:
        return kept
    dropped = [c for c in given if c not in kept]
    mine = {s.loop_var for s in choosing}
    mixed = [c for c in dropped if vars_in(c) & mine]
    uneven = [s for s in others.values() if vars_in(s.extent) & (mine | others.keys())]
    first = {v: s.min for v, s in others.items()}
    if not _is_read(place.block.body, load):
        return [*kept, *outside]
    if mixed or uneven or not _hold_first(dropped, tuple(others.values()), an):
        return [*kept, *outside]
    exists = [expr.LT(ZERO, s.extent) for s in others.values()]
    exists = [c for c in exists if not an.prove(c)]
    return [*kept, *exists, *(substitute(c, first) for c in dropped)]


def _is_read(n: Node, load: BufferLoad) -> bool:
    """True if whatever is evaluated of `n` reads the element."""
    match n:
        case expr.Call(_, "if_then_else", (condition, *_)) | IfThenElse(condition):
            parts: tuple[Node, ...] = (condition,)
        case expr.And(a) | expr.Or(a):
            parts = (a,)
        case For(_, first, extent):
            parts = (first, extent)
        case _:
            parts = tuple(children(n))
    return n == load or any(_is_read(p, load) for p in parts)


def _hold_first(conditions: list[PrimExpr], nest: tuple[For, ...], an: Analyzer) -> bool:
    """True if conditions that hold in some iteration of the loops hold in their first ones, too."""
    first = {s.loop_var: s.min for s in nest}
    with an.scope():
        for loop in nest:
            an.bind_range(loop.loop_var, Range(loop.min, loop.extent))
        for c in conditions:
            an.assume(c)
        return all(an.prove(substitute(c, first)) is True for c in conditions)


def _not_inside(
    place: BlockPlace, choosing: tuple[For, ...], kept: list[PrimExpr], load: BufferLoad,
    an: Analyzer,
) -> list[PrimExpr]:  # fmt: skip
    """The conditions for an element to be in the buffer that others do not imply."""
    bound = binding_of(place.realize)
    indices = [substitute(i, bound) for i in load.indices]
    mine = {s.loop_var for s in choosing}
    tables = [n for i in indices for n in walk(i) if isinstance(n, BufferLoad)]
    if any(vars_in(n) & mine for n in tables):
        raise ScheduleError(
            "pack", describe_block(place.block),
            f"no array that the loops inside go through says which element of {load.buffer.name} "
            "is read", about=(load.buffer,),
        )  # fmt: skip
    with an.scope():
        for loop in choosing:
            an.bind_range(loop.loop_var, Range(loop.min, loop.extent))
        for c in kept:
            an.assume(c)
        wanted = [
            c for i, size in zip(indices, load.buffer.shape, strict=True)
            for c in (expr.GE(i, ZERO), expr.LT(i, size))
        ]  # fmt: skip
        return [an.simplify(c) for c in wanted if not an.prove(c)]


Bound: TypeAlias = tuple[IterVar, PrimExpr]
"""An axis of a block and its value."""


def _with_axes(
    pairs: list[Bound], choosing: tuple[For, ...], kinds: dict[Var, IterKind]
) -> tuple[list[Bound], tuple[PrimExpr, ...]]:
    """Axes and their values, with one that is bound to each of the loops that choose an element;
    and the element of the panel in terms of these."""
    bound = {value: iv.var for iv, value in pairs if isinstance(value, Var)}
    new = {
        s.loop_var: IterVar(Var(f"v{s.loop_var.name}"), Range(ZERO, s.extent), kinds[s.loop_var])
        for s in choosing if s.loop_var not in bound
    }  # fmt: skip
    of_loop = {**bound, **{v: iv.var for v, iv in new.items()}}
    at = tuple(of_loop[s.loop_var] for s in choosing) or (ZERO,)
    return [*pairs, *((iv, v) for v, iv in new.items())], at


def _copy(
    place: BlockPlace, choosing: tuple[For, ...], load: BufferLoad, panel: Buffer,
    conditions: list[PrimExpr], an: Analyzer, name: str,
) -> Stmt:  # fmt: skip
    read = {v for i in load.indices for v in vars_in(i)}
    pairs: list[Bound] = [
        (replace(iv, kind="spatial", dom=_domain(place, iv, load, read)), value)
        for iv, value in zip(place.block.iter_vars, place.realize.iter_values, strict=True)
        if iv.var in read
    ]
    pairs, at = _with_axes(pairs, choosing, {s.loop_var: "spatial" for s in choosing})
    pairs = pairs or [(IterVar(Var("v"), Range(ZERO, ONE), "spatial"), ZERO)]
    store = BufferStore(panel, load, at)
    axes, values = tuple(iv for iv, _ in pairs), tuple(v for _, v in pairs)
    with an.scope():
        for loop in choosing:
            an.bind_range(loop.loop_var, Range(loop.min, loop.extent))
        for c in conditions:
            an.assume(c)
        axes = tuple(values_taken(iv, v, an) for iv, v in zip(axes, values, strict=True))
    block = refreshed(Block(name, axes, (), (), store, span=place.block.span))
    nest: Stmt = BlockRealize(values, expr.all_of(conditions), block)
    for loop in reversed(choosing):
        nest = replace(loop, kind="serial", body=nest)
    return with_fresh_binders(nest)


def _domain(place: BlockPlace, iv: IterVar, load: BufferLoad, read: set[Var]) -> Range:
    """The domain of an axis: as it is, or if that depends on axes that do not choose an element,
    all of the dimension that the axis is the index of."""
    axes = {x.var for x in place.block.iter_vars}
    if not (vars_in(iv.dom.min) | vars_in(iv.dom.extent)) & (axes - read):
        return iv.dom
    sizes = zip(load.indices, load.buffer.shape, strict=True)
    whole = next((size for i, size in sizes if i == iv.var), None)
    if whole is None:
        raise ScheduleError(
            "pack", describe_block(place.block),
            f"the range of {iv.var.name} depends on what chooses an element of {load.buffer.name}",
            about=(load.buffer,),
        )  # fmt: skip
    return Range(ZERO, whole)


def _reading(
    place: BlockPlace, choosing: tuple[For, ...], load: BufferLoad, panel: Buffer
) -> BlockRealize:
    """The block, reading the panel."""
    realize, block = place.realize, place.block
    pairs = list(zip(block.iter_vars, realize.iter_values, strict=True))
    reduced = {v for iv, value in pairs if iv.kind != "spatial" for v in vars_in(value)}
    kinds: dict[Var, IterKind] = {
        s.loop_var: "reduce" if s.loop_var in reduced else "spatial" for s in choosing
    }  # fmt: skip
    kept = {v for iv, value in pairs if iv.kind == "spatial" for v in vars_in(value)}
    bound = {value for _, value in pairs}
    for loop in choosing if block.init is not None else ():
        if loop.loop_var in kept & reduced - bound:
            raise ScheduleError(
                "pack", describe_block(block),
                f"loop {loop.loop_var.name} is of results or of terms; it is of both, so a result "
                "may begin in any of its iterations",
                suggestion="decompose_reduction first", about=(loop.loop_var,),
            )  # fmt: skip
    pairs, at = _with_axes(pairs, choosing, kinds)
    body = rewrite(block.body, lambda n: BufferLoad(panel, at) if n == load else None)
    axes, values = tuple(iv for iv, _ in pairs), tuple(v for _, v in pairs)
    return replace(realize, iter_values=values,
                   block=refreshed(replace(block, iter_vars=axes, body=body)))  # fmt: skip
