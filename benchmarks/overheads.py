"""Costs apart from kernels: importing relaxlab, and calling an empty function."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.process import output_of

IMPORTS = {"import_s": "relaxlab", "import_generate_s": "relaxlab.models.generate"}
IMPORT_REPEATS = 3
REPEATS = 15
CALLS = 2000

_EMPTY = """
@R.function
def nothing():
    with R.dataflow():
        R.output()
    return ()

@R.function
def same(x: R.Tensor(("n",), "float32")):
    return x
"""


def measure(python: Path) -> dict[str, float]:
    """Seconds of importing in fresh processes (medians), and microseconds per call (the best of a
    few thousand calls): `empty_call_us` without arguments, `array_call_us` of a function that
    returns the array it is given."""
    found = {key: _import_s(python, module) for key, module in IMPORTS.items()}
    return {**found, **json.loads(output_of([str(python), "-m", "benchmarks.overheads"]))}


def _import_s(python: Path, module: str) -> float:
    code = f"import time; s = time.perf_counter(); import {module}; print(time.perf_counter() - s)"
    return statistics.median(
        float(output_of([str(python), "-c", code])) for _ in range(IMPORT_REPEATS)
    )


def _call_us(function: Callable[..., Any], *args: Any) -> float:
    times: list[float] = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        for _ in range(CALLS):
            function(*args)
        times.append(time.perf_counter() - start)
    return min(times) / CALLS * 1e6


def main() -> None:
    import numpy as np

    import relaxlab

    executable = relaxlab.compile(relaxlab.parse(_EMPTY))
    found = {
        "empty_call_us": _call_us(executable["nothing"]),
        "array_call_us": _call_us(executable["same"], np.ones(4, np.float32)),
    }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
