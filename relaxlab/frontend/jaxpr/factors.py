"""Rows of factorisations of matrices, and of products of groups of rows."""

from __future__ import annotations

from typing import Any

from relaxlab.frontend.emitter import Emitter, dtype_of, shape_of
from relaxlab.frontend.groups import grouped_product
from relaxlab.frontend.jaxpr.rows import inlined, row
from relaxlab.frontend.jaxpr.walk import evaluate
from relaxlab.frontend.known import named
from relaxlab.frontend.table import Refused
from relaxlab.ir import graph


def turned(b: Emitter, x: graph.Expr) -> graph.Expr:
    ndim = len(shape_of(x))
    return b.permute_dims(x, axes=(*range(ndim - 2), ndim - 1, ndim - 2))


@row("cholesky")
def cholesky(b: Emitter, x: graph.Expr, **_: Any) -> graph.Expr:
    return named(b, "linalg.cholesky", x)


@row("triangular_solve")
def triangular_solve(
    b: Emitter, a: graph.Expr, rhs: graph.Expr, *, left_side: bool, lower: bool,
    transpose_a: bool, unit_diagonal: bool, **_: Any,
) -> graph.Expr:  # fmt: skip
    """`a @ x = rhs`, or `x @ a = rhs`, which is the system of the transposes."""
    transposed = transpose_a == left_side
    a, lower = (turned(b, a), not lower) if transposed else (a, lower)
    rhs = rhs if left_side else turned(b, rhs)
    options = {"upper": not lower, "unit_diagonal": unit_diagonal}
    x = named(b, "linalg.triangular_solve", a, rhs, **options)
    return x if left_side else turned(b, x)


@row("lu")
def lu(b: Emitter, x: graph.Expr) -> Any:
    return b.fields(named(b, "linalg.lu", x))


@row("qr")
def qr(b: Emitter, x: graph.Expr, *, full_matrices: bool, pivoting: bool, **_: Any) -> Any:
    if pivoting:
        raise Refused("QR with an exchange of columns")
    return b.fields(named(b, "linalg.qr", x, full_matrices=full_matrices))


@row("eigh")
def eigh(b: Emitter, x: graph.Expr, *, lower: bool, subset_by_index: Any = None, **_: Any) -> Any:
    """The vectors first."""
    if subset_by_index is not None:
        raise Refused("some of the eigenvalues")
    values, vectors = b.fields(named(b, "linalg.eigh", x, upper=not lower))
    return vectors, values


@row("svd")
def svd(
    b: Emitter, x: graph.Expr, *, full_matrices: bool, compute_uv: bool,
    subset_by_index: Any = None, **_: Any,
) -> Any:  # fmt: skip
    """The values first, which may be all that is wanted."""
    if subset_by_index is not None:
        raise Refused("some of the singular values")
    u, s, vh = b.fields(named(b, "linalg.svd", x, full_matrices=full_matrices))
    return (s, u, vh) if compute_uv else s


@row("custom_linear_solve")
@inlined
def custom_linear_solve(b: Emitter, *operands: Any, const_lengths: Any, jaxprs: Any) -> Any:
    """The solution; the other functions are for its gradient."""
    start = const_lengths.matvec + const_lengths.vecmat
    end = start + const_lengths.solve
    rest = operands[end + const_lengths.transpose_solve :]
    return evaluate(b, jaxprs.solve, (*operands[start:end], *rest))


@row("ragged_dot_general")
def ragged_dot_general(
    b: Emitter, x: graph.Expr, weights: graph.Expr, sizes: graph.Expr, *,
    ragged_dot_dimension_numbers: Any, group_offset: Any = None, **_: Any,
) -> graph.Expr:  # fmt: skip
    """`jax.lax.ragged_dot`: groups of rows by their sizes."""
    numbers = ragged_dot_dimension_numbers
    (contracted, batch) = numbers.dot_dimension_numbers
    usual = (
        [list(map(int, d)) for d in contracted] == [[1], [1]]
        and not any(map(len, batch))
        and tuple(numbers.lhs_ragged_dimensions) == (0,)
        and tuple(numbers.rhs_group_dimensions) == (0,)
    )
    if not usual or group_offset is not None or dtype_of(x) != dtype_of(weights):
        raise Refused("groups other than of the rows of a matrix")
    return grouped_product(b, x, weights, b.cumsum(b.cast(sizes, "int64"), axis=0))
