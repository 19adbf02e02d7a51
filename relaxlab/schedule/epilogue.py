"""fuse_reduction_epilogue: a reduction that starts at what a block behind it combines with its
results."""

from __future__ import annotations

from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.loops import Buffer, BufferLoad, BufferStore, PrimFunc
from relaxlab.ir.node import replace, walk
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.inline import (
    axes_of_reader,
    only_producer,
    require_every_element,
    require_intermediate,
)
from relaxlab.schedule.instances import require_all_written, require_unrestricted
from relaxlab.schedule.order import require_reassociable
from relaxlab.schedule.regions import refreshed, without_alloc
from relaxlab.schedule.rfactor import Reduction, reduction_of
from relaxlab.schedule.scope import (
    is_complete,
    is_reduction,
    is_sole_writer,
    producers_of,
    read,
    require_output_unread,
)
from relaxlab.schedule.tree import (
    BlockPlace,
    describe_block,
    describe_loop,
    find_block,
    realizes_under,
)

PRIMITIVE = "fuse_reduction_epilogue"


def fuse_reduction_epilogue(func: PrimFunc, reduction: str, epilogue: str) -> PrimFunc:
    """Let a reduction accumulate into what the block `epilogue` writes, from an initial value that
    has what this block combines with each result; drop the block.

    Raises ScheduleError unless the block combines by the reduction's own operation, as a bias is
    added to sums. Other operations, such as the maximum with 0, would be applied to results that
    are not complete.
    """
    producer, place = (find_block(func, name, PRIMITIVE) for name in (reduction, epilogue))
    made, init = _reduction(producer)
    store, extra = _combined(place, made)
    if only_producer(PRIMITIVE, place).block.name != reduction:
        raise ScheduleError(
            PRIMITIVE, describe_block(place.block),
            f"block {reduction!r} is the last of those that compute what the block reads",
        )  # fmt: skip
    _require_complete_before(place, producer)
    require_intermediate(PRIMITIVE, producer, made.buffer)
    require_unrestricted(PRIMITIVE, place)
    require_all_written(PRIMITIVE, producer)
    require_every_element(PRIMITIVE, producer, init)
    require_output_unread(PRIMITIVE, place)
    require_reassociable(PRIMITIVE, func, producer.block)
    values = axes_of_reader(PRIMITIVE, place, producer, init)
    if store.buffer in read(producer.block) or store.buffer.dtype != made.buffer.dtype:
        raise ScheduleError(
            PRIMITIVE, describe_block(producer.block),
            f"the block can accumulate into {store.buffer.name}: it has the dtype of "
            f"{made.buffer.name}, and the block does not read it",
            about=(store.buffer,),
        )  # fmt: skip
    start = substitute(extra, values)
    if init.value != made.identity:
        start = expr.binary(made.op, init.value, start)
    indices = tuple(substitute(i, values) for i in store.indices)
    target = BufferLoad(store.buffer, indices)
    body = made.combined(target, made.value)
    fused = replace(
        producer.block,
        body=BufferStore(store.buffer, body, indices),
        init=BufferStore(store.buffer, start, indices),
    )
    func = producer.replaced(replace(producer.realize, block=refreshed(fused)))
    func = find_block(func, epilogue).replaced(None)
    return without_alloc(func, made.buffer)


def _require_complete_before(place: BlockPlace, producer: BlockPlace) -> None:
    """Raise ScheduleError unless what the block reads beside the reduction is computed before the
    loops around the reduction, whose first iteration may need all of it."""
    for loop in producer.loops[:1]:
        inside = realizes_under(loop)
        for p in producers_of(place.block, place.scope):
            if p.block is not producer.block and any(r is p for r in inside):
                raise ScheduleError(
                    PRIMITIVE, describe_block(place.block),
                    "what the block combines with results is computed before "
                    f"{describe_loop(loop)}; block {p.block.name!r} is inside",
                    about=(p.block.name, loop.loop_var),
                )  # fmt: skip


def _reduction(place: BlockPlace) -> tuple[Reduction, BufferStore]:
    """The reduction that a block computes, and the store that initialises it."""
    made, init = reduction_of(place.block), place.block.init
    if made is not None and isinstance(init, BufferStore):
        again = _loads(made.value, made.buffer)
        if is_reduction(place.block, place.scope) and not again:
            return made, init
    raise ScheduleError(
        PRIMITIVE, describe_block(place.block),
        "the block is a reduction, initialised by one store: X[…] = X[…] op value with op one of "
        "+, *, min, max",
        about=(place.block.name,),
    )  # fmt: skip


def _is_by_elements(place: BlockPlace, store: BufferStore) -> bool:
    """True if the block alone computes what it writes, each element without the others; it may be
    an update, whose new element depends on the old one."""
    if is_complete(place.block, place.scope):
        return True
    old = BufferLoad(store.buffer, store.indices)
    spatial = place.block.init is None and all(
        iv.kind == "spatial" for iv in place.block.iter_vars
    )
    loads = (n for n in walk(store.value) if isinstance(n, BufferLoad) and n.buffer is old.buffer)
    return spatial and is_sole_writer(place.block, place.scope) and all(n == old for n in loads)


def _combined(place: BlockPlace, made: Reduction) -> tuple[BufferStore, PrimExpr]:
    """The block's store, and the value that it combines with a result of the reduction."""
    store = place.block.body
    if isinstance(store, BufferStore) and _is_by_elements(place, store):
        value = store.value
        if isinstance(value, expr.BinaryOp) and type(value) is made.op:
            for result, other in ((value.a, value.b), (value.b, value.a)):
                is_result = isinstance(result, BufferLoad) and result.buffer is made.buffer
                if is_result and not _loads(other, made.buffer):
                    return store, other
    name = _NAMES[made.op]
    raise ScheduleError(
        PRIMITIVE, describe_block(place.block),
        f"the block stores an element of {made.buffer.name} combined with a value by the "
        f"reduction's own operation, {name}; another would see results that are not complete",
        suggestion="reverse_compute_at", about=(place.block.name,),
    )  # fmt: skip


_NAMES: dict[type[expr.BinaryOp], str] = {
    expr.Add: "+", expr.Mul: "*", expr.Min: "min", expr.Max: "max",
}  # fmt: skip


def _loads(e: PrimExpr, buffer: Buffer) -> bool:
    return any(isinstance(n, BufferLoad) and n.buffer is buffer for n in walk(e))
