"""Programs that reduce, normalise and scan over axes of a tensor, for every choice of the axes and
of the dimensions that are symbols."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np

import relaxlab as rl
from relaxlab.ir.module import Module

NAMES = ("a", "b", "c", "d")
OVER_AXES = (
    "R.sum(x, axis={axes})", "R.mean(x, axis={axes}, keepdims=True)", "R.max(x, axis={axes})",
    "R.min(x, axis={axes})", "R.prod(x, axis={axes})", "R.variance(x, axis={axes})",
    "R.std(x, axis={axes})", "R.nn.layer_norm(x, w, w, axes={axes})",
    "R.nn.rms_norm(x, w, axes={axes})",
)  # fmt: skip
OVER_ONE = (
    "R.nn.softmax(x, axis={axis})", "R.nn.log_softmax(x, axis={axis})", "R.argmax(x, axis={axis})",
    "R.argmin(x, axis={axis})", "R.cumsum(x, axis={axis})",
    "R.cumprod(x, axis={axis}, exclusive=True)",
)  # fmt: skip


def axis_subsets(ndim: int) -> Iterator[tuple[int, ...]]:
    """Every non-empty choice of axes."""
    for count in range(1, ndim + 1):
        yield from combinations(range(ndim), count)


def calls(axes: tuple[int, ...]) -> list[str]:
    """The calls of all operators that can go over the axes."""
    found = [c.format(axes=list(axes)) for c in OVER_AXES]
    if len(axes) == 1:
        found += [c.format(axis=axes[0]) for c in OVER_ONE]
    return found


def program(
    call: str, shape: tuple[int, ...], axes: tuple[int, ...], symbols: tuple[int, ...], same: bool
) -> Module:
    """A module that makes `call` on `x`, whose dimensions `symbols` are symbols, one symbol for all
    if `same`, and `w`, of the dimensions `axes`."""
    dims = [f'"{"a" if same else NAMES[d]}"' if d in symbols else str(n)
            for d, n in enumerate(shape)]  # fmt: skip
    sizes = ", ".join(dims[d] for d in axes)
    return rl.parse(f"""
@R.function
def main(x: R.Tensor(({", ".join(dims)},), "float32"), w: R.Tensor(({sizes},), "float32")):
    with R.dataflow():
        y = {call}
        R.output(y)
    return y
""")


def arrays(
    rng: np.random.Generator, call: str, shape: tuple[int, ...], axes: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Arguments; factors are near 1, so that products stay in range."""
    x = rng.standard_normal(shape)
    x = 1 + x / 64 if "prod" in call else x
    return x.astype(np.float32), rng.random([shape[d] for d in axes]).astype(np.float32)
