"""Rows of Fourier transforms, whose complex numbers have their parts along the last dimension."""

from __future__ import annotations

from typing import Any

from relaxlab.frontend.complex import (
    Complex,
    as_complex,
    half_of,
    normalised,
    stacked,
    transformed,
    unstacked,
    whole_of,
)
from relaxlab.frontend.emitter import Emitter, dtype_of, shape_of
from relaxlab.frontend.onnx.rows import ints, numbers, rank, row, static
from relaxlab.frontend.table import Refused
from relaxlab.ir import expr, graph
from relaxlab.ir.expr import PrimExpr
from relaxlab.ops import te


def _parts(b: Emitter, x: graph.Expr) -> Complex:
    """The numbers of a tensor whose last dimension has two parts, or one of real numbers."""
    last = shape_of(x)[-1]
    if not isinstance(last, expr.IntImm) or last.value not in (1, 2):
        raise Refused(f"complex numbers of {last} parts")
    if last.value == 2:
        return unstacked(b, x)
    real = b.squeeze(x, axis=[-1])
    return as_complex(b, real, dtype_of(real))


def _resized(b: Emitter, x: Complex, axis: int, extent: PrimExpr) -> Complex:
    """The first elements along an axis, and zeros behind them up to an extent."""
    held = shape_of(x.real)[axis]
    if held == extent:
        return x
    if not (isinstance(held, expr.IntImm) and isinstance(extent, expr.IntImm)):
        raise Refused(f"a transform of {extent} elements of {held}")
    more, first = max(extent.value - held.value, 0), min(extent.value, held.value)
    widths = [0] * (2 * len(shape_of(x.real)))
    widths[2 * axis + 1] = more

    def fitted(t: graph.Expr) -> graph.Expr:
        return b.pad(b.strided_slice(t, [axis], [0], [first]), pad_width=widths)

    return x.map(fitted)


def _transform(b: Emitter, x: Any, length: Any, axis: int, inverse: int, onesided: int) -> Any:
    value = _parts(b, x)
    axis %= rank(x)
    held = shape_of(value.real)[axis]
    given = None if length is None else expr.as_expr(ints(length, "the length")[0])
    if inverse and onesided:
        extent = (held - 1) * 2 if given is None else given
        whole = whole_of(b, value, axis, extent)
        real = transformed(b, whole, [axis], True).real
        return b.expand_dims(normalised(b, real, [extent], -1.0), axis=[-1])
    extent = held if given is None else given
    found = transformed(b, _resized(b, value, axis, extent), [axis], bool(inverse))
    found = normalised(b, found, [extent], -1.0 if inverse else 0.0)
    return stacked(b, half_of(b, found, axis) if onesided else found)


@row("DFT", since=17)
@static(1)
def dft17(
    b: Emitter, x: Any, length: Any = None, *, axis: int = 1, inverse: int = 0, onesided: int = 0,
    **_: Any,
) -> Any:  # fmt: skip
    return _transform(b, x, length, axis, inverse, onesided)


@row("DFT", since=20)
@static(1, 2)
def dft(
    b: Emitter, x: Any, length: Any = None, axis: Any = None, *, inverse: int = 0,
    onesided: int = 0, **_: Any,
) -> Any:  # fmt: skip
    at = -2 if axis is None else numbers(axis, "the axis")[0]
    return _transform(b, x, length, at, inverse, onesided)


@row("STFT")
@static(1, 3)
def stft(
    b: Emitter, x: Any, step: Any, window: Any = None, length: Any = None, *, onesided: int = 1,
    **_: Any,
) -> Any:  # fmt: skip
    """The transforms of overlapping frames of each signal."""
    (distance,), value = numbers(step, "the step of frames"), _parts(b, x)
    if length is None and window is None:
        raise Refused("frames of no length")
    size = shape_of(window)[0] if length is None else expr.as_expr(ints(length, "the length")[0])
    count = (shape_of(value.real)[1] - size) // distance + 1

    def framed(t: te.Tensor) -> te.Tensor:
        shape = (t.shape[0], count, size)
        return te.compute(shape, lambda n, f, i: t[n, f * distance + i], "frames")

    def frames(t: graph.Expr) -> graph.Expr:
        found = b.te(framed, t, name="frames")
        return found if window is None else b.multiply(found, window)

    found = transformed(b, value.map(frames), [2], False)
    return stacked(b, half_of(b, found, 2) if onesided else found)
