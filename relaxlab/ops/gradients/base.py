"""A step of reverse-mode differentiation, and the decorator that registers gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr, graph, types
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.errors import UserError
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.op_table import register_gradient
from relaxlab.ir.row_major import product
from relaxlab.ops.block_builder import BlockBuilder
from relaxlab.ops.define import attr, builder

Adjoint: TypeAlias = "graph.Expr | None"
Rule: TypeAlias = "Callable[[Step], Sequence[Adjoint]]"


class NotDifferentiable(UserError, ValueError):
    """A function, or a call in it, has no gradient."""


@dataclass(frozen=True, slots=True)
class Step:
    """A call, the variable of its result, and the adjoint of that; new bindings go to `bb`."""

    bb: BlockBuilder
    call: graph.Call
    out: graph.Var
    adjoint: graph.Expr

    @property
    def args(self) -> tuple[graph.Expr, ...]:
        return self.call.args

    def attr(self, name: str) -> Any:
        """An attribute of the call, or its default."""
        return attr(self.call, name)

    def type_of(self, value: graph.Expr) -> types.TensorType:
        """The type of a tensor. Raises NotDifferentiable where its shape or dtype is not known."""
        ty = self.bb.type_of(value)
        if not isinstance(ty, types.TensorType) or ty.shape is None or ty.dtype is None:
            name = getattr(value, "name", "an argument")
            raise NotDifferentiable(
                f"the gradient of {self.call.op} needs the shape and dtype of {name}, which is {ty}"
            )
        return ty

    def shape_of(self, value: graph.Expr) -> tuple[PrimExpr, ...]:
        """The shape of a tensor. Raises NotDifferentiable where it is not known."""
        shape = self.type_of(value).shape
        assert shape is not None
        return shape

    def shape(self, index: int = 0) -> tuple[PrimExpr, ...]:
        """The shape of an argument."""
        return self.shape_of(self.args[index])

    @property
    def dtype(self) -> str:
        """The dtype of the result, of the first where there are several. Raises NotDifferentiable
        where it is not known."""
        ty = self.bb.type_of(self.out)
        first = ty.fields[0] if isinstance(ty, types.TupleType) else ty
        if not isinstance(first, types.TensorType) or first.dtype is None:
            raise NotDifferentiable(f"the gradient of {self.call.op} needs the dtype of its result")
        return first.dtype

    def number(self, value: float) -> graph.Constant:
        """A constant of the result's dtype."""
        return graph.Constant(np.asarray(value, numpy_dtype(self.dtype)))

    def count(self, extents: Sequence[PrimExpr]) -> graph.Expr:
        """The product of extents as a number of the result's dtype."""
        count = Analyzer().simplify(product(extents))
        if isinstance(count, expr.IntImm):
            return self.number(count.value)
        return graph.PrimValue(expr.Cast(self.dtype, count))

    def fit(self, value: graph.Expr, index: int) -> Adjoint:
        """The sum of a value over the dimensions along which an argument was broadcast; None for
        an argument that is a scalar of the program."""
        if not isinstance(self.bb.type_of(self.args[index]), types.TensorType):
            return None
        value = self.bb.flatten(value)
        mine, theirs = self.shape_of(value), self.shape(index)
        same = len(mine) == len(theirs)
        if same and all(Analyzer().prove(expr.EQ(a, b)) for a, b in zip(mine, theirs, strict=True)):
            return value
        return op("collapse_sum_to", value, graph.ShapeExpr(theirs))


def op(name: str, *args: Any, **attrs: Any) -> graph.Call:
    """A call of an operator."""
    return builder(name)(*args, **attrs)


def gradient(*names: str) -> Callable[[Rule], Rule]:
    """Register a function of a `Step` as the gradient of operators."""

    def register(rule: Rule) -> Rule:
        for name in names:
            register_gradient(name, rule)
        return rule

    return register


def nothing(step: Step) -> Sequence[Adjoint]:
    """The gradient of operators through which nothing flows back: steps, indices, constants."""
    return (None,) * len(step.args)
