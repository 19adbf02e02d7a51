"""Sequences of different lengths: an encoder layer, and its attention, against PyTorch with rows
packed, padded, nested and in micro-batches.

    .venv/bin/python -m benchmarks.bench_ragged --quick

See README.md in this folder for what is measured.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.kernels import program, race
from benchmarks.kernels.cases import Case
from benchmarks.kernels.lengths import BATCHES, QUANTILES, lengths_of
from benchmarks.kernels.table import Aim, aim_of_ratio

WAYS = ("packed", "padded", "nested", "micro-batched")
ROWS = (
    race.Row("relaxlab", "RelaxlabRagged"),
    *(race.Row(f"PyTorch, {way}", "PyTorchRagged", {"way": way}) for way in WAYS),
)
KINDS = ("encoder", "attention")
DATA = tuple(QUANTILES)


def measure(
    rows: Sequence[race.Row], settings: race.Settings, quick: bool
) -> dict[str, Any]:
    """A group for each batch size, so that not all arrays are held at once."""
    groups = [
        [
            Case(f"{kind}, {data} x {batch}", {"n": int(lengths_of(data, batch).sum())})
            for kind in KINDS for data in DATA
        ]
        for batch in (BATCHES[:1] if quick else BATCHES)
    ]  # fmt: skip
    return race.run(rows, groups, settings)


def aims(result: Mapping[str, Any]) -> Iterable[Aim]:
    for kind in KINDS:

        def wanted(case: Mapping[str, Any], kind: str = kind) -> bool:
            return case["kind"].startswith(kind)

        yield from aim_of_ratio(result, f"{kind}, of the best way of PyTorch", 2.0, wanted)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 1 if a peer failed."""
    title = "sequences of different lengths, symbolic sizes"
    return program.main("ragged", title, ROWS, measure, aims, arguments)


if __name__ == "__main__":
    sys.exit(main())
