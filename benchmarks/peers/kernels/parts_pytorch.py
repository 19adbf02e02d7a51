"""PyTorch on the parts of an encoder layer over sequences of different lengths, and on matrices of
different sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.kernels import matrices
from benchmarks.kernels.cases import Array, Case
from benchmarks.kernels.kind import EPS
from benchmarks.kernels.sequences import HEADS, WIDTH, parsed
from benchmarks.peers.kernels.base import Fetch, Kernels


class _PyTorch(Kernels):
    def __init__(self, threads: int) -> None:
        super().__init__()
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        self.about = {"version": torch.__version__, "cpu": torch.backends.cpu.get_cpu_capability()}


def _layer_part(what: str, x: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """A part that works on rows, on any number of dimensions of them."""
    match what:
        case "projections":
            return functional.linear(x, *weights)
        case "layer norm":
            return functional.layer_norm(x, (WIDTH,), *weights, EPS)
        case _:
            return functional.linear(functional.relu(functional.linear(x, *weights[:2])),
                                     *weights[2:])  # fmt: skip


class PyTorchParts(_PyTorch):
    """way: "packed", rows behind each other, and one sequence after the other where scores are
    made or read; "padded", all sequences as long as the longest, without the cost of a mask."""

    def __init__(self, threads: int, *, way: str) -> None:
        super().__init__(threads)
        self._padded = way == "padded"

    def make(self, case: Case, arrays: Sequence[Array]) -> tuple[Callable[[], Any], Fetch]:
        what, lengths = parsed(case.kind)
        given = [torch.from_numpy(x) for x in arrays]
        sequences = _Sequences([int(n) for n in lengths])
        if what in ("scores", "softmax", "mix"):
            run, flat = _on_scores(what, given, sequences, self._padded)
        else:
            x, weights = given[0], given[1:]
            held = sequences.padded(x) if self._padded else x
            run = lambda: _layer_part(what, held, weights)  # noqa: E731
            flat = sequences.unpadded if self._padded else lambda y: y
        last: list[Any] = []

        def keep() -> None:
            last[:] = [run()]

        return keep, lambda: flat(last[0]).contiguous().numpy()


class _Sequences:
    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths

    def parts(self, x: Tensor) -> list[Tensor]:
        """The rows of each sequence."""
        return list(x.split(self.lengths))

    def padded(self, x: Tensor) -> Tensor:
        """(sequences, longest, ...)"""
        return torch.nn.utils.rnn.pad_sequence(self.parts(x), True)

    def unpadded(self, x: Tensor) -> Tensor:
        return torch.cat([part[:n] for part, n in zip(x, self.lengths, strict=True)])

    def scores(self, x: Tensor) -> list[Tensor]:
        """The (heads, length, length) scores of each sequence."""
        parts = x.split([HEADS * n * n for n in self.lengths])
        return [p.view(HEADS, n, n) for p, n in zip(parts, self.lengths, strict=True)]

    def padded_scores(self, x: Tensor, value: float) -> Tensor:
        """(sequences, heads, longest, longest), padded with a value."""
        most = max(self.lengths)
        padded = torch.full((len(self.lengths), HEADS, most, most), value)
        for to, part in zip(padded, self.scores(x), strict=True):
            to[:, : part.shape[1], : part.shape[2]] = part
        return padded

    def unpadded_scores(self, x: Tensor) -> Tensor:
        return torch.cat([p[:, :n, :n].flatten() for p, n in zip(x, self.lengths, strict=True)])


def _on_scores(
    what: str, given: list[Tensor], sequences: _Sequences, padded: bool
) -> tuple[Callable[[], Any], Callable[[Any], Tensor]]:
    """A part that makes or reads scores, and its result as one array."""

    def heads(x: Tensor) -> Tensor:
        return x.transpose(-3, -2)

    if what == "scores":
        if padded:
            q, k = (heads(sequences.padded(x)) for x in given)
            return lambda: q @ k.mT, sequences.unpadded_scores
        pairs = list(zip(*(map(heads, sequences.parts(x)) for x in given), strict=True))
        return lambda: [q @ k.mT for q, k in pairs], _flat
    if what == "softmax":
        if padded:
            x = sequences.padded_scores(given[0], float("-inf"))
            return lambda: x.softmax(-1), sequences.unpadded_scores
        parts = sequences.scores(given[0])
        return lambda: [part.softmax(-1) for part in parts], _flat
    if padded:
        w, v = sequences.padded_scores(given[0], 0.0), heads(sequences.padded(given[1]))
        return lambda: heads(w @ v), sequences.unpadded
    both = zip(sequences.scores(given[0]), map(heads, sequences.parts(given[1])), strict=True)
    pairs = list(both)
    return lambda: [heads(w @ v) for w, v in pairs], torch.cat


def _flat(parts: list[Tensor]) -> Tensor:
    return torch.cat([part.flatten() for part in parts])


class PyTorchMatrices(_PyTorch):
    """One product after the other; triangles as dense matrices with zeros."""

    def make(self, case: Case, arrays: Sequence[Array]) -> tuple[Callable[[], Any], Fetch]:
        if case.kind.startswith("products"):
            m, n, k = matrices.sizes_of(int(case.kind.rpartition(" ")[2]))
            a, b = (matrices.split(x, r, c) for x, r, c in zip(arrays, (m, k), (k, n), strict=True))
            pairs = [(torch.from_numpy(x), torch.from_numpy(y)) for x, y in zip(a, b, strict=True)]
            outs = [torch.empty(int(r), int(c)) for r, c in zip(m, n, strict=True)]

            def run() -> None:
                for (x, y), out in zip(pairs, outs, strict=True):
                    torch.mm(x, y, out=out)

            return run, lambda: _flat(outs).numpy()
        product = case.kind == "triangular product"
        x, y = (torch.from_numpy(z if product and at else np.tril(z))
                for at, z in enumerate(arrays))  # fmt: skip
        out = torch.empty(x.shape)
        call = torch.mm if product else torch.add
        return lambda: call(x, y, out=out), out.numpy
