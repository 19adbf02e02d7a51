"""A step that copies to shared memory by way of registers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from relaxlab.ir import expr
from relaxlab.ir.loops import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    For,
    PrimFunc,
    Range,
    SeqStmt,
    Stmt,
)
from relaxlab.ir.node import Node, map_children, replace
from relaxlab.ir.substitute import substitute

STAGED = ("tirx.manifest_shared_memory_local_stage", "tir.manifest_shared_memory_local_stage")
"""Annotations of blocks that copy to shared memory."""


def local_stages(func: PrimFunc) -> PrimFunc:
    """The function in which annotated blocks store to shared memory what loops before theirs have
    read into registers, so that all reads are under way before the first store waits for one.

    Raises ValueError for an annotated block that stores something else than elements of one buffer,
    or whose loops have another statement in them.
    """
    made: list[Buffer] = []
    body = cast("Stmt", _staged(func.body, made))
    if made:
        raise ValueError("no block is around a copy to shared memory that is to be staged")
    return func if body is func.body else replace(func, body=body)


def _staged(s: Node, made: list[Buffer]) -> Node:
    """A statement with the stages of the copies in it, for which registers are `made`."""
    loops: list[For] = []
    inner = s
    while isinstance(inner, For) and inner.kind != "thread_binding":
        loops.append(inner)
        inner = inner.body
    own: list[Buffer] = []
    match inner:
        case BlockRealize(block=block) if any(block.annotations.get(k) for k in STAGED):
            return _stage(loops, inner, made)
        case BlockRealize(block=block):
            body = cast("Stmt", _staged(block.body, own))
            allocated = (*block.alloc_buffers, *own)
            new: Node = inner
            if body is not block.body:
                new = replace(inner, block=replace(block, body=body, alloc_buffers=allocated))
        case _:
            new = map_children(inner, lambda c: _staged(c, own))
            if own and loops:
                raise ValueError("the loops of a copy to shared memory have other statements")
            made += own
    if new is inner:
        return s
    for loop in reversed(loops):
        new = replace(loop, body=cast("Stmt", new))
    return new


def _stage(loops: Sequence[For], realize: BlockRealize, made: list[Buffer]) -> Stmt:
    block = realize.block
    if not isinstance(block.body, BufferStore) or not isinstance(block.body.value, BufferLoad):
        raise ValueError(f"block {block.name!r} does not copy elements of one buffer")
    store, load = block.body, block.body.value
    shape = tuple(loop.extent for loop in loops) or (expr.const(1),)
    local = Buffer(f"{store.buffer.name}_local", shape, store.buffer.dtype, scope="local")
    made.append(local)
    at = tuple(loop.loop_var - loop.min for loop in loops) or (expr.const(0),)
    bound = dict(zip((iv.var for iv in block.iter_vars), realize.iter_values, strict=True))
    read = substitute(load, bound)
    point = tuple(Range(i, expr.const(1)) for i in at)
    reads = tuple(substitute(r, bound) for r in block.reads)
    fill = Block("", (), reads, (BufferRegion(local, point),), BufferStore(local, read, at))
    fresh = {loop.loop_var: replace(loop.loop_var) for loop in loops}
    first = replace(realize, iter_values=(), block=fill)
    kept = {k: None for k in STAGED if k in block.annotations}
    copied = replace(
        block,
        body=replace(store, value=BufferLoad(local, at)),
        annotations=block.annotations.with_(**kept),
    )
    second = replace(realize, block=copied)
    filling: Stmt = cast("Stmt", substitute(first, fresh))
    storing: Stmt = second
    for loop in reversed(loops):
        filling = replace(loop, loop_var=fresh[loop.loop_var], body=filling)
        storing = replace(loop, body=storing)
    return SeqStmt((filling, storing))

