"""The main program of a benchmark of kernels: options, run, table, JSON, chart."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.kernels import chart, table
from benchmarks.kernels.race import Row, Settings, say

RESULTS = Path(__file__).parent.parent / "results"


def parser_of(name: str, title: str) -> argparse.ArgumentParser:
    """The options that all benchmarks have."""
    parser = argparse.ArgumentParser(prog=f"benchmarks.bench_{name}", description=title)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="fewer cases and rounds")
    output = RESULTS / f"latest-{name}.json"
    parser.add_argument("--output", type=Path, default=output, help="where the JSON goes")
    return parser


def main(
    name: str,
    title: str,
    rows: Sequence[Row],
    measure: Callable[[Sequence[Row], Settings, bool], dict[str, Any]],
    aims: Callable[[Mapping[str, Any]], Iterable[table.Aim]],
    arguments: Sequence[str] | None = None,
) -> int:
    """`measure` runs the cases of `rows`, fewer if its third argument says so. 1 if a peer
    failed."""
    settings, chosen_rows, options = chosen(parser_of(name, title), rows, arguments)
    result = measure(chosen_rows, settings, options.quick)
    print(table.render(result, aims(result)))
    write(result, options.output)
    drawn(chart.draw(result, title, options.output))
    return int(any("error" in about for about in result["peers"].values()))


def chosen(
    parser: argparse.ArgumentParser, rows: Sequence[Row], arguments: Sequence[str] | None
) -> tuple[Settings, list[Row], argparse.Namespace]:
    """The settings, the peers and all options that the arguments ask for."""
    names = [row.name for row in rows]
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=names, default=names)
    parser.add_argument("--rounds", type=int, help="turns of each peer")
    options = parser.parse_args(arguments)
    settings = Settings(options.threads)
    if options.quick:
        settings = settings.quick()
    if options.rounds is not None:
        settings = replace(settings, rounds=options.rounds)
    return settings, [row for row in rows if row.name in options.only], options


def write(result: Mapping[str, Any], output: Path) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    say(f"written: {output}")


def drawn(file: Path | None) -> None:
    """Say where the chart is."""
    none = "no chart: .venv/bin/python -m pip install -e '.[chart]'"
    say(none if file is None else f"drawn: {file}")
