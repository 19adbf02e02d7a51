"""Factorisations and transforms: their defining equations, their gradients, and compiled calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.op_table import op_names, op_row
from relaxlab.passes.differentiate import differentiate
from relaxlab.runtime.interpreter.interpreter import interpret
from tests.ops.test_unlowered import EVERYWHERE, HEADER, Run

RNG = np.random.default_rng(7)
BATCHES = ((), (3,), (2, 1))


def reference(name: str, *args: Any, **attrs: Any) -> Any:
    fn = op_row(name).reference
    assert fn is not None
    return fn(*args, **attrs)


def matrices(batch: tuple[int, ...], rows: int, columns: int) -> Any:
    return RNG.normal(size=(*batch, rows, columns))


def definite(batch: tuple[int, ...], n: int) -> Any:
    x = matrices(batch, n, n)
    return x @ x.swapaxes(-1, -2) + np.eye(n)


def turned(x: Any) -> Any:
    return x.swapaxes(-1, -2)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("n", [1, 2, 5, 70])
def test_defining_equations(batch: tuple[int, ...], n: int) -> None:
    a, b, s = matrices(batch, n, n) + n * np.eye(n), matrices(batch, n, 3), definite(batch, n)
    for upper in (False, True):
        part = np.triu if upper else np.tril
        factor = reference("linalg.cholesky", part(s), upper=upper)
        assert (part(factor) == factor).all()
        product = turned(factor) @ factor if upper else factor @ turned(factor)
        np.testing.assert_allclose(product, s, atol=1e-9 * n)
        values, vectors = reference("linalg.eigh", part(s), upper=upper)
        np.testing.assert_allclose(s @ vectors, vectors * values[..., None, :], atol=1e-8 * n)
        for unit in (False, True):
            small = a / n  # the solutions of larger triangles with ones grow without bounds
            x = reference("linalg.triangular_solve", small, b, upper=upper, unit_diagonal=unit)
            triangle = part(small, 1 if upper else -1) + np.eye(n) if unit else part(small)
            np.testing.assert_allclose(triangle @ x, b, atol=1e-9)
    np.testing.assert_allclose(a @ reference("linalg.solve", a, b), b, atol=1e-9)
    np.testing.assert_allclose(a @ reference("linalg.inv", a) - np.eye(n), 0, atol=1e-9)
    sign, log = reference("linalg.slogdet", a)
    if n < 70:
        np.testing.assert_allclose(sign * np.exp(log), reference("linalg.det", a))


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (5, 3), (3, 5), (0, 2)])
def test_rectangular_matrices(batch: tuple[int, ...], shape: tuple[int, int]) -> None:
    x, (m, n) = matrices(batch, *shape), shape
    for full in (False, True):
        q, r = reference("linalg.qr", x, full_matrices=full)
        np.testing.assert_allclose(q @ r, x, atol=1e-12)
        u, s, vh = reference("linalg.svd", x, full_matrices=full)
        k = min(m, n)
        np.testing.assert_allclose((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], x, atol=1e-12)
    lu, pivots, order = reference("linalg.lu", x)
    k = min(m, n)
    lower = np.tril(lu[..., :k], -1) + np.eye(m, k)
    moved = np.take_along_axis(x, order[..., None].astype(np.int64), axis=-2)
    np.testing.assert_allclose(lower @ np.triu(lu[..., :k, :]), moved, atol=1e-12)
    assert pivots.shape == (*batch, k) and (pivots >= np.arange(k)).all()


def test_matrices_that_have_no_factors() -> None:
    both = np.stack([np.eye(2), -np.eye(2)])
    found = reference("linalg.cholesky", both)
    assert (found[0] == np.eye(2)).all() and np.isnan(found[1]).all()
    lu, _, order = reference("linalg.lu", np.array([[0.0, 1.0], [0.0, 2.0]]))
    assert np.isfinite(lu).all() and sorted(order) == [0, 1]
    with pytest.raises(np.linalg.LinAlgError):
        reference("linalg.solve", np.zeros((2, 2)), np.ones((2, 1)))
    for dtype in ("float16", "float32"):
        assert reference("linalg.inv", np.eye(2, dtype=dtype)).dtype == dtype


@pytest.mark.parametrize("axis", [0, -1])
def test_transforms(axis: int) -> None:
    real, imag = RNG.normal(size=(2, 6, 5))
    wanted = np.fft.fft(real + 1j * imag, axis=axis)
    found = reference("signal.dft", real, imag, axis=axis)
    np.testing.assert_allclose(found[0] + 1j * found[1], wanted, atol=1e-12)
    back = reference("signal.dft", *found, axis=axis, inverse=True)
    np.testing.assert_allclose(back, np.stack([real, imag]) * real.shape[axis], atol=1e-12)


PROGRAM = """
    @R.function
    def main(x: R.Tensor(("b", "n", "n"), "float32"), y: R.Tensor(("b", "n", "k"), "float32")):
        factor = R.linalg.cholesky(x)
        half = R.linalg.triangular_solve(factor, y)
        found = R.linalg.triangular_solve(R.permute_dims(factor, axes=[0, 2, 1]), half, upper=True)
        parts = R.signal.dft(y, y, axis=1)
        return found, R.linalg.solve(x, y), R.add(parts[0], parts[1]), R.linalg.svd(y)[1]
"""


@EVERYWHERE
def test_compiled_calls_of_symbolic_sizes(run: Run) -> None:
    for batch, n, k in ((2, 3, 2), (1, 5, 1)):
        x = definite((batch,), n).astype("float32")
        y = matrices((batch,), n, k).astype("float32")
        found, solved, sums, singular = run(PROGRAM, x, y)
        np.testing.assert_allclose(found, solved, rtol=1e-2, atol=1e-3)
        transform = np.fft.fft(y + 1j * y, axis=1)
        np.testing.assert_allclose(sums, transform.real + transform.imag, atol=1e-4)
        np.testing.assert_allclose(singular, np.linalg.svd(y)[1], rtol=1e-4)


SQUARE = "x: R.Tensor((2, 3, 3), 'float64'), y: R.Tensor((2, 3, 2), 'float64')"
POSITIVE = "R.matmul(x, R.permute_dims(x, axes=[0, 2, 1]))"
LOSSES = {
    "cholesky": f"R.sum(R.power(R.linalg.cholesky({POSITIVE}), R.const(3.0, 'float64')))",
    "upper cholesky": f"R.sum(R.exp(R.linalg.cholesky({POSITIVE}, upper=True)))",
    "solve": "R.sum(R.exp(R.linalg.solve(x, y)))",
    "triangular": "R.sum(R.exp(R.linalg.triangular_solve(x, y)))",
    "upper unit": "R.sum(R.exp(R.linalg.triangular_solve(x, y, upper=True, unit_diagonal=True)))",
    "inv": "R.sum(R.exp(R.linalg.inv(x)))",
    "det": "R.sum(R.sin(R.linalg.det(x)))",
    "slogdet": "R.sum(R.exp(R.linalg.slogdet(x)[1]))",
    "eigenvalues": f"R.sum(R.exp(R.linalg.eigh({POSITIVE})[0]))",
    "eigenvectors": f"R.sum(R.square(R.sin(R.square(R.linalg.eigh({POSITIVE})[1]))))",
    "dft": "R.sum(R.sin(R.linalg.inv(R.signal.dft(x, R.exp(x), axis=1)[0])))",
    "inverse dft": "R.sum(R.sin(R.signal.dft(x, R.exp(x), axis=2, inverse=True)[1]))",
}


@pytest.mark.parametrize("name", LOSSES)
def test_gradients(name: str) -> None:
    """Against differences of the loss in a random direction."""
    text = f"    @R.function\n    def main({SQUARE}):\n        with R.dataflow():\n"
    text += f"            loss = {LOSSES[name]}\n            R.output(loss)\n        return loss\n"
    module = rl.parse(HEADER + text)
    x, y = matrices((2,), 3, 3) + 3 * np.eye(3), matrices((2,), 3, 2)
    both = interpret(differentiate(module), "main_adjoint", x, y)
    gradients = both[1]
    for i, gradient in enumerate(gradients):
        direction = RNG.normal(size=gradient.shape)
        step = [1e-6 * direction if i == k else 0.0 for k in (0, 1)]

        def value(sign: int, step: list[Any] = step) -> Any:
            return interpret(module, "main", x + sign * step[0], y + sign * step[1])

        slope = (value(1) - value(-1)) / 2e-6
        np.testing.assert_allclose((gradient * direction).sum(), slope, rtol=1e-5, atol=1e-7)


def test_every_gradient_is_tried() -> None:
    names = [n for n in op_names() if n.startswith(("linalg.", "signal."))]
    found = {n for n in names if op_row(n).gradient is not None}
    assert found == {n for n in names if any(f"R.{n}(" in text for text in LOSSES.values())}
