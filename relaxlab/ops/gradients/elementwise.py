"""Gradients of the elementwise operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from relaxlab.ir import expr, graph
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.intrinsics import INTRINSICS, Intrinsic, no_slope
from relaxlab.ir.op_table import find_op
from relaxlab.ops import scalar
from relaxlab.ops.gradients.base import Adjoint, Step, gradient, nothing, op

SCALAR_OPERATORS: dict[type[PrimExpr], str] = {
    expr.Add: "add", expr.Sub: "subtract", expr.Mul: "multiply", expr.Div: "divide",
    expr.LT: "less", expr.GT: "greater",
}  # fmt: skip
"""The operator on tensors for each of two scalars."""
OF_INTRINSIC = {"pow": "power", "fmod": "mod", "fma": "ewise_fma"}
"""The operator that computes an intrinsic of each element, where its name is another."""


class _Elements:
    """Scalar expressions as operations on tensors: `values` has those of the variables, and of each
    expression that was emitted, so that none is emitted twice."""

    def __init__(self, step: Step, values: Mapping[PrimExpr, graph.Expr]) -> None:
        self.step, self.values = step, dict(values)

    def of(self, e: PrimExpr) -> graph.Expr:
        """The value of an expression for each element."""
        if isinstance(e, expr.FloatImm):
            return self.step.number(e.value)
        if e not in self.values:
            self.values[e] = self.step.bb.emit(self._call(e))
        return self.values[e]

    def _call(self, e: PrimExpr) -> graph.Call:
        match e:
            case expr.Sub(expr.FloatImm(0), a):
                return op("negative", self.of(a))
            case expr.BinaryOp(a, b):
                return op(SCALAR_OPERATORS[type(e)], self.of(a), self.of(b))
            case expr.Select(condition, a, b):
                return op("where", self.of(condition), self.of(a), self.of(b))
            case expr.Call(_, name, args):
                return op(OF_INTRINSIC.get(name, name), *map(self.of, args))
            case _:
                raise TypeError(f"no operator on tensors computes {e}")

    def times(self, adjoint: graph.Expr, factor: PrimExpr) -> graph.Expr:
        """The product of an adjoint and a derivative, factor by factor, with one operation where a
        factor is a negative or the quotient of a number."""
        match factor:
            case expr.FloatImm(1):
                return adjoint
            case expr.Sub(expr.FloatImm(0), a):
                return self.times(op("negative", adjoint), a)
            case expr.Div(expr.FloatImm() as number, a):
                return op("divide", self.times(adjoint, number), self.of(a))
            case expr.Mul(a, b):
                return self.times(self.step.bb.emit(self.times(adjoint, a)), b)
            case _:
                return op("multiply", adjoint, self.of(factor))


def _chain(
    step: Step, derivatives: Callable[[Sequence[expr.Var], expr.Var], Sequence[PrimExpr | None]]
) -> Sequence[Adjoint]:
    """The adjoint of the result times the derivatives of each element by the arguments'."""
    xs = [expr.Var(f"x{i}", step.dtype) for i in range(len(step.args))]
    y = expr.Var("y", step.dtype)
    elements = _Elements(step, dict(zip((*xs, y), (*step.args, step.out), strict=True)))
    factors = derivatives(xs, y)
    products = [None if f is None else elements.times(step.adjoint, f) for f in factors]
    if len(products) == 1:  # of one argument, which is not broadcast
        return products
    return [None if p is None else step.fit(p, i) for i, p in enumerate(products)]


for _row in INTRINSICS.values():
    _name = OF_INTRINSIC.get(_row.name, _row.name)
    if find_op(_name) is None or isinstance(_row.derivative, str):
        continue
    if _row.derivative is no_slope:
        gradient(_name)(nothing)
    else:

        @gradient(_name)
        def _of_intrinsic(step: Step, row: Intrinsic = _row) -> Sequence[Adjoint]:
            return _chain(step, row.derivatives)


def _silu(step: Step, x: PrimExpr, y: PrimExpr) -> PrimExpr:
    sigmoid = scalar.call("sigmoid", x)
    return sigmoid + y * (1 - sigmoid)


def _gelu(step: Step, x: PrimExpr, y: PrimExpr) -> PrimExpr:
    """The normal distribution at x, and x times its density."""
    below = 0.5 * (scalar.call("erf", x * math.sqrt(0.5)) + 1)
    return below + x * (1 / math.sqrt(2 * math.pi) * scalar.call("exp", -0.5 * (x * x)))


def _gelu_tanh(step: Step, x: PrimExpr, y: PrimExpr) -> PrimExpr:
    c = math.sqrt(2 / math.pi)
    t = scalar.call("tanh", c * (x * (0.044715 * (x * x) + 1)))
    slope = x * (1 - t * t) * (3 * 0.044715 * c * (x * x) + c)
    return 0.5 * (t + 1 + slope)


def _softplus(step: Step, x: PrimExpr, y: PrimExpr) -> PrimExpr:
    scaled = step.attr("beta") * x
    linear = scaled > step.attr("threshold")
    return expr.Select(linear, expr.const(1, x.dtype), scalar.call("sigmoid", scaled))


def _selu(step: Step, x: PrimExpr, y: PrimExpr) -> PrimExpr:
    alpha, scale = 1.6732632423543772, 1.0507009873554805
    below = alpha * scale * scalar.call("exp", x)
    return expr.Select(x < 0, below, expr.const(scale, x.dtype))


def _leakyrelu(step: Step, x: PrimExpr, y: PrimExpr) -> PrimExpr:
    alpha, one = expr.const(step.attr("alpha"), x.dtype), expr.const(1, x.dtype)
    return expr.Select(x < 0, alpha, one)


FACTORS: dict[str, Callable[[Step, PrimExpr, PrimExpr], PrimExpr]] = {
    "negative": lambda s, x, y: -expr.const(1, x.dtype),
    "square": lambda s, x, y: 2 * x,
    "erfinv": lambda s, x, y: math.sqrt(math.pi) / 2 * scalar.call("exp", y * y),
    "lgamma": lambda s, x, y: scalar.call("digamma", x),
    "nn.silu": _silu,
    "nn.gelu": _gelu,
    "nn.gelu_tanh": _gelu_tanh,
    "nn.softplus": _softplus,
    "nn.selu": _selu,
    "nn.leakyrelu": _leakyrelu,
}
"""The derivative of y = f(x) by x for operators that are no intrinsics."""

for _name, _factor in FACTORS.items():

    @gradient(_name)
    def _of_factor(step: Step, factor: Any = _factor) -> Sequence[Adjoint]:
        return _chain(step, lambda xs, y: [factor(step, xs[0], y)])


@gradient("nn.relu")
def _relu(step: Step) -> Sequence[Adjoint]:
    zero = step.number(0)
    return (op("where", op("less", step.args[0], zero), zero, step.adjoint),)


def _inside(step: Step, low: graph.Expr, high: graph.Expr) -> graph.Call:
    """The adjoint where low <= x <= high."""
    x, zero = step.args[0], step.number(0)
    outside = op("logical_or", op("less", x, low), op("greater", x, high))
    return op("where", outside, zero, step.adjoint)


@gradient("nn.relu6")
def _relu6(step: Step) -> Sequence[Adjoint]:
    return (_inside(step, step.number(0), step.number(6)),)


@gradient("clip")
def _clip(step: Step) -> Sequence[Adjoint]:
    return (_inside(step, step.number(step.attr("min")), step.number(step.attr("max"))),)


@gradient("nn.prelu")
def _prelu(step: Step) -> Sequence[Adjoint]:
    x, alpha = step.args
    shape = step.shape()
    axis = step.attr("axis") % len(shape)
    others = [i for i in range(len(shape)) if i != axis]
    slope = op("expand_dims", alpha, axis=others) if others else alpha
    negative = step.bb.emit(op("less", x, step.number(0)))
    inside = op("where", negative, op("multiply", step.adjoint, x), step.number(0))
    by_slope = op("sum", inside, axis=others) if others else inside
    scaled = op("where", negative, op("multiply", step.adjoint, slope), step.adjoint)
    return scaled, step.fit(by_slope, 1)


@gradient("astype")
def _astype(step: Step) -> Sequence[Adjoint]:
    return (op("astype", step.adjoint, dtype=step.type_of(step.args[0]).dtype),)


# --- Two arguments, which may be broadcast --------------------------------------------------------


@gradient("add")
def _add(step: Step) -> Sequence[Adjoint]:
    return step.fit(step.adjoint, 0), step.fit(step.adjoint, 1)


@gradient("subtract")
def _subtract(step: Step) -> Sequence[Adjoint]:
    return step.fit(step.adjoint, 0), step.fit(op("negative", step.adjoint), 1)


@gradient("multiply")
def _multiply(step: Step) -> Sequence[Adjoint]:
    a, b = step.args
    of_a = step.fit(op("multiply", step.adjoint, b), 0)
    return of_a, step.fit(op("multiply", step.adjoint, a), 1)


@gradient("divide")
def _divide(step: Step) -> Sequence[Adjoint]:
    b = step.args[1]
    of_a = step.fit(op("divide", step.adjoint, b), 0)
    of_b = op("divide", op("multiply", op("negative", step.adjoint), step.out), b)
    return of_a, step.fit(of_b, 1)


@gradient("log_add_exp")
def _log_add_exp(step: Step) -> Sequence[Adjoint]:
    def share(index: int) -> Adjoint:
        part = op("exp", op("subtract", step.args[index], step.out))
        return step.fit(op("multiply", step.adjoint, part), index)

    return share(0), share(1)


def _chosen(step: Step, first: str, second: str) -> Sequence[Adjoint]:
    """The adjoint where the argument was chosen: not where the comparison of its name holds."""

    def where_not(comparison: str, index: int) -> Adjoint:
        other = op(comparison, *step.args)
        return step.fit(op("where", other, step.number(0), step.adjoint), index)

    return where_not(first, 0), where_not(second, 1)


@gradient("maximum")
def _maximum(step: Step) -> Sequence[Adjoint]:
    return _chosen(step, "less", "greater_equal")


@gradient("minimum")
def _minimum(step: Step) -> Sequence[Adjoint]:
    return _chosen(step, "greater_equal", "less")


@gradient("floor_mod")
def _floor_mod(step: Step) -> Sequence[Adjoint]:
    quotient = op("floor", op("divide", *step.args))
    return (
        step.fit(step.adjoint, 0),
        step.fit(op("negative", op("multiply", step.adjoint, quotient)), 1),
    )


@gradient("where")
def _where(step: Step) -> Sequence[Adjoint]:
    condition, zero = step.args[0], step.number(0)
    kept = step.fit(op("where", condition, step.adjoint, zero), 1)
    return None, kept, step.fit(op("where", condition, zero, step.adjoint), 2)


@gradient("masked_fill")
def _masked_fill(step: Step) -> Sequence[Adjoint]:
    kept = op("where", step.args[1], step.number(0), step.adjoint)
    return (step.fit(kept, 0), *(None for _ in step.args[1:]))


gradient(
    *(
        "sign logical_not bitwise_not popcount "
        "floor_divide equal not_equal less less_equal greater greater_equal logical_and "
        "logical_or logical_xor bitwise_and bitwise_or bitwise_xor left_shift right_shift "
    ).split()
)(nothing)
