"""Learned or fixed vectors per position, added to the input at that position."""

from __future__ import annotations

from functools import cache

from relaxlab.ir import expr, loops
from relaxlab.ir.arguments import methods_name_arguments
from relaxlab.ir.expr import PrimExpr
from relaxlab.nn.builder import Parameter, Tensor
from relaxlab.nn.module import Module
from relaxlab.ops import te


@cache
def add_positions(features: int) -> loops.PrimFunc:
    """(x (b, s, f), table (p, f); past) -> (b, s, f): x plus the table's rows from `past` on."""
    b, s, p, past = (expr.Var(n) for n in ("b", "s", "p", "past"))
    x = te.placeholder((b, s, features), "float32", "x")
    table = te.placeholder((p, features), "float32", "table")
    y = te.compute(x.shape, lambda bi, i, f: x[bi, i, f] + table[past + i, f], "add_positions")
    return te.create_prim_func([x, table, y])


@methods_name_arguments
class PositionEmbedding(Module):
    """x (b, s, features) plus the rows of a table, `past` and the following ones. The caller sees
    to it that past + s is at most `count`."""

    def __init__(self, count: int, features: int) -> None:
        self.weight, self.features = Parameter((count, features)), features

    def forward(self, x: Tensor, past: PrimExpr) -> Tensor:
        func, table = add_positions(self.features), x.builder.weight(self.weight)
        return x.builder.call_loops("add_positions", func, [x, table], [past])[0]

    def at(self, x: Tensor, positions: Tensor) -> Tensor:
        """x (m, features) plus the rows of these positions, int32 (m,)."""
        return x + x.builder.weight(self.weight).op("take", positions, axis=0)
