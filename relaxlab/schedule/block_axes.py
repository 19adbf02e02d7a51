"""reorder_block_iter_var and transform_block_layout: other axes for a block."""

from __future__ import annotations

from collections.abc import Sequence

from relaxlab.analysis.index_map import IndexMap, NotInvertible
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import (
    IterKind,
    IterVar,
    PrimFunc,
    Range,
    Stmt,
    nest_over_axes,
)
from relaxlab.ir.node import replace
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.instances import require_unrestricted
from relaxlab.schedule.order import require_reassociable
from relaxlab.schedule.ranges import ZERO, analyzer_at
from relaxlab.schedule.regions import refreshed, simplified
from relaxlab.schedule.scope import require_computed_alone
from relaxlab.schedule.tree import (
    BlockPlace,
    describe_block,
    find_block,
    vars_in,
)


def reorder_block_iter_var(func: PrimFunc, name: str, order: Sequence[int]) -> PrimFunc:
    """Permute the axes of a block: axis number `order[i]` becomes number i."""
    place = find_block(func, name, "reorder_block_iter_var")
    block, values = place.block, place.realize.iter_values
    if sorted(order) != list(range(len(values))):
        raise ScheduleError(
            "reorder_block_iter_var", describe_block(block),
            f"the new order has each number from 0 to {len(values) - 1} once; it is {list(order)}",
        )  # fmt: skip
    axes = tuple(block.iter_vars[i] for i in order)
    for number, iv in enumerate(axes):
        later = {x.var for x in axes[number:]} & vars_in(iv.dom)
        if later:
            names = " and ".join(sorted(v.name for v in later))
            raise ScheduleError(
                "reorder_block_iter_var", describe_block(block),
                f"an axis is behind those that its extent depends on; {iv.var.name}, of "
                f"{iv.dom.extent} values, is not behind {names}", about=(block.name,),
            )  # fmt: skip
    block = replace(block, iter_vars=axes)
    values = tuple(values[i] for i in order)
    return place.replaced(replace(place.realize, iter_values=values, block=block))


def transform_block_layout(func: PrimFunc, name: str, index_map: IndexMap) -> PrimFunc:
    """Give a block the axes that the index map makes of its own, and a loop over each of them.

    Each new axis is made of spatial axes alone, or of reduce axes alone.
    """
    primitive = "transform_block_layout"
    place = find_block(func, name, primitive)
    block = place.block
    require_computed_alone(primitive, place)
    require_unrestricted(primitive, place)
    nest = nest_of(place, primitive)
    if any(iv.dom.min != ZERO for iv in block.iter_vars):
        raise ScheduleError(primitive, describe_block(block), "the axes start at 0")
    an = analyzer_at(place)
    extents = tuple(iv.dom.extent for iv in block.iter_vars)
    try:
        inverse, shape, padding = index_map.inverse_with_padding(extents, an)
    except (NotInvertible, ValueError) as e:
        raise ScheduleError(
            primitive, describe_block(block),
            f"the index map gives every instance of the block one of its own; {e}",
        ) from None  # fmt: skip
    if padding is not None:
        raise ScheduleError(
            primitive, describe_block(block),
            f"the index map leaves no gaps; there is no instance where {padding}",
            suggestion="choose factors that divide the extents",
        )  # fmt: skip
    kinds = _kinds(place, index_map, primitive)
    if "reduce" in kinds:
        require_reassociable(primitive, func, block)
    axes = tuple(Var(f"v{d}") for d in range(len(shape)))
    at = dict(zip(inverse.initial_indices, axes, strict=True))
    old = {
        iv.var: substitute(e, at)
        for iv, e in zip(block.iter_vars, inverse.final_indices, strict=True)
    }
    iter_vars = tuple(
        IterVar(v, Range(ZERO, e), kind) for v, e, kind in zip(axes, shape, kinds, strict=True)
    )
    new = replace(substitute(replace(block, iter_vars=()), old), iter_vars=iter_vars)
    for iv in iter_vars:
        an.bind_range(iv.var, iv.dom)
    made = nest_over_axes(refreshed(simplified(new, an)))
    return place.replaced(made, place.path.index(nest))


def nest_of(place: BlockPlace, primitive: str) -> Stmt:
    """The outermost loop around a block, in whose nest it is alone. Raises ScheduleError."""
    inner: Stmt = place.realize
    for loop in reversed(place.loops):
        if loop.body is not inner:
            raise ScheduleError(
                primitive, describe_block(place.block),
                f"the block is alone in its loops; loop {loop.loop_var} has more inside",
                about=(loop.loop_var,),
            )  # fmt: skip
        inner = loop
    return inner


def _kinds(place: BlockPlace, index_map: IndexMap, primitive: str) -> list[IterKind]:
    """The kind of each new axis."""
    old = dict(zip(index_map.initial_indices, place.block.iter_vars, strict=True))
    found: list[IterKind] = []
    for e in index_map.final_indices:
        kinds: set[IterKind] = {old[v].kind for v in _initial(e, old)}
        if len(kinds) > 1:
            raise ScheduleError(
                primitive, describe_block(place.block),
                f"a new axis is made of axes of one kind; {e} is of {' and '.join(sorted(kinds))}",
            )  # fmt: skip
        found.append(kinds.pop() if kinds else "spatial")
    return found


def _initial(e: PrimExpr, old: dict[Var, IterVar]) -> frozenset[Var]:
    return vars_in(e) & old.keys()
