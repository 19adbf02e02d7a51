"""Chains of operations that memory bounds, one compilation for all sizes, results in planned
memory, against torch.compile(dynamic=True) and JAX.

    .venv/bin/python -m benchmarks.bench_chains --quick

See README.md in this folder for what is measured.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.kernels import program, race
from benchmarks.kernels.cases import Case
from benchmarks.kernels.table import Aim, aim_of_ratio, aim_of_share

ROWS = (race.RELAXLAB, race.COMPILED, race.JAX)
CHAINS = ("softmax", "layer norm", "rms norm", "rms norm(a@b + x)", "gelu(x)*x + 1")
REDUCTIONS = ("row sum", "row max")
WIDTH, RANK = 1024, 8
IN_CACHE = 4096
"""Rows of 4 KB that fit into the last-level cache together with the result."""
BEYOND = 131072
"""Rows that take 512 MB, the result as much: more than any last-level cache."""


def case_of(kind: str, rows: int) -> Case:
    sizes = {"n": rows, "d": WIDTH} | ({"r": RANK} if "a@b" in kind else {})
    limit = "read" if kind in REDUCTIONS else "copy"
    return Case(kind, sizes, planned=True, limit=limit)


def measure(
    rows: Sequence[race.Row], settings: race.Settings, quick: bool
) -> dict[str, Any]:
    """The sizes within the cache together, those beyond it one by one: each holds a GB or more."""
    kinds = (*CHAINS, *REDUCTIONS)
    groups = [[case_of(kind, IN_CACHE) for kind in kinds]]
    if not quick:
        groups += [[case_of(kind, BEYOND)] for kind in kinds]
    return race.run(rows, groups, settings)


def aims(result: Mapping[str, Any]) -> Iterable[Aim]:
    for rows, where in ((IN_CACHE, "within the cache"), (BEYOND, "beyond it")):

        def wanted(case: Mapping[str, Any], rows: int = rows) -> bool:
            return case["sizes"]["n"] == rows

        yield from aim_of_share(result, f"{where}, of the measured bandwidth", 0.85, wanted)
        yield from aim_of_ratio(result, f"{where}, of the best peer", 1.5, wanted)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 1 if a peer failed."""
    title = "fused chains that memory bounds, symbolic sizes"
    return program.main("chains", title, ROWS, measure, aims, arguments)


if __name__ == "__main__":
    sys.exit(main())
