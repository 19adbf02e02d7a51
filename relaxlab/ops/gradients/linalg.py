"""Gradients of products."""

from __future__ import annotations

from collections.abc import Sequence

from relaxlab.ir import graph
from relaxlab.ops.gradients.base import Adjoint, NotDifferentiable, Step, gradient, op


def _transposed(step: Step, value: graph.Expr) -> graph.Call:
    """A stack of matrices with each of them transposed."""
    ndim = len(step.shape_of(value))
    return op("permute_dims", value, axes=[*range(ndim - 2), ndim - 1, ndim - 2])


@gradient("matmul")
def _matmul(step: Step) -> Sequence[Adjoint]:
    """adjoint @ b^T and a^T @ adjoint; a vector is a matrix of one row, or of one column."""
    a, b = step.args
    ranks = len(step.shape(0)), len(step.shape(1))
    adjoint = step.adjoint
    if ranks == (1, 1):
        return op("multiply", adjoint, b), op("multiply", adjoint, a)
    if ranks[1] == 1:
        adjoint = step.bb.emit(op("expand_dims", adjoint, axis=[-1]))
    elif ranks[0] == 1:
        adjoint = step.bb.emit(op("expand_dims", adjoint, axis=[-2]))
    b_back = op("expand_dims", b, axis=[0]) if ranks[1] == 1 else _transposed(step, b)
    a_back = op("expand_dims", a, axis=[1]) if ranks[0] == 1 else _transposed(step, a)
    of_a: graph.Expr = op("matmul", adjoint, b_back)
    of_b: graph.Expr = op("matmul", a_back, adjoint)
    if ranks[0] == 1:
        of_a = op("squeeze", of_a, axis=[-2])
    if ranks[1] == 1:
        of_b = op("squeeze", of_b, axis=[-1])
    return step.fit(of_a, 0), step.fit(of_b, 1)


@gradient("linear")
def _linear(step: Step) -> Sequence[Adjoint]:
    """The adjoint of data @ weight^T + bias."""
    data, weight, *bias = step.args
    ndim = len(step.shape())
    of_data = op("matmul", step.adjoint, weight)
    rows = _rows(step, step.adjoint), _rows(step, data)
    of_weight = op("matmul", op("permute_dims", rows[0]), rows[1]) if ndim > 1 else None
    if of_weight is None:
        of_weight = op("outer", step.adjoint, data)
    return of_data, of_weight, *(step.fit(step.adjoint, 2) for _ in bias)


def _rows(step: Step, value: graph.Expr) -> graph.Expr:
    """A tensor as a matrix with its last dimension."""
    shape = step.shape_of(value)
    return op("reshape", value, (-1, shape[-1])) if len(shape) != 2 else value


@gradient("outer")
def _outer(step: Step) -> Sequence[Adjoint]:
    a, b = step.args
    return op("matmul", step.adjoint, b), op("matmul", a, step.adjoint)


@gradient("einsum")
def _einsum(step: Step) -> Sequence[Adjoint]:
    """For each operand, the product of the adjoint with the other operands, over the subscripts
    that the operand lacks."""
    subscripts = step.attr("subscripts").replace(" ", "")
    operands = step.args[0]
    assert isinstance(operands, graph.Tuple)
    if "." in subscripts or "->" not in subscripts:
        raise NotDifferentiable("the gradient of R.einsum is known for subscripts a,b->c")
    given, out = subscripts.split("->")
    names = given.split(",")
    if any(len(set(n)) != len(n) for n in names):
        raise NotDifferentiable("the gradient of R.einsum is known without repeated subscripts")
    fields: list[graph.Expr] = []
    for i, mine in enumerate(names):
        others = [j for j in range(len(names)) if j != i]
        known = set(out).union(*(names[j] for j in others)) & set(mine)
        kept = "".join(c for c in mine if c in known)
        terms = ",".join([out, *(names[j] for j in others)])
        values = graph.Tuple((step.adjoint, *(operands.fields[j] for j in others)))
        back: graph.Expr = op("einsum", values, subscripts=f"{terms}->{kept}")
        shape = step.shape_of(operands.fields[i])
        if kept != mine:  # summed over alone: each element has the same adjoint
            axes = [k for k, c in enumerate(mine) if c not in known]
            back = op("broadcast_to", op("expand_dims", back, axis=axes), graph.ShapeExpr(shape))
        fields.append(back)
    return (graph.Tuple(tuple(fields)),)
