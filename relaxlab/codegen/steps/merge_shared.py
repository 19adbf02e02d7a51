"""A step that gives the threads of a block one piece of shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import cast

from relaxlab.ir import expr, row_major
from relaxlab.ir.dtypes import bytes_of, lanes_of
from relaxlab.ir.expr import IntImm, PrimExpr, Ramp, const
from relaxlab.ir.loops import (
    Block,
    Buffer,
    BufferLoad,
    BufferStore,
    Evaluate,
    For,
    PrimFunc,
    SeqStmt,
    Stmt,
    While,
)
from relaxlab.ir.node import Node, map_children, replace, walk
from relaxlab.schedule.regions import opaque_buffers
from relaxlab.schedule.tree import all_blocks, child_stmts

ALIGN = 16
"""Bytes to whose multiples buffers are moved: the longest load of a thread."""


def shared_memory_merged(func: PrimFunc, scopes: tuple[str, ...]) -> PrimFunc:
    """The function whose buffers of each of some scopes are parts of one, as bytes if their dtypes
    differ. A buffer lies where another was if a barrier is between them. Buffers whose size is no
    constant, or whose address is taken, stay."""
    for scope in scopes:
        for block in all_blocks(func):
            found = [b for b in block.alloc_buffers if b.scope == scope and _size(b) is not None]
            fixed = opaque_buffers(func.body)
            merged = [b for b in found if b not in fixed and not b.strides]
            if len(merged) > 1:
                func = _merged(func, block, merged)
    return func


def _size(b: Buffer) -> int | None:
    """The bytes of a buffer, None if they are not known."""
    if not all(isinstance(d, IntImm) for d in b.shape):
        return None
    return prod(cast("IntImm", d).value for d in b.shape) * bytes_of(b.dtype)


@dataclass(slots=True)
class _Part:
    buffer: Buffer
    size: int
    first: int
    last: int
    offset: int = 0


def _merged(func: PrimFunc, block: Block, buffers: list[Buffer]) -> PrimFunc:
    dtypes = {b.dtype for b in buffers}
    pool_dtype = dtypes.pop() if len(dtypes) == 1 else "uint8"
    parts = _placed(func, buffers)
    total = max(p.offset + p.size for p in parts) // bytes_of(pool_dtype)
    name = f"{buffers[0].scope.replace('.', '_')}_memory"
    pool = Buffer(name, (const(total),), pool_dtype, scope=buffers[0].scope)
    offsets = {p.buffer: p.offset for p in parts}

    def visit(n: Node) -> Node:
        n = map_children(n, visit)
        match n:
            case Block() if n.name == block.name and buffers[0] in n.alloc_buffers:
                kept = tuple(b for b in n.alloc_buffers if b not in offsets)
                return replace(n, alloc_buffers=(pool, *kept))
            case BufferLoad(buffer) if buffer in offsets:
                place = BufferLoad(pool, (_place(n, offsets[buffer], pool),))
                return place if pool_dtype == buffer.dtype else _as(n.dtype, place)
            case BufferStore(buffer, value) if buffer in offsets:
                at = (_place(n, offsets[buffer], pool),)
                if pool_dtype != buffer.dtype:
                    value = _as(BufferLoad(pool, at).dtype, value)
                return replace(n, buffer=pool, value=value, indices=at)
            case Block() if n.reads or n.writes:
                return _without_regions(n, offsets)
            case _:
                return n

    return cast("PrimFunc", visit(func))


def _without_regions(block: Block, gone: dict[Buffer, int]) -> Block:
    reads, writes = (tuple(r for r in rs if r.buffer not in gone)
                     for rs in (block.reads, block.writes))  # fmt: skip
    return replace(block, reads=reads, writes=writes)


def _as(dtype: str, value: PrimExpr) -> PrimExpr:
    return expr.Call(dtype, "reinterpret", (value,))


def _place(n: BufferLoad | BufferStore, offset: int, pool: Buffer) -> PrimExpr:
    """The place of an element, or of neighbours, in the pool: of its bytes where it has these."""
    size = bytes_of(n.buffer.dtype)
    last = n.indices[-1] if n.indices else None
    vector = last if isinstance(last, Ramp) else None
    indices = n.indices if vector is None else (*n.indices[:-1], vector.base)
    if any(lanes_of(i.dtype) > 1 for i in indices):
        raise ValueError(f"{n.buffer.name} is accessed by vectors of indices")
    number, width = row_major.place(indices, n.buffer.shape), 1 if vector is None else vector.lanes
    if pool.dtype == n.buffer.dtype:
        at = number + offset // size
        return at if vector is None else Ramp(at, vector.stride, width)
    if vector is not None and vector.stride != const(1):
        raise ValueError(f"{n.buffer.name} is accessed by vectors of elements apart")
    start, bytes_ = number * size + offset, size * width
    return Ramp(start, const(1), bytes_) if bytes_ > 1 else start


def _placed(func: PrimFunc, buffers: list[Buffer]) -> list[_Part]:
    """The buffers with the bytes where they begin."""
    stmts = _statements(func, {*buffers})
    barriers = [k for k, s in enumerate(stmts) if _syncs(s)]
    parts: list[_Part] = []
    for b in buffers:
        used = [k for k, s in enumerate(stmts) if _touches(s, b)] or [0]
        parts.append(_Part(b, _size(b) or 0, used[0], used[-1]))
    done: list[_Part] = []
    for part in sorted(parts, key=lambda p: p.first):
        busy = [p for p in done if not any(p.last < k < part.first for k in barriers)]
        part.offset = _gap(busy, part.size)
        done.append(part)
    return parts


def _gap(busy: list[_Part], size: int) -> int:
    """The first place that is free for so many bytes."""
    at = 0
    for p in sorted(busy, key=lambda p: p.offset):
        if at + size <= p.offset:
            break
        at = max(at, -(-(p.offset + p.size) // ALIGN) * ALIGN)
    return at


def _statements(func: PrimFunc, buffers: set[Buffer]) -> tuple[Stmt, ...]:
    """The statements, one after the other, in which all accesses to some buffers are, of a sequence
    that is run once in each block of threads."""
    s: Stmt = func.body
    while True:
        inside = [c for c in child_stmts(s) if any(_touches(c, b) for b in buffers)]
        if isinstance(s, SeqStmt) and len(inside) > 1:
            return s.stmts
        repeats = isinstance(s, While) or (isinstance(s, For) and s.thread is None)
        if len(inside) != 1 or repeats:
            return (s,)
        s = inside[0]


def _touches(s: Stmt, buffer: Buffer) -> bool:
    return any(isinstance(n, BufferLoad | BufferStore) and n.buffer is buffer for n in walk(s))


def _syncs(s: Stmt) -> bool:
    """True for a barrier."""
    return isinstance(s, Evaluate) and isinstance(s.value, expr.Call) and (
        s.value.op == "tvm_storage_sync"
    )  # fmt: skip
