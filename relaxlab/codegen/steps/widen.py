"""A step that computes in wider floating-point numbers than those that are stored."""

from __future__ import annotations

from collections.abc import Sequence

from relaxlab.ir import expr
from relaxlab.ir.dtypes import element_of, lanes_of, with_lanes
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.intrinsics import INTRINSICS
from relaxlab.ir.loops import Buffer, BufferLoad, BufferStore, LetStmt, PrimFunc
from relaxlab.ir.node import Node, map_children, replace
from relaxlab.schedule.regions import opaque_buffers
from relaxlab.schedule.tree import alloc_sites


def computed_in(func: PrimFunc, narrow: str, wide: str) -> PrimFunc:
    """The function that computes in `wide` what it did in `narrow`, the dtype of what it stores and
    reads; results are rounded where they are stored in arguments, not between operations and not
    in buffers that it allocates."""
    own = [b for b in alloc_sites(func) if element_of(b.dtype) == narrow]
    fixed = opaque_buffers(func.body)
    body = _Widening(narrow, wide, [b for b in own if b not in fixed]).visit(func.body)
    return func if body is func.body else replace(func, body=body)


class _Widening:
    def __init__(self, narrow: str, wide: str, own: Sequence[Buffer]) -> None:
        self.narrow, self.to = narrow, wide
        self.buffers = {b: replace(b, dtype=with_lanes(wide, lanes_of(b.dtype))) for b in own}
        self.variables: dict[Var, Var] = {}

    def is_narrow(self, e: PrimExpr) -> bool:
        return element_of(e.dtype) == self.narrow

    def visit(self, n: Node) -> Node:
        match n:
            case LetStmt(var, value) if self.is_narrow(value):
                new = self.variables[var] = Var(var.name, with_lanes(self.to, lanes_of(var.dtype)))
                wider = self.wide(value)
                return replace(n, var=new, value=wider, body=self.visit(n.body))
            case Buffer():
                return self.buffers.get(n, n)
            case BufferStore(buffer, value) if buffer in self.buffers:
                at = tuple(map(self.whole, n.indices))
                return replace(n, buffer=self.buffers[buffer], value=self.wide(value), indices=at)
            case BufferLoad(buffer) if buffer not in self.buffers:
                return map_children(n, self.visit)
            case expr.FloatImm():
                return n
            case PrimExpr() if self.is_narrow(n):
                wider = self.wide(n)
                return expr.Cast(n.dtype, wider)
            case expr.Cast(to, value) if self.is_narrow(value):
                wider = self.wide(value)
                return wider if to == wider.dtype else expr.Cast(to, wider)
            case expr.CmpOp(a, b) if self.is_narrow(a):
                return type(n)(self.wide(a), self.wide(b))
            case _:
                return map_children(n, self.visit)

    def wide(self, e: PrimExpr) -> PrimExpr:
        """The wider value of a narrow expression, before it is rounded."""
        wide = with_lanes(self.to, lanes_of(e.dtype))
        match e:
            case Var() if e in self.variables:
                return self.variables[e]
            case BufferLoad(buffer) if buffer in self.buffers:
                at = tuple(map(self.whole, e.indices))
                return replace(e, buffer=self.buffers[buffer], indices=at)
            case expr.FloatImm(value):
                return expr.FloatImm(value, wide)
            case expr.BinaryOp(a, b):
                return type(e)(self.wide(a), self.wide(b))
            case expr.Select(condition, yes, no):
                return expr.Select(self.whole(condition), self.wide(yes), self.wide(no))
            case expr.Broadcast(value, lanes):
                return expr.Broadcast(self.wide(value), lanes)
            case expr.Cast(_, value) if self.is_narrow(value):
                return self.wide(value)
            case expr.Cast(_, value):
                value = self.whole(value)
                return value if value.dtype == wide else expr.Cast(wide, value)
            case expr.Call(op=op, args=args) if op in INTRINSICS and INTRINSICS[op].pure:
                given = (self.wide(a) if self.is_narrow(a) else self.whole(a) for a in args)
                return expr.Call(wide, op, tuple(given))
            case _:
                return expr.Cast(wide, map_children(e, self.visit))  # type: ignore[arg-type]

    def whole(self, e: PrimExpr) -> PrimExpr:
        return self.visit(e)  # type: ignore[return-value]
