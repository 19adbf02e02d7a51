"""Calls of the loop level's namespace that give vectors."""

from __future__ import annotations

from relaxlab.ir import expr
from relaxlab.ir.dtypes import element_of, lanes_of, with_lanes
from relaxlab.ir.expr import PrimExpr
from relaxlab.script.convert import constant_int, elements, promote, scalar_of
from relaxlab.script.core import Arguments, Context
from relaxlab.script.values import Arg


def ramp(cx: Context, c: Arguments) -> PrimExpr:
    """`T.Ramp(base, stride, lanes)`: the vector base, base + stride, …"""
    a = c.bind()
    base, stride, lanes = a["base"], a["stride"], a["lanes"]
    assert base is not None and stride is not None and lanes is not None
    first, step = promote(cx, base.value, stride.value, c.node, c.name)
    return expr.Ramp(first, step, _lanes(cx, lanes), span=cx.span(c.node))


def broadcast(cx: Context, c: Arguments) -> PrimExpr:
    """`T.Broadcast(value, lanes)`: the vector with a value in each lane."""
    a = c.bind()
    value, lanes = a["value"], a["lanes"]
    assert value is not None and lanes is not None
    inner = scalar_of(cx, value.value, value.node)
    return expr.Broadcast(inner, _lanes(cx, lanes), span=cx.span(c.node))


def _lanes(cx: Context, arg: Arg) -> int:
    lanes = constant_int(cx, arg, "the number of lanes")
    if not 2 <= lanes <= 65536:
        cx.fail(arg.node, "E0106", f"a vector cannot have {lanes} lanes")
    return lanes


def shuffle(cx: Context, c: Arguments) -> PrimExpr:
    """`T.Shuffle([x, y], [3, 0])`: lanes of the vectors one after the other, by their numbers."""
    a = c.bind()
    vectors, indices = a["vectors"], a["indices"]
    assert vectors is not None and indices is not None
    parts = [scalar_of(cx, e.value, e.node) for e in elements(vectors)]
    picks = [constant_int(cx, i, "the number of a lane") for i in elements(indices)]
    lanes = sum(lanes_of(p.dtype) for p in parts)
    if not parts or not picks or len({p.dtype for p in parts}) > 1:
        c.wrong("needs vectors of one dtype, and the numbers of lanes", c.node)
    if not all(0 <= i < lanes for i in picks):
        c.wrong(f"picks lanes {picks} of {lanes}", indices.node)
    given = (expr.const(len(parts)), *parts, *(expr.const(i) for i in picks))
    dtype = with_lanes(element_of(parts[0].dtype), len(picks))
    return expr.Call(dtype, "shuffle", given, span=cx.span(c.node))
