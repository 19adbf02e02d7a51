"""Factorisations of matrices, what is solved with them, and the discrete Fourier transform.

They run by their references, NumPy's LAPACK and FFT: loops of our own would be slower and less
exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from relaxlab.ir import expr, graph
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.types import TensorType, TupleType, Type
from relaxlab.ops import scalar
from relaxlab.ops.define import (
    TypesOf,
    attr,
    define,
    fail,
    normal_axis,
    one_dtype,
    params,
    takes,
    tensor_arg,
    tensor_like,
)
from relaxlab.ops.shapes import Shape, broadcast_types, differ, show

Array = np.ndarray[Any, Any]
FLOATS = takes("floating point")


def _wide(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function of arrays and of tuples of results, of which half-precision ones are computed in
    float32, as LAPACK has no others."""

    def applied(*arrays: Array, **attrs: Any) -> Any:
        dtype = arrays[0].dtype
        wide = np.dtype(scalar.accumulator_of(dtype.name))
        result = fn(*(a.astype(wide, copy=False) for a in arrays), **attrs)
        several = result if isinstance(result, tuple) else (result,)
        fitted = tuple(
            r.astype(dtype, copy=False) if r.dtype.kind == "f" else r
            for r in map(np.asarray, several)
        )
        return fitted if isinstance(result, tuple) else fitted[0]

    return applied


def _matrices(call: graph.Call, tys: TypesOf, index: int, *, square: bool = True) -> TensorType:
    """The type of an argument that must be a stack of matrices, square ones where that is asked."""
    ty = tensor_arg(call, tys, index)
    if ty.ndim in (0, 1):
        raise fail(call, f"takes matrices (..., n, n), got {ty}")
    if square and ty.shape is not None:
        rows, columns = ty.shape[-2:]
        if differ(call, rows, columns, "rows and columns"):
            raise fail(call, f"takes square matrices, got {ty}")
    return ty


def _shaped(x: TensorType, *results: Callable[[Shape, PrimExpr, PrimExpr], Shape]) -> Type:
    """The types of results by functions of the batch, the rows and the columns of matrices, for
    matrices of a known shape; else those of which only the rank is known."""
    if x.shape is None:
        one = expr.const(1)
        ranks = [len(fn((), one, one)) + x.ndim - 2 if x.ndim > 0 else -1 for fn in results]
        found = [TensorType(None, x.dtype, n) for n in ranks]
    else:
        *batch, rows, columns = x.shape
        found = [TensorType(fn(tuple(batch), rows, columns), x.dtype) for fn in results]
    return found[0] if len(found) == 1 else TupleType(tuple(found))


def _same(call: graph.Call, tys: TypesOf) -> Type:
    return tensor_like(_matrices(call, tys, 0))


# --- Cholesky, LU, and systems of equations ---------------------------------------------------


def _by_matrix(fn: Callable[[Array], Array], x: Array) -> Array:
    """`fn` of a stack of matrices; where it fails for some, of each one, and NaN for those."""
    try:
        return fn(x)
    except np.linalg.LinAlgError:
        result = np.full_like(x, np.nan)
        for i in np.ndindex(x.shape[:-2]):
            try:
                result[i] = fn(x[i])
            except np.linalg.LinAlgError:
                continue
        return result


@_wide
def _cholesky(x: Array, upper: bool = False) -> Array:
    if upper:  # it reads the triangle that it fills
        return _by_matrix(np.linalg.cholesky, x.swapaxes(-1, -2)).swapaxes(-1, -2)
    return _by_matrix(np.linalg.cholesky, x)


define("linalg.cholesky", params("x", upper=False), _same, needs=[FLOATS], reference=_cholesky)


def _lu_infer(call: graph.Call, tys: TypesOf) -> Type:
    x = _matrices(call, tys, 0, square=False)
    order = TensorType(None, "int32", max(x.ndim - 1, -1))
    pivots = order
    if x.shape is not None:
        *batch, rows, columns = x.shape
        order = TensorType((*batch, rows), "int32")
        pivots = TensorType((*batch, expr.binary(expr.Min, rows, columns)), "int32")
    return TupleType((tensor_like(x), pivots, order))


@_wide
def _lu(x: Array) -> tuple[Array, Array, Array]:
    """Gaussian elimination with partial pivoting, of all matrices at once."""
    *batch, rows, columns = x.shape
    work = x.reshape(math.prod(batch), rows, columns).copy()
    count = min(rows, columns)
    each = np.arange(len(work))
    pivots = np.zeros((len(work), count), np.int32)
    order = np.tile(np.arange(rows, dtype=np.int32), (len(work), 1))
    for k in range(count):
        # NaN comes last, so that the rows are a permutation whatever the elements are.
        size = np.nan_to_num(np.abs(work[:, k:, k]), nan=-1.0, posinf=np.inf)
        at = k + size.argmax(1)
        pivots[:, k] = at
        for array in (work, order):
            array[each, at], array[:, k] = array[:, k].copy(), array[each, at]
        with np.errstate(all="ignore"):
            factors = np.where(work[:, k, k, None] != 0, work[:, k + 1 :, k] / work[:, k, k, None],
                               work[:, k + 1 :, k])  # fmt: skip
            work[:, k + 1 :, k] = factors
            work[:, k + 1 :, k + 1 :] -= factors[:, :, None] * work[:, k, None, k + 1 :]
    return (
        work.reshape(x.shape),
        pivots.reshape(*batch, count),
        order.reshape(*batch, rows),
    )


define("linalg.lu", params("x"), _lu_infer, needs=[FLOATS], reference=_lu)


def _solve_infer(call: graph.Call, tys: TypesOf) -> Type:
    a, b = _matrices(call, tys, 0), _matrices(call, tys, 1, square=False)
    if a.shape is None or b.shape is None:
        return TensorType(None, b.dtype, max(a.ndim, b.ndim) if min(a.ndim, b.ndim) > 0 else -1)
    if differ(call, a.shape[-1], b.shape[-2], "the unknowns and the rows"):
        raise fail(
            call, f"matrices {show(a.shape)} have no product with {show(b.shape)}: their columns "
            "are as many as the rows there"
        )  # fmt: skip
    batch = broadcast_types(
        call, b.dtype, *(TensorType(t.shape[:-2], b.dtype) for t in (a, b) if t.shape is not None)
    )
    if batch.shape is None:
        return TensorType(None, b.dtype, batch.ndim + 2)
    return TensorType((*batch.shape, *b.shape[-2:]), b.dtype)


def _broadcast(a: Array, b: Array) -> tuple[Array, Array]:
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return np.broadcast_to(a, batch + a.shape[-2:]), np.broadcast_to(b, batch + b.shape[-2:])


@_wide
def _solve(a: Array, b: Array) -> Array:
    return np.linalg.solve(*_broadcast(a, b))


define("linalg.solve", params("a b"), _solve_infer, needs=[FLOATS, one_dtype()], reference=_solve)

BLOCK = 32
"""Rows of a triangle that are solved one after the other; those below are a product."""


@_wide
def _triangular(a: Array, b: Array, upper: bool = False, unit_diagonal: bool = False) -> Array:
    """Substitution by blocks: the equations of a block, one by one, then a product for the rest."""
    a, b = _broadcast(a, b)
    if upper:  # the last unknown first: the same with all axes turned
        turned = _triangular(a[..., ::-1, ::-1], b[..., ::-1, :], unit_diagonal=unit_diagonal)
        return turned[..., ::-1, :]
    x, n = b.copy(), a.shape[-1]
    with np.errstate(all="ignore"):
        for start in range(0, n, BLOCK):
            end = min(start + BLOCK, n)
            for i in range(start, end):
                known = a[..., i : i + 1, start:i] @ x[..., start:i, :]
                x[..., i : i + 1, :] -= known
                if not unit_diagonal:
                    x[..., i, :] /= a[..., i, i, None]
            x[..., end:, :] -= a[..., end:, start:end] @ x[..., start:end, :]
    return x


define(
    "linalg.triangular_solve",
    params("a b", upper=False, unit_diagonal=False),
    _solve_infer,
    needs=[FLOATS, one_dtype()],
    reference=_triangular,
)
define("linalg.inv", params("x"), _same, needs=[FLOATS], reference=_wide(np.linalg.inv))


# --- Determinants -----------------------------------------------------------------------------


def _det_infer(call: graph.Call, tys: TypesOf) -> Type:
    return _shaped(_matrices(call, tys, 0), lambda batch, rows, columns: batch)


def _slogdet_infer(call: graph.Call, tys: TypesOf) -> Type:
    ty = _det_infer(call, tys)
    return TupleType((ty, ty))


@_wide
def _slogdet(x: Array) -> tuple[Array, Array]:
    sign, log = np.linalg.slogdet(x)
    return sign, log


define("linalg.det", params("x"), _det_infer, needs=[FLOATS], reference=_wide(np.linalg.det))
define("linalg.slogdet", params("x"), _slogdet_infer, needs=[FLOATS], reference=_slogdet)


# --- QR, eigenvalues, singular values ---------------------------------------------------------


def _least(rows: PrimExpr, columns: PrimExpr) -> PrimExpr:
    return expr.binary(expr.Min, rows, columns)


def _qr_infer(call: graph.Call, tys: TypesOf) -> Type:
    full = attr(call, "full_matrices")

    def inner(rows: PrimExpr, columns: PrimExpr) -> PrimExpr:
        return rows if full else _least(rows, columns)

    return _shaped(
        _matrices(call, tys, 0, square=False),
        lambda batch, m, n: (*batch, m, inner(m, n)),
        lambda batch, m, n: (*batch, inner(m, n), n),
    )


@_wide
def _qr(x: Array, full_matrices: bool = False) -> tuple[Array, Array]:
    q, r = np.linalg.qr(x, "complete" if full_matrices else "reduced")
    return q, r


def _eigh_infer(call: graph.Call, tys: TypesOf) -> Type:
    return _shaped(
        _matrices(call, tys, 0), lambda batch, m, n: (*batch, n), lambda batch, m, n: (*batch, n, n)
    )


@_wide
def _eigh(x: Array, upper: bool = False) -> tuple[Array, Array]:
    values, vectors = np.linalg.eigh(x, "U" if upper else "L")
    return values, vectors


def _svd_infer(call: graph.Call, tys: TypesOf) -> Type:
    full = attr(call, "full_matrices")
    return _shaped(
        _matrices(call, tys, 0, square=False),
        lambda batch, m, n: (*batch, m, m if full else _least(m, n)),
        lambda batch, m, n: (*batch, _least(m, n)),
        lambda batch, m, n: (*batch, n if full else _least(m, n), n),
    )


@_wide
def _svd(x: Array, full_matrices: bool = False) -> tuple[Array, Array, Array]:
    u, s, vh = np.linalg.svd(x, full_matrices)
    return u, s, vh


define("linalg.qr", params("x", full_matrices=False), _qr_infer, needs=[FLOATS], reference=_qr)
define("linalg.eigh", params("x", upper=False), _eigh_infer, needs=[FLOATS], reference=_eigh)
define("linalg.svd", params("x", full_matrices=False), _svd_infer, needs=[FLOATS], reference=_svd)


# --- The discrete Fourier transform -----------------------------------------------------------


def _dft_infer(call: graph.Call, tys: TypesOf) -> Type:
    real, imaginary = tensor_arg(call, tys, 0), tensor_arg(call, tys, 1)
    if real.ndim >= 0:
        normal_axis(call, attr(call, "axis"), real.ndim)
    shapes: Sequence[Shape] = [t.shape for t in (real, imaginary) if t.shape is not None]
    if -1 not in (real.ndim, imaginary.ndim) and real.ndim != imaginary.ndim:
        raise fail(call, f"the parts have types {real} and {imaginary}")
    if len(shapes) == 2:
        for a, b in zip(*shapes, strict=True):
            if differ(call, a, b, "the extents of the parts"):
                raise fail(call, f"the parts have shapes {show(shapes[0])} and {show(shapes[1])}")
    return TupleType((tensor_like(real), tensor_like(real)))


@_wide
def _dft(real: Array, imag: Array, axis: int = -1, inverse: bool = False) -> tuple[Array, Array]:
    if not real.shape[axis]:
        return real, imag
    value = real + 1j * imag.astype(real.dtype)
    transform = np.fft.ifft if inverse else np.fft.fft
    result = transform(value, axis=axis, norm="forward" if inverse else "backward")
    return result.real.astype(real.dtype), result.imag.astype(real.dtype)


define(
    "signal.dft",
    params("real imag", axis=-1, inverse=False),
    _dft_infer,
    needs=[FLOATS, one_dtype()],
    reference=_dft,
)
