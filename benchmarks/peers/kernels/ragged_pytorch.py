"""PyTorch on sequences of different lengths, in each of the ways that its users have."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.kernels.cases import Array, Case
from benchmarks.kernels.kind import EPS
from benchmarks.kernels.sequences import HEAD_DIM, HEADS, WIDTH, parsed
from benchmarks.peers.kernels.base import Fetch, Kernels

MICRO_BATCHES = (1, 2, 4, 8, 16)
"""Sequences of similar lengths that are padded together."""


class PyTorchRagged(Kernels):
    """way: "packed", rows behind each other and attention one sequence after the other; "padded",
    to the longest, with a mask; "nested", jagged tensors; "micro-batched", sorted by length, each
    few padded to their longest, at the best number of them."""

    def __init__(self, threads: int, *, way: str) -> None:
        super().__init__()
        torch.set_num_threads(threads)
        self._way = way
        self.about = {"version": torch.__version__, "cpu": torch.backends.cpu.get_cpu_capability()}

    @torch.no_grad()  # jagged tensors know no inference mode
    def prepare(self, case: Mapping[str, Any], file: str | None = None) -> dict[str, Any]:
        return super().prepare(case, file)

    @torch.no_grad()  # jagged tensors know no inference mode
    def time(self, names: Sequence[str], seconds: float) -> dict[str, float]:
        return super().time(names, seconds)

    def make(self, case: Case, arrays: Sequence[Array]) -> tuple[Callable[[], Any], Fetch]:
        kind, drawn = parsed(case.kind)
        lengths = [int(n) for n in drawn]
        held = [torch.from_numpy(a) for a in arrays]
        rows, weights = (held[:1], held[1:]) if kind == "encoder" else (held, [])
        match self._way:
            case "packed":
                return _kept(lambda: _packed(kind, rows, weights, lengths))
            case "nested":
                jagged = [_jagged(x, lengths) for x in rows]
                return _kept(lambda: _whole(kind, jagged, weights, None).values())
            case "padded":
                order = list(range(len(lengths)))
                return _kept(*_padded(kind, rows, weights, lengths, order, len(lengths)))
            case _:
                order = sorted(range(len(lengths)), key=lengths.__getitem__)
                ways = [_padded(kind, rows, weights, lengths, order, n) for n in MICRO_BATCHES]
                return _kept(*min(ways, key=lambda way: _seconds(way[0])))


def _kept(
    run: Callable[[], Any], result: Callable[[Any], Tensor] = lambda y: y
) -> tuple[Callable[[], Any], Fetch]:
    last: list[Any] = []

    def keep() -> None:
        last[:] = [run()]

    return keep, lambda: result(last[0]).contiguous().numpy()


def _seconds(run: Callable[[], Any]) -> float:
    times: list[float] = []
    for _ in range(2):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def _layer(x: Tensor, mixed: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """The rest of the layer: projection, residual sums, norms, feed-forward."""
    _, _, wo, bo, g1, c1, w1, b1, w2, b2, g2, c2 = weights
    h = functional.layer_norm(x + functional.linear(mixed, wo, bo), (WIDTH,), g1, c1, EPS)
    inner = functional.relu(functional.linear(h, w1, b1))
    return functional.layer_norm(h + functional.linear(inner, w2, b2), (WIDTH,), g2, c2, EPS)


def _packed(
    kind: str, rows: Sequence[Tensor], weights: Sequence[Tensor], lengths: list[int]
) -> Tensor:
    if kind == "encoder":
        x = rows[0]
        qkv = functional.linear(x, *weights[:2]).view(len(x), 3, HEADS, HEAD_DIM)
        rows = qkv.unbind(1)
    mixed = torch.empty(rows[0].shape)
    parts = zip(*(t.split(lengths) for t in (*rows, mixed)), strict=True)
    for q, k, v, out in parts:
        q, k, v = (t.transpose(0, 1)[None] for t in (q, k, v))
        out.copy_(functional.scaled_dot_product_attention(q, k, v)[0].transpose(0, 1))
    return _layer(x, mixed.view(len(x), WIDTH), weights) if kind == "encoder" else mixed


def _whole(
    kind: str, rows: Sequence[Tensor], weights: Sequence[Tensor], mask: Tensor | None
) -> Tensor:
    """On (batch, length, …), padded or nested."""
    if kind == "encoder":
        x = rows[0]
        qkv = functional.linear(x, *weights[:2])
        parts = qkv.chunk(3, -1)
        if mask is None:  # attention of jagged tensors has no kernel for parts of one
            parts = [t.contiguous() for t in parts]
        rows = [t.unflatten(-1, (HEADS, HEAD_DIM)) for t in parts]
    q, k, v = (t.transpose(1, 2) for t in rows)
    mixed = functional.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2)
    return _layer(x, mixed.flatten(2), weights) if kind == "encoder" else mixed


def _jagged(x: Tensor, lengths: list[int]) -> Tensor:
    ends = torch.tensor([0, *lengths]).cumsum(0)
    return torch.nested.nested_tensor_from_jagged(x, ends)


def _padded(
    kind: str, rows: Sequence[Tensor], weights: Sequence[Tensor], lengths: list[int],
    order: list[int], count: int,
) -> tuple[Callable[[], list[Tensor]], Callable[[list[Tensor]], Tensor]]:  # fmt: skip
    """`count` sequences at a time, in the given order; padding is not part of the time."""
    groups = [order[i : i + count] for i in range(0, len(order), count)]
    parts = [x.split(lengths) for x in rows]
    prepared: list[tuple[list[Tensor], Tensor]] = []
    for group in groups:
        padded = [torch.nn.utils.rnn.pad_sequence([p[i] for i in group], True) for p in parts]
        sizes = torch.tensor([lengths[i] for i in group])
        mask = torch.arange(int(sizes.max())) < sizes[:, None]
        prepared.append((padded, mask[:, None, None]))

    def run() -> list[Tensor]:
        return [_whole(kind, padded, weights, mask) for padded, mask in prepared]

    def result(found: list[Tensor]) -> Tensor:
        places = {i: y[at] for group, y in zip(groups, found, strict=True)
                  for at, i in enumerate(group)}  # fmt: skip
        return torch.cat([places[i][:n] for i, n in enumerate(lengths)])

    return run, result
