"""The interface of a peer that runs kernels: prepare a case, run it for a while, drop it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.kernels.cases import Array, Case, inputs

LEAST = 3
"""Repetitions of a case in a turn, however long one takes."""


class Kernels:
    """Kernels of a peer. `about`: its description in the results. Subclasses override `make`."""

    about: dict[str, Any]

    def __init__(self) -> None:
        self._runs: dict[str, Callable[[], Any]] = {}

    def make(self, case: Case, arrays: Sequence[Array]) -> tuple[Callable[[], Any], Fetch]:
        """A function that computes the case once and waits for the result, and one that gives the
        result of its last call as an array. Repacks a constant argument."""
        raise NotImplementedError

    def prepare(self, case: Mapping[str, Any], file: str | None = None) -> dict[str, Any]:
        """Compile a case and run it for the first time; the result goes to `file`."""
        wanted = Case(**case)
        arrays = inputs(wanted)
        start = time.perf_counter()
        run, fetch = self.make(wanted, arrays)
        run()
        seconds = time.perf_counter() - start
        if file is not None:
            np.save(file, fetch())
        self._runs[wanted.name] = run
        return {"compile_s": seconds}

    def time(self, names: Sequence[str], seconds: float) -> dict[str, float]:
        """Seconds that each of the prepared cases takes: the median of the repetitions that fit
        into `seconds`."""
        return {name: median_s(self._runs[name], seconds) for name in names}

    def forget(self) -> dict[str, Any]:
        """Drop the cases and their arrays."""
        self._runs.clear()
        return {}


Fetch = Callable[[], Array]


def median_s(run: Callable[[], Any], seconds: float) -> float:
    """The median of the times that fit into `seconds`."""
    run()  # awake again, and its arrays in the caches
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < LEAST or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)
