"""Gradients of factorisations and of the discrete Fourier transform.

The formulas are those of M. Giles, An extended collection of matrix derivative results for forward
and reverse mode algorithmic differentiation (2008), sections 2 and 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relaxlab.ir import graph
from relaxlab.ops.gradients.base import Adjoint, Step, gradient, op


def _turned(step: Step, x: graph.Expr) -> graph.Expr:
    """The transposes of a stack of matrices."""
    x = step.bb.flatten(x)
    ndim = len(step.shape_of(x))
    return step.bb.emit(op("permute_dims", x, axes=[*range(ndim - 2), ndim - 1, ndim - 2]))


def _product(step: Step, *factors: graph.Expr) -> graph.Expr:
    result = factors[0]
    for factor in factors[1:]:
        result = step.bb.emit(op("matmul", result, factor))
    return result


def _lower(step: Step, x: graph.Expr) -> graph.Expr:
    """The lower triangle of matrices, with half of the diagonal."""
    diagonal = op("subtract", op("tril", x), op("tril", x, -1))
    half = op("multiply", diagonal, step.number(0.5))
    return step.bb.emit(op("add", op("tril", x, -1), half))


@gradient("linalg.cholesky")
def _cholesky(step: Step) -> Sequence[Adjoint]:
    """Symmetric, as if both triangles were read: L^-T (tril(L^T adjoint), half of its diagonal,
    made symmetric) L^-1 / 2."""
    upper = bool(step.attr("upper"))
    factor, adjoint = step.out, step.adjoint
    if upper:
        factor, adjoint = _turned(step, factor), _turned(step, adjoint)
    inner = _lower(step, _product(step, _turned(step, factor), adjoint))
    inner = step.bb.emit(op("add", inner, _turned(step, inner)))
    back = _turned(step, factor)
    left = step.bb.emit(op("linalg.triangular_solve", back, inner, upper=True))
    whole = step.bb.emit(
        op("linalg.triangular_solve", back, _turned(step, left), upper=True)
    )
    return (op("multiply", whole, step.number(0.5)),)


@gradient("linalg.solve", "linalg.triangular_solve")
def _solve(step: Step) -> Sequence[Adjoint]:
    """B' = A^-T adjoint, and A' = -B' X^T, of which a triangle counts where one is read."""
    turned = _turned(step, step.args[0])
    name, attrs = str(getattr(step.call.op, "name", "")), dict[str, Any]()
    triangular = name == "linalg.triangular_solve"
    if triangular:
        attrs = {"upper": not step.attr("upper"), "unit_diagonal": step.attr("unit_diagonal")}
    of_b = step.bb.emit(op(name, turned, step.adjoint, **attrs))
    of_a = step.bb.emit(op("negative", _product(step, of_b, _turned(step, step.out))))
    if triangular:
        first = int(bool(step.attr("unit_diagonal")))
        triangle = op("triu", of_a, first) if step.attr("upper") else op("tril", of_a, -first)
        of_a = step.bb.emit(triangle)
    return step.fit(of_a, 0), step.fit(of_b, 1)


@gradient("linalg.inv")
def _inv(step: Step) -> Sequence[Adjoint]:
    """-Y^T adjoint Y^T."""
    turned = _turned(step, step.out)
    return (op("negative", _product(step, turned, step.adjoint, turned)),)


def _along(step: Step, value: graph.Expr) -> graph.Expr:
    return step.bb.emit(op("expand_dims", value, axis=[-2, -1]))


@gradient("linalg.det")
def _det(step: Step) -> Sequence[Adjoint]:
    """The adjoint times the determinant times the transposed inverse."""
    inverse = step.bb.emit(op("linalg.inv", step.args[0]))
    factor = step.bb.emit(op("multiply", step.adjoint, step.out))
    return (op("multiply", _along(step, factor), _turned(step, inverse)),)


@gradient("linalg.slogdet")
def _slogdet(step: Step) -> Sequence[Adjoint]:
    """The adjoint of the logarithm times the transposed inverse; signs are steps."""
    inverse = step.bb.emit(op("linalg.inv", step.args[0]))
    adjoint = step.bb.emit(graph.TupleGetItem(step.adjoint, 1))
    return (op("multiply", _along(step, adjoint), _turned(step, inverse)),)


@gradient("linalg.eigh")
def _eigh(step: Step) -> Sequence[Adjoint]:
    """V (diag(values') + (V^T vectors') / (l_j - l_i)) V^T for distinct eigenvalues l, symmetric as
    if both triangles were read."""
    values, vectors = step.bb.emit_fields(step.out)
    of_values, of_vectors = (step.bb.emit(graph.TupleGetItem(step.adjoint, i)) for i in (0, 1))
    columns, rows = (step.bb.emit(op("expand_dims", values, axis=[a])) for a in (-2, -1))
    gaps = step.bb.emit(op("subtract", columns, rows))
    same = op("equal", gaps, step.number(0.0))
    none = op("multiply", gaps, step.number(0.0))
    inverse = op("divide", step.number(1.0), op("where", same, op("exp", none), gaps))
    inner = op("multiply", _product(step, _turned(step, vectors), of_vectors), inverse)
    on_diagonal = step.bb.emit(op("expand_dims", of_values, axis=[-2]))
    inner = step.bb.emit(op("where", same, on_diagonal, inner))
    whole = _product(step, vectors, inner, _turned(step, vectors))
    half = op("multiply", op("add", whole, _turned(step, whole)), step.number(0.5))
    return (half,)


@gradient("signal.dft")
def _dft(step: Step) -> Sequence[Adjoint]:
    """The transform is linear; its transpose is the other direction's, which is not scaled."""
    fields = [step.bb.emit(graph.TupleGetItem(step.adjoint, i)) for i in (0, 1)]
    axis, inverse = step.attr("axis"), bool(step.attr("inverse"))
    back = step.bb.emit(op("signal.dft", *fields, axis=axis, inverse=not inverse))
    return tuple(graph.TupleGetItem(back, i) for i in (0, 1))
