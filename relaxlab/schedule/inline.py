"""compute_inline and reverse_compute_inline: one block instead of two."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.index_map import IndexMap, NotInvertible
from relaxlab.ir import expr
from relaxlab.ir.errors import kind_of
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import Block, Buffer, BufferLoad, BufferStore, PrimFunc, Range, Stmt
from relaxlab.ir.node import Node, children, map_children, replace, rewrite, walk
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.dependence import require_inputs_kept, require_known_effects
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.exact_region import exact_region
from relaxlab.schedule.instances import require_only_loops, require_unrestricted
from relaxlab.schedule.ranges import ONE, ZERO, Span, analyzer_at, bind_stmt, covers
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
    instances = _instances(place, store.indices, "compute_inline")
    require_only_loops("compute_inline", place)
    require_inputs_settled("compute_inline", place)
    readers = consumers_of(place.block, place.scope)
    if not readers:
        raise ScheduleError(
            "compute_inline", describe_block(place.block), "another block reads the result"
        )
    paths = (path_to(func.body, partial(operator.is_, r)) for r in readers)
    found = [path for path in paths if path is not None]
    require_known_effects("compute_inline", place)
    require_inputs_kept("compute_inline", place, found)
    for path in found:
        _require_computed(BlockPlace(func, path), buffer, instances)
    value = store.value
    if value.dtype != buffer.dtype:
        # The buffer rounded its values; without it the reader would see more digits.
        value = expr.Cast(buffer.dtype, value)

    def at(load: BufferLoad) -> PrimExpr:
        return substitute(value, instances.at(load.indices))

    removed = without_alloc(place.replaced(None), buffer)
    body = removed.body
    # Ten steps of Newton's iteration inlined as a tree took 5.7 s to compile (NOTES, *Chains that
    # read values twice*).
    if sum(1 for _ in walk(value)) > REPEATED:
        body = rewrite(body, lambda n: _loading_once(n, buffer))
    return replace(removed, body=replace_loads(body, buffer, at))


def _require_computed(reader: BlockPlace, buffer: Buffer, instances: _Instances) -> None:
    """Raise ScheduleError unless all that the block reads of the buffer is what the instances
    compute, where they do not compute all of it."""
    if instances.each_axis_alone:
        return
    an = analyzer_at(reader)
    bind_stmt(an, reader.block)
    for load in walk(reader.block):
        if not isinstance(load, BufferLoad) or load.buffer is not buffer:
            continue
        for i, span, dim in zip(load.indices, instances.spans, buffer.shape, strict=True):
            at = Span(i, i)
            if not covers(span, Span(ZERO, dim - 1), an) and not covers(span, at, an):
                raise ScheduleError(
                    "compute_inline", describe_block(reader.block),
                    f"the elements of {buffer.name} that it reads are computed, those from "
                    f"{span.lo} to {span.hi}; it reads at {i}",
                    about=(buffer,),
                )  # fmt: skip


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


@dataclass(frozen=True, slots=True)
class _Instances:
    """The instances of a block by the element of a buffer that each of them accesses.

    The elements are those of `spans`, one span per dimension; `axes` has the value of each axis in
    terms of the indices of `variables`. Axes of one value are in it, too. `each_axis_alone`: each
    axis is an index.
    """

    variables: tuple[Var, ...]
    axes: dict[Var, PrimExpr]
    spans: tuple[Span, ...]
    an: Analyzer
    each_axis_alone: bool

    def at(self, indices: Sequence[PrimExpr]) -> dict[Var, PrimExpr]:
        """The value of each axis of the instance for the element at `indices`."""
        table = dict(zip(self.variables, indices, strict=True))
        return {
            v: table[e] if isinstance(e, Var) else self.an.index_form(substitute(e, table))
            for v, e in self.axes.items()
        }


def _instances(place: BlockPlace, indices: tuple[PrimExpr, ...], primitive: str) -> _Instances:
    """The instances of the block by what they access at `indices`.

    Raises ScheduleError unless each instance accesses an element of its own.
    """
    block, an = place.block, analyzer_at(place)
    units = {iv.var: iv.dom.min for iv in block.iter_vars if iv.dom.extent == ONE}
    variables = tuple(Var(f"i{d}") for d in range(len(indices)))
    fixed = [i if isinstance(i, Var) else substitute(i, units) for i in indices]
    axes = {iv.var: iv for iv in block.iter_vars if iv.var not in units or iv.var in fixed}
    distinct = {i: v for i, v in zip(fixed, variables, strict=True) if isinstance(i, Var)}
    others = [i for i in fixed if not isinstance(i, Var)]
    one_each = len(distinct) + len(others) == len(indices) and distinct.keys() == axes.keys()
    if one_each and all(isinstance(i, expr.IntImm) for i in others):
        doms = [axes[i].dom if isinstance(i, Var) else Range(i, ONE) for i in fixed]
        spans = tuple(Span(r.min, r.min + r.extent - 1) for r in doms)
        return _Instances(variables, {**units, **distinct}, spans, an, True)
    fixed = [substitute(i, units) for i in indices]
    axes = {v: iv for v, iv in axes.items() if v not in units}
    if any(iv.dom.min != ZERO for iv in axes.values()):
        raise _not_apart(block, primitive, "an axis does not start at 0")
    first = [an.simplify(substitute(i, dict.fromkeys(axes, ZERO))) for i in fixed]
    rest = (an.simplify(i - f) for i, f in zip(fixed, first, strict=True))
    try:
        back, shape, gaps = IndexMap(tuple(axes), tuple(rest)).inverse_with_padding(
            [iv.dom.extent for iv in axes.values()], an
        )
    except NotInvertible as e:
        raise _not_apart(block, primitive, str(e)) from None
    if gaps is not None:
        raise _not_apart(block, primitive, f"elements in between are not, where {gaps}")
    moved = {
        v: i if f == ZERO else i - f
        for v, i, f in zip(back.initial_indices, variables, first, strict=True)
    }
    values = {v: substitute(e, moved) for v, e in zip(axes, back.final_indices, strict=True)}
    spans = tuple(Span(f, f + extent - 1) for f, extent in zip(first, shape, strict=True))
    return _Instances(variables, {**units, **values}, spans, an, False)


def _not_apart(block: Block, primitive: str, reason: str) -> ScheduleError:
    return ScheduleError(
        primitive, describe_block(block),
        f"each instance of the block accesses an element of its own in a box of the buffer; "
        f"{reason}",
    )  # fmt: skip


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
    require_known_effects("reverse_compute_inline", place)
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
    instances = _instances(place, _only_index(primitive, place, buffer), primitive)
    an = analyzer_at(producer)
    for d, (span, dim) in enumerate(zip(instances.spans, buffer.shape, strict=True)):
        whole = Span(ZERO, dim - 1)
        # Instances beyond the buffer read nothing of it, under a condition, and would be lost.
        if not (covers(span, whole, an) and covers(whole, span, an)):
            raise ScheduleError(
                primitive, describe_block(place.block),
                f"the block reads all of {buffer.name}, in all instances; along dimension {d}, it "
                f"reads elements {span.lo} to {span.hi} of {dim}",
            )  # fmt: skip
    return instances.at(made.indices)


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
