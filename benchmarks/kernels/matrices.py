"""Matrices of different sizes, and triangular ones: the products and sums that CoRa (MLSys 2022,
section 7) times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from benchmarks.kernels.kind import Array, Kind, Sizes

BATCHES = (8, 32)
"""Products of a batch, each of its own size."""
STEP, LEAST, MOST = 128, 512, 1408
"""Sizes are multiples, from the least to the most."""
TRIANGLES = (512, 1024, 2048)


def sizes_of(batch: int) -> Array:
    """The rows, columns and terms of each product of a batch, int64 (3, batch), the same in every
    process."""
    drawn = np.random.default_rng(batch).integers(LEAST // STEP, MOST // STEP + 1, (3, batch))
    return drawn * STEP


def starts(*factors: Array) -> Array:
    """The place of each matrix among all that lie behind each other, and their end."""
    return np.concatenate([[0], np.cumsum(np.prod(factors, axis=0))])


def split(x: Array, rows: Array, columns: Array) -> list[Array]:
    """The matrices that lie behind each other in an array."""
    at = starts(rows, columns)
    pairs = zip(rows, columns, strict=True)
    return [x[at[i] : at[i + 1]].reshape(r, c) for i, (r, c) in enumerate(pairs)]


def _products(batch: int) -> Kind:
    m, n, k = sizes_of(batch)
    ends = [0, batch - 1]

    def reference(a: Array, b: Array) -> Array:
        pairs = list(zip(split(a, m, k), split(b, k, n), strict=True))
        wide = [(x.astype(np.float64), y.astype(np.float64)) for x, y in (pairs[i] for i in ends)]
        return np.concatenate([(x @ y).ravel() for x, y in wide])

    def sample(c: Array) -> Array:
        found = split(c, m, n)
        return np.concatenate([found[i].ravel() for i in ends])

    return Kind(
        lambda s: [(int((m * k).sum()),), (int((k * n).sum()),)], reference,
        flops=lambda s: 2.0 * float((m * n * k).sum()), sample=sample,
    )  # fmt: skip


def _square(s: Sizes) -> list[tuple[int, ...]]:
    return [(s["d"], s["d"])] * 2


def _half(s: Sizes) -> float:
    """The elements of a triangle."""
    return s["d"] * (s["d"] + 1) / 2


def _kinds() -> Iterator[tuple[str, Kind]]:
    for batch in BATCHES:
        yield f"products of different sizes x {batch}", _products(batch)
    # A dense product of the triangle and zeros is the same, so that both are compared with it.
    yield "triangular product", Kind(
        _square, lambda a, b: np.tril(a) @ b, flops=lambda s: 2.0 * _half(s) * s["d"]
    )
    yield "triangular sum", Kind(
        _square, lambda a, b: np.tril(a + b), moved=lambda s: 12.0 * _half(s)
    )


KINDS: Mapping[str, Kind] = dict(_kinds())
