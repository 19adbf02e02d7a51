"""Rules that draw calls of factorisations and transforms: of matrices far from singular ones, whose
results do not depend on roundings."""

from __future__ import annotations

import numpy as np

from relaxlab.ir import graph
from relaxlab.ops.define import builder
from relaxlab.testing.draw import Draw, dtype_of, shape_of
from relaxlab.testing.draw_rules import rule


def _matrices(d: Draw, batch: tuple[int, ...], n: int, dtype: str) -> graph.Var:
    """Small integers, symmetric, with a diagonal that outweighs the rest and whose elements differ,
    so that eigenvalues do."""
    whole = np.zeros((*batch, n, n), np.int64)
    for i in np.ndindex(*batch, n, n):
        whole[i] = d.rng.randint(-1, 1)
    whole = np.tril(whole, -1) + np.tril(whole, -1).swapaxes(-1, -2)
    whole += np.diag(np.arange(1, n + 1)) * 2 * n
    return d.new(whole.shape, dtype, given=tuple(whole.reshape(-1).tolist()))


def _stack(d: Draw) -> tuple[tuple[int, ...], int, str]:
    return d.choice(((), (1,), (2,), (2, 3))), d.choice((1, 2, 3, 5)), d.dtype()


@rule("linalg.cholesky", "linalg.det", "linalg.eigh", "linalg.inv", "linalg.lu", "linalg.slogdet")
def _factor(d: Draw, op: str) -> graph.Call:
    attrs = d.some(upper=d.flag()) if op in ("linalg.cholesky", "linalg.eigh") else {}
    return builder(op)(_matrices(d, *_stack(d)), **attrs)


@rule("linalg.qr", "linalg.svd")
def _vectors(d: Draw, op: str) -> graph.Call:
    return builder(op)(_matrices(d, *_stack(d)), **d.some(full_matrices=d.flag()))


@rule("linalg.solve", "linalg.triangular_solve")
def _solve(d: Draw, op: str) -> graph.Call:
    batch, n, dtype = _stack(d)
    triangular = op == "linalg.triangular_solve"
    attrs = d.some(upper=d.flag(), unit_diagonal=d.flag()) if triangular else {}
    other = d.choice((batch, ()))
    return builder(op)(
        _matrices(d, batch, n, dtype), d.new((*other, n, d.small()), dtype), **attrs
    )


@rule("signal.dft")
def _transform(d: Draw, op: str) -> graph.Call:
    real = d.x((1, 3), most=2000)
    imag = d.new(shape_of(real), dtype_of(real))
    attrs = d.some(axis=d.axis(len(shape_of(real))), inverse=d.flag())
    return builder(op)(real, imag, **attrs)
