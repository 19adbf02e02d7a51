"""Gradients of the elementwise operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from relaxlab.ir import graph
from relaxlab.ops.gradients.base import Adjoint, Step, gradient, nothing, op

Factor = Callable[[Step, graph.Expr, graph.Expr], graph.Expr]
"""The derivative of y = f(x) by x, as an expression of the step, x and y."""


def _one_minus(step: Step, value: graph.Expr) -> graph.Call:
    return op("subtract", step.number(1), value)


def _inverse_root(step: Step, value: graph.Expr) -> graph.Call:
    return op("rsqrt", value)


def _scaled_exp(step: Step, scale: float, power: graph.Expr) -> graph.Call:
    return op("multiply", step.number(scale), op("exp", power))


def _square_plus(step: Step, x: graph.Expr, added: float) -> graph.Call:
    return op("add", op("multiply", x, x), step.number(added))


def _gaussian(step: Step, x: graph.Expr) -> graph.Call:
    """2 / sqrt(pi) * exp(-x * x)."""
    return _scaled_exp(step, 2 / math.sqrt(math.pi), op("negative", op("multiply", x, x)))


def _sign(step: Step, x: graph.Expr, y: graph.Expr) -> graph.Expr:
    negative = op("less", x, step.number(0))
    return op("where", negative, op("negative", step.number(1)), step.number(1))


def _silu(step: Step, x: graph.Expr, y: graph.Expr) -> graph.Expr:
    sigmoid = step.bb.emit(op("sigmoid", x))
    return op("add", sigmoid, op("multiply", y, _one_minus(step, sigmoid)))


def _gelu(step: Step, x: graph.Expr, y: graph.Expr) -> graph.Expr:
    """The normal distribution at x, and x times its density."""
    scaled = op("multiply", x, step.number(math.sqrt(0.5)))
    below = op("multiply", step.number(0.5), _plus_one(step, op("erf", scaled)))
    half = op("multiply", step.number(-0.5), op("multiply", x, x))
    return op("add", below, op("multiply", x, _scaled_exp(step, 1 / math.sqrt(2 * math.pi), half)))


def _plus_one(step: Step, value: graph.Expr) -> graph.Call:
    return op("add", value, step.number(1))


def _gelu_tanh(step: Step, x: graph.Expr, y: graph.Expr) -> graph.Expr:
    c = math.sqrt(2 / math.pi)
    square = step.bb.emit(op("multiply", x, x))
    cubic = _plus_one(step, op("multiply", step.number(0.044715), square))
    t = step.bb.emit(op("tanh", op("multiply", step.number(c), op("multiply", x, cubic))))
    inner = op("add", op("multiply", step.number(3 * 0.044715 * c), square), step.number(c))
    slope = op("multiply", op("multiply", x, _one_minus(step, op("multiply", t, t))), inner)
    return op("multiply", step.number(0.5), op("add", _plus_one(step, t), slope))


def _softplus(step: Step, x: graph.Expr, y: graph.Expr) -> graph.Expr:
    beta, threshold = step.attr("beta"), step.attr("threshold")
    scaled = step.bb.emit(op("multiply", step.number(beta), x))
    linear = op("greater", scaled, step.number(threshold))
    return op("where", linear, step.number(1), op("sigmoid", scaled))


def _selu(step: Step, x: graph.Expr, y: graph.Expr) -> graph.Expr:
    alpha, scale = 1.6732632423543772, 1.0507009873554805
    below = _scaled_exp(step, alpha * scale, x)
    return op("where", op("less", x, step.number(0)), below, step.number(scale))


def _leakyrelu(step: Step, x: graph.Expr, y: graph.Expr) -> graph.Expr:
    negative = op("less", x, step.number(0))
    return op("where", negative, step.number(step.attr("alpha")), step.number(1))


FACTORS: dict[str, Factor] = {
    "abs": _sign,
    "exp": lambda s, x, y: y,
    "exp2": lambda s, x, y: op("multiply", s.number(math.log(2)), y),
    "expm1": lambda s, x, y: _plus_one(s, y),
    "sin": lambda s, x, y: op("cos", x),
    "tan": lambda s, x, y: _plus_one(s, op("multiply", y, y)),
    "sinh": lambda s, x, y: op("cosh", x),
    "cosh": lambda s, x, y: op("sinh", x),
    "tanh": lambda s, x, y: _one_minus(s, op("multiply", y, y)),
    "asin": lambda s, x, y: _inverse_root(s, _one_minus(s, op("multiply", x, x))),
    "acos": lambda s, x, y: op("negative", _inverse_root(s, _one_minus(s, op("multiply", x, x)))),
    "atan": lambda s, x, y: op("divide", s.number(1), _square_plus(s, x, 1)),
    "asinh": lambda s, x, y: _inverse_root(s, _square_plus(s, x, 1)),
    "acosh": lambda s, x, y: _inverse_root(s, _square_plus(s, x, -1)),
    "atanh": lambda s, x, y: op("divide", s.number(1), _one_minus(s, op("multiply", x, x))),
    "square": lambda s, x, y: op("multiply", s.number(2), x),
    "rsqrt": lambda s, x, y: op("multiply", s.number(-0.5), op("divide", y, x)),
    "cbrt": lambda s, x, y: op("divide", y, op("multiply", s.number(3), x)),
    "erf": lambda s, x, y: _gaussian(s, x),
    "erfc": lambda s, x, y: op("negative", _gaussian(s, x)),
    "erfinv": lambda s, x, y: _scaled_exp(s, math.sqrt(math.pi) / 2, op("multiply", y, y)),
    "lgamma": lambda s, x, y: op("digamma", x),
    "nn.silu": _silu,
    "nn.gelu": _gelu,
    "nn.gelu_tanh": _gelu_tanh,
    "nn.softplus": _softplus,
    "nn.selu": _selu,
    "nn.leakyrelu": _leakyrelu,
}
"""Operators whose adjoint is that of the result times a factor."""


def _times(factor: Factor) -> Callable[[Step], Sequence[Adjoint]]:
    return lambda step: (op("multiply", step.adjoint, factor(step, step.args[0], step.out)),)


for _name, _factor in FACTORS.items():
    gradient(_name)(_times(_factor))

for _name, _scale in (("log", 1), ("log2", math.log(2)), ("log10", math.log(10))):

    @gradient(_name)
    def _log(step: Step, scale: float = _scale) -> Sequence[Adjoint]:
        x = step.args[0]
        below = x if scale == 1 else op("multiply", step.number(scale), x)
        return (op("divide", step.adjoint, below),)


@gradient("log1p")
def _log1p(step: Step) -> Sequence[Adjoint]:
    return (op("divide", step.adjoint, _plus_one(step, step.args[0])),)


@gradient("negative")
def _negative(step: Step) -> Sequence[Adjoint]:
    return (op("negative", step.adjoint),)


@gradient("cos")
def _cos(step: Step) -> Sequence[Adjoint]:
    return (op("multiply", op("negative", step.adjoint), op("sin", step.args[0])),)


@gradient("sqrt")
def _sqrt(step: Step) -> Sequence[Adjoint]:
    return (op("divide", op("multiply", step.number(0.5), step.adjoint), step.out),)


@gradient("sigmoid")
def _sigmoid(step: Step) -> Sequence[Adjoint]:
    y = step.out
    return (op("multiply", op("multiply", step.adjoint, y), _one_minus(step, y)),)


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


@gradient("power")
def _power(step: Step) -> Sequence[Adjoint]:
    a, b = step.args
    slope = op("power", a, op("subtract", b, step.number(1)))
    of_a = step.fit(op("multiply", op("multiply", step.adjoint, b), slope), 0)
    of_b = op("multiply", op("multiply", step.adjoint, step.out), op("log", a))
    return of_a, step.fit(of_b, 1)


@gradient("atan2")
def _atan2(step: Step) -> Sequence[Adjoint]:
    a, b = step.args
    square = step.bb.emit(op("add", op("multiply", a, a), op("multiply", b, b)))
    of_a = step.fit(op("divide", op("multiply", step.adjoint, b), square), 0)
    of_b = op("negative", op("divide", op("multiply", step.adjoint, a), square))
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


@gradient("mod")
def _mod(step: Step) -> Sequence[Adjoint]:
    quotient = op("trunc", op("divide", *step.args))
    return (
        step.fit(step.adjoint, 0),
        step.fit(op("negative", op("multiply", step.adjoint, quotient)), 1),
    )


@gradient("floor_mod")
def _floor_mod(step: Step) -> Sequence[Adjoint]:
    quotient = op("floor", op("divide", *step.args))
    return (
        step.fit(step.adjoint, 0),
        step.fit(op("negative", op("multiply", step.adjoint, quotient)), 1),
    )


@gradient("ewise_fma")
def _ewise_fma(step: Step) -> Sequence[Adjoint]:
    a, b, _ = step.args
    return op("multiply", step.adjoint, b), op("multiply", step.adjoint, a), step.adjoint


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
        "floor ceil trunc round sign isnan isinf isfinite logical_not bitwise_not popcount "
        "floor_divide equal not_equal less less_equal greater greater_equal logical_and "
        "logical_or logical_xor bitwise_and bitwise_or bitwise_xor left_shift right_shift "
    ).split()
)(nothing)
