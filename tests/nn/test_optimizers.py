"""Steps of optimizers against their formulas in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from relaxlab.ir import expr, graph, types
from relaxlab.ir.module import Module
from relaxlab.nn.optimizers import SGD, Adam, MomentumSGD, Optimizer
from relaxlab.runtime.interpreter.interpreter import interpret

Array = np.ndarray[Any, Any]


def _sgd(x: Array, g: Array, t: int, kept: list[Array]) -> Array:
    return x - 0.1 * g


def _momentum(x: Array, g: Array, t: int, kept: list[Array]) -> Array:
    kept[0] = 0.8 * kept[0] + 0.75 * g
    return x - 0.1 * (g + 0.8 * kept[0])


def _adam(x: Array, g: Array, t: int, kept: list[Array]) -> Array:
    kept[0] = 0.9 * kept[0] + 0.1 * g
    kept[1] = 0.95 * kept[1] + 0.05 * g * g
    mean, square = kept[0] / (1 - 0.9**t), kept[1] / (1 - 0.95**t)
    return x - 0.1 * mean / (np.sqrt(square) + 1e-3)


@pytest.mark.parametrize("decay", [0.0, 0.2])
@pytest.mark.parametrize(
    ("made", "formula"),
    [
        (SGD, _sgd),
        (lambda lr, d: MomentumSGD(lr, d, 0.8, 0.25, nesterov=True), _momentum),
        (lambda lr, d: Adam(lr, d, (0.9, 0.95), 1e-3), _adam),
    ],
)
def test_steps(
    made: Callable[[float, float], Optimizer], formula: Callable[..., Array], decay: float
) -> None:
    optimizer = made(0.1, decay)
    sizes = ((2, 3), (3,))
    params = [graph.Var(n, _tensor(*s)) for n, s in zip("ab", sizes, strict=True)]
    mod = Module.of({"step": optimizer.step(params)})
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(s) for s in sizes]
    state: Any = optimizer.initial_state(params)
    wanted = [v.copy() for v in values]
    kept = [[np.zeros(s), np.zeros(s)] for s in sizes]
    for t in range(1, 4):
        gradients = [rng.standard_normal(s) for s in sizes]
        values, state = interpret(mod, "step", tuple(values), tuple(gradients), tuple(state))
        wanted = [
            formula(x, g + decay * x, t, k) for x, g, k in zip(wanted, gradients, kept, strict=True)
        ]
        for got, want in zip(values, wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-12)
        assert state[0] == t


def _tensor(*sizes: int, dtype: str = "float64") -> types.TensorType:
    return types.TensorType(tuple(map(expr.const, sizes)), dtype)


@pytest.mark.parametrize(
    ("tys", "message"),
    [
        ([], "needs parameters to update"),
        ([_tensor(2, dtype="int32")], "parameter p0 is no tensor of floats"),
        ([_tensor(2), _tensor(2, dtype="float32")], "parameter p1 has dtype float32"),
        ([types.TensorType(None, "float32", 2)], "the shape of parameter p0 is not constant"),
    ],
)
def test_refused_parameters(tys: list[types.Type], message: str) -> None:
    params = [graph.Var(f"p{i}", ty) for i, ty in enumerate(tys)]
    with pytest.raises(ValueError, match=message):
        SGD(0.1).initial_state(params)
        Adam(0.1).initial_state(params)


def test_a_parameter_that_is_given_twice() -> None:
    p = graph.Var("p", _tensor(2))
    with pytest.raises(ValueError, match="parameter p is given twice"):
        SGD(0.1).step([p, p])
