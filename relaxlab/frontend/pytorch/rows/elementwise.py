"""Elementwise operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

from relaxlab.frontend.emitter import Emitter, Tensor, dtype_of, shape_of
from relaxlab.frontend.pytorch.rows.table import row
from relaxlab.frontend.table import Refused
from relaxlab.ir import expr, graph
from relaxlab.ir.dtypes import bits_of, is_float, is_int
from relaxlab.ir.expr import PrimExpr
from relaxlab.ops import te

Operand = Any
"""A tensor, a number, or a scalar expression."""


# --- Dtypes -------------------------------------------------------------------------------------


def category(dtype: str) -> int:
    """PyTorch's categories: a wider one wins over any width of another."""
    return 0 if dtype == "bool" else 1 if is_int(dtype) else 2


def dtype_of_number(x: Operand) -> str:
    """The dtype that a number has beside tensors of a lower category."""
    if isinstance(x, bool):
        return "bool"
    whole = is_int(x.dtype) if isinstance(x, PrimExpr) else isinstance(x, int)
    return "int64" if whole else "float32"


def joined(a: str, b: str) -> str:
    """The dtype that holds the elements of both."""
    if category(a) != category(b):
        return max(a, b, key=category)
    if {a, b} == {"float16", "bfloat16"}:
        return "float32"
    if is_int(a) and a.startswith("u") != b.startswith("u"):
        signed = max(bits_of(a), bits_of(b)) + (bits_of(min(a, b)) <= bits_of(max(a, b)))
        return f"int{max(16, min(64, signed // 8 * 8))}"
    return max(a, b, key=bits_of)


def promoted(*operands: Operand) -> str:
    """The dtype in which operands are combined: that of the tensors with dimensions, then of those
    without, then of numbers, where each counts only if it has a higher category."""
    ranks: list[list[str]] = [[], [], []]
    for x in operands:
        if not isinstance(x, graph.Expr):
            ranks[2].append(dtype_of_number(x))
        else:
            ranks[0 if shape_of(x) else 1].append(dtype_of(x))
    found: str | None = None
    for dtypes in ranks:
        if dtypes:
            here = reduce(joined, dtypes)
            found = here if found is None or category(here) > category(found) else found
    assert found is not None
    return found


def as_tensor(b: Emitter, x: Operand, dtype: str) -> Tensor:
    """An operand as a tensor of that dtype."""
    return b.cast(x, dtype) if isinstance(x, graph.Expr) else b.scalar(x, dtype)


def out_dtype(b: Emitter, index: int = 0) -> str:
    """The dtype of a result, as PyTorch states it."""
    stated = b.out[index]
    assert stated is not None and stated.dtype is not None
    return stated.dtype


# --- One operand --------------------------------------------------------------------------------


def unary(name: str, fn: Callable[[Emitter, Tensor], Any]) -> None:
    """A function of numbers, computed in the dtype of the result."""
    row(f"aten.{name}.default", lambda b, x: fn(b, b.cast(x, out_dtype(b))))


for _name in (
    "acos acosh asin asinh atan atanh cos cosh erf exp log log1p log2 log10 rsqrt sigmoid sin sinh "
    "sqrt tan tanh"
).split():
    unary(_name, lambda b, x, op=_name: getattr(b, op)(x))
unary("reciprocal", lambda b, x: b.divide(1.0, x))
unary("neg", lambda b, x: b.negative(x))
unary("positive", lambda b, x: x)
unary("square", lambda b, x: b.multiply(x, x))
unary("relu", lambda b, x: b.relu(x) if is_float(dtype_of(x)) else b.maximum(x, 0))
unary("silu", lambda b, x: b.silu(x))
unary("log_sigmoid", lambda b, x: b.negative(b.softplus(b.negative(x))))
unary("selu", lambda b, x: b.selu(x))
unary("relu6", lambda b, x: b.relu6(x))
unary("exp2", lambda b, x: b.exp(b.multiply(x, math.log(2.0))))
unary("deg2rad", lambda b, x: b.multiply(x, math.pi / 180))
unary("rad2deg", lambda b, x: b.multiply(x, 180 / math.pi))
unary("tanhshrink", lambda b, x: b.subtract(x, b.tanh(x)))


@row("aten.abs.default")
def abs_(b: Emitter, x: Tensor) -> Tensor:
    return x if dtype_of(x) == "bool" or dtype_of(x).startswith("uint") else b.abs(x)


@row("aten.sign.default", "aten.sgn.default")
def sign(b: Emitter, x: Tensor) -> Tensor:
    return x if dtype_of(x) == "bool" else b.sign(x)


def _of_floats(name: str, op: str) -> None:
    """A function to integers, which leaves integers as they are."""
    row(
        f"aten.{name}.default",
        lambda b, x: getattr(b, op)(x) if is_float(dtype_of(x)) else x,
    )


for _name in "ceil floor round trunc".split():
    _of_floats(_name, _name)
_of_floats("fix", "trunc")
row("aten.frac.default", lambda b, x: b.subtract(x, b.trunc(x)))


def _test(name: str, other: bool) -> None:
    """A test of floats; integers are all alike."""

    def test(b: Emitter, x: Tensor) -> Tensor:
        if is_float(dtype_of(x)):
            return getattr(b, name)(x)
        return b.full(shape_of(x), b.const(other, "bool"))

    row(f"aten.{name}.default", test)


_test("isnan", False)
_test("isinf", False)
_test("isfinite", True)


@row("aten.logical_not.default")
def logical_not(b: Emitter, x: Tensor) -> Tensor:
    return b.logical_not(truth(b, x))


@row("aten.bitwise_not.default")
def bitwise_not(b: Emitter, x: Tensor) -> Tensor:
    return b.logical_not(x) if dtype_of(x) == "bool" else b.bitwise_not(x)


row("aten.signbit.default", lambda b, x: signbit(b, x))


def signbit(b: Emitter, x: Tensor) -> Tensor:
    """True for negative numbers and for minus zero."""
    dtype = dtype_of(x)
    if not is_float(dtype):
        return b.less(x, 0) if dtype != "bool" else b.full(shape_of(x), b.const(False, "bool"))
    kind = f"int{bits_of(dtype)}"

    def bits(x: te.Tensor) -> te.Tensor:
        def negative(*i: PrimExpr) -> PrimExpr:
            return expr.LT(expr.Call(kind, "reinterpret", (x[i],)), expr.const(0, kind))

        return te.compute(x.shape, negative, "signbit")

    return b.te(bits, x)


def truth(b: Emitter, x: Operand) -> Tensor:
    """True where an element is not zero."""
    if not isinstance(x, graph.Expr):
        return b.scalar(x, "bool")
    if dtype_of(x) == "bool":
        return x
    return b.not_equal(x, b.scalar(0, dtype_of(x)))


# Dynamo makes tensors of numbers by the second.
@row("aten._to_copy.default", "prims.convert_element_type.default")
def to_copy(b: Emitter, x: Tensor, dtype: str | None = None) -> Tensor:
    return converted(b, x, dtype or dtype_of(x))


def converted(b: Emitter, x: Tensor, dtype: str) -> Tensor:
    """The elements as another dtype; to bool: True where they are not zero."""
    return truth(b, x) if dtype == "bool" else b.cast(x, dtype)


for _name in "clone alias detach lift_fresh_copy lift_fresh contiguous".split():
    row(f"aten.{_name}.default", lambda b, x: x)
row("aten.detach_.default", lambda b, x: x)
row("aten._conj_physical.default", "aten.conj_physical.default", lambda b, x: x)
row("aten.dropout.default", lambda b, x, p, train: dropout(x, p, train))
row("aten.native_dropout.default", lambda b, x, p, train: (dropout(x, p, train), None))


def dropout(x: Tensor, p: float, train: bool) -> Tensor:
    if train and p > 0:
        raise Refused("it is random in training mode; call model.eval() first")
    return x


# --- Two operands -------------------------------------------------------------------------------


def _is_number(x: Operand, number: int) -> bool:
    return isinstance(x, int | float) and x == number


def binary(
    name: str, fn: Callable[[Emitter, Tensor, Tensor], Any], neutral: int | None = None
) -> None:
    """A function of two numbers, which are converted to the dtype of the result. `neutral` is the
    second operand that changes nothing."""

    def emit(b: Emitter, x: Operand, y: Operand) -> Any:
        dtype = out_dtype(b)
        if neutral is not None and _is_number(y, neutral) and dtype_of(x) == dtype:
            return x
        return fn(b, as_tensor(b, x, dtype), as_tensor(b, y, dtype))

    for overload in ("Tensor", "Scalar", "default"):
        row(f"aten.{name}.{overload}", emit)


def scaled(name: str, op: str) -> None:
    """A sum or difference, of which the second operand may be scaled."""

    def emit(b: Emitter, x: Operand, y: Operand, alpha: Operand = 1) -> Any:
        dtype = out_dtype(b)
        if _is_number(y, 0) and dtype_of(x) == dtype:
            return x
        x, y = as_tensor(b, x, dtype), as_tensor(b, y, dtype)
        if dtype == "bool":
            return b.logical_or(x, y)
        if alpha != 1:
            y = b.multiply(y, b.scalar(alpha, dtype))
        return getattr(b, op)(x, y)

    row(f"aten.{name}.Tensor", f"aten.{name}.Scalar", emit)


scaled("add", "add")
scaled("sub", "subtract")
row("aten.rsub.Scalar", "aten.rsub.Tensor", lambda b, x, y, alpha=1: rsub(b, x, y, alpha))


def rsub(b: Emitter, x: Tensor, y: Operand, alpha: Operand) -> Tensor:
    dtype = out_dtype(b)
    scaled_x = as_tensor(b, x, dtype)
    if alpha != 1:
        scaled_x = b.multiply(scaled_x, b.scalar(alpha, dtype))
    return b.subtract(as_tensor(b, y, dtype), scaled_x)


def multiply(b: Emitter, x: Tensor, y: Tensor) -> Tensor:
    return b.logical_and(x, y) if dtype_of(x) == "bool" else b.multiply(x, y)


binary("mul", multiply, neutral=1)
binary("maximum", lambda b, x, y: either(b, x, y, "maximum"))
binary("minimum", lambda b, x, y: either(b, x, y, "minimum"))
binary("atan2", lambda b, x, y: b.atan2(x, y))
binary("remainder", lambda b, x, y: b.floor_mod(x, y))
binary("fmod", lambda b, x, y: b.mod(x, y))
binary("floor_divide", lambda b, x, y: b.floor_divide(x, y))
binary("bitwise_left_shift", lambda b, x, y: b.left_shift(x, y))
binary("bitwise_right_shift", lambda b, x, y: b.right_shift(x, y))
row(
    "aten.__lshift__.Tensor", "aten.__lshift__.Scalar", lambda b, x, y: shift(b, "left_shift", x, y)
)
row(
    "aten.__rshift__.Tensor",
    "aten.__rshift__.Scalar",
    lambda b, x, y: shift(b, "right_shift", x, y),
)
binary("logaddexp", lambda b, x, y: b.log_add_exp(x, y))
binary("fmax", lambda b, x, y: without_nan(b, x, y, "maximum"))
binary("fmin", lambda b, x, y: without_nan(b, x, y, "minimum"))
binary("heaviside", lambda b, x, y: b.where(b.equal(x, 0), y, b.cast(b.greater(x, 0), dtype_of(x))))


row("prims.shift_left.default", lambda b, x, y: shift(b, "left_shift", x, y))
row("prims.shift_right_arithmetic.default", lambda b, x, y: shift(b, "right_shift", x, y))


@row("aten.round.decimals")
def round_decimals(b: Emitter, x: Tensor, *, decimals: int) -> Tensor:
    """To a number of decimal places, or of zeros before the point where it is negative."""
    scale = b.const(10.0 ** abs(decimals), dtype_of(x))
    if decimals < 0:
        return b.multiply(b.round(b.divide(x, scale)), scale)
    return b.divide(b.round(b.multiply(x, scale)), scale)


def shift(b: Emitter, op: str, x: Operand, y: Operand) -> Tensor:
    dtype = out_dtype(b)
    return getattr(b, op)(as_tensor(b, x, dtype), as_tensor(b, y, dtype))


def either(b: Emitter, x: Tensor, y: Tensor, op: str) -> Tensor:
    if dtype_of(x) == "bool":
        return b.logical_or(x, y) if op == "maximum" else b.logical_and(x, y)
    return getattr(b, op)(x, y)


def without_nan(b: Emitter, x: Tensor, y: Tensor, op: str) -> Tensor:
    """The larger or smaller of two numbers, of which one may be no number."""
    if not is_float(dtype_of(x)):
        return either(b, x, y, op)
    return b.where(b.isnan(x), y, b.where(b.isnan(y), x, getattr(b, op)(x, y)))


def logical(name: str) -> None:
    def emit(b: Emitter, x: Operand, y: Operand) -> Tensor:
        return getattr(b, name)(truth(b, x), truth(b, y))

    row(f"aten.{name}.default", emit)


for _name in "logical_and logical_or logical_xor".split():
    logical(_name)


def bitwise(name: str) -> None:
    def emit(b: Emitter, x: Operand, y: Operand) -> Tensor:
        dtype = out_dtype(b)
        op = f"logical_{name}" if dtype == "bool" else f"bitwise_{name}"
        return getattr(b, op)(as_tensor(b, x, dtype), as_tensor(b, y, dtype))

    for overload in ("Tensor", "Scalar", "Scalar_Tensor"):
        row(f"aten.bitwise_{name}.{overload}", emit)
    for overload in ("Tensor", "Scalar"):
        row(f"aten.__{name}__.{overload}", emit)


for _name in "and or xor".split():
    bitwise(_name)


def comparison(name: str, op: str) -> None:
    def emit(b: Emitter, x: Operand, y: Operand) -> Tensor:
        dtype = promoted(x, y)
        if dtype == "bool":
            dtype = "int8"
        return getattr(b, op)(as_tensor(b, x, dtype), as_tensor(b, y, dtype))

    row(f"aten.{name}.Tensor", f"aten.{name}.Scalar", emit)


for _name, _op in {
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater",
    "ge": "greater_equal",
}.items():  # fmt: skip
    comparison(_name, _op)


@row("aten.div.Tensor", "aten.div.Scalar", "aten.div.Tensor_mode", "aten.div.Scalar_mode",
     "aten.true_divide.Tensor")  # fmt: skip
def div(b: Emitter, x: Operand, y: Operand, rounding_mode: str | None = None) -> Tensor:
    dtype = out_dtype(b)
    x, y = as_tensor(b, x, dtype), as_tensor(b, y, dtype)
    if rounding_mode == "floor":
        return b.floor_divide(x, y)
    if rounding_mode == "trunc":
        if is_float(dtype):
            return b.trunc(b.divide(x, y))
        return b.divide(b.subtract(x, b.mod(x, y)), y)
    return b.divide(x, y)


@row("aten.pow.Tensor_Tensor", "aten.pow.Tensor_Scalar", "aten.pow.Scalar",
     "aten.float_power.Tensor_Tensor", "aten.float_power.Tensor_Scalar")  # fmt: skip
def pow_(b: Emitter, x: Operand, y: Operand) -> Tensor:
    dtype = out_dtype(b)
    base = as_tensor(b, x, dtype)
    if y == 2:
        return b.multiply(base, base)
    if y == 0.5 and is_float(dtype):
        return b.sqrt(base)
    return b.power(base, as_tensor(b, y, dtype))


# --- Several operands ---------------------------------------------------------------------------


@row("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar")
def where(b: Emitter, condition: Tensor, x: Operand, y: Operand) -> Tensor:
    dtype = out_dtype(b)
    return b.where(truth(b, condition), as_tensor(b, x, dtype), as_tensor(b, y, dtype))


@row("aten.clamp.default", "aten.clamp.Tensor", "aten.clip.default", "aten.clip.Tensor",
     "aten.hardtanh.default")  # fmt: skip
def clamp(b: Emitter, x: Tensor, min: Operand = None, max: Operand = None, **bounds: Any) -> Tensor:
    dtype = out_dtype(b)
    x, low, high = b.cast(x, dtype), bounds.get("min_val", min), bounds.get("max_val", max)
    if low is not None:
        x = b.maximum(x, as_tensor(b, low, dtype))
    return x if high is None else b.minimum(x, as_tensor(b, high, dtype))


row("aten.clamp_min.default", "aten.clamp_min.Tensor", lambda b, x, min: clamp(b, x, min))
row("aten.clamp_max.default", "aten.clamp_max.Tensor", lambda b, x, max: clamp(b, x, None, max))
row("aten.masked_fill.Scalar", "aten.masked_fill.Tensor",
    lambda b, x, mask, value: where(b, mask, value, x))  # fmt: skip


@row("aten.lerp.Tensor", "aten.lerp.Scalar")
def lerp(b: Emitter, start: Tensor, end: Tensor, weight: Operand) -> Tensor:
    return b.add(start, b.multiply(as_tensor(b, weight, dtype_of(start)), b.subtract(end, start)))


# --- Activations --------------------------------------------------------------------------------


@row("aten.gelu.default")
def gelu(b: Emitter, x: Tensor, approximate: str = "none") -> Tensor:
    return b.gelu_tanh(x) if approximate == "tanh" else b.gelu(x)


row("aten.leaky_relu.default", lambda b, x, slope=0.01: b.leakyrelu(x, alpha=float(slope)))


@row("aten.softplus.default")
def softplus(b: Emitter, x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    return b.softplus(x, beta=float(beta), threshold=float(threshold))


@row("aten.elu.default")
def elu(
    b: Emitter, x: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1
) -> Tensor:
    negative = b.multiply(expm1(b, b.multiply(x, float(input_scale))), float(alpha))
    return b.multiply(b.where(b.greater(x, 0.0), x, negative), float(scale))


unary("expm1", lambda b, x: expm1(b, x))


def expm1(b: Emitter, x: Tensor) -> Tensor:
    """`exp(x) - 1` without cancellation near 0: tanh(x/2) * (exp(x) + 1) is the same number."""
    near = b.multiply(b.tanh(b.multiply(x, 0.5)), b.add(b.exp(x), 1.0))
    return b.where(b.less(b.abs(x), 1.0), near, b.subtract(b.exp(x), 1.0))


@row("aten.prelu.default", "aten._prelu_kernel.default")
def prelu(b: Emitter, x: Tensor, weight: Tensor) -> Tensor:
    shape, count = shape_of(x), shape_of(weight)
    if len(count) == 1 and len(shape) > 1:
        weight = b.reshape(weight, (count[0], *[expr.const(1)] * (len(shape) - 2)))
    return b.where(b.greater(x, 0.0), x, b.multiply(x, weight))
