"""XOR swizzles of buffers (`Schedule.swizzle`).

Eight rows of 128 bytes lie in the same banks of shared memory, column under column. Where the
number of each group of 16 bytes within its row is xored with the number of the row, what eight
threads read down a column is in different banks, and no memory is lost to padding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from relaxlab.codegen.errors import CodegenError
from relaxlab.ir import expr
from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.expr import IntImm, PrimExpr, const
from relaxlab.ir.loops import Block, Buffer, BufferLoad, BufferStore, Stmt
from relaxlab.ir.node import Node, map_children, replace, walk
from relaxlab.schedule.annotate import SWIZZLE, Swizzle

TOUCHED = 16
"""Bytes that calls such as `ldmatrix` and `cp_async` touch from the address that they are given."""


def swizzles_of(nest: Stmt) -> dict[Buffer, Swizzle]:
    """The swizzles that blocks of a nest are annotated with."""
    found: dict[Buffer, Swizzle] = {}
    for block in (n for n in walk(nest) if isinstance(n, Block)):
        asked: tuple[tuple[int, int, int, int], ...] = block.annotations.get(SWIZZLE, ())
        for number, bits, base, shift in asked:
            found[block.writes[number].buffer] = Swizzle(bits, base, shift)
    return found


def swizzle_storage(
    body: Stmt, allocated: Sequence[Buffer], asked: Mapping[Buffer, Swizzle]
) -> tuple[Stmt, tuple[Buffer, ...]]:
    """The block-free statement with the buffers `asked` stored by their swizzles, and the
    allocations: three dimensions are the bits above those that change, these, and those below.

    Raises CodegenError for a buffer whose size is not constant or no multiple of what is swizzled,
    and where an address is taken of elements that do not stay side by side.
    """
    if not asked:
        return body, tuple(allocated)
    swizzled = {b: _stored(b, s) for b, s in asked.items()}

    def visit(n: Node) -> Node:
        if isinstance(n, expr.Call) and n.op == "address_of":
            _require_neighbours(n, asked)
        new = map_children(n, visit)
        if isinstance(new, BufferLoad | BufferStore) and new.buffer in asked:
            at = _place(new.buffer, new.indices, asked[new.buffer])
            return replace(new, buffer=swizzled[new.buffer], indices=at)
        return new

    body = visit(body)  # type: ignore[assignment]
    return body, tuple(swizzled.get(b, b) for b in allocated)


def _stored(buffer: Buffer, swizzle: Swizzle) -> Buffer:
    sizes = [d.value for d in buffer.shape if isinstance(d, IntImm)]
    whole, size = 1 << swizzle.base + swizzle.bits, math.prod(sizes)
    if len(sizes) < buffer.ndim or size % whole:
        shape = ", ".join(map(str, buffer.shape))
        raise CodegenError(
            f"the swizzled buffer {buffer.name!r} of shape ({shape}) is no multiple of {whole} "
            "elements"
        )
    shape = tuple(map(const, (size // whole, 1 << swizzle.bits, 1 << swizzle.base)))
    return replace(buffer, shape=shape, strides=())


def _place(buffer: Buffer, indices: Sequence[PrimExpr], s: Swizzle) -> tuple[PrimExpr, ...]:
    offset: PrimExpr = const(0)
    for index, size in zip(indices, buffer.shape, strict=True):
        offset = offset * size + index
    group, within = offset // (1 << s.base), offset % (1 << s.base)
    count = 1 << s.bits
    return group // count, expr.BitXor(group % count, group // (1 << s.shift) % count), within


def _require_neighbours(call: expr.Call, asked: Mapping[Buffer, Swizzle]) -> None:
    load = call.args[0]
    if isinstance(load, BufferLoad) and load.buffer in asked:
        size = bytes_of(load.buffer.dtype) << asked[load.buffer].base
        if size < TOUCHED:
            raise CodegenError(
                f"the swizzle of {load.buffer.name!r} moves groups of {size} bytes, but {TOUCHED} "
                "neighbours are touched at once"
            )
