"""Limits of the machine: bandwidth of reading and of copying, multiply-adds.

By C (`limits.c`). The bandwidth of reading is measured by a loop function that relaxlab compiles,
too, which shows that it is no worse than it need be.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.process import output_of
from relaxlab.runtime.large_pages import in_large_pages
from relaxlab.runtime.limits import LINE, reader

REPEATS = 15
ROW = 1 << 16
"""Bytes of a row, which a thread reads as a whole."""


class CLimits:
    """`limits.c`, compiled for this machine into `folder`, run on `threads` threads. `about` says
    whether there is a C compiler; without one nothing is measured."""

    def __init__(self, threads: int, folder: Path) -> None:
        self._program = compile_c(folder)
        self._threads = threads
        self.about = {"c_compiler": self._program is not None}

    def measure(
        self, what: Sequence[str], size: int = 4, repeats: int = REPEATS
    ) -> dict[str, float]:
        """The best of some repetitions by name, see `limits.c`: bytes/s over `size` bytes, or
        multiply-adds/s."""
        if self._program is None:
            return {}
        command = [self._program, str(size), str(self._threads), str(repeats), *what]
        lines = map(str.split, output_of(command).splitlines())
        return {name: max(map(float, values)) for name, *values in lines}


class Limits:
    """Measures arrays of about `size` bytes, read by `threads` threads, and int8 products."""

    def __init__(self, size: int, threads: int) -> None:
        self._read = reader(threads, prefetch=True)
        rows = max(1, size // ROW)
        counting = np.arange(rows * ROW // 4, dtype=np.int32).reshape(rows, -1, *LINE)
        (self._data,) = in_large_pages([counting])
        if not np.array_equal(self._read(self._data, (1,)), counting.sum(1, dtype=np.int32)):
            raise RuntimeError("the bandwidth loop computes wrong sums")
        self._folder = tempfile.TemporaryDirectory(prefix="relaxlab-limits-")
        self._c, self._size = CLimits(threads, Path(self._folder.name)), size
        self.about = self._c.about

    def measure(self) -> dict[str, float]:
        """The best of a few repetitions: bytes/s by name, and `int8_dot` in multiply-adds/s."""
        times: list[float] = []
        for _ in range(REPEATS):
            start = time.perf_counter()
            self._read(self._data, (1,))
            times.append(time.perf_counter() - start)
        found = {"relaxlab_large_pages_prefetch": self._data.nbytes / min(times)}
        return found | self._c.measure(("read", "dot"), self._size)


def compile_c(folder: Path) -> str | None:
    """Compile `limits.c` into `folder`: the program's path, None without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    program = str(folder / "limits")
    source = str(Path(__file__).with_name("limits.c"))
    flags = "-O3 -march=native -mprefer-vector-width=512 -pthread".split()
    output_of([compiler, *flags, source, "-o", program])
    return program


def best_bandwidth(measured: Mapping[str, float]) -> float:
    """Return the highest of the bandwidths: what a program could reach."""
    return max(value for name, value in measured.items() if name != "int8_dot")
