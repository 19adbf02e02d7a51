"""Causal attention of nine heads at symbolic lengths, one compilation, against PyTorch and JAX.

    .venv/bin/python -m benchmarks.bench_attention --quick

See README.md in this folder for what is measured.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.kernels import program, race
from benchmarks.kernels.cases import Case
from benchmarks.kernels.table import Aim, aim_of_ratio

ROWS = (race.RELAXLAB, race.PYTORCH, race.JAX)
LENGTHS = (1, 16, 64, 257, 512, 1024, 2048)
LONG = (4096, 8192, 16384)
"""Lengths without JAX, which keeps all scores: 10 GB of them at the longest."""
KV_HEADS = (9, 3)


def measure(
    rows: Sequence[race.Row], settings: race.Settings, quick: bool
) -> dict[str, Any]:
    """Every head with keys and values of its own, then three heads sharing them; long ones with
    keys and values of their own."""
    lengths = (1, 64, 257, 1024) if quick else LENGTHS
    cases = [Case("attention", {"s": s, "kv": kv}) for kv in KV_HEADS for s in lengths]
    result = race.run(rows, [cases], settings)
    if quick:
        return result
    others = [row for row in rows if row is not race.JAX]
    cases = [Case("attention", {"s": s, "kv": KV_HEADS[0]}) for s in LONG]
    long = race.run(others, [cases], settings)
    return result | {k: result[k] + long[k] for k in ("cases", "busy_cores")}


def aims(result: Mapping[str, Any]) -> Iterable[Aim]:
    for kv in KV_HEADS:

        def wanted(case: Mapping[str, Any], kv: int = kv) -> bool:
            return case["sizes"]["kv"] == kv

        yield from aim_of_ratio(result, f"heads 9/{kv}, every length", 1.3, wanted)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 1 if a peer failed."""
    title = "causal attention, 9 heads of 64, symbolic lengths"
    return program.main("attention", title, ROWS, measure, aims, arguments)


if __name__ == "__main__":
    sys.exit(main())
