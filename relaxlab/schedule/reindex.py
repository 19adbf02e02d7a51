"""reindex, reindex_cache_read and reindex_cache_write: a copy of a buffer in the order of a block's
axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relaxlab.analysis.index_map import IndexMap, NotInvertible
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
from relaxlab.ir.node import Node, replace, rewrite, walk
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.cache import after_writers, buffer_of, insert, position_of, statements
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.instances import (
    require_all_written,
    require_body_unconditional,
    require_inside,
    require_unrestricted,
)
from relaxlab.schedule.ranges import ZERO, analyzer_at
from relaxlab.schedule.regions import mentions, refreshed, with_alloc
from relaxlab.schedule.scope import is_sole_writer, require_injective
from relaxlab.schedule.tree import (
    BlockPlace,
    bound_inside,
    describe_block,
    find_block,
    fresh_block_name,
    fresh_buffer_name,
    realizes_under,
    vars_in,
)


def reindex(func: PrimFunc, name: str, kind: str, index: int) -> tuple[PrimFunc, str]:
    """Let the block read or write a copy of a buffer whose indices are the block's axes.

    Returns the function and the name of the copying block.
    """
    return _copied(func, "reindex", name, kind, index, "global", None)


def reindex_cache(
    func: PrimFunc, name: str, kind: str, index: int, scope: str, index_map: IndexMap,
    place: int | None = None,
) -> tuple[PrimFunc, str]:  # fmt: skip
    """As `reindex`, with a copy of the given scope, whose indices an index map makes of the block's
    axes. `place`: the number among `places_of` whose accesses are of the copy; None where there is
    one place."""
    return _copied(func, f"reindex_cache_{kind}", name, kind, index, scope, index_map, place)


def places_of(block: Block, buffer: Buffer) -> list[tuple[PrimExpr, ...]]:
    """The indices at which a block accesses a buffer, each once, in the order of its text."""
    accesses = (
        n.indices
        for n in walk(block.body)
        if isinstance(n, BufferLoad | BufferStore) and n.buffer is buffer
    )
    return list(dict.fromkeys(accesses))


def _copied(
    func: PrimFunc, primitive: str, name: str, kind: str, index: int, scope: str,
    index_map: IndexMap | None, number: int | None = None,
) -> tuple[PrimFunc, str]:  # fmt: skip
    place = find_block(func, name, primitive)
    block = place.block
    buffer = buffer_of(block, kind, index, primitive)
    indices = _indices(place, buffer, kind, primitive, number)
    _require_movable(place, buffer, kind, primitive)
    used = tuple(iv for iv in block.iter_vars if any(iv.var in vars_in(i) for i in indices))
    if kind == "write" and any(iv.kind != "spatial" for iv in used):
        raise ScheduleError(
            primitive, describe_block(block),
            f"spatial axes alone say where {buffer.name} is written",
        )  # fmt: skip
    at = _places(place, used, index_map, primitive)
    if kind == "write":
        require_injective(place, used, indices, f"an element of {buffer.name}", primitive)
    shape = _shape(place, used, at, primitive)
    suffix = "reindex" if index_map is None else scope.replace(".", "_")
    copy = Buffer(
        fresh_buffer_name(func, f"{buffer.name}_{suffix}"), shape, buffer.dtype, scope=scope
    )
    moved = rewrite(block, _redirecting(buffer, indices, copy, at, kind))
    func = place.replaced(replace(place.realize, block=moved))
    nest, copying = _copy_nest(func, primitive, buffer, copy, indices, at, used, kind)
    place = find_block(func, name, primitive)
    body = place.scope.body
    if kind == "read":
        after_writers(body, buffer, place, {name}, primitive)
    position = position_of(place)
    if kind == "write":
        _require_unread_inside(place, statements(body)[position], buffer, primitive)
        position += 1
    scope_block = replace(place.scope, body=insert(body, position, nest))
    func = place.replaced(scope_block, place.scope_depth)
    return with_alloc(func, scope_block.name, copy), copying


def _indices(
    place: BlockPlace, buffer: Buffer, kind: str, primitive: str, number: int | None
) -> tuple[PrimExpr, ...]:
    """The indices at which the block accesses the buffer at the place of this number; everywhere
    without one."""
    block = place.block
    found = places_of(block, buffer)
    if number is not None and number not in range(len(found)):
        raise ScheduleError(
            primitive, describe_block(block),
            f"place {number!r} is a place where the block {kind}s {buffer.name}; it has "
            + ", ".join(f"{i}: {BufferLoad(buffer, at)}" for i, at in enumerate(found)),
            about=(buffer,),
        )  # fmt: skip
    chosen = found if number is None else [found[number]]
    loads = kind == "read" and any(w.buffer is buffer for w in block.writes)
    inner = {v for at in chosen for i in at for v in vars_in(i)}
    axes = {iv.var for iv in block.iter_vars}
    if len(chosen) != 1 or loads or _by_data(chosen) or (inner & bound_inside(block.body)) - axes:
        several = len(found) > 1 and number is None and kind == "read" and not loads
        raise ScheduleError(
            primitive, describe_block(block),
            f"the block {kind}s {buffer.name} at one place, which its axes say",
            suggestion="reindex_cache_read takes one of several as `place`" if several else None,
            about=(buffer,),
        )  # fmt: skip
    return chosen[0]


def _by_data(found: list[tuple[PrimExpr, ...]]) -> bool:
    return any(isinstance(n, BufferLoad) for at in found for i in at for n in walk(i))


def _require_movable(place: BlockPlace, buffer: Buffer, kind: str, primitive: str) -> None:
    """Raise ScheduleError unless every instance of the block runs, over axes from 0, and no other
    block writes what this one writes."""
    if kind == "read":
        require_unrestricted(primitive, place)
        loads = (n for n in walk(place.block.body) if isinstance(n, BufferLoad))
        require_inside(primitive, place, [n for n in loads if n.buffer is buffer])
    else:
        require_all_written(primitive, place)
        require_body_unconditional(primitive, place)
        if not is_sole_writer(place.block, place.scope):
            raise ScheduleError(
                primitive, describe_block(place.block), f"no other block writes {buffer.name}",
                about=(buffer,),
            )  # fmt: skip
        updates = any(r.buffer is buffer for r in place.block.reads)
        if updates and place.block.init is None:
            raise ScheduleError(
                primitive, describe_block(place.block),
                f"the block does not update {buffer.name} in place", about=(buffer,),
            )  # fmt: skip
    if any(iv.dom.min != ZERO for iv in place.block.iter_vars):
        raise ScheduleError(primitive, describe_block(place.block), "the axes start at 0")


def _places(
    place: BlockPlace, used: tuple[IterVar, ...], index_map: IndexMap | None, primitive: str
) -> tuple[PrimExpr, ...]:
    """The indices of the copy, of the block's axes."""
    if index_map is None:
        return tuple(iv.var for iv in used)
    axes = tuple(iv.var for iv in place.block.iter_vars)
    at = index_map.apply(axes)
    if not all(vars_in(i) <= {iv.var for iv in used} for i in at):
        raise ScheduleError(
            primitive, describe_block(place.block),
            "the index map takes the axes alone that say which element it is: "
            + ", ".join(iv.var.name for iv in used),
        )  # fmt: skip
    require_injective(place, used, at, "its place in the copy", primitive)
    return at




def _shape(
    place: BlockPlace, used: tuple[IterVar, ...], at: tuple[PrimExpr, ...], primitive: str
) -> tuple[PrimExpr, ...]:
    by_axes = IndexMap(tuple(iv.var for iv in used), at)
    try:
        return by_axes.map_shape([iv.dom.extent for iv in used], analyzer_at(place))
    except NotInvertible as e:
        raise ScheduleError(primitive, describe_block(place.block), str(e)) from None


def _redirecting(
    buffer: Buffer, indices: tuple[PrimExpr, ...], copy: Buffer, at: tuple[PrimExpr, ...], kind: str
) -> Callable[[Node], Any]:
    def visit(n: Node) -> Node | None:
        match n:
            case BufferLoad(b) if b is buffer and n.indices == indices:
                return BufferLoad(copy, at)
            case BufferStore(b, value) if b is buffer and kind == "write":
                return BufferStore(copy, value, at)
            case Block() if mentions(n, buffer):
                return refreshed(n)
            case _:
                return None

    return visit


def _copy_nest(
    func: PrimFunc, primitive: str, buffer: Buffer, copy: Buffer, indices: tuple[PrimExpr, ...],
    at: tuple[PrimExpr, ...], used: tuple[IterVar, ...], kind: str,
) -> tuple[Stmt, str]:  # fmt: skip
    """Loops over the axes around a block that copies one element."""
    axes = {iv.var: Var(f"v{d}") for d, iv in enumerate(used)}
    there = tuple(substitute(i, axes) for i in indices)
    here = tuple(substitute(i, axes) for i in at)
    source, target = ((buffer, there), (copy, here))
    if kind == "write":
        source, target = target, source
    iter_vars = tuple(IterVar(axes[iv.var], iv.dom, "spatial") for iv in used)
    if primitive == "reindex":
        copying = f"{copy.name}_reindex" if kind == "read" else copy.name
    else:
        copying = f"{buffer.name}_{copy.scope}"
    name = fresh_block_name(func, copying)
    block = Block(
        name, iter_vars, (point_region(*source),), (point_region(*target),),
        BufferStore(target[0], BufferLoad(*source), target[1]),
    )  # fmt: skip
    return nest_over_axes(block), name


def _require_unread_inside(place: BlockPlace, top: Stmt, buffer: Buffer, primitive: str) -> None:
    for r in realizes_under(top):
        if any(x.buffer is buffer for x in r.block.reads):
            raise ScheduleError(
                primitive, describe_block(place.block),
                f"{buffer.name} is read only after the loops around the block; block "
                f"{r.block.name!r} inside them reads it",
                about=(r.block.name,),
            )  # fmt: skip
