"""Complex numbers, and the discrete Fourier transform (`torch.fft`).

Rows of `COMPLEX` are for calls with complex operands or results, which are `Complex` values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from relaxlab.frontend import complex as pairs
from relaxlab.frontend.complex import PARTS, Complex, as_complex
from relaxlab.frontend.emitter import Emitter, Tensor, dtype_of, shape_of
from relaxlab.frontend.pytorch.rows.elementwise import out_dtype
from relaxlab.frontend.pytorch.rows.shapes import out_shape
from relaxlab.frontend.pytorch.rows.table import TABLE
from relaxlab.frontend.pytorch.rows.table import row as real_row
from relaxlab.frontend.table import Refused, Table
from relaxlab.ir import expr
from relaxlab.ir.types import TensorType

COMPLEX = Table("PyTorch")
row = COMPLEX.row

LINEAR = frozenset(
    f"aten.{name}"
    for name in (
        "view.default", "reshape.default", "_unsafe_view.default", "_reshape_alias.default",
        "flatten.using_ints", "unflatten.int",
        "permute.default", "transpose.int", "t.default", "mT.default", "movedim.intlist",
        "unsqueeze.default", "squeeze.default", "squeeze.dim", "squeeze.dims", "expand.default",
        "slice.Tensor", "select.int", "narrow.default", "split.Tensor", "split_with_sizes.default",
        "chunk.default", "unbind.int", "clone.default", "alias.default", "detach.default",
        "contiguous.default", "lift_fresh_copy.default", "cat.default", "stack.default",
        "flip.default", "roll.default", "repeat.default", "index_select.default", "index.Tensor",
        "gather.default", "neg.default", "sum.default", "sum.dim_IntList", "mean.default",
        "mean.dim", "cumsum.default", "diagonal.default", "slice_scatter.default",
        "select_scatter.default", "constant_pad_nd.default", "tril.default",
        "triu.default", "view_copy.default", "permute_copy.default",
    )
)  # fmt: skip
"""Operators that do to both parts what they do to real numbers."""


def is_complex(value: Any) -> bool:
    """True for a complex operand of a call, or a list with one."""
    if isinstance(value, list | tuple):
        return any(map(is_complex, value))
    return isinstance(value, Complex | complex) or (isinstance(value, str) and value in PARTS)


def called(
    b: Emitter, name: str, args: Sequence[Any], attrs: dict[str, Any],
    out: Sequence[TensorType | None], whole: bool, span: Any,
) -> Any:  # fmt: skip
    """The result of a call with complex operands or results. `out` are the types of the results,
    or of their parts where the results are complex, as `whole` says."""
    row = COMPLEX.find(name)
    if row is not None and not whole:
        return b.apply(name, row, args, attrs, out=out, span=span)
    if row is not None:
        parts = b.apply(name, lambda *a, **k: row(*a, **k).parts, args, attrs, out=[*out, *out],
                        span=span)  # fmt: skip
        return Complex(*parts)
    real = TABLE.find(name)
    if name not in LINEAR or real is None or not whole:
        found = b.refuse(name, Refused("complex numbers"), out, span)
        return Complex(found[0], found[0]) if whole else found[0]
    each = [
        b.apply(name, real, [_part(a, k) for a in args],
                {n: _part(v, k) for n, v in attrs.items()}, out=out, span=span)
        for k in (0, 1)
    ]  # fmt: skip
    if isinstance(each[0], tuple):
        return tuple(map(Complex, *each))
    return Complex(*each)


def _part(value: Any, k: int) -> Any:
    """The real or the imaginary part of an operand; others are the same for both."""
    match value:
        case Complex():
            return value.parts[k]
        case list() | tuple():
            return [_part(v, k) for v in value]
        case str():
            return PARTS.get(value, value)
        case _:
            return value


# --- To and from real numbers ---------------------------------------------------------------------


row("aten.real.default", lambda b, x: x.real)
row("aten.imag.default", lambda b, x: x.imag)
row("aten.view_as_real.default", "aten.view_as_real_copy.default", pairs.stacked)
row("aten.view_as_complex.default", "aten.view_as_complex_copy.default", pairs.unstacked)
row("aten.complex.default", lambda b, x, y: Complex(x, y).map(
    lambda t: b.broadcast_to(t, out_shape(b))))
row("aten.polar.default", pairs.polar)


@row("aten._to_copy.default")
def to_copy(b: Emitter, x: Any, dtype: str | None = None, **_: Any) -> Any:
    """A real dtype takes the real part, as PyTorch does."""
    if isinstance(x, Complex) and dtype not in (None, *PARTS):
        return b.cast(x.real, out_dtype(b))
    return as_complex(b, x, out_dtype(b))


@row("aten.full.default", "aten.new_full.default", "aten.full_like.default")
def full(b: Emitter, *given: Any, **_: Any) -> Complex:
    """The last operand everywhere."""
    number = as_complex(b, given[-1], out_dtype(b))
    return number.map(lambda t: b.broadcast_to(t, out_shape(b)))


row("aten.zeros.default", "aten.zeros_like.default", "aten.new_zeros.default",
    lambda b, *_, **__: full(b, 0.0))  # fmt: skip
row("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default",
    lambda b, *_, **__: full(b, 1.0))  # fmt: skip


# --- Arithmetic -----------------------------------------------------------------------------------


def both(b: Emitter, *operands: Any) -> list[Complex]:
    """Operands as complex numbers of the dtype of one of them."""
    known = next(x for x in operands if isinstance(x, Complex))
    return [as_complex(b, x, dtype_of(known.real)) for x in operands]


def is_real(x: Any) -> bool:
    return not isinstance(x, Complex | complex)


@row("aten.add.Tensor", "aten.add.Scalar")
def add(b: Emitter, x: Any, y: Any, alpha: Any = 1) -> Complex:
    x, y = both(b, x, y)
    y = y if alpha == 1 else multiply(b, y, alpha)
    return Complex(b.add(x.real, y.real), b.add(x.imag, y.imag))


@row("aten.sub.Tensor", "aten.sub.Scalar")
def subtract(b: Emitter, x: Any, y: Any, alpha: Any = 1) -> Complex:
    return add(b, *both(b, x, y), alpha=-alpha)


row("aten.rsub.Tensor", "aten.rsub.Scalar",
    lambda b, x, y, alpha=1: add(b, *both(b, y, x), alpha=-alpha))  # fmt: skip


@row("aten.mul.Tensor", "aten.mul.Scalar")
def multiply(b: Emitter, x: Any, y: Any) -> Complex:
    for one, other in ((x, y), (y, x)):
        if isinstance(one, Complex) and is_real(other):
            return pairs.scaled(b, one, _factor(b, other, one))
    return pairs.product(b, b.multiply, *both(b, x, y))


def _factor(b: Emitter, x: Any, like: Complex) -> Any:
    """A real number or tensor with the dtype of the parts of another."""
    dtype = dtype_of(like.real)
    return b.scalar(x, dtype) if isinstance(x, int | float | expr.PrimExpr) else b.cast(x, dtype)


@row("aten.div.Tensor", "aten.div.Scalar")
def divide(b: Emitter, x: Any, y: Any) -> Complex:
    if isinstance(x, Complex) and is_real(y):
        divisor = _factor(b, y, x)
        return x.map(lambda t: b.divide(t, divisor))
    return pairs.quotient(b, *both(b, x, y))


@row("aten.pow.Tensor_Scalar")
def power(b: Emitter, x: Complex, exponent: Any) -> Complex:
    """By repeated products for small whole numbers, else by the absolute value and the angle."""
    if exponent in (1, 2, 3, 4):
        result = x
        for _ in range(int(exponent) - 1):
            result = multiply(b, result, x)
        return result
    if not is_real(exponent):
        raise Refused("complex exponents")
    size = b.power(pairs.absolute(b, x), float(exponent))
    return pairs.polar(b, size, b.multiply(pairs.angle(b, x), float(exponent)))


for _name in ("bmm", "mm", "matmul", "dot", "mv"):
    row(f"aten.{_name}.default", lambda b, x, y: pairs.product(b, b.matmul, *both(b, x, y)))

row("aten.where.self", lambda b, condition, x, y: Complex(
    *(b.where(condition, *p) for p in zip(*(t.parts for t in both(b, x, y)), strict=True))))
row("aten.abs.default", pairs.absolute)
row("aten.angle.default", pairs.angle)
row("aten.exp.default", pairs.exponential)
row("aten.reciprocal.default", lambda b, x: divide(b, 1.0, x))
row("aten.sgn.default", lambda b, x: _sign(b, x))
row("aten._conj.default", "aten.conj.default", "aten._conj_physical.default",
    "aten.conj_physical.default", pairs.conjugate)  # fmt: skip
row("aten.resolve_conj.default", "aten.resolve_neg.default", lambda b, x: x)


def _sign(b: Emitter, x: Complex) -> Complex:
    """The number divided by its absolute value; 0 for 0."""
    size = pairs.absolute(b, x)
    none = b.equal(size, 0.0)
    return x.map(lambda t: b.where(none, 0.0, b.divide(t, b.where(none, 1.0, size))))


@real_row("aten.angle.default")
def angle(b: Emitter, x: Tensor) -> Tensor:
    """Pi for negative numbers, 0 for others, NaN for NaN."""
    x = b.cast(x, out_dtype(b))
    return b.where(b.isnan(x), x, b.where(b.less(x, 0.0), math.pi, 0.0))


@row("aten.eq.Tensor", "aten.eq.Scalar")
def equal(b: Emitter, x: Any, y: Any) -> Tensor:
    first, second = both(b, x, y)
    return b.logical_and(b.equal(first.real, second.real), b.equal(first.imag, second.imag))


# --- The discrete Fourier transform ---------------------------------------------------------------

POWERS = {0: 0.0, 1: -0.5, 2: -1.0}
"""The power of the number of elements by which PyTorch's kinds of normalisation multiply."""


@row("aten._fft_c2c.default")
def fft(b: Emitter, x: Complex, dim: list[int], normalization: int, forward: bool) -> Complex:
    extents = [shape_of(x.real)[d] for d in dim]
    result = pairs.transformed(b, x, dim, not forward)
    return pairs.normalised(b, result, extents, POWERS[normalization])


@row("aten._fft_r2c.default")
def fft_of_real(
    b: Emitter, x: Tensor, dim: list[int], normalization: int, onesided: bool
) -> Complex:
    extents = [shape_of(x)[d] for d in dim]
    last, *others = reversed(dim)
    result = pairs.transformed(b, as_complex(b, x, dtype_of(x)), [last], False)
    result = pairs.half_of(b, result, last) if onesided else result
    result = pairs.transformed(b, result, others, False)
    return pairs.normalised(b, result, extents, POWERS[normalization])


@row("aten._fft_c2r.default")
def fft_to_real(b: Emitter, x: Complex, dim: list[int], normalization: int, size: Any) -> Tensor:
    extents = [out_shape(b)[d] for d in dim]
    *others, last = dim
    result = pairs.transformed(b, x, others, True)
    whole = pairs.whole_of(b, result, last, extents[-1])
    real = pairs.transformed(b, whole, [last], True).real
    return pairs.normalised(b, real, extents, POWERS[normalization])
