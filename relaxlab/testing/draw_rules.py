"""Per operator a rule that draws a call with random operands and attributes: elementwise
operators, reductions, creation. `RULES` holds those of all operators that are lowered to loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from relaxlab.ir import expr, graph
from relaxlab.ir.dtypes import is_uint
from relaxlab.ops.define import builder
from relaxlab.testing.draw import (
    FLOATS,
    INTS,
    NUMBERS,
    SPECIAL,
    Draw,
    Refused,
    dtype_of,
    shape_of,
)

Rule: TypeAlias = Callable[[Draw, str], graph.Call]
RULES: dict[str, Rule] = {}
"""Rules by operator."""

NARROW = ("float", "int32", "int64", "int8")
"""Operands of arithmetic."""
ANYTHING = ("float", "float", *INTS, "bool")


def rule(*ops: str) -> Callable[[Rule], Rule]:
    """Register a rule for operators."""

    def registered(fn: Rule) -> Rule:
        RULES.update(dict.fromkeys(ops, fn))
        return fn

    return registered


def shape_expr(*dims: expr.ExprLike) -> graph.ShapeExpr:
    """A shape as an operand."""
    return graph.ShapeExpr(tuple(map(expr.as_expr, dims)))


# --- One operand ------------------------------------------------------------------------------

_DOMAINS = {"asin": (-0.9, 0.9), "acos": (-0.9, 0.9), "atanh": (-0.9, 0.9), "acosh": (1.1, 4),
            "tan": (-1, 1), "log": (0.1, 9), "log2": (0.1, 9), "log10": (0.1, 9),
            "log1p": (-0.5, 9), "sqrt": (0.1, 9), "rsqrt": (0.1, 9), "erfinv": (-0.9, 0.9),
            "lgamma": (3, 9), "digamma": (3, 9), "cbrt": (0.1, 9)}  # fmt: skip
_KNOWN_AT_SPECIAL = ("log", "log2", "log10", "sqrt", "rsqrt", "exp", "tanh", "sigmoid", "abs")


@rule("exp", "sin", "cos", "atan", "sinh", "cosh", "tanh", "asinh", "sigmoid", "erf", "erfc",
      "exp2", "expm1", *_DOMAINS)  # fmt: skip
def _function(d: Draw, op: str) -> graph.Call:
    if op in _KNOWN_AT_SPECIAL and d.chance(0.1):
        return builder(op)(d.new((d.dim(),), d.dtype(), values=SPECIAL))
    low, high = _DOMAINS.get(op, (-2, 2))
    return builder(op)(d.x(low=low, high=high))


@rule("floor", "ceil", "trunc", "round", "sign")
def _step(d: Draw, op: str) -> graph.Call:
    return builder(op)(d.x(kinds=NARROW, exact=True))


@rule("abs", "negative", "square")
def _exact(d: Draw, op: str) -> graph.Call:
    return builder(op)(d.x(kinds=("float", *INTS)))


@rule("isnan", "isinf", "isfinite")
def _test(d: Draw, op: str) -> graph.Call:
    return builder(op)(d.new(d.shape(d.rng.randint(0, 3)), d.dtype(), values=SPECIAL))


@rule("logical_not")
def _logical_not(d: Draw, op: str) -> graph.Call:
    return builder(op)(d.x(kinds=("bool",)))


@rule("bitwise_not")
def _bitwise_not(d: Draw, op: str) -> graph.Call:
    return builder(op)(d.x(kinds=("bool", *INTS), exact=True))


@rule("popcount")
def _popcount(d: Draw, op: str) -> graph.Call:
    return builder(op)(d.x(kinds=INTS, exact=True))


@rule("bitcast")
def _bitcast(d: Draw, op: str) -> graph.Call:
    x = d.x(kinds=("float32", "int32"), exact=True)
    return builder(op)(x, dtype=d.choice(("int32", "uint32")))


@rule("nn.relu", "nn.relu6", "nn.gelu", "nn.gelu_tanh", "nn.silu", "nn.selu")
def _activation(d: Draw, op: str) -> graph.Call:
    kinds = NARROW if op in ("nn.relu", "nn.relu6") else ("float",)
    return builder(op)(d.x(kinds=kinds, low=-7 if d.flag() else -2, high=2))


@rule("nn.leakyrelu")
def _leaky(d: Draw, op: str) -> graph.Call:
    return builder(op)(d.x(), **d.some(alpha=d.choice((0.0, 0.2, 1.5))))


@rule("nn.softplus")
def _softplus(d: Draw, op: str) -> graph.Call:
    attrs = d.some(beta=d.choice((0.5, 2.0)), threshold=d.choice((3.0, 10.0)))
    return builder(op)(d.x(low=-20, high=20), **attrs)


@rule("astype", "wrap_param")
def _astype(d: Draw, op: str) -> graph.Call:
    to = d.choice(("float32", d.dtype(), *INTS, "bool")) if op == "astype" else d.dtype()
    if d.chance(0.2):
        to = d.choice(FLOATS)
    unsigned = is_uint(to)
    x = d.x(kinds=("float", *INTS, "bool"), low=0 if unsigned else -2, exact=True)
    if unsigned and dtype_of(x) in FLOATS and x not in d.inputs:
        raise Refused  # a negative number has no conversion to unsigned that all machines share
    return builder(op)(x, dtype=to)


@rule("clip")
def _clip(d: Draw, op: str) -> graph.Call:
    x = d.x(kinds=NARROW)
    low, high = d.choice(((-1, 1), (0, 2), (-2, 0), (1, 1)))
    if dtype_of(x) in FLOATS:
        low, high = low * 0.5, high * 0.75 + 0.125
    return builder(op)(x, min=low, max=high)


@rule("grad.no_grad", "grad.start_checkpoint", "grad.end_checkpoint")
def _marker(d: Draw, op: str) -> graph.Call:
    return builder(op)(d.x(kinds=NARROW))


# --- Two and three operands -------------------------------------------------------------------


def _pair(d: Draw, kinds: tuple[str, ...], low: float = -2, high: float = 2,
          other: tuple[float, float] = (-2, 2), exact: bool = False
          ) -> tuple[graph.Expr, graph.Expr]:  # fmt: skip
    """Two operands of one dtype that broadcast; at times one is a number."""
    x = d.x(kinds=kinds, low=low, high=high, exact=exact)
    if dtype_of(x) != "bool" and d.chance(0.15):
        number = d.choice((2, 1, 3) if dtype_of(x) not in FLOATS else (0.5, 2.0, 1.25))
        other_one: graph.Expr = graph.PrimValue(expr.const(number))
    elif d.chance(0.5) and other == (-2, 2):
        other_one = d.like(x)
    else:
        other_one = d.broadcastable(x, low=other[0], high=other[1])
    symmetric = (low, high) == other
    return (other_one, x) if symmetric and d.flag() else (x, other_one)


@rule("add", "subtract", "multiply", "maximum", "minimum")
def _arithmetic(d: Draw, op: str) -> graph.Call:
    return builder(op)(*_pair(d, ("float", *NARROW, "int16", "uint8")))


@rule("divide", "power", "atan2", "log_add_exp")
def _float_pair(d: Draw, op: str) -> graph.Call:
    match op:
        case "divide":
            return builder(op)(*_pair(d, ("float",), other=(0.25, 4)))
        case "power":
            return builder(op)(*_pair(d, ("float",), low=0.1, high=4, other=(-2, 2)))
        case "atan2":
            return builder(op)(*_pair(d, ("float",), low=0.1, high=4, other=(-2, 2)))
        case _:
            return builder(op)(*_pair(d, ("float",), low=-9, high=9, other=(-9, 9)))


@rule("floor_divide", "mod", "floor_mod")
def _division(d: Draw, op: str) -> graph.Call:
    """Divide integers by anything but 0, at times by 0, too."""
    kinds = ("float32", *INTS) if "float32" in d.floats else INTS
    least = 0 if d.chance(0.1) else 1
    return builder(op)(*_pair(d, kinds, low=-9, high=9, other=(least, 4), exact=True))


@rule("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
def _comparison(d: Draw, op: str) -> graph.Call:
    if d.chance(0.1):
        shape = d.shape(1)
        dtype = d.dtype()
        pair = [d.new(shape, dtype, values=SPECIAL) for _ in range(2)]
        return builder(op)(*pair)
    return builder(op)(*_pair(d, ANYTHING, exact=True))


@rule("logical_and", "logical_or", "logical_xor")
def _logical(d: Draw, op: str) -> graph.Call:
    x = d.x(kinds=("bool",), exact=True)
    return builder(op)(x, d.broadcastable(x))


@rule("bitwise_and", "bitwise_or", "bitwise_xor")
def _bitwise(d: Draw, op: str) -> graph.Call:
    x = d.x(kinds=("bool", *INTS), low=-99, high=99, exact=True)
    return builder(op)(x, d.broadcastable(x, low=-99, high=99))


@rule("left_shift", "right_shift")
def _shift(d: Draw, op: str) -> graph.Call:
    x = d.x(kinds=INTS, low=-99, high=99, exact=True)
    return builder(op)(x, d.broadcastable(x, low=0, high=7))


@rule("where")
def _where(d: Draw, op: str) -> graph.Call:
    a, b = _pair(d, ANYTHING)
    main = a if isinstance(a, graph.Var) else b
    assert isinstance(main, graph.Var)
    return builder(op)(d.broadcastable(main, "bool"), a, b)


@rule("masked_fill")
def _masked_fill(d: Draw, op: str) -> graph.Call:
    x = d.x(kinds=ANYTHING)
    value = d.choice((-1.5, 0.25)) if dtype_of(x) in FLOATS else d.choice((0, 1))
    return builder(op)(x, d.broadcastable(x, "bool"), value=value)


@rule("ewise_fma")
def _fma(d: Draw, op: str) -> graph.Call:
    x = d.x(kinds=NARROW)
    return builder(op)(x, d.like(x), d.broadcastable(x))


# --- Reductions, scans, sorting ---------------------------------------------------------------


def _reduced(d: Draw, x: graph.Var) -> dict[str, Any]:
    return d.some(axis=d.some_axes(len(shape_of(x))), keepdims=d.flag())


def _one_axis(d: Draw, x: graph.Var) -> int | None:
    """An axis to choose elements along, or None for all."""
    shape = shape_of(x)
    axis = None if d.chance(0.3) or not shape else d.axis(len(shape))
    if not d.count(shape if axis is None else (shape[axis],)):
        raise Refused  # there is none to choose
    return axis


@rule("sum", "max", "min")
def _reduce(d: Draw, op: str) -> graph.Call:
    x = d.x(kinds=("float", "float", "float", "int32", "int64", "int8", "uint8"))
    return builder(op)(x, **_reduced(d, x))


@rule("prod")
def _prod(d: Draw, op: str) -> graph.Call:
    x = d.x(kinds=("float", "int32", "int64"), low=0.9, high=1.1)
    return builder(op)(x, **_reduced(d, x))


@rule("mean", "variance", "std")
def _moments(d: Draw, op: str) -> graph.Call:
    low, high = d.choice(((-2, 2), (-2, 2), (3, 5)))
    x = d.x(low=low, high=high)
    return builder(op)(x, **_reduced(d, x))


@rule("argmax", "argmin")
def _arg(d: Draw, op: str) -> graph.Call:
    x = d.x(kinds=ANYTHING, exact=True)
    axis = _one_axis(d, x)
    return builder(op)(x, **d.some(keepdims=d.flag()), axis=axis)


@rule("median")
def _median(d: Draw, op: str) -> graph.Call:
    x = d.x(kinds=("float", "int32"), most=5000)
    axis = _one_axis(d, x)
    return builder(op)(x, **d.some(keepdims=d.flag()), axis=axis)


@rule("cumsum", "cumprod")
def _scan(d: Draw, op: str) -> graph.Call:
    low, high = (0.9, 1.1) if op == "cumprod" else (-2, 2)
    x = d.x(kinds=("float", "float", "int32", "int64", "int8", "bool"), low=low, high=high)
    dtype = d.choice((None, "int32", "float32"))
    if dtype_of(x) == "bool":
        dtype = "int32"
    elif dtype_of(x) in FLOATS:
        dtype = d.choice((None, "float32"))
    axis = None if d.chance(0.3) or not shape_of(x) else d.axis(len(shape_of(x)))
    return builder(op)(x, axis=axis, dtype=dtype, **d.some(exclusive=d.flag()))


@rule("cummax", "cummin", "cumlogsumexp")
def _running(d: Draw, op: str) -> graph.Call:
    x = d.x(kinds=("float",) if op == "cumlogsumexp" else ("float", "int32", "int8"))
    axis = None if d.chance(0.3) or not shape_of(x) else d.axis(len(shape_of(x)))
    dtype = d.choice((None, "float32", "float64") if dtype_of(x) in FLOATS else (None, "int32"))
    return builder(op)(x, axis=axis, dtype=dtype, **d.some(exclusive=d.flag()))


@rule("sort", "argsort")
def _sort(d: Draw, op: str) -> graph.Call:
    x = d.x((1, 3), kinds=("float", "int32", "int8"), exact=True, most=20_000)
    attrs = d.some(axis=d.axis(len(shape_of(x))), descending=d.flag())
    if op == "argsort":
        attrs |= d.some(dtype=d.choice(("int32", "int64")))
    return builder(op)(x, **attrs)


@rule("topk")
def _topk(d: Draw, op: str) -> graph.Call:
    x = d.x((1, 3), kinds=("float", "int32"), exact=True, most=20_000)
    axis = d.axis(len(shape_of(x)))
    size = d.size(shape_of(x)[axis])
    if not size:
        raise Refused
    # More than the size makes a program that no arguments fit, or one that has no type.
    return builder(op)(
        x, k=d.choice((1, size, d.rng.randint(1, size), -1)), axis=axis,
        **d.some(ret_type=d.choice(("both", "values", "indices")), largest=d.flag(),
                 dtype=d.choice(("int32", "int64"))),
    )  # fmt: skip


@rule("bucketize")
def _bucketize(d: Draw, op: str) -> graph.Call:
    x = d.x(kinds=("float", "int32"), exact=True)
    ends = d.new((d.dim(),), dtype_of(x), rises=True)
    return builder(op)(x, ends, **d.some(out_int32=d.flag(), right=d.flag()))


# --- Creation ---------------------------------------------------------------------------------


@rule("full")
def _full(d: Draw, op: str) -> graph.Call:
    shape, dtype = shape_expr(*d.shape(d.rng.randint(0, 3))), d.dtype(NUMBERS)
    if d.flag():
        return builder(op)(shape, d.new((), dtype), **d.some(dtype=d.dtype()))
    return builder(op)(shape, graph.PrimValue(expr.const(d.choice((2, 0.5)))), dtype=d.dtype())


@rule("full_like")
def _full_like(d: Draw, op: str) -> graph.Call:
    x = d.x(kinds=ANYTHING)
    return builder(op)(x, d.new((), d.dtype(NARROW)), **d.some(dtype=d.dtype(NARROW)))


@rule("zeros", "ones")
def _filled(d: Draw, op: str) -> graph.Call:
    return builder(op)(shape_expr(*d.shape(d.rng.randint(0, 3))), dtype=d.dtype(ANYTHING))


@rule("zeros_like", "ones_like")
def _filled_like(d: Draw, op: str) -> graph.Call:
    return builder(op)(d.x(kinds=ANYTHING), **d.some(dtype=d.dtype(ANYTHING)))


@rule("size")
def _size(d: Draw, op: str) -> graph.Call:
    return builder(op)(d.x(kinds=ANYTHING))


@rule("arange")
def _arange(d: Draw, op: str) -> graph.Call:
    n, step = d.dim(), d.choice((1, 2, 3, 7))
    dtype = d.choice((None, "int32", "int64", "float32", "float64"))
    match d.rng.randrange(4):
        case 0:
            return builder(op)(start=n, dtype=dtype)
        case 1:
            return builder(op)(start=d.rng.randint(-3, 3), end=n + 3, step=step, dtype=dtype)
        case 2:
            return builder(op)(start=n, end=-4, step=-step, dtype=dtype)
        case _:
            return builder(op)(start=0.5, end=d.choice((0.5, 3.0, 20.25)), step=0.25)


@rule("tril", "triu")
def _triangle(d: Draw, op: str) -> graph.Call:
    x = d.x((2, 4), kinds=ANYTHING)
    return builder(op)(x, **d.some(k=d.rng.randint(-3, 3)))


@rule("eye")
def _eye(d: Draw, op: str) -> graph.Call:
    attrs = d.some(m=d.dim(), k=d.rng.randint(-3, 3), dtype=d.dtype(ANYTHING))
    return builder(op)(n=d.dim(), **attrs)


@rule("eye_like")
def _eye_like(d: Draw, op: str) -> graph.Call:
    x = d.x((2, 2), kinds=ANYTHING)
    return builder(op)(x, **d.some(k=d.rng.randint(-3, 3), dtype=d.dtype(ANYTHING)))


@rule("hamming_window")
def _hamming(d: Draw, op: str) -> graph.Call:
    attrs = d.some(periodic=d.flag(), alpha=0.5, beta=0.25, dtype=d.dtype())
    return builder(op)(window_size=d.dim(), **attrs)
