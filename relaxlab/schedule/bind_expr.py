"""bind_expr: a part of what a block computes, in a block of its own."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from relaxlab.analysis.regions import point_region
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import (
    Block,
    Buffer,
    BufferLoad,
    BufferStore,
    IterVar,
    PrimFunc,
    Stmt,
    nest_over_axes,
)
from relaxlab.ir.node import Node, children, replace, rewrite, walk
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.cache import after_writers, insert, position_of
from relaxlab.schedule.cache_index import DIVISIONS
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.instances import evaluated_always, require_inside, require_unrestricted
from relaxlab.schedule.ranges import ZERO
from relaxlab.schedule.regions import refreshed, with_alloc
from relaxlab.schedule.tree import (
    BlockPlace,
    bound_inside,
    describe_block,
    find_block,
    fresh_block_name,
    fresh_buffer_name,
    vars_in,
)

PRIMITIVE = "bind_expr"


def bind_expr(
    func: PrimFunc, name: str, axes: Sequence[int], scope: str, number: int | None
) -> tuple[PrimFunc, str]:
    """Compute the part of a block that depends on no other of its axes than those of the numbers
    `axes` in a block of its own, before the loops around the block, which reads it from a buffer of
    the given scope (Exo's `bind_expr`). The part is the largest expression that reads a buffer and
    computes something of it; of several, the one of this number.

    Returns the function and the name of the new block.
    """
    place = find_block(func, name, PRIMITIVE)
    block = place.block
    _require_axes(place, axes)
    value = _part(place, {block.iter_vars[i].var for i in axes}, number)
    used = tuple(iv for iv in block.iter_vars if iv.var in vars_in(value))
    loads = [n for n in walk(value) if isinstance(n, BufferLoad)]
    require_unrestricted(PRIMITIVE, place)
    require_inside(PRIMITIVE, place, loads)
    for buffer in dict.fromkeys(load.buffer for load in loads):
        after_writers(place.scope.body, buffer, place, {name}, PRIMITIVE)
    shape = tuple(iv.dom.extent for iv in used)
    bound = Buffer(fresh_buffer_name(func, f"{name}_expr"), shape, value.dtype, scope=scope)
    read = BufferLoad(bound, tuple(iv.var for iv in used))
    body = rewrite(block.body, lambda n: read if n == value else None)
    made = fresh_block_name(func, bound.name)
    func = place.replaced(replace(place.realize, block=refreshed(replace(block, body=body))))
    place = find_block(func, name, PRIMITIVE)
    nest = _nest(made, bound, value, used)
    scope_block = replace(place.scope, body=insert(place.scope.body, position_of(place), nest))
    func = place.replaced(scope_block, place.scope_depth)
    return with_alloc(func, scope_block.name, bound), made


def parts_of(block: Block, axes: Collection[Var]) -> list[PrimExpr]:
    """The largest expressions in a block that read buffers, compute something of what they read,
    and depend on no other axes than these, each once."""
    others = {iv.var for iv in block.iter_vars}.difference(axes) | bound_inside(block.body)
    inner = [*block.alloc_buffers, *(m.buffer for m in block.match_buffers)]
    own = {*(w.buffer for w in block.writes), *inner}

    def within(n: Node) -> Iterator[PrimExpr]:
        if isinstance(n, BufferLoad):
            return
        if isinstance(n, PrimExpr) and not vars_in(n) & others:
            read = {m.buffer for m in walk(n) if isinstance(m, BufferLoad)}
            if read and not read & own:
                yield n
                return
        for child in children(n):
            yield from within(child)

    return list(dict.fromkeys(within(block.body)))


def _require_axes(place: BlockPlace, axes: Sequence[int]) -> None:
    """Raise ScheduleError unless these are numbers of axes of the block that start at 0."""
    count = len(place.block.iter_vars)
    for i in axes:
        if i not in range(count):
            raise ScheduleError(
                PRIMITIVE, describe_block(place.block), f"axis {i!r} is one of its {count} axes"
            )
        if place.block.iter_vars[i].dom.min != ZERO:
            raise ScheduleError(PRIMITIVE, describe_block(place.block), "the axes start at 0")


def _part(place: BlockPlace, axes: Collection[Var], number: int | None) -> PrimExpr:
    """The expression that is bound: the only one, or the one of a number."""
    block = place.block
    found = parts_of(block, axes)
    names = ", ".join(iv.var.name for iv in block.iter_vars if iv.var in axes)
    if number is not None and 0 <= number < len(found):
        found = [found[number]]
    elif number is not None or len(found) != 1:
        there = "; there are " + ", ".join(map(str, found)) if found else ""
        raise ScheduleError(
            PRIMITIVE, describe_block(block),
            f"one expression reads a buffer, computes something of it, and depends on the axes "
            f"{names or 'of none'} alone{there}",
        )  # fmt: skip
    (value,) = found
    skipped = value not in set(evaluated_always(block.body))
    # Integers cannot be divided by everything; the block may ask first.
    if skipped and any(isinstance(n, DIVISIONS) for n in walk(value)):
        raise ScheduleError(
            PRIMITIVE, describe_block(block), f"{value} is computed without a condition"
        )
    return value


def _nest(name: str, bound: Buffer, value: PrimExpr, used: tuple[IterVar, ...]) -> Stmt:
    """Loops over the axes around a block that computes one element of the buffer."""
    axes = {iv.var: Var(iv.var.name, iv.var.dtype) for iv in used}
    index = tuple(axes.values())
    value = substitute(value, dict[Var, PrimExpr](axes))
    loads = dict.fromkeys(n for n in walk(value) if isinstance(n, BufferLoad))
    block = Block(
        name,
        tuple(IterVar(axes[iv.var], iv.dom, "spatial") for iv in used),
        tuple(point_region(n.buffer, n.indices) for n in loads),
        (point_region(bound, index),),
        BufferStore(bound, value, index),
    )
    return nest_over_axes(block)
