"""relaxlab on sequences of different lengths: one compilation for all batches of lengths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import relaxlab
from benchmarks.kernels.cases import ENCODER_HEADS, EPS, HEAD_DIM, INNER, WIDTH, Array, Case
from benchmarks.kernels.lengths import lengths_of
from benchmarks.peers.kernels.base import Fetch, Kernels
from relaxlab.runtime.large_pages import in_large_pages

ROWS = f'R.Tensor(("n", {ENCODER_HEADS}, {HEAD_DIM}), "float32")'
ATTENTION = f"""
@I.ir_module
class Attention:
    @R.function
    def main(s: R.Tensor(("b",), "int32"), q: {ROWS}, k: {ROWS}, v: {ROWS}):
        with R.dataflow():
            y = R.nn.ragged_attention(q, k, v, s)
            R.output(y)
        return y
"""


def _vector(name: str, size: int = WIDTH) -> str:
    return f'{name}: R.Tensor(({size},), "float32")'


def _matrix(name: str, outputs: int, inputs: int) -> str:
    return f'{name}: R.Tensor(({outputs}, {inputs}), "float32")'


WEIGHTS = ", ".join((
    _matrix("wi", 3 * WIDTH, WIDTH), _vector("bi", 3 * WIDTH), _matrix("wo", WIDTH, WIDTH),
    _vector("bo"), _vector("g1"), _vector("c1"), _matrix("w1", INNER, WIDTH), _vector("b1", INNER),
    _matrix("w2", WIDTH, INNER), _vector("b2"), _vector("g2"), _vector("c2"),
))  # fmt: skip
ENCODER = f"""
@I.ir_module
class Encoder:
    @R.function
    def main(s: R.Tensor(("b",), "int32"), x: R.Tensor(("n", {WIDTH}), "float32"), {WEIGHTS}):
        R.func_attr({{"num_input": 2}})
        n = T.int64()
        with R.dataflow():
            p = R.reshape(R.linear(x, wi, bi), (n, {3 * ENCODER_HEADS}, {HEAD_DIM}))
            t = R.split(p, 3, axis=1)
            a = R.reshape(R.nn.ragged_attention(t[0], t[1], t[2], s), (n, {WIDTH}))
            h = R.nn.layer_norm(x + R.linear(a, wo, bo), g1, c1, axes=[-1], epsilon={EPS})
            f = R.nn.relu(R.linear(h, w1, b1))
            y = R.nn.layer_norm(h + R.linear(f, w2, b2), g2, c2, axes=[-1], epsilon={EPS})
            R.output(y)
        return y
"""


class RelaxlabRagged(Kernels):
    """Compiled with an empty cache; the encoder's weights are packed and bound once."""

    def __init__(self, threads: int) -> None:
        super().__init__()
        self._threads = threads
        self._programs: dict[str, relaxlab.Executable] = {}
        self.about = {"version": relaxlab.__version__}

    def make(self, case: Case, arrays: Sequence[Array]) -> tuple[Callable[[], Any], Fetch]:
        kind, _, batch = case.kind.partition(", ")
        data, _, count = batch.partition(" x ")
        lengths = lengths_of(data, int(count))
        if kind not in self._programs:
            text = relaxlab.parse(ENCODER if kind == "encoder" else ATTENTION)
            made = relaxlab.compile(text, threads=self._threads, use_cache=False)
            self._programs[kind] = made
            if kind == "encoder":
                made.load(list(arrays[1:]))
                made["main"].bind(*in_large_pages(made["main"].bound))
        main = self._programs[kind]["main"]
        held = in_large_pages(arrays[: 1 if kind == "encoder" else 3])
        last: list[Array] = []

        def run() -> None:
            last[:] = [main(lengths, *held)]

        return run, lambda: last[0]
