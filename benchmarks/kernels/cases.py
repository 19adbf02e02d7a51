"""The cases: computations, their arrays, and their amount of work.

Peers live in environments of their own, so this module needs NumPy alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from benchmarks.kernels.lengths import BATCHES, QUANTILES, lengths_of

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Sizes: TypeAlias = Mapping[str, int]

HEADS, HEAD_DIM = 9, 64
WIDTH, ENCODER_HEADS, INNER = 512, 8, 2048
"""The encoder layer's features of a row, heads (of 64) and features of its inner layer."""
EPS = 1e-5
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
        return f"{self.kind}{', constant' if self.constant else ''} {sizes}"

    @property
    def work(self) -> float:
        """Floating-point operations, or, for what memory bounds, bytes read and written."""
        kind = KINDS[self.kind]
        return kind.flops(self.sizes) if self.limit == "fma" else kind.bytes(self.sizes)

    def request(self) -> dict[str, Any]:
        """As a JSON object, `Case(**request)` being the way back."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of computation.

    shapes: of the arguments. reference: the result in float64. flops, bytes: the work that cannot
    be avoided: additions and multiplications of products, each argument read once and the result
    written once. matrices: the standard deviation of two-dimensional arguments after the first.
    """

    shapes: Callable[[Sizes], list[tuple[int, ...]]]
    reference: Callable[..., Array]
    flops: Callable[[Sizes], float] = lambda s: math.nan
    result: Callable[[Sizes], tuple[int, ...]] = lambda s: ()
    matrices: float = 1.0

    def bytes(self, sizes: Sizes) -> float:
        shapes = [*self.shapes(sizes), self.result(sizes)]
        return 4.0 * sum(math.prod(shape) for shape in shapes)


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
    arrays = inputs(case)
    rows = case.sizes.get("n", 0) if case.limit != "fma" else 0
    if rows > SAMPLE:
        chosen = np.linspace(0, rows - 1, SAMPLE).astype(int)
        arrays = [x[chosen] if len(x) == rows else x for x in arrays]
        got = got[chosen]
    want = KINDS[case.kind].reference(*(x.astype(np.float64) for x in arrays))
    if got.shape != want.shape:
        raise ValueError(f"{case.name}: shape {got.shape} instead of {want.shape}")
    return float(np.abs(got - want).max() / np.abs(want).max())


# --- What is computed, in NumPy -----------------------------------------------------------------


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


def attention_of_sequences(lengths: Array, q: Array, k: Array, v: Array) -> Array:
    """Attention of each sequence on its own; rows (n, heads, features) of all behind each other."""
    result, start = np.empty_like(q), 0
    for n in lengths:
        a, b, c = (x[start : start + n].swapaxes(0, 1) for x in (q, k, v))
        weights = softmax(a @ b.swapaxes(1, 2) / math.sqrt(HEAD_DIM))
        result[start : start + n] = (weights @ c).swapaxes(0, 1)
        start += n
    return result


def encoder(lengths: Array, x: Array, *weights: Array) -> Array:
    """An encoder layer on the rows of all sequences, with norms behind its residuals."""
    wi, bi, wo, bo, g1, c1, w1, b1, w2, b2, g2, c2 = weights
    q, k, v = (t.reshape(len(x), -1, HEAD_DIM) for t in np.split(x @ wi.T + bi, 3, axis=1))
    mixed = attention_of_sequences(lengths, q, k, v).reshape(x.shape)
    h = layer_norm(x + mixed @ wo.T + bo, g1, c1)
    return layer_norm(h + np.maximum(h @ w1.T + b1, 0) @ w2.T + b2, g2, c2)


def _encoder_shapes(s: Sizes) -> list[tuple[int, ...]]:
    """x, then weights (outputs, inputs) and vectors in the order of their use."""
    products = ((3 * WIDTH, WIDTH), (WIDTH, WIDTH), (INNER, WIDTH), (WIDTH, INNER))
    qkv, out, first, second = ([shape, shape[:1]] for shape in products)
    norm = [(WIDTH,)] * 2
    return [(s["n"], WIDTH), *qkv, *out, *norm, *first, *second, *norm]


def _ragged_kinds(data: str, batch: int) -> dict[str, Kind]:
    lengths = lengths_of(data, batch)
    flops = 4.0 * WIDTH * float((lengths.astype(float) ** 2).sum())
    on_rows = 2.0 * WIDTH * (4 * WIDTH + 2 * INNER)
    return {
        f"attention, {data} x {batch}": Kind(
            lambda s: [(s["n"], ENCODER_HEADS, HEAD_DIM)] * 3,
            lambda q, k, v: attention_of_sequences(lengths, q, k, v),
            flops=lambda s: flops,
        ),
        f"encoder, {data} x {batch}": Kind(
            _encoder_shapes,
            lambda x, *weights: encoder(lengths, x, *weights),
            flops=lambda s: flops + s["n"] * on_rows,
            matrices=1 / math.sqrt(WIDTH),
        ),
    }


def _rows(s: Sizes) -> tuple[int, ...]:
    return s["n"], s["d"]


def _attention_shapes(s: Sizes) -> list[tuple[int, ...]]:
    shape = (1, s["s"])
    return [(*shape, HEADS, HEAD_DIM), *[(*shape, s.get("kv", HEADS), HEAD_DIM)] * 2]


KINDS: Mapping[str, Kind] = {
    **{k: kind for d in QUANTILES for b in BATCHES for k, kind in _ragged_kinds(d, b).items()},
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
