"""compute_inline and reverse_compute_inline: one block instead of two."""

from __future__ import annotations

import operator
from functools import partial

from relaxlab.ir import expr
from relaxlab.ir.errors import kind_of
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import Block, Buffer, BufferLoad, BufferStore, PrimFunc, Stmt
from relaxlab.ir.node import Node, children, map_children, replace, rewrite, walk
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.dependence import require_inputs_kept
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.exact_region import exact_region
from relaxlab.schedule.instances import require_only_loops, require_unrestricted
from relaxlab.schedule.ranges import ZERO, Span, analyzer_at, covers
from relaxlab.schedule.regions import (
    opaque_buffers,
    refreshed,
    replace_loads,
    without_alloc,
)
from relaxlab.schedule.scope import (
    consumers_of,
    is_complete,
    is_output,
    producers_of,
    require_computed_alone,
    require_injective,
    require_inputs_settled,
    require_output_unread,
)
from relaxlab.schedule.tree import (
    BlockPlace,
    describe_block,
    find_block,
    path_to,
    realizes_under,
)

REPEATED = 64
"""Nodes of the largest expression that is repeated where it is read several times. LLVM finds what
small ones have in common; bound to a variable, they would be harder to match for rules."""


def compute_inline(func: PrimFunc, name: str) -> PrimFunc:
    """Compute the block's value where it is read, and drop the block and its buffer."""
    place = find_block(func, name, "compute_inline")
    store = _single_store("compute_inline", place)
    buffer = store.buffer
    require_intermediate("compute_inline", place, buffer)
    axes = _axes_by_dimension(place.block, store.indices, "compute_inline")
    require_only_loops("compute_inline", place)
    require_inputs_settled("compute_inline", place)
    readers = consumers_of(place.block, place.scope)
    if not readers:
        raise ScheduleError(
            "compute_inline", describe_block(place.block), "another block reads the result"
        )
    paths = (path_to(func.body, partial(operator.is_, r)) for r in readers)
    require_inputs_kept("compute_inline", place, [path for path in paths if path is not None])
    value = store.value
    if value.dtype != buffer.dtype:
        # The buffer rounded its values; without it the reader would see more digits.
        value = expr.Cast(buffer.dtype, value)
    units = {iv.var: iv.dom.min for iv in place.block.iter_vars if iv.var not in axes}
    value = substitute(value, units)

    def at(load: BufferLoad) -> PrimExpr:
        return substitute(value, {var: load.indices[d] for var, d in axes.items()})

    removed = without_alloc(place.replaced(None), buffer)
    body = removed.body
    # Ten steps of Newton's iteration inlined as a tree took 5.7 s to compile (NOTES, *Chains that
    # read values twice*).
    if sum(1 for _ in walk(value)) > REPEATED:
        body = rewrite(body, lambda n: _loading_once(n, buffer))
    return replace(removed, body=replace_loads(body, buffer, at))


def _loading_once(n: Node, buffer: Buffer) -> Node | None:
    """A store that reads an element of `buffer` several times, reading it once: a chain of blocks
    each of which reads the one before twice stays as long as it is, instead of doubling with each
    block that is inlined."""
    if not isinstance(n, BufferStore):
        return None
    nodes = list(walk(n.value))
    loads = [m for m in nodes if isinstance(m, BufferLoad)]
    places = {i for load in loads for index in load.indices for i in walk(index)}
    value = n.value
    for load in dict.fromkeys(m for m in loads if m.buffer is buffer and m not in places):
        if nodes.count(load) > 1:
            value = _bound(value, load)
    return None if value is n.value else replace(n, value=value)


def _bound(e: PrimExpr, load: BufferLoad) -> PrimExpr:
    """`e` with the load bound to a variable where all that reads it is inside, but not around a
    choice of which only one side reads it: the element need not exist for the other."""
    inside = [c for c in children(e) if any(n == load for n in walk(c))]
    chooses = isinstance(e, expr.Call) and e.op == "if_then_else" and e.args[0] not in inside
    if len(inside) > 1 and not chooses:
        var = Var(load.buffer.name, load.dtype)
        return expr.Let(var, load, rewrite(e, lambda n: var if n == load else None))
    return map_children(
        e, lambda c: _bound(c, load) if isinstance(c, PrimExpr) and c in inside else c
    )


def _single_store(primitive: str, place: BlockPlace) -> BufferStore:
    """The block's only statement. Raises ScheduleError unless the block is complete and is one."""
    block = place.block
    if not is_complete(block, place.scope):
        require_computed_alone(primitive, place)
        raise ScheduleError(
            primitive, describe_block(block), "the block is not a reduction",
            suggestion="compute_at or reverse_compute_at instead", about=(block.name,),
        )  # fmt: skip
    if not isinstance(block.body, BufferStore):
        raise ScheduleError(
            primitive, describe_block(block),
            f"the block's body is one store; it is {kind_of(block.body)}",
        )  # fmt: skip
    return block.body


def require_intermediate(primitive: str, place: BlockPlace, buffer: Buffer) -> None:
    if is_output(buffer, place.func):
        raise ScheduleError(
            primitive, describe_block(place.block),
            f"the block writes an intermediate buffer; {buffer.name} is a parameter",
            about=(buffer,),
        )  # fmt: skip
    own = any(buffer is a for a in place.scope.alloc_buffers)
    if not own and _uses(place.func.body, buffer) > _uses(place.scope, buffer):
        raise ScheduleError(
            primitive, describe_block(place.block),
            f"{buffer.name} is allocated by the enclosing block {place.scope.name!r}",
            about=(buffer,),
        )  # fmt: skip
    if buffer in opaque_buffers(place.func.body):
        raise ScheduleError(
            primitive, describe_block(place.block),
            f"{buffer.name} is only loaded and stored, not taken as an address or matched",
            about=(buffer,),
        )  # fmt: skip


def _uses(s: Stmt, buffer: Buffer) -> int:
    return sum(isinstance(n, BufferLoad | BufferStore) and n.buffer is buffer for n in walk(s))


def _axes_by_dimension(
    block: Block, indices: tuple[PrimExpr, ...], primitive: str
) -> dict[Var, int]:
    """Return the dimension of the access that each axis of the block stands for; the others have
    extent 1.

    Raises ScheduleError unless the indices are distinct axes (or anything, where only extent-1 axes
    occur).
    """
    found: dict[Var, int] = {}
    units = {iv.var: iv.dom.min for iv in block.iter_vars if iv.dom.extent == expr.const(1)}
    for d, index in enumerate(indices):
        if isinstance(index, Var) and index not in found:
            found[index] = d
        elif not isinstance(substitute(index, units), expr.IntImm):
            raise ScheduleError(
                primitive, describe_block(block),
                f"the buffer is accessed at distinct axes; dimension {d} is {index}",
            )  # fmt: skip
    for iv in block.iter_vars:
        if iv.var not in found and iv.var not in units:
            raise ScheduleError(
                primitive, describe_block(block),
                f"every axis longer than 1 indexes the buffer; {iv.var.name} does not",
            )  # fmt: skip
    return found


def reverse_compute_inline(func: PrimFunc, name: str) -> PrimFunc:
    """Apply the block to each value where its producer computes it; drop the block."""
    place = find_block(func, name, "reverse_compute_inline")
    store = _single_store("reverse_compute_inline", place)
    producer = only_producer("reverse_compute_inline", place)
    made = _single_store("reverse_compute_inline", producer)
    buffer = made.buffer
    require_intermediate("reverse_compute_inline", producer, buffer)
    require_unrestricted("reverse_compute_inline", place)
    require_unrestricted("reverse_compute_inline", producer)
    require_every_element("reverse_compute_inline", producer, made)
    require_output_unread("reverse_compute_inline", place)
    require_inputs_kept("reverse_compute_inline", place, [producer.path])
    axes = place.block.iter_vars
    require_injective(place, axes, store.indices, "their results", "reverse_compute_inline")
    values = axes_of_reader("reverse_compute_inline", place, producer, made)
    inner = made.value if made.value.dtype == buffer.dtype else expr.Cast(buffer.dtype, made.value)
    consumer = substitute(store, values)
    body = replace_loads(consumer, buffer, lambda _: inner)
    fused = refreshed(replace(producer.block, body=body))
    func = producer.replaced(replace(producer.realize, block=fused))
    func = find_block(func, name).replaced(None)
    return without_alloc(func, buffer)


def axes_of_reader(
    primitive: str, place: BlockPlace, producer: BlockPlace, made: BufferStore
) -> dict[Var, PrimExpr]:
    """The value of each axis of the block at `place` where it reads what the store of its producer
    makes. Raises ScheduleError unless each element is read in one instance."""
    buffer = made.buffer
    read_at = _only_index(primitive, place, buffer)
    axes = _axes_by_dimension(place.block, read_at, primitive)
    values: dict[Var, PrimExpr] = {
        iv.var: iv.dom.min for iv in place.block.iter_vars if iv.var not in axes
    }
    an = analyzer_at(producer)
    for iv in place.block.iter_vars:
        if iv.var in axes:
            d = axes[iv.var]
            values[iv.var] = made.indices[d]
            whole = iv.dom.min == expr.const(0) and an.prove_equal(iv.dom.extent, buffer.shape[d])
            if not whole:
                raise ScheduleError(
                    primitive, describe_block(place.block),
                    f"the block reads all of {buffer.name}; axis {iv.var.name} runs over "
                    f"{iv.dom.extent} of {buffer.shape[d]}",
                )  # fmt: skip
    for d, dim in enumerate(buffer.shape):
        if d not in axes.values() and not an.prove_equal(dim, 1):
            raise ScheduleError(
                primitive, describe_block(place.block),
                f"the block reads all of {buffer.name}; it reads one of {dim} elements of "
                f"dimension {d}",
            )  # fmt: skip
    return values


def require_every_element(primitive: str, producer: BlockPlace, made: BufferStore) -> None:
    """The producer writes its whole buffer: the block stores something for each element of it."""
    an = analyzer_at(producer)
    path = (*producer.loops, producer.realize)
    written = exact_region([Span(i, i) for i in made.indices], path, an)
    whole = [Span(ZERO, an.simplify(dim - 1)) for dim in made.buffer.shape]
    if written is None or not all(covers(b, w, an) for b, w in zip(written, whole, strict=True)):
        raise ScheduleError(
            primitive, describe_block(producer.block),
            f"block {producer.block.name!r} provably writes all of {made.buffer.name}",
            suggestion="compute_inline the producer instead", about=(producer.block.name,),
        )  # fmt: skip


def only_producer(primitive: str, place: BlockPlace) -> BlockPlace:
    """The producer whose buffer only this block reads. Raises ScheduleError."""
    block, scope = place.block, place.scope
    inner = [p for p in producers_of(block, scope)]
    if not inner:
        raise ScheduleError(
            primitive, describe_block(block), "another block produces what the block reads"
        )
    order = {r.block.name: i for i, r in enumerate(realizes_under(scope.body))}
    last = max(inner, key=lambda r: order[r.block.name])
    for c in consumers_of(last.block, scope):
        if c.block is not block:
            raise ScheduleError(
                primitive, describe_block(block),
                f"the block is the only reader of block {last.block.name!r}; "
                f"block {c.block.name!r} reads it too",
                suggestion=f"compute_inline({last.block.name!r})", about=(c.block.name,),
            )  # fmt: skip
    return find_block(place.func, last.block.name)


def _only_index(primitive: str, place: BlockPlace, buffer: Buffer) -> tuple[PrimExpr, ...]:
    loads = [n for n in walk(place.block.body) if isinstance(n, BufferLoad) and n.buffer is buffer]
    if len({load.indices for load in loads}) != 1:
        raise ScheduleError(
            primitive, describe_block(place.block),
            f"{buffer.name} is read at one place; it is read at "
            f"{'several' if loads else 'no'} indices",
        )  # fmt: skip
    return loads[0].indices
