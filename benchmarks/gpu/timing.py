"""Times of functions on a GPU, as CUDA graphs: no time of the host is in them.

A function's launches are captured, once for each of several sets of arguments that together exceed
the second-level cache several times, and the graph is replayed. Peers take turns.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import cupy
import numpy as np
import torch

ROUNDS = 12
ROUND_SECONDS = 4e-3
"""A turn replays a graph for about so long: clocks and events resolve that to a thousandth."""
COLD_BYTES = 256 << 20
"""Bytes that all sets of arguments have together at least: five times the 50 MB of an H100's
second-level cache."""


@dataclass(frozen=True, slots=True)
class Time:
    """Microseconds of a call: median and quartiles over the rounds."""

    median: float
    low: float
    high: float


class Captured:
    """Calls of a function with each of `sets` of arguments, as one graph."""

    def __init__(self, function: Callable[..., Any], sets: Sequence[Sequence[Any]]) -> None:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), cupy.cuda.ExternalStream(stream.cuda_stream):
            for _ in range(2):
                # Compiles, and fills the pools of memory: a capture must not ask for more.
                results = [function(*args) for args in sets]
            del results
        torch.cuda.synchronize()
        self._graph, self._calls, self._keep = torch.cuda.CUDAGraph(), len(sets), sets
        ours = cupy.cuda.ExternalStream(stream.cuda_stream)
        with torch.cuda.graph(self._graph, stream=stream), ours:
            self._results = [function(*args) for args in sets]
        torch.cuda.synchronize()

    def microseconds(self, replays: int) -> float:
        """Microseconds of a call, over so many replays."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(replays):
            self._graph.replay()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e3 / (replays * self._calls)


def race(functions: Mapping[str, Captured], rounds: int = ROUNDS) -> dict[str, Time]:
    """Time all in turns."""
    replays = {}
    for name, function in functions.items():
        function.microseconds(1)
        each = function.microseconds(2) * function._calls / 1e6
        replays[name] = max(1, round(ROUND_SECONDS / each))
    seen: dict[str, list[float]] = {name: [] for name in functions}
    order = list(functions)
    for turn in range(rounds):
        for name in order[turn % len(order) :] + order[: turn % len(order)]:
            seen[name].append(functions[name].microseconds(replays[name]))
    return {name: _time(values) for name, values in seen.items()}


def _time(values: Sequence[float]) -> Time:
    low, high = np.percentile(values, (25, 75))
    return Time(statistics.median(values), float(low), float(high))


def copy_bandwidth() -> float:
    """Bytes/s of a large copy in device memory, read and written ones counted."""
    source = torch.randn(1 << 28, device="cuda")
    target = torch.empty_like(source)
    # A copy in a graph is made by another engine; a kernel is faster.
    ways = {
        "copy": Captured(target.copy_, [[source]]),
        "kernel": Captured(lambda x: torch.neg(x, out=target), [[source]]),
    }
    return 2 * source.nbytes / min(time.median for time in race(ways).values()) * 1e6


def product_rate(size: int = 8192) -> float:
    """Operations/s of a large product of bfloat16 matrices by cuBLAS, on random data."""
    a, b = (torch.randn(size, size, device="cuda").bfloat16() for _ in range(2))
    seconds = race({"product": Captured(torch.matmul, [[a, b]])})["product"].median / 1e6
    return 2 * size**3 / seconds
