"""Factorisations of matrices (`torch.linalg`)."""

from __future__ import annotations

from typing import Any

from relaxlab.frontend.emitter import Emitter, Tensor, dtype_of, shape_of
from relaxlab.frontend.known import named
from relaxlab.frontend.pytorch.rows.elementwise import out_dtype
from relaxlab.frontend.pytorch.rows.shapes import out_shape, transpose
from relaxlab.frontend.pytorch.rows.table import row
from relaxlab.frontend.table import Refused


def turned(b: Emitter, x: Tensor) -> Tensor:
    return transpose(b, x, -2, -1)


def triangular(
    b: Emitter, a: Tensor, rhs: Tensor, upper: bool, transposed: bool = False, unit: bool = False
) -> Tensor:
    """The solution of a triangular system, or of that of the transposed triangle."""
    a, upper = (turned(b, a), not upper) if transposed else (a, upper)
    return named(b, "linalg.triangular_solve", a, rhs, upper=upper, unit_diagonal=unit)


def nothing(b: Emitter, index: int) -> Tensor:
    """A result that was not asked for: it has no elements."""
    return b.zeros(out_shape(b, index), dtype=out_dtype(b, index))


def succeeded(b: Emitter, x: Tensor) -> Tensor:
    """The zeros that stand for success, one a matrix: where it would be a failure, the call
    raises."""
    return b.zeros(shape_of(x)[:-2], dtype="int32")


# --- Cholesky -----------------------------------------------------------------------------------


@row("aten.cholesky.default", "aten.linalg_cholesky.default")
def cholesky(b: Emitter, x: Tensor, upper: bool = False) -> Tensor:
    """NaN for a matrix that has no such factor."""
    return named(b, "linalg.cholesky", x, upper=upper)


@row("aten.cholesky_solve.default")
def cholesky_solve(b: Emitter, rhs: Tensor, factor: Tensor, upper: bool = False) -> Tensor:
    half = triangular(b, factor, rhs, upper, transposed=upper)
    return triangular(b, factor, half, upper, transposed=not upper)


@row("aten.cholesky_inverse.default")
def cholesky_inverse(b: Emitter, factor: Tensor, upper: bool = False) -> Tensor:
    n, dtype = shape_of(factor)[-1], dtype_of(factor)
    return cholesky_solve(b, b.eye(n, n, 0, dtype=dtype), factor, upper)


# --- LU and systems of equations ------------------------------------------------------------------


def lu(b: Emitter, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The factors in one matrix, the exchanged rows counted from 1, and the order of the rows."""
    factors, pivots, order = b.fields(named(b, "linalg.lu", x))
    return factors, b.add(pivots, b.const(1, "int32")), order


@row("aten.linalg_lu_factor_ex.default")
def lu_factor_ex(b: Emitter, x: Tensor, pivot: bool = True, check_errors: bool = False) -> Any:
    if not pivot:
        raise Refused("LU without an exchange of rows")
    return *lu(b, x)[:2], succeeded(b, x)


@row("aten.linalg_lu_factor.default")
def lu_factor(b: Emitter, x: Tensor, pivot: bool = True) -> Any:
    return lu_factor_ex(b, x, pivot)[:2]


@row("aten.linalg_lu.default")
def linalg_lu(b: Emitter, x: Tensor, pivot: bool = True) -> Any:
    """P, L and U, whose product is the matrix."""
    if not pivot:
        raise Refused("LU without an exchange of rows")
    factors, _, order = lu(b, x)
    rows, dtype = shape_of(x)[-2], dtype_of(x)
    inner = out_shape(b, 1)[-1]
    sides = [b.strided_slice(factors, [axis], [0], [inner], [1]) for axis in (-1, -2)]
    lower = b.add(b.tril(sides[0], -1), b.eye(rows, inner, 0, dtype=dtype))
    at = b.expand_dims(order, axis=[-2])
    every = b.reshape(b.cast(b.arange(0, rows, 1, dtype="int64"), "int32"), (rows, 1))
    return b.cast(b.equal(at, every), dtype), lower, b.triu(sides[1])


def solved(b: Emitter, a: Tensor, rhs: Tensor, left: bool) -> Tensor:
    """The solution of `a @ x = rhs`, of `x @ a = rhs` unless `left`."""
    if not left:
        return turned(b, named(b, "linalg.solve", turned(b, a), turned(b, rhs)))
    return named(b, "linalg.solve", a, rhs)


@row("aten.linalg_solve.default")
def solve(b: Emitter, a: Tensor, rhs: Tensor, *, left: bool = True) -> Tensor:
    """The right-hand sides are vectors where they have the shape of the matrices' rows."""
    shape = shape_of(rhs)
    vector = len(shape) == 1 or (
        len(shape) == len(shape_of(a)) - 1 and shape == shape_of(a)[: len(shape)]
    )
    columns = b.expand_dims(rhs, axis=[-1]) if vector else rhs
    result = solved(b, a, columns, left or vector)
    return b.squeeze(result, axis=[-1]) if vector else result


@row("aten._linalg_solve_ex.default")
def solve_ex(b: Emitter, a: Tensor, rhs: Tensor, *, left: bool = True, **_: Any) -> Any:
    return solve(b, a, rhs, left=left), *lu(b, a)[:2], succeeded(b, a)


@row("aten.linalg_inv.default")
def inv(b: Emitter, x: Tensor) -> Tensor:
    return named(b, "linalg.inv", x)


@row("aten.linalg_inv_ex.default")
def inv_ex(b: Emitter, x: Tensor, **_: Any) -> Any:
    return inv(b, x), succeeded(b, x)


@row("aten.linalg_solve_triangular.default")
def solve_triangular(
    b: Emitter, a: Tensor, rhs: Tensor, *, upper: bool, left: bool = True,
    unitriangular: bool = False,
) -> Tensor:  # fmt: skip
    if left:
        return triangular(b, a, rhs, upper, unit=unitriangular)
    return turned(b, triangular(b, a, turned(b, rhs), upper, True, unitriangular))


@row("aten.triangular_solve.default")
def triangular_solve(
    b: Emitter, rhs: Tensor, a: Tensor, upper: bool = True, transposed: bool = False,
    unitriangular: bool = False,
) -> Any:  # fmt: skip
    return triangular(b, a, rhs, upper, transposed, unitriangular), b.broadcast_to(
        a, out_shape(b, 1)
    )


# --- Determinants ---------------------------------------------------------------------------------


@row("aten._linalg_det.default")
def det(b: Emitter, x: Tensor) -> Any:
    return named(b, "linalg.det", x), *lu(b, x)[:2]


@row("aten._linalg_slogdet.default")
def slogdet(b: Emitter, x: Tensor) -> Any:
    return *b.fields(named(b, "linalg.slogdet", x)), *lu(b, x)[:2]


# --- QR, eigenvalues, singular values -------------------------------------------------------------


@row("aten.linalg_qr.default")
def qr(b: Emitter, x: Tensor, mode: str = "reduced") -> Any:
    q, r = b.fields(named(b, "linalg.qr", x, full_matrices=mode == "complete"))
    return nothing(b, 0) if mode == "r" else q, r


@row("aten._linalg_eigh.default")
def eigh(b: Emitter, x: Tensor, uplo: str = "L", vectors: bool = True) -> Any:
    values, found = b.fields(named(b, "linalg.eigh", x, upper=uplo.upper() == "U"))
    return values, found if vectors else nothing(b, 1)


@row("aten._linalg_svd.default")
def svd(
    b: Emitter, x: Tensor, full_matrices: bool = False, vectors: bool = True, **_: Any
) -> Any:
    u, s, vh = b.fields(named(b, "linalg.svd", x, full_matrices=full_matrices and vectors))
    return (u, s, vh) if vectors else (nothing(b, 0), s, nothing(b, 2))


@row("aten.linalg_pinv.atol_rtol_tensor")
def pinv(
    b: Emitter, x: Tensor, *, atol: Tensor | None = None, rtol: Tensor | None = None,
    hermitian: bool = False,
) -> Tensor:  # fmt: skip
    """The inverse of singular values above a limit. It is that of symmetric matrices, too, whose
    lower triangle PyTorch reads."""
    if hermitian:
        lower = b.tril(x)
        x = b.add(lower, turned(b, b.tril(x, -1)))
    u, s, vh = b.fields(named(b, "linalg.svd", x))
    largest = b.max(s, axis=-1, keepdims=True)
    rtol, atol = (None if t is None else b.cast(b.expand_dims(t, axis=[-1]), dtype_of(x))
                  for t in (rtol, atol))  # fmt: skip
    limits: list[Tensor] = [] if rtol is None else [b.multiply(rtol, largest)]
    if rtol is None and atol is None:
        eps = {"float32": 2.0**-23, "float64": 2.0**-52}[dtype_of(x)]
        most = max(_extent(d) for d in shape_of(x)[-2:])
        limits.append(b.multiply(largest, most * eps))
    if atol is not None:
        limits.append(atol)
    limit = limits[0] if len(limits) == 1 else b.maximum(*limits)
    kept = b.greater(s, limit)
    inverse = b.where(kept, b.divide(1.0, b.where(kept, s, 1.0)), 0.0)
    scaled = b.multiply(turned(b, vh), b.expand_dims(inverse, axis=[-2]))
    return b.matmul(scaled, turned(b, u))


def _extent(d: Any) -> int:
    if not hasattr(d, "value"):
        raise Refused("the limit of small singular values depends on symbolic sizes: give rtol")
    return d.value
