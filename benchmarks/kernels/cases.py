"""The cases: computations, their arrays, and their amount of work.

Peers live in environments of their own, so this module needs NumPy alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from benchmarks.kernels import matrices, sequences
from benchmarks.kernels.kind import (
    Array,
    Kind,
    Sizes,
    gelu,
    layer_norm,
    rms_norm,
    softmax,
)

HEADS, HEAD_DIM = 9, 64
BLOCK = 1 << 20
"""Random numbers made; longer arrays repeat them."""
SAMPLE = 200
"""Rows compared with the reference."""
QUERIES = 256
"""Rows of queries that the reference computes at a time."""


@dataclass(frozen=True, slots=True)
class Case:
    """One kernel at one size.

    kind: a key of `KINDS`. sizes: the values of its symbols. constant: whether the last argument is
    a weight, which may be repacked before the measurement. planned: whether the result goes into
    memory that exists before. limit: what bounds it, "fma", "copy" or "read".
    """

    kind: str
    sizes: Sizes
    constant: bool = False
    planned: bool = False
    limit: Literal["fma", "copy", "read"] = "fma"

    @property
    def name(self) -> str:
        """As it is called in results: unique in a run."""
        sizes = " ".join(f"{k}={v}" for k, v in self.sizes.items())
        return f"{self.kind}{', constant' if self.constant else ''} {sizes}".rstrip()

    @property
    def work(self) -> float:
        """Floating-point operations, or, for what memory bounds, bytes read and written."""
        kind = KINDS[self.kind]
        return kind.flops(self.sizes) if self.limit == "fma" else kind.bytes(self.sizes)

    def request(self) -> dict[str, Any]:
        """As a JSON object, `Case(**request)` being the way back."""
        return asdict(self)


def inputs(case: Case) -> list[Array]:
    """The float32 arguments, the same in every process."""
    found: list[Array] = []
    for number, shape in enumerate(KINDS[case.kind].shapes(case.sizes)):
        size = math.prod(shape)
        block = np.random.default_rng(number).standard_normal(min(size, BLOCK), np.float32)
        found.append(np.resize(block, shape) if size > BLOCK else block.reshape(shape))
        if number and len(shape) == 2:
            found[-1] = found[-1] * np.float32(KINDS[case.kind].matrices)
    return found


def error_of(case: Case, got: Array) -> float:
    """The largest difference from the reference, relative to its largest value. Of many independent
    rows some are compared."""
    arrays, kind = inputs(case), KINDS[case.kind]
    if kind.sample is not None:
        return _difference(case, kind.sample(got), kind.reference(*arrays))
    rows = case.sizes.get("n", 0) if case.limit != "fma" else 0
    if rows > SAMPLE:
        chosen = np.linspace(0, rows - 1, SAMPLE).astype(int)
        arrays = [x[chosen] if len(x) == rows else x for x in arrays]
        got = got[chosen]
    return _difference(case, got, kind.reference(*(x.astype(np.float64) for x in arrays)))


def _difference(case: Case, got: Array, want: Array) -> float:
    if got.shape != want.shape:
        raise ValueError(f"{case.name}: shape {got.shape} instead of {want.shape}")
    return float(np.abs(got - want).max() / np.abs(want).max())


# --- What is computed, in NumPy -----------------------------------------------------------------


def attention(q: Array, k: Array, v: Array) -> Array:
    """Causal; q (1, s, heads, d), k and v (1, s, kv_heads, d), heads in equal groups.

    Some rows at a time, so that long cases fit into memory."""
    group = q.shape[2] // k.shape[2]
    q, k, v = (x[0].swapaxes(0, 1) for x in (q, k, v))
    k, v = (np.repeat(x, group, axis=0) for x in (k, v))

    def rows(first: int) -> Array:
        some = q[:, first : first + QUERIES]
        end = first + some.shape[1]
        scores = some @ k[:, :end].swapaxes(1, 2) / math.sqrt(q.shape[-1])
        scores[..., np.triu(np.ones(scores.shape[-2:], bool), first + 1)] = -np.inf
        return softmax(scores) @ v[:, :end]

    result = np.concatenate([rows(i) for i in range(0, q.shape[1], QUERIES)], axis=1)
    return result.swapaxes(0, 1)[None]


def _rows(s: Sizes) -> tuple[int, ...]:
    return s["n"], s["d"]


def _attention_shapes(s: Sizes) -> list[tuple[int, ...]]:
    shape = (1, s["s"])
    return [(*shape, HEADS, HEAD_DIM), *[(*shape, s.get("kv", HEADS), HEAD_DIM)] * 2]


KINDS: Mapping[str, Kind] = {
    **sequences.KINDS,
    **matrices.KINDS,
    "gemm": Kind(
        lambda s: [(s["m"], s["k"]), (s["k"], s["n"])],
        lambda a, b: a @ b,
        flops=lambda s: 2.0 * s["m"] * s["n"] * s["k"],
    ),
    "matmul+bias+gelu": Kind(
        lambda s: [(s["m"], s["k"]), (s["n"],), (s["k"], s["n"])],
        lambda a, bias, b: gelu(a @ b + bias),
        flops=lambda s: 2.0 * s["m"] * s["n"] * s["k"],
    ),
    "attention": Kind(
        _attention_shapes,
        attention,
        # Two products over the positions that are not masked.
        flops=lambda s: 2.0 * HEADS * HEAD_DIM * s["s"] * (s["s"] + 1),
    ),
    "softmax": Kind(lambda s: [_rows(s)], softmax, result=_rows),
    "layer norm": Kind(lambda s: [_rows(s), (s["d"],), (s["d"],)], layer_norm, result=_rows),
    "rms norm": Kind(lambda s: [_rows(s), (s["d"],)], rms_norm, result=_rows),
    # A low-rank update, as of an adapted linear layer, and the norm of what it is added to.
    "rms norm(a@b + x)": Kind(
        lambda s: [_rows(s), (s["n"], s["r"]), (s["r"], s["d"]), (s["d"],)],
        lambda x, a, b, weight: rms_norm(a @ b + x, weight),
        result=_rows,
    ),
    "gelu(x)*x + 1": Kind(lambda s: [_rows(s)], lambda x: gelu(x) * x + 1, result=_rows),
    "row sum": Kind(lambda s: [_rows(s)], lambda x: x.sum(-1), result=lambda s: (s["n"],)),
    "row max": Kind(lambda s: [_rows(s)], lambda x: x.max(-1), result=lambda s: (s["n"],)),
}
