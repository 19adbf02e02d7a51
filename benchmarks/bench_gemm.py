"""Products of float32 matrices with a symbolic number of rows, one compilation, against NumPy,
PyTorch and JAX.

    .venv/bin/python -m benchmarks.bench_gemm --quick

See README.md in this folder for what is measured.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.kernels import program, race
from benchmarks.kernels.cases import Case
from benchmarks.kernels.table import Aim, aim_of_ratio, aim_of_share

ROWS = (race.RELAXLAB, race.NUMPY, race.PYTORCH, race.JAX)
LENGTHS = (1, 4, 16, 64, 257, 1024)
WIDTH = 1024


def measure(
    rows: Sequence[race.Row], settings: race.Settings, quick: bool
) -> dict[str, Any]:
    """The second matrix as a weight, which may be repacked before, and as an argument."""
    cases = [
        Case("gemm", {"m": m, "n": WIDTH, "k": WIDTH}, constant=constant)
        for constant in (True, False)
        for m in LENGTHS
    ]
    return race.run(rows, [cases], settings)


def aims(result: Mapping[str, Any]) -> Iterable[Aim]:
    def at(m: int, constant: bool) -> Any:
        return lambda case: case["sizes"]["m"] == m and case["constant"] == constant

    peak = "of the multiply-add peak"
    yield from aim_of_share(result, f"1024^3 by a weight: {peak}", 0.85, at(1024, True))
    yield from aim_of_share(result, f"1024^3 by an argument: {peak}", 0.85, at(1024, False))
    yield from aim_of_ratio(result, "every length, of the best peer", 1.0, lambda case: True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 1 if a peer failed."""
    title = "float32 matrix products, symbolic number of rows"
    return program.main("gemm", title, ROWS, measure, aims, arguments)


if __name__ == "__main__":
    sys.exit(main())
