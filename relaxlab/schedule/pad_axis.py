"""pad_axis: zeros behind the elements of an intermediate buffer, which whole tiles may read."""

from __future__ import annotations

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr
from relaxlab.ir.expr import FloatImm, IntImm, PrimExpr, const
from relaxlab.ir.loops import Block, BufferStore, For, IterVar, PrimFunc, Range, Stmt
from relaxlab.ir.node import replace
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.instances import require_unrestricted
from relaxlab.schedule.ranges import ZERO, analyzer_at
from relaxlab.schedule.regions import opaque_buffers, refreshed
from relaxlab.schedule.scope import is_complete, is_output
from relaxlab.schedule.tree import BlockPlace, conjuncts, describe_block, find_block, vars_in

PRIMITIVE = "pad_axis"


def pad_axis(func: PrimFunc, name: str, axis: int, multiple: int, beside: int) -> PrimFunc:
    """Let a block that fills an intermediate buffer go on along an axis, storing zeros, until the
    buffer has `beside` elements more than a multiple of `multiple`."""
    place = find_block(func, name, PRIMITIVE)
    block = place.block
    if multiple < 1 or beside < 0 or not 0 <= axis < len(block.iter_vars):
        raise _refused(block, "there is such an axis, a positive multiple, and none beside or more")
    it = block.iter_vars[axis]
    store, dim = _filled(place, it)
    an = analyzer_at(place)
    extent = it.dom.extent
    tiles = (extent - beside + (multiple - 1)) // multiple * multiple
    padded = an.simplify(expr.Max(tiles, ZERO) + beside)
    if an.prove_equal(padded, extent):
        return func
    if not an.prove(expr.LE(extent, padded)):
        raise _refused(block, f"{padded}, the padded extent, is known to be {extent} or more")
    value = store.value
    if not _is_zero_beyond(value, it, an):
        inside = expr.LT(it.var, extent)
        zero = const(0, value.dtype)
        value = expr.Call(value.dtype, "if_then_else", (inside, value, zero))
    made = store.buffer
    wider = replace(made, shape=(*made.shape[:dim], padded, *made.shape[dim + 1 :]))
    axes = list(block.iter_vars)
    axes[axis] = replace(it, dom=Range(ZERO, padded))
    longer = replace(block, iter_vars=tuple(axes), body=replace(store, value=value))
    loop = next(s for s in place.loops if s.loop_var == place.realize.iter_values[axis])
    predicate = expr.all_of(_guards_of_others(place, loop))
    # Whoever reads the block's buffer finds it where it was; only its rows are further apart.
    below: Stmt = replace(place.realize, predicate=predicate, block=refreshed(longer))
    for s in reversed(place.path[place.path.index(loop) : -1]):
        assert isinstance(s, For)
        below = replace(s, extent=padded if s is loop else s.extent, body=below)
    new = place.replaced(below, place.path.index(loop))
    return replace(new, body=substitute(new.body, buffers={made: wider}))


def _refused(block: Block, condition: str) -> ScheduleError:
    return ScheduleError(PRIMITIVE, describe_block(block), condition, about=(block.name,))


def _filled(place: BlockPlace, it: IterVar) -> tuple[BufferStore, int]:
    """Return the store of a block that fills a buffer, and the dimension that the axis goes along.
    Raises ScheduleError unless the block alone fills it, from one end of the axis to the other, in
    a loop around nothing else."""
    block, store = place.block, place.block.body
    if not is_complete(block, place.scope) or not isinstance(store, BufferStore):
        raise _refused(block, "the block alone fills its buffer, by one store over spatial axes")
    require_unrestricted(PRIMITIVE, place)
    buffer = store.buffer
    if is_output(buffer, place.func) or buffer.strides or buffer in opaque_buffers(place.func.body):
        raise _refused(
            block, f"{buffer.name} is an intermediate buffer, dense, and only loaded and stored"
        )
    an = analyzer_at(place)
    dims = [d for d, index in enumerate(store.indices) if it.var in vars_in(index)]
    if len(dims) != 1 or store.indices[dims[0]] != it.var:
        raise _refused(block, f"{it.var} is an index of {buffer.name}, and in no other")
    whole = it.dom.min == ZERO and an.prove_equal(it.dom.extent, buffer.shape[dims[0]])
    value = place.realize.iter_values[place.block.iter_vars.index(it)]
    loop = next((s for s in place.loops if s.loop_var == value), None)
    if not whole or loop is None or loop.min != ZERO or loop.extent != it.dom.extent:
        raise _refused(block, f"a loop over all {buffer.shape[dims[0]]} values of {it.var}")
    inside = place.path[place.path.index(loop) :]
    alone = all(
        isinstance(s, For) and s.body is below for s, below in zip(inside, inside[1:], strict=False)
    )
    elsewhere = [v for n, v in enumerate(place.realize.iter_values) if block.iter_vars[n] is not it]
    if not alone or any(loop.loop_var in vars_in(v) for v in elsewhere):
        raise _refused(block, f"the loop over {it.var} is around that block alone, for that axis")
    return store, dims[0]


def _guards_of_others(place: BlockPlace, loop: For) -> list[PrimExpr]:
    """The guards that are not about the loop. One that is says no more than that its axis ends,
    where zeros begin now. Raises ScheduleError for guards about it and others at once."""
    others = {s.loop_var for s in place.loops} - {loop.loop_var}
    found: list[PrimExpr] = []
    for c in conjuncts(place.realize.predicate):
        if loop.loop_var not in vars_in(c):
            found.append(c)
        elif vars_in(c) & others:
            raise _refused(place.block, f"{c} is about {loop.loop_var} or other loops, not both")
    return found


def _is_zero_beyond(value: PrimExpr, it: IterVar, an: Analyzer) -> bool:
    """True if the value is zero beyond the end of the axis already, as that of padding is."""
    match value:
        case expr.Call(_, "if_then_else", (inside, _, IntImm() | FloatImm() as other)):
            if other.value != 0:
                return False
        case _:
            return False
    end = it.dom.extent
    for c in conjuncts(inside):
        match c:
            case expr.LT(a, b) if a == it.var and an.prove(expr.LE(b, end)):
                return True
            case expr.LE(a, b) if a == it.var and an.prove(expr.LT(b, end)):
                return True
            case _:
                continue
    return False
