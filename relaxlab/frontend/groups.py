"""Products of groups of rows, each with a matrix of its own, as mixtures of experts have them."""

from __future__ import annotations

from relaxlab.frontend.emitter import Emitter, Tensor
from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr
from relaxlab.ops import scalar, te


def grouped_product(b: Emitter, x: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
    """The rows of x (rows, depth) times the matrices of their groups, `weights` (groups, depth,
    columns). `ends` are the ends of the groups, which lie behind each other; rows beyond the last
    are 0."""

    def group(ends: te.Tensor, rows: PrimExpr) -> te.Tensor:
        """The number of the groups that end before each row."""
        each = te.reduce_axis(ends.shape[0], "g")

        def element(i: PrimExpr) -> te.Reduce:
            before = expr.LE(scalar.cast(ends[each.var], "int64"), scalar.cast(i, "int64"))
            return te.te_sum(expr.Cast("int64", before), each)

        return te.compute((rows,), element, "group")

    def computed(x: te.Tensor, weights: te.Tensor, group: te.Tensor) -> te.Tensor:
        (rows, depth), (groups, _, columns) = x.shape, weights.shape
        wide = scalar.accumulator_of(x.dtype)
        k = te.reduce_axis(depth, "k")

        def element(i: PrimExpr, j: PrimExpr) -> te.Reduce:
            at = expr.Min(group[i], groups - 1)
            factors = (scalar.cast(f, wide) for f in (x[i, k.var], weights[at, k.var, j]))
            inside = expr.LT(group[i], groups)
            first, second = factors
            return te.te_sum(expr.Select(inside, first * second, expr.const(0.0, wide)), k)

        whole = te.compute((rows, columns), element, "grouped")
        if wide == x.dtype:
            return whole
        return te.compute(whole.shape, lambda *i: scalar.cast(whole[i], x.dtype), "narrow")

    numbers = b.te(lambda x, ends: group(ends, x.shape[0]), x, ends, name="group_of_row")
    return b.te(computed, x, weights, numbers, name="grouped_product")
