"""A kind of computation that benchmarks time, and the functions of its reference in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Sizes: TypeAlias = Mapping[str, int]

EPS = 1e-5


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of computation.

    shapes: of the arguments. reference: the result in float64, or with `sample` that part of it
    alone, from the arguments as they are. flops, moved: the work that cannot be avoided: additions
    and multiplications of products; bytes, by default of each argument read once and of the result
    written once. matrices: the standard deviation of two-dimensional arguments after the first.
    sample: the part of a result that is compared, where the reference would take long.
    """

    shapes: Callable[[Sizes], list[tuple[int, ...]]]
    reference: Callable[..., Array]
    flops: Callable[[Sizes], float] = lambda s: math.nan
    result: Callable[[Sizes], tuple[int, ...]] = lambda s: ()
    matrices: float = 1.0
    moved: Callable[[Sizes], float] | None = None
    sample: Callable[[Array], Array] | None = None

    def bytes(self, sizes: Sizes) -> float:
        if self.moved is not None:
            return self.moved(sizes)
        shapes = [*self.shapes(sizes), self.result(sizes)]
        return 4.0 * sum(math.prod(shape) for shape in shapes)


def _erf(x: Array) -> Array:
    return np.vectorize(math.erf, otypes=[np.float64])(x)


def gelu(x: Array) -> Array:
    return x * 0.5 * (1 + _erf(x / math.sqrt(2)))


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def layer_norm(x: Array, weight: Array, bias: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + EPS) * weight + bias


def rms_norm(x: Array, weight: Array) -> Array:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + EPS) * weight
