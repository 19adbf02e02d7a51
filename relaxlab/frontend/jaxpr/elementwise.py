"""Rows of elementwise primitives."""

from __future__ import annotations

from typing import Any

from relaxlab.frontend.emitter import Emitter, dtype_of
from relaxlab.frontend.jaxpr.rows import dtype_of_out, row, shape_of_out
from relaxlab.frontend.table import Refused
from relaxlab.ir import expr, graph
from relaxlab.ir.dtypes import bits_of, is_float, is_uint
from relaxlab.ir.row_major import place
from relaxlab.ops import scalar, te

SAME = """abs acos acosh asin asinh atan atanh cos cosh sin sinh tan tanh exp exp2 expm1 log log1p
    floor ceil sqrt rsqrt square cbrt erf erfc sign lgamma digamma""".split()
OTHER_NAMES = {
    "neg": "negative", "logistic": "sigmoid", "erf_inv": "erfinv", "population_count": "popcount",
    "is_finite": "isfinite", "not": "bitwise_not",
    "add": "add", "add_any": "add", "sub": "subtract", "mul": "multiply", "max": "maximum",
    "min": "minimum", "atan2": "atan2", "div": "divide", "rem": "mod",
    "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater",
    "ge": "greater_equal",
}  # fmt: skip


def _operator(name: str) -> Any:
    return lambda b, *operands, **_: getattr(b, name)(*operands)


for _name in SAME:
    row(_name, _operator(_name))
for _name, _ours in OTHER_NAMES.items():
    row(_name, _operator(_ours))


@row("stop_gradient", "copy", "optimization_barrier", "name", "device_put")
def same(b: Emitter, *operands: graph.Expr, **_: Any) -> Any:
    """Return the operands: on one device these primitives keep values as they are."""
    return operands[0] if len(operands) == 1 else operands


@row("clamp")
def clamp(b: Emitter, low: graph.Expr, x: graph.Expr, high: graph.Expr) -> graph.Expr:
    return b.minimum(b.maximum(x, low), high)


@row("select_n")
def select_n(b: Emitter, which: graph.Expr, *cases: graph.Expr) -> graph.Expr:
    if dtype_of(which) == "bool":
        return cases[0] if len(cases) == 1 else b.where(which, cases[1], cases[0])
    result = cases[0]
    for i, case in enumerate(cases[1:], 1):
        result = b.where(b.greater_equal(which, i), case, result)
    return result


@row("convert_element_type")
def convert(b: Emitter, x: graph.Expr, **_: Any) -> graph.Expr:
    return b.cast(x, dtype_of_out(b))


@row("bitcast_convert_type")
def bitcast(b: Emitter, x: graph.Expr, **_: Any) -> graph.Expr:
    dtype = dtype_of_out(b)
    if bits_of(dtype) != bits_of(dtype_of(x)):
        raise Refused("converts between numbers of different widths")
    return b.bitcast(x, dtype=dtype)


@row("reduce_precision")
def reduce_precision(b: Emitter, x: graph.Expr, exponent_bits: int, mantissa_bits: int) -> Any:
    kinds = {(8, 7): "bfloat16", (5, 10): "float16", (8, 23): "float32", (11, 52): "float64"}
    kind = kinds.get((exponent_bits, mantissa_bits))
    if kind is None:
        raise Refused(f"there is no type with {exponent_bits} and {mantissa_bits} bits")
    return b.cast(b.cast(x, kind), dtype_of(x))


# --- Powers and rounding ----------------------------------------------------------------------


@row("integer_pow")
def integer_pow(b: Emitter, x: graph.Expr, y: int, **_: Any) -> graph.Expr:
    """Powers by squaring; of a negative exponent, one divided by the power."""
    if y == 0:
        return b.ones_like(x)
    result, square, rest = None, x, abs(y)
    while rest:
        if rest & 1:
            result = square if result is None else b.multiply(result, square)
        rest >>= 1
        square = b.multiply(square, square) if rest else square
    assert result is not None
    return result if y > 0 else b.divide(b.ones_like(result), result)


@row("pow")
def power(b: Emitter, x: graph.Expr, y: graph.Expr, **_: Any) -> graph.Expr:
    if not is_float(dtype_of(x)):
        raise Refused("powers of integers by an exponent that is data")
    return b.power(x, b.cast(y, dtype_of(x)))


@row("round")
def rounded(b: Emitter, x: graph.Expr, rounding_method: Any = 0, **_: Any) -> graph.Expr:
    """To the nearest integer, halves to the even one or away from zero."""
    if int(rounding_method) == 1:
        return b.round(x)
    return b.te(_round_away, x, name="round_away")


def _round_away(x: te.Tensor) -> te.Tensor:
    def element(*i: expr.PrimExpr) -> expr.PrimExpr:
        return scalar.cast(scalar.call("round", scalar.wide(x[i])), x.dtype)

    return te.compute(x.shape, element, "T_round_away")


# --- Bits -------------------------------------------------------------------------------------


def _as_kind(b: Emitter, x: graph.Expr, kind: str) -> graph.Expr:
    """The bits of a number as an integer, `int` or `uint`."""
    wanted = f"{kind}{bits_of(dtype_of(x))}"
    return x if dtype_of(x) == wanted else b.bitcast(x, dtype=wanted)


def _shift(b: Emitter, name: str, x: graph.Expr, by: graph.Expr, beyond: Any) -> graph.Expr:
    """A shift; by as many bits as there are, or by a negative number, the result is `beyond`."""
    bits = bits_of(dtype_of(x))
    inside = b.less(_as_kind(b, by, "uint"), bits)
    last = b.bitwise_and(by, bits - 1)
    return b.where(inside, getattr(b, name)(x, b.cast(last, dtype_of(x))), beyond)


@row("shift_left")
def shift_left(b: Emitter, x: graph.Expr, by: graph.Expr) -> graph.Expr:
    return _shift(b, "left_shift", x, by, b.zeros_like(x))


@row("shift_right_logical")
def shift_right_logical(b: Emitter, x: graph.Expr, by: graph.Expr) -> graph.Expr:
    bits, by = _as_kind(b, x, "uint"), _as_kind(b, by, "uint")
    shifted = _shift(b, "right_shift", bits, by, b.zeros_like(bits))
    return shifted if is_uint(dtype_of(x)) else b.bitcast(shifted, dtype=dtype_of(x))


@row("shift_right_arithmetic")
def shift_right_arithmetic(b: Emitter, x: graph.Expr, by: graph.Expr) -> graph.Expr:
    bits, by = _as_kind(b, x, "int"), _as_kind(b, by, "int")
    sign = b.where(b.less(bits, 0), b.full_like(bits, _scalar(b, -1, bits)), b.zeros_like(bits))
    shifted = _shift(b, "right_shift", bits, by, sign)
    return b.bitcast(shifted, dtype=dtype_of(x)) if is_uint(dtype_of(x)) else shifted


def _scalar(b: Emitter, value: Any, like: graph.Expr) -> graph.Expr:
    return b.const(value, dtype_of(like))


@row("clz")
def count_leading_zeros(b: Emitter, x: graph.Expr) -> graph.Expr:
    """The bits beside those that are 1 once the first 1 is copied to all behind it."""
    dtype = dtype_of(x)
    bits, width = _as_kind(b, x, "uint"), bits_of(dtype)
    step = 1
    while step < width:
        bits = b.bitwise_or(bits, b.right_shift(bits, step))
        step *= 2
    count = b.subtract(_scalar(b, width, bits), b.popcount(bits))
    return count if is_uint(dtype) else b.bitcast(count, dtype=dtype)


def _ordered(b: Emitter, x: graph.Expr) -> graph.Expr:
    """Integers in the total order of floats: -NaN, -inf, ..., -0, 0, ..., inf, NaN."""
    if not is_float(dtype_of(x)):
        return x
    bits = _as_kind(b, x, "int")
    width = bits_of(dtype_of(x))
    return b.bitwise_xor(bits, b.bitwise_and(b.right_shift(bits, width - 1), 2 ** (width - 1) - 1))


for _name, _ours in {"eq_to": "equal", "lt_to": "less", "le_to": "less_equal"}.items():
    row(
        _name,
        lambda b, x, y, ours=_ours, **_: getattr(b, ours)(_ordered(b, x), _ordered(b, y)),
    )


@row("nextafter")
def nextafter(b: Emitter, x: graph.Expr, y: graph.Expr) -> graph.Expr:
    """The bits plus or minus one, as the neighbour is farther from zero or nearer to it."""
    dtype = dtype_of(x)
    bits = _as_kind(b, x, "int")
    one = _scalar(b, 1, bits)
    away = b.equal(b.less(x, y), b.greater(x, 0.0))
    near = b.bitcast(b.where(away, b.add(bits, one), b.subtract(bits, one)), dtype=dtype)
    least = b.bitcast(one, dtype=dtype)
    from_zero = b.where(b.greater(y, 0.0), least, b.negative(least))
    moved = b.where(b.equal(x, 0.0), from_zero, near)
    missing = b.logical_or(b.isnan(x), b.isnan(y))
    return b.where(missing, b.add(x, y), b.where(b.equal(x, y), y, moved))


# --- Random bits ------------------------------------------------------------------------------

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
"""The rotations of Threefry-2x32 with 20 rounds; J. Salmon et al., Parallel random numbers: as
easy as 1, 2, 3 (2011)."""


def _rotated(b: Emitter, x: graph.Expr, by: int) -> graph.Expr:
    return b.bitwise_or(b.left_shift(x, by), b.right_shift(x, 32 - by))


@row("threefry2x32")
def threefry(
    b: Emitter, key0: graph.Expr, key1: graph.Expr, x0: graph.Expr, x1: graph.Expr, **_: Any
) -> tuple[graph.Expr, graph.Expr]:
    parity = b.bitwise_xor(b.bitwise_xor(key0, key1), 0x1BD11BDA)
    keys = (key0, key1, parity)
    x0, x1 = b.add(x0, key0), b.add(x1, key1)
    for group in range(5):
        for by in ROTATIONS[group % 2]:
            x0 = b.add(x0, x1)
            x1 = b.bitwise_xor(_rotated(b, x1, by), x0)
        x0 = b.add(x0, keys[(group + 1) % 3])
        x1 = b.add(b.add(x1, keys[(group + 2) % 3]), group + 1)
    return x0, x1


@row("iota_2x32_shape")
def counters(b: Emitter, shape: tuple[Any, ...], **_: Any) -> Any:
    """The flat index of each element of a shape, its upper and its lower half."""
    dims = shape_of_out(b)

    def flat(shift: int) -> Any:
        def element(*i: expr.PrimExpr) -> expr.PrimExpr:
            number = place(i, dims)
            part = number if not shift else expr.ShiftRight(number, expr.const(shift))
            return expr.Cast("uint32", part)

        return lambda: te.compute(dims, element, "T_counter")

    return b.te(flat(32), name="counter"), b.te(flat(0), name="counter")
