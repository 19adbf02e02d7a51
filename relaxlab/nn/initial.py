"""Initial values of parameters, as PyTorch's layers draw them."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any, TypeAlias

import numpy as np

Array = np.ndarray[Any, Any]
Initialiser: TypeAlias = Callable[[np.random.Generator, tuple[int, ...]], Array]


def uniform_fan_in(fan_in: int) -> Initialiser:
    """Uniform over +-1/sqrt(fan_in): what Kaiming's rule with a = sqrt(5) comes to (He et al.,
    Delving Deep into Rectifiers, 2015), for the weights and biases of linear maps."""
    bound = 1 / sqrt(max(1, fan_in))
    return lambda rng, shape: rng.uniform(-bound, bound, shape)


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Normal with mean 0 and variance 1, for embeddings."""
    return rng.standard_normal(shape)


def ones(_: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """All 1, for the scales of norms."""
    return np.ones(shape)


def zeros(_: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """All 0, for the offsets of norms."""
    return np.zeros(shape)
