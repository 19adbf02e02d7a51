"""Padded rows for buffers with an aligned stride (`Schedule.storage_align`)."""

from __future__ import annotations

import math

from relaxlab.codegen.errors import CodegenError
from relaxlab.ir import expr
from relaxlab.ir.loops import Block, Buffer, PrimFunc
from relaxlab.ir.node import replace, walk
from relaxlab.ir.substitute import substitute


def align_storage(func: PrimFunc) -> PrimFunc:
    """The function with its shared and private buffers as large as `buffer_dim_align` asks: the
    stride of an axis is the least that is `offset` modulo `factor`. Raises CodegenError where
    there is none."""
    wider: dict[Buffer, Buffer] = {}
    for block in (n for n in walk(func.body) if isinstance(n, Block)):
        asked: tuple[tuple[int, int, int, int], ...] = block.annotations.get("buffer_dim_align", ())
        for number, axis, factor, offset in asked:
            buffer = block.writes[number].buffer
            if buffer.scope != "global":
                wider[buffer] = _aligned(wider.get(buffer, buffer), axis, factor, offset)
    return substitute(func, buffers=wider)


def _aligned(buffer: Buffer, axis: int, factor: int, offset: int) -> Buffer:
    inner = buffer.shape[axis + 1 :]
    if not inner or not all(isinstance(d, expr.IntImm) for d in inner):
        raise CodegenError(f"the stride of axis {axis} of {buffer.name!r} cannot be chosen")
    sizes = [d.value for d in inner if isinstance(d, expr.IntImm)]
    rest = math.prod(sizes[1:])
    # Modulo `factor`, strides repeat after at most so many sizes.
    for size in range(sizes[0], sizes[0] + factor):
        if size * rest % factor == offset % factor:
            shape = (*buffer.shape[: axis + 1], expr.const(size), *inner[1:])
            return replace(buffer, shape=shape, strides=())
    raise CodegenError(
        f"no stride of axis {axis} of {buffer.name!r}, a multiple of {rest}, is {offset} modulo "
        f"{factor}"
    )
