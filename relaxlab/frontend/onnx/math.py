"""Rows of elementwise operators, reductions, and products."""

from __future__ import annotations

from typing import Any

from relaxlab.frontend.emitter import Emitter, dtype_of, shape_of
from relaxlab.frontend.known import tensor
from relaxlab.frontend.onnx.rows import axes_of, number, numbers, rank, row, static
from relaxlab.frontend.table import Refused
from relaxlab.ir import expr, graph
from relaxlab.ir.dtypes import bits_of, is_compiled, is_float, is_uint
from relaxlab.ops import te

UNARY = {
    "Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Asin": "asin", "Asinh": "asinh",
    "Atan": "atan", "Atanh": "atanh", "Ceil": "ceil", "Cos": "cos", "Cosh": "cosh", "Erf": "erf",
    "Exp": "exp", "Floor": "floor", "Log": "log", "Neg": "negative", "Not": "logical_not",
    "Round": "round", "Sigmoid": "sigmoid", "Sign": "sign", "Sin": "sin", "Sinh": "sinh",
    "Sqrt": "sqrt", "Tan": "tan", "Tanh": "tanh", "IsNaN": "isnan", "Relu": "relu",
    "BitwiseNot": "bitwise_not",
}  # fmt: skip
BINARY = {
    "Add": "add", "Sub": "subtract", "Mul": "multiply", "Div": "divide", "And": "logical_and",
    "Or": "logical_or", "Xor": "logical_xor", "Equal": "equal", "Greater": "greater",
    "GreaterOrEqual": "greater_equal", "Less": "less", "LessOrEqual": "less_equal",
    "BitwiseAnd": "bitwise_and", "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor",
}  # fmt: skip


def _operator(name: str) -> Any:
    return lambda b, *inputs, **_: getattr(b, name)(*inputs)


for _name, _ours in {**UNARY, **BINARY}.items():
    row(_name, _operator(_ours))


@row("Identity")
def identity(b: Emitter, x: graph.Expr, **_: Any) -> graph.Expr:
    return x


@row("Reciprocal")
def reciprocal(b: Emitter, x: graph.Expr, **_: Any) -> graph.Expr:
    return b.divide(number(b, 1, x), x)


@row("IsInf")
def is_inf(
    b: Emitter, x: graph.Expr, *, detect_negative: int = 1, detect_positive: int = 1, **_: Any
) -> graph.Expr:
    found = b.isinf(x)
    if not detect_negative:
        found = b.logical_and(found, b.greater(x, number(b, 0, x)))
    if not detect_positive:
        found = b.logical_and(found, b.less(x, number(b, 0, x)))
    return found


def _folded(name: str) -> Any:
    """An operator of any number of tensors, two by two."""

    def combined(b: Emitter, *xs: graph.Expr, **_: Any) -> graph.Expr:
        result = xs[0]
        for x in xs[1:]:
            result = getattr(b, name)(result, x)
        return result

    return combined


row("Max", _folded("maximum"))
row("Min", _folded("minimum"))
row("Sum", _folded("add"))


@row("Mean")
def mean(b: Emitter, *xs: graph.Expr, **_: Any) -> graph.Expr:
    total = _folded("add")(b, *xs)
    return b.divide(total, number(b, len(xs), total))


@row("Mod")
def mod(b: Emitter, x: graph.Expr, y: graph.Expr, *, fmod: int = 0, **_: Any) -> graph.Expr:
    return b.mod(x, y) if fmod else b.floor_mod(x, y)


@row("Pow")
def power(b: Emitter, x: graph.Expr, y: graph.Expr, **_: Any) -> graph.Expr:
    """In float64 where the base is an integer, whose powers are exact there up to 2**53."""
    dtype = dtype_of(x)
    wide = dtype if is_float(dtype) else "float64"
    return b.cast(b.power(b.cast(x, wide), b.cast(y, wide)), dtype)


@row("BitShift")
def bit_shift(b: Emitter, x: graph.Expr, by: graph.Expr, *, direction: str, **_: Any) -> graph.Expr:
    bits = bits_of(dtype_of(x))
    shift = b.left_shift if direction == "LEFT" else b.right_shift
    inside = b.less(by, number(b, bits, by))
    if not is_uint(dtype_of(x)):
        inside = b.logical_and(inside, b.greater_equal(by, number(b, 0, by)))
    outside = number(b, 0, x)
    if direction == "RIGHT" and not is_uint(dtype_of(x)):
        outside = b.right_shift(x, number(b, bits - 1, x))  # copies of the sign alone
    return b.where(inside, shift(x, b.bitwise_and(by, number(b, bits - 1, by))), outside)


@row("Where")
def where(b: Emitter, c: graph.Expr, x: graph.Expr, y: graph.Expr, **_: Any) -> graph.Expr:
    return b.where(c, x, y)


# --- Types ------------------------------------------------------------------------------------


@row("Cast")
def cast(b: Emitter, x: graph.Expr, *, to: str, **_: Any) -> graph.Expr:
    source = dtype_of(x)
    if not is_compiled(to) or bits_of(to) < 8:
        raise Refused(f"values of type {to}")
    if is_float(source) and not is_float(to) and to != "bool" and source != "float64":
        x = b.cast(x, "float64")  # as NumPy rounds: toward zero
    return b.cast(x, to)


@row("CastLike")
def cast_like(b: Emitter, x: graph.Expr, like: graph.Expr, **_: Any) -> graph.Expr:
    return cast(b, x, to=dtype_of(like))


@row("BitCast")
def bit_cast(b: Emitter, x: graph.Expr, *, to: str, **_: Any) -> graph.Expr:
    if dtype_of(x) == to:
        return x
    if not is_compiled(to) or bits_of(to) != bits_of(dtype_of(x)) or "bool" in (to, dtype_of(x)):
        raise Refused(f"the bits of {dtype_of(x)} as {to}")
    return b.bitcast(x, dtype=to)


# --- Activations ------------------------------------------------------------------------------


@row("Clip")
@static(1, 2)
def clip(
    b: Emitter, x: graph.Expr, low: Any = None, high: Any = None, *, min: Any = None,
    max: Any = None, **_: Any,
) -> graph.Expr:  # fmt: skip
    low, high = (low if min is None else min), (high if max is None else max)
    for bound, choose in ((low, b.maximum), (high, b.minimum)):
        if bound is not None:
            value = tensor(b, bound)  # a size, too
            value = number(b, value, x) if not isinstance(value, graph.Expr) else value
            x = choose(x, value)
    return x


@row("LeakyRelu")
def leaky_relu(b: Emitter, x: graph.Expr, *, alpha: float = 0.01, **_: Any) -> graph.Expr:
    return b.leakyrelu(x, alpha=alpha)


@row("Elu")
def elu(b: Emitter, x: graph.Expr, *, alpha: float = 1.0, **_: Any) -> graph.Expr:
    below = b.multiply(b.expm1(x), number(b, alpha, x))
    return b.where(b.less(x, number(b, 0, x)), below, x)


@row("Selu")
def selu(
    b: Emitter, x: graph.Expr, *, alpha: float = 1.67326319217681884765625,
    gamma: float = 1.05070102214813232421875, **_: Any,
) -> graph.Expr:  # fmt: skip
    return b.multiply(elu(b, x, alpha=alpha), number(b, gamma, x))


@row("Celu")
def celu(b: Emitter, x: graph.Expr, *, alpha: float = 1.0, **_: Any) -> graph.Expr:
    below = b.multiply(b.expm1(b.divide(x, number(b, alpha, x))), number(b, alpha, x))
    return b.where(b.less(x, number(b, 0, x)), below, x)


@row("ThresholdedRelu")
def thresholded_relu(b: Emitter, x: graph.Expr, *, alpha: float = 1.0, **_: Any) -> graph.Expr:
    return b.where(b.greater(x, number(b, alpha, x)), x, number(b, 0, x))


@row("HardSigmoid")
def hard_sigmoid(
    b: Emitter, x: graph.Expr, *, alpha: float = 0.2, beta: float = 0.5, **_: Any
) -> graph.Expr:
    line = b.add(b.multiply(x, number(b, alpha, x)), number(b, beta, x))
    return b.clip(line, min=0.0, max=1.0)


@row("HardSwish")
def hard_swish(b: Emitter, x: graph.Expr, **_: Any) -> graph.Expr:
    return b.multiply(x, hard_sigmoid(b, x, alpha=1 / 6, beta=0.5))


@row("Softplus")
def softplus(b: Emitter, x: graph.Expr, **_: Any) -> graph.Expr:
    return b.log_add_exp(x, number(b, 0, x))


@row("Softsign")
def softsign(b: Emitter, x: graph.Expr, **_: Any) -> graph.Expr:
    return b.divide(x, b.add(b.abs(x), number(b, 1, x)))


@row("Mish")
def mish(b: Emitter, x: graph.Expr, **_: Any) -> graph.Expr:
    return b.multiply(x, b.tanh(softplus(b, x)))


@row("Swish")
def swish(b: Emitter, x: graph.Expr, *, alpha: float = 1.0, **_: Any) -> graph.Expr:
    return b.multiply(x, b.sigmoid(b.multiply(x, number(b, alpha, x))))


@row("Gelu")
def gelu(b: Emitter, x: graph.Expr, *, approximate: str = "none", **_: Any) -> graph.Expr:
    return b.gelu_tanh(x) if approximate == "tanh" else b.gelu(x)


@row("PRelu")
def prelu(b: Emitter, x: graph.Expr, slope: graph.Expr, **_: Any) -> graph.Expr:
    return b.where(b.less(x, number(b, 0, x)), b.multiply(x, slope), x)


@row("Shrink")
def shrink(
    b: Emitter, x: graph.Expr, *, bias: float = 0.0, lambd: float = 0.5, **_: Any
) -> graph.Expr:
    zero, limit, by = (number(b, v, x) for v in (0, lambd, bias))
    above = b.where(b.greater(x, limit), b.subtract(x, by), zero)
    return b.where(b.less(x, b.negative(limit)), b.add(x, by), above)


def _along_axis(name: str) -> tuple[Any, Any]:
    """Since version 13 along one axis; before it, over all dimensions from one on."""

    def along(b: Emitter, x: graph.Expr, *, axis: int = -1, **_: Any) -> graph.Expr:
        return getattr(b, name)(x, axis=axis)

    def flattened(b: Emitter, x: graph.Expr, *, axis: int = 1, **_: Any) -> graph.Expr:
        shape = shape_of(x)
        first = axis % len(shape) if shape else 0
        whole = b.reshape(x, (*shape[:first], -1))
        return b.reshape(getattr(b, name)(whole, axis=-1), shape)

    return along, flattened


for _name, _ours in {"Softmax": "softmax", "LogSoftmax": "log_softmax"}.items():
    _along, _flattened = _along_axis(_ours)
    row(_name, _flattened)
    row(_name, _along, since=13)


@row("Hardmax")
def hardmax(b: Emitter, x: graph.Expr, *, axis: int = -1, **_: Any) -> graph.Expr:
    axis = axis % rank(x)
    best = b.argmax(x, axis=axis, keepdims=True)
    places = per_axis_places(b, shape_of(x), axis)
    return b.cast(b.equal(places, best), dtype_of(x))


def per_axis_places(b: Emitter, shape: Any, axis: int) -> graph.Expr:
    """The index along one axis, for tensors of a shape."""
    places = b.arange(0, shape[axis], 1, dtype="int64")
    others = tuple(d for d in range(len(shape)) if d != axis)
    return b.expand_dims(places, axis=others) if others else places


# --- Reductions -------------------------------------------------------------------------------


def reduction(compute: Any) -> Any:
    """A row of `compute(b, x, axes, keepdims)`: axes are an attribute, or since some version an
    input; without them all dimensions are reduced, or none where the attribute says so."""

    @static(1)
    def reduced(
        b: Emitter, x: graph.Expr, chosen: Any = None, *, axes: Any = None, keepdims: int = 1,
        noop_with_empty_axes: int = 0, **_: Any,
    ) -> graph.Expr:  # fmt: skip
        given = axes_of(chosen if chosen is not None else axes, rank(x))
        if not given and noop_with_empty_axes:
            return compute(b, x, (), True)
        return compute(b, x, given or tuple(range(rank(x))), bool(keepdims))

    return reduced


def _plain(name: str, before: Any = None, after: Any = None) -> Any:
    def compute(b: Emitter, x: graph.Expr, axes: Any, keep: bool) -> graph.Expr:
        x = before(b, x) if before else x
        bools = dtype_of(x) == "bool"
        x = b.cast(x, "uint8") if bools else x
        result = getattr(b, name)(x, axis=axes, keepdims=keep) if axes else x
        result = b.cast(result, "bool") if bools else result
        return after(b, result) if after else result

    return compute


def _log_sum_exp(b: Emitter, x: graph.Expr, axes: Any, keep: bool) -> graph.Expr:
    if not axes:
        return x
    dtype = dtype_of(x)
    top = b.max(x, axis=axes, keepdims=True)
    finite = b.where(b.isfinite(top), top, number(b, 0, top))
    total = b.sum(b.exp(b.subtract(x, finite)), axis=axes, keepdims=True)
    result = b.cast(b.add(b.log(total), finite), dtype)
    return result if keep else b.squeeze(result, axis=axes)


def _mean(b: Emitter, x: graph.Expr, axes: Any, keep: bool) -> graph.Expr:
    if not axes:
        return x
    if is_float(dtype_of(x)):
        return b.mean(x, axis=axes, keepdims=keep)
    count = expr.const(1)
    for a in axes:
        count = count * shape_of(x)[a]
    total = b.sum(x, axis=axes, keepdims=keep)
    return b.divide(total, b.cast(b.scalar(count, "int64"), dtype_of(x)))


for _name, _compute in {
    "ReduceSum": _plain("sum"), "ReduceMax": _plain("max"), "ReduceMin": _plain("min"),
    "ReduceProd": _plain("prod"), "ReduceMean": _mean, "ReduceLogSumExp": _log_sum_exp,
    "ReduceL1": _plain("sum", before=lambda b, x: b.abs(x)),
    "ReduceL2": _plain("sum", lambda b, x: b.square(x), lambda b, x: b.sqrt(x)),
    "ReduceSumSquare": _plain("sum", before=lambda b, x: b.square(x)),
    "ReduceLogSum": _plain("sum", after=lambda b, x: b.log(x)),
}.items():  # fmt: skip
    row(_name, reduction(_compute))


def _arg(name: str) -> Any:
    def chosen(
        b: Emitter, x: graph.Expr, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0,
        **_: Any,
    ) -> graph.Expr:  # fmt: skip
        axis = axis % rank(x)
        extent = shape_of(x)[axis]
        x = b.flip(x, axis=axis) if select_last_index else x
        place = b.cast(getattr(b, name)(x, axis=axis, keepdims=bool(keepdims)), "int64")
        return b.subtract(b.scalar(extent - 1, "int64"), place) if select_last_index else place

    return chosen


row("ArgMax", _arg("argmax"))
row("ArgMin", _arg("argmin"))


def _running(name: str) -> Any:
    @static(1)
    def scanned(
        b: Emitter, x: graph.Expr, axis: Any, *, exclusive: int = 0, reverse: int = 0, **_: Any
    ) -> graph.Expr:
        (at,) = numbers(axis, "the axis")
        x = b.flip(x, axis=at) if reverse else x
        result = getattr(b, name)(x, axis=at, exclusive=bool(exclusive))
        return b.flip(result, axis=at) if reverse else result

    return scanned


row("CumSum", _running("cumsum"))
row("CumProd", _running("cumprod"))


@row("TopK")
@static(1)
def top_k(
    b: Emitter, x: graph.Expr, count: Any = None, *, k: int = 0, axis: int = -1, largest: int = 1,
    **_: Any,
) -> Any:  # fmt: skip
    (most,) = numbers(count, "k") if count is not None else (k,)
    return b.fields(b.topk(x, k=most, axis=axis, largest=bool(largest), dtype="int64"))


# --- Products ---------------------------------------------------------------------------------


@row("MatMul")
def matmul(b: Emitter, x: graph.Expr, y: graph.Expr, **_: Any) -> graph.Expr:
    return b.cast(b.matmul(x, y), dtype_of(x))


@row("Gemm")
def gemm(
    b: Emitter, x: graph.Expr, y: graph.Expr, c: Any = None, *, alpha: float = 1.0,
    beta: float = 1.0, transA: int = 0, transB: int = 0, **_: Any,
) -> graph.Expr:  # fmt: skip
    x = b.permute_dims(x, axes=(1, 0)) if transA else x
    product = b.cast(b.linear(x, y) if transB else b.matmul(x, y), dtype_of(x))
    product = product if alpha == 1 else b.multiply(product, number(b, alpha, product))
    if c is None or beta == 0:
        return product
    return b.add(product, c if beta == 1 else b.multiply(c, number(b, beta, c)))


@row("Einsum")
def einsum(b: Emitter, *xs: graph.Expr, equation: str, **_: Any) -> graph.Expr:
    return b.cast(b.einsum(xs, subscripts=equation.replace(" ", "")), dtype_of(xs[0]))


@row("Det")
def determinant(b: Emitter, x: graph.Expr, **_: Any) -> graph.Expr:
    """By minors; the number of terms is the factorial of the extent."""
    size = shape_of(x)[-1]
    if not isinstance(size, expr.IntImm) or size.value > 4:
        raise Refused("determinants of matrices of more than 4 rows")
    return b.te(_determinant, x, name="det")


def _determinant(x: te.Tensor) -> te.Tensor:
    size = x.shape[-1]
    assert isinstance(size, expr.IntImm)

    def minor(i: Any, rows: tuple[int, ...], columns: tuple[int, ...]) -> expr.PrimExpr:
        if not rows:
            return expr.const(1.0, x.dtype)
        value = expr.const(0.0, x.dtype)
        for place, column in enumerate(columns):
            rest = (*columns[:place], *columns[place + 1 :])
            at = x[(*i, expr.const(rows[0]), expr.const(column))]
            value = value + at * minor(i, rows[1:], rest) * (-1.0 if place % 2 else 1.0)
        return value

    every = tuple(range(size.value))
    return te.compute(x.shape[:-2], lambda *i: minor(i, every, every), "T_det")


@row("Trilu")
@static(1)
def trilu(b: Emitter, x: graph.Expr, k: Any = None, *, upper: int = 1, **_: Any) -> graph.Expr:
    (shift,) = numbers(k, "k") if k is not None else (0,)
    return (b.triu if upper else b.tril)(x, k=shift)
