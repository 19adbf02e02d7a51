"""Complex numbers of other frameworks: pairs of real tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from relaxlab.frontend.emitter import Emitter, Tensor, dtype_of, shape_of
from relaxlab.frontend.known import named
from relaxlab.ir import expr
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.expr import PrimExpr

PARTS = {"complex64": "float32", "complex128": "float64"}
"""The dtype of the parts of complex numbers."""


@dataclass(frozen=True, slots=True)
class Complex:
    """A tensor of complex numbers as one of their real and one of their imaginary parts."""

    real: Tensor
    imag: Tensor

    @property
    def parts(self) -> tuple[Tensor, Tensor]:
        """Both tensors."""
        return self.real, self.imag

    def map(self, fn: Callable[[Tensor], Any]) -> Complex:
        """A linear function of the number, which maps real tensors to real ones."""
        return Complex(fn(self.real), fn(self.imag))


def as_complex(b: Emitter, value: Any, dtype: str) -> Complex:
    """A tensor or a number as complex ones with parts of `dtype`."""
    if isinstance(value, Complex):
        return value.map(lambda t: b.cast(t, dtype))
    if isinstance(value, complex):
        return Complex(b.const(value.real, dtype), b.const(value.imag, dtype))
    if isinstance(value, int | float | PrimExpr):
        return Complex(b.scalar(value, dtype), b.const(0.0, dtype))
    return Complex(b.cast(value, dtype), b.zeros(shape_of(value), dtype=dtype))


# --- As arrays --------------------------------------------------------------------------------


def stacked(b: Emitter, x: Complex) -> Tensor:
    """Both parts behind each other along a last dimension of two."""
    return b.stack(list(x.parts), axis=len(shape_of(x.real)))


def unstacked(b: Emitter, x: Tensor) -> Complex:
    """Complex numbers of parts along the last dimension."""
    real, imag = b.fields(b.split(x, 2, axis=-1))
    return Complex(b.squeeze(real, axis=[-1]), b.squeeze(imag, axis=[-1]))


def array_of_parts(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A complex array as one of the parts along a last dimension, over the same memory."""
    parts = np.ascontiguousarray(array).reshape(-1).view(numpy_dtype(PARTS[array.dtype.name]))
    return parts.reshape(*array.shape, 2)


def array_of_complex(parts: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The complex array of parts along the last dimension, over the same memory."""
    kinds = {part: whole for whole, part in PARTS.items()}
    return parts.view(np.dtype(kinds[parts.dtype.name])).reshape(parts.shape[:-1])


# --- Arithmetic -------------------------------------------------------------------------------


def product(
    b: Emitter, multiply: Callable[[Tensor, Tensor], Tensor], x: Complex, y: Complex
) -> Complex:
    """`x * y`, or another bilinear `multiply` of them, such as the product of matrices."""
    real = b.subtract(multiply(x.real, y.real), multiply(x.imag, y.imag))
    return Complex(real, b.add(multiply(x.real, y.imag), multiply(x.imag, y.real)))


def scaled(b: Emitter, x: Complex, factor: Any) -> Complex:
    """The product with a real number or tensor."""
    return x.map(lambda t: b.multiply(t, factor))


def conjugate(b: Emitter, x: Complex) -> Complex:
    return Complex(x.real, b.negative(x.imag))


def quotient(b: Emitter, x: Complex, y: Complex) -> Complex:
    """`x / y`, of numbers whose larger part is 1, so that no square is out of range."""
    size = b.maximum(b.abs(y.real), b.abs(y.imag))
    near = y.map(lambda t: b.divide(t, size))
    square = b.add(b.multiply(near.real, near.real), b.multiply(near.imag, near.imag))
    whole = product(b, b.multiply, x, conjugate(b, near))
    return whole.map(lambda t: b.divide(b.divide(t, square), size))


def absolute(b: Emitter, x: Complex) -> Tensor:
    """The distance from 0, by squares of numbers up to 1."""
    parts = [b.abs(t) for t in x.parts]
    large, small = b.maximum(*parts), b.minimum(*parts)
    usual = b.logical_and(b.greater(large, 0.0), b.isfinite(large))
    ratio = b.divide(small, b.where(usual, large, 1.0))
    return b.multiply(large, b.sqrt(b.add(b.multiply(ratio, ratio), 1.0)))


def angle(b: Emitter, x: Complex) -> Tensor:
    return b.atan2(x.imag, x.real)


def polar(b: Emitter, size: Tensor, turn: Tensor) -> Complex:
    """The number of an absolute value and an angle."""
    return Complex(b.multiply(size, b.cos(turn)), b.multiply(size, b.sin(turn)))


def exponential(b: Emitter, x: Complex) -> Complex:
    return polar(b, b.exp(x.real), x.imag)


# --- The discrete Fourier transform -----------------------------------------------------------


def transformed(b: Emitter, x: Complex, axes: Sequence[int], inverse: bool) -> Complex:
    """The transform along some axes; that of the inverse is not divided by their extents."""
    for axis in axes:
        x = Complex(*b.fields(named(b, "signal.dft", *x.parts, axis=axis, inverse=inverse)))
    return x


def half_of(b: Emitter, x: Complex, axis: int) -> Complex:
    """The elements of a spectrum of real numbers that determine the others."""
    extent = shape_of(x.real)[axis]
    end = extent // 2 + 1
    return x.map(lambda t: b.strided_slice(t, [axis], [expr.const(0)], [end]))


def whole_of(b: Emitter, x: Complex, axis: int, extent: PrimExpr) -> Complex:
    """The spectrum of so many real numbers from its half: the rest is conjugate."""
    size, held, zero = extent // 2 + 1, shape_of(x.real)[axis], expr.const(0)

    def head(t: Tensor) -> Tensor:
        return b.strided_slice(t, [axis], [zero], [size])

    def tail(t: Tensor) -> Tensor:
        return b.flip(b.strided_slice(t, [axis], [expr.const(1)], [(extent + 1) // 2]), axis=axis)

    if held != size:  # a longer or shorter half, of which what is missing is 0
        ndim, at = len(shape_of(x.real)), axis % len(shape_of(x.real))
        more = expr.binary(expr.Max, size - held, zero)
        widths = [zero] * (2 * ndim)
        widths[2 * at + 1] = more
        x = x.map(lambda t: b.pad(t, pad_width=widths))
    imag = b.concat([head(x.imag), b.negative(tail(x.imag))], axis=axis)
    return Complex(b.concat([head(x.real), tail(x.real)], axis=axis), imag)


def factor_of(extents: Sequence[PrimExpr], power: float) -> float | PrimExpr:
    """The product of extents to a power, as numbers of float64 where they are symbols."""
    if all(isinstance(d, expr.IntImm) for d in extents):
        return math.prod(d.value for d in extents) ** power  # type: ignore[union-attr]
    whole: PrimExpr = expr.const(1.0, "float64")
    for d in extents:
        whole = whole * expr.Cast("float64", d)
    return expr.Call("float64", "pow", (whole, expr.const(power, "float64")))


def normalised(b: Emitter, x: Any, extents: Sequence[PrimExpr], power: float) -> Any:
    """Complex or real numbers times the product of extents to a power."""
    if not power:
        return x
    dtype = dtype_of(x.real if isinstance(x, Complex) else x)
    factor = b.scalar(factor_of(extents, power), dtype)
    return scaled(b, x, factor) if isinstance(x, Complex) else b.multiply(x, factor)
