"""unsafe_fast_math: approximations by the hardware in place of exact functions."""

from __future__ import annotations

from relaxlab.ir import expr
from relaxlab.ir.expr import Call, FloatImm
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.node import Node, map_children, replace
from relaxlab.schedule.tree import find_block


def unsafe_fast_math(func: PrimFunc, name: str) -> PrimFunc:
    """Compute exponentials and quotients of float32 in a block by `fast_exp` and `fast_divide`, and
    `exp(x - y)` without a case of its own for an `x` of minus infinity, where it is 0 for any `y`
    that is finite."""

    def visit(n: Node) -> Node:
        new = map_children(n, visit)
        match new:
            case Call("float32", "exp", args):
                return Call("float32", "fast_exp", args)
            case expr.Div(a, b) if new.dtype == "float32":
                return Call("float32", "fast_divide", (a, b))
            case expr.Select(
                expr.EQ(x, FloatImm(value)), FloatImm(0.0),
                Call(_, "fast_exp", (expr.Sub(a, _),)) as power,
            ) if x == a and value == float("-inf"):  # fmt: skip
                return power
            case _:
                return new

    place = find_block(func, name, "unsafe_fast_math")
    block = place.block
    changed = replace(block, body=visit(block.body))  # type: ignore[arg-type]
    return place.replaced(replace(place.realize, block=changed))
