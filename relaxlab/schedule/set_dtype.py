"""unsafe_set_dtype: another dtype for an intermediate buffer."""

from __future__ import annotations

from relaxlab.ir import expr
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.loops import BufferLoad, BufferStore, PrimFunc
from relaxlab.ir.node import Node, replace, rewrite
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.cache import buffer_of
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.regions import opaque_buffers
from relaxlab.schedule.scope import is_output
from relaxlab.schedule.tree import describe_block, find_block


def unsafe_set_dtype(func: PrimFunc, name: str, write_index: int, dtype: str) -> PrimFunc:
    """Store an intermediate buffer that the block writes as `dtype`: what is written is converted,
    and what is read is converted back."""
    primitive = "unsafe_set_dtype"
    place = find_block(func, name, primitive)
    buffer = buffer_of(place.block, "write", write_index, primitive)
    if is_output(buffer, func) or buffer in opaque_buffers(func.body):
        raise ScheduleError(
            primitive, describe_block(place.block),
            f"{buffer.name} is an intermediate buffer that is only loaded and stored",
            suggestion="cache_write makes an intermediate buffer", about=(buffer,),
        )  # fmt: skip
    try:
        numpy_dtype(dtype)
    except (TypeError, ValueError):
        raise ScheduleError(
            primitive, describe_block(place.block), f"there is a dtype {dtype!r}"
        ) from None
    if dtype == buffer.dtype:
        return func

    def visit(n: Node) -> Node | None:
        match n:
            case BufferLoad(b) if b is buffer:
                return expr.Cast(buffer.dtype, n)
            case BufferStore(b, value) if b is buffer:
                return replace(n, value=expr.Cast(dtype, value))
            case _:
                return None

    converted = replace(func, body=rewrite(func.body, visit))
    return substitute(converted, buffers={buffer: replace(buffer, dtype=dtype)})
