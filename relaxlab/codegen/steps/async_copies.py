"""A step that makes asynchronous copies of stores to shared memory."""

from __future__ import annotations

from relaxlab.ir import expr
from relaxlab.ir.dtypes import bits_of, element_of, lanes_of
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.loops import Buffer, BufferLoad, BufferStore, Evaluate, For, PrimFunc
from relaxlab.ir.node import Node, replace, rewrite, walk

ASYNC = "async_scope"
"""The annotation of loops of one iteration whose copies need not be waited for."""
SIZES = (4, 8, 16)
"""The bytes that a thread can copy by one instruction."""


def copies_made_async(func: PrimFunc) -> PrimFunc:
    """The function in which elements that an annotated statement copies from main memory to shared
    memory are copied by `cp_async_raw`, those of a vector together, and where a condition of
    `if_then_else(condition, element, 0)` holds. Copies of other sizes stay as they are."""

    def visit(n: Node) -> Node | None:
        if isinstance(n, For) and ASYNC in n.annotations:
            body = rewrite(n.body, _copy)
            kept = n.annotations.with_(**{ASYNC: None})
            marks = n.extent == expr.const(1) and n.loop_var not in {*walk(body)} and not kept
            return body if marks else replace(n, body=body, annotations=kept)
        return None

    body = rewrite(func.body, visit)
    return func if body is func.body else replace(func, body=body)


def _copy(n: Node) -> Node | None:
    if not isinstance(n, BufferStore) or n.buffer.scope not in ("shared", "shared.dyn"):
        return None
    match n.value:
        case BufferLoad() as load:
            given: tuple[PrimExpr, ...] = ()
        case expr.Call(
            op="if_then_else", args=(where, BufferLoad() as load, other)
        ) if _zero(other):
            given = (where,)
        case _:
            return None
    size = bits_of(element_of(load.dtype)) * lanes_of(load.dtype) // 8
    to, source = _first(n.indices), _first(load.indices)
    if load.buffer.scope != "global" or size not in SIZES or to is None or source is None:
        return None
    dtype = expr.StringImm(element_of(load.dtype))
    ends = (_data(n.buffer), to, _data(load.buffer), source)
    args = (dtype, *ends, expr.const(size), *given)
    return Evaluate(expr.Call("void", "s_tir.cp_async_raw", args))


def _first(indices: tuple[PrimExpr, ...]) -> PrimExpr | None:
    """The first one of consecutive elements of a flat buffer; None for others."""
    match indices:
        case (expr.Ramp(base, expr.IntImm(1)),):
            return base
        case (index,) if lanes_of(index.dtype) == 1:
            return index
        case _:
            return None


def _zero(e: PrimExpr) -> bool:
    if isinstance(e, expr.Broadcast):
        return _zero(e.value)
    return isinstance(e, expr.IntImm | expr.FloatImm) and e.value == 0


def _data(buffer: Buffer) -> PrimExpr:
    start = BufferLoad(buffer, tuple(expr.const(0) for _ in buffer.shape))
    return expr.Call("handle", "address_of", (start,))
