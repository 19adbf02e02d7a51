"""Sequences and matrices of different sizes: an encoder layer, whole and by its parts, against
PyTorch with rows packed, padded, nested and in micro-batches; products of different sizes and of
triangular matrices against dense ones. On one thread and on all.

    .venv/bin/python -m benchmarks.bench_ragged --quick
    .venv/bin/python -m benchmarks.bench_ragged --sections matrices
    .venv/bin/python -m benchmarks.bench_ragged --minutes 20    what is begun by then

Cases are written as they are measured, a line of JSON each, beside the result of all.
See README.md in this folder for what is measured.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.kernels import chart, matrices, program, race, sequences
from benchmarks.kernels.cases import Case
from benchmarks.kernels.lengths import BATCHES, QUANTILES
from benchmarks.kernels.table import Aim, aim_of_ratio, aim_of_share, ratio, render
from benchmarks.report import table

Result = Mapping[str, Any]
TITLE = "sequences and matrices of different sizes"
WAYS = ("packed", "padded", "nested", "micro-batched")
RELAXLAB = race.Row("relaxlab", "RelaxlabRagged")
WHOLE_ROWS = (
    RELAXLAB,
    *(race.Row(f"PyTorch, {way}", "PyTorchRagged", {"way": way}) for way in WAYS),
)
PARTS_ROWS = (
    RELAXLAB,
    *(race.Row(f"PyTorch, {way}", "PyTorchParts", {"way": way}) for way in WAYS[:2]),
)
DENSE = "one R.matmul or R.add each"
MATRICES_ROWS = (
    race.Row("relaxlab", "RelaxlabMatrices"),
    race.Row(DENSE, "RelaxlabMatrices", {"dense": True}, rival=True),
    race.Row("PyTorch, dense", "PyTorchMatrices"),
)
DATA, PRODUCTS, TRIANGLES = tuple(QUANTILES), matrices.BATCHES, matrices.TRIANGLES
WHOLE = ("encoder", "attention")
PARTS_DATA = ("MNLI", "SQuAD")
BOUND_BY_COPYING = ("softmax", "layer norm", "key ranges", "triangular sum")
ROUNDS = 2


def _case(what: str, data: str, batch: int) -> Case:
    limit = "copy" if what in BOUND_BY_COPYING else "fma"
    return Case(f"{what}, {data} x {batch}", sequences.sizes_of(what, data, batch), limit=limit)


def _whole(quick: bool, threads: int) -> Iterator[list[Case]]:
    """A group for each batch, so that not all arrays are held at once. One thread runs the smaller
    batches alone."""
    for batch in BATCHES[:1] if quick or threads == 1 else BATCHES:
        for data in DATA:
            yield [_case(what, data, batch) for what in WHOLE]


def _prelude(quick: bool, threads: int) -> Iterator[list[Case]]:
    yield [_case("key ranges", data, batch) for batch in BATCHES for data in DATA]


def _parts(quick: bool, threads: int) -> Iterator[list[Case]]:
    for data in PARTS_DATA[:1] if quick else PARTS_DATA:
        yield [_case(what, data, BATCHES[0]) for what in sequences.PARTS]


def _matrices(quick: bool, threads: int) -> Iterator[list[Case]]:
    for batch in PRODUCTS[:1] if quick or threads == 1 else PRODUCTS:
        yield [Case(f"products of different sizes x {batch}", {})]
    yield [
        Case(kind, {"d": d}, limit="copy" if kind in BOUND_BY_COPYING else "fma")
        for kind in ("triangular product", "triangular sum") for d in TRIANGLES
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Section:
    """Peers that take turns, and the groups of cases that all of them run, fewer if it is to be
    quick, on a number of threads."""

    rows: Sequence[race.Row]
    groups: Callable[[bool, int], Iterable[list[Case]]]


SECTIONS: Mapping[str, Section] = {
    "whole": Section(WHOLE_ROWS, _whole),
    "prelude": Section((RELAXLAB,), _prelude),
    "parts": Section(PARTS_ROWS, _parts),
    "matrices": Section(MATRICES_ROWS, _matrices),
}


def measure(
    names: Iterable[str], peers: Iterable[str], settings: race.Settings, quick: bool,
    log: race.Log,
) -> dict[str, Any]:  # fmt: skip
    """The sections that are named, on one thread and on all, as one result."""
    found: list[dict[str, Any]] = []
    for threads in sorted({1, settings.threads}):
        for section in (SECTIONS[name] for name in names):
            rows = [row for row in section.rows if row.name in peers]
            groups = [group for group in section.groups(quick, threads) if group]
            if not rows or not groups:
                continue
            one = race.run(rows, groups, replace(settings, threads=threads), log)
            for case in one["cases"]:
                case["threads"] = threads
                case["name"] += ", 1 thread" if threads == 1 else ""
            found.append(one)
    if not found:
        raise SystemExit("none of these sections has one of these peers: see --sections and --only")
    return _joined(found, settings.threads)


def _joined(found: Sequence[dict[str, Any]], threads: int) -> dict[str, Any]:
    """The results of several races as those of one."""
    result = dict(found[-1])
    seconds = sum(one["settings"]["seconds_in_all"] for one in found)
    result["settings"] = {**result["settings"], "threads": threads, "seconds_in_all": seconds}
    for key in ("cases", "left_out", "busy_cores"):
        result[key] = [x for one in found for x in one[key]]
    result["ours"] = list(dict.fromkeys(name for one in found for name in one["ours"]))
    result["peers"] = {name: about for one in found for name, about in one["peers"].items()}
    failed = {n: about for one in found for n, about in one["peers"].items() if "error" in about}
    result["peers"] |= failed
    return result


def aims(result: Result) -> Iterator[Aim]:
    def of(*kinds: str) -> Callable[[Result], bool]:
        return lambda case: case["kind"].startswith(kinds)

    for kind in WHOLE:
        text = f"{kind}, of the best way of PyTorch"
        yield from aim_of_ratio(result, text, 2.0, of(kind))
    limit = "of the multiply-add peak, operations that are needed"
    yield from aim_of_share(result, f"encoder: {limit}", 0.7, of("encoder"))
    yield from aim_of_share(result, f"attention: {limit}", 0.7, of("attention"))
    text = "products of different sizes, of one R.matmul each"
    yield from aim_of_ratio(result, text, 0.8, of("products"), DENSE)
    text = "triangular products, of the dense product"
    yield from aim_of_ratio(result, text, 1.7, of("triangular product"), DENSE)
    yield from _prelude_aim(result)
    yield from _memory_aim(result)


def _prelude_aim(result: Result) -> Iterator[Aim]:
    """The time of a program that computes what depends on the lengths alone, of that of the
    encoder layer with the same lengths."""
    found = [(share, name) for name, share in prelude_shares(result)]
    if found:
        most, name = max(found)
        yield "prelude at most 2% of an encoder layer", f"{most:.1%} at {name}", most <= 0.02


def prelude_shares(result: Result) -> Iterator[tuple[str, float]]:
    """The case of each encoder layer, and the share of its prelude."""
    seconds = {
        (case["kind"], case["threads"]): statistics.median(case["peers"]["relaxlab"]["seconds"])
        for case in result["cases"]
        if case["kind"].startswith(("encoder", "key ranges"))
        and case["peers"].get("relaxlab", {}).get("seconds")
    }
    for (kind, threads), whole in seconds.items():
        what, _, batch = kind.partition(", ")
        prelude = seconds.get((f"key ranges, {batch}", threads))
        if what == "encoder" and prelude is not None:
            yield f"{batch}, {threads} threads", prelude / whole


def _memory_aim(result: Result) -> Iterator[Aim]:
    found = [(used / needed, name) for name, used, needed, _ in memory(result)]
    if found:
        most, name = max(found)
        text = "activations at most 1.05x those of the rows that there are"
        yield text, f"{most:.2f}x at {name}", most <= 1.05


def memory(result: Result) -> Iterator[tuple[str, float, float, float]]:
    """Each encoder layer with its bytes of temporaries, those that its rows need, and those that
    padded rows need."""
    for case in result["cases"]:
        found = case["peers"].get("relaxlab", {})
        if case["kind"].startswith("encoder") and "arena_bytes" in found:
            _, lengths = sequences.parsed(case["kind"])
            rows = int(lengths.sum()), len(lengths) * int(lengths.max())
            needed, padded = (sequences.BYTES_OF_A_ROW * n for n in rows)
            yield case["name"], found["arena_bytes"], needed, padded


def _mean(values: Sequence[float]) -> float:
    return statistics.geometric_mean(values) if values else float("nan")


def paper(result: Result) -> str:
    """The ratios that the tables of CoRa (MLSys 2022) state, with what they are here: geometric
    means over the cases on all threads."""
    threads = max((case["threads"] for case in result["cases"]), default=1)
    cases = [case for case in result["cases"] if case["threads"] == threads]

    def to(peer: str, *kinds: str) -> str:
        spreads = [
            ratio(result, case, "relaxlab", peer) for case in cases
            if case["kind"].startswith(kinds)
        ]  # fmt: skip
        found = [s.median for s in spreads if s is not None]
        return f"{_mean(found):.2f}x" if found else "–"

    smaller = [padded / used for _, used, _, padded in memory(result)]
    shares = [share for _, share in prelude_shares(result)]
    rows = [
        ["encoder layer to PyTorch padded (GPU)", "1.6x", to("PyTorch, padded", "encoder")],
        ["encoder layer to micro-batched (ARM)", "1.0x", to("PyTorch, micro-batched", "encoder")],
        ["attention to PyTorch padded (ARM)", "1.86x", to("PyTorch, padded", "attention")],
        ["products of different sizes to MKL", "0.73x", to("PyTorch, dense", "products")],
        ["the same to one R.matmul each", "–", to(DENSE, "products")],
        ["triangular product to the dense one", "–", to(DENSE, "triangular product")],
        ["triangular sum to the dense one", "–", to(DENSE, "triangular sum")],
        ["activations, smaller than padded", "1.78x", f"{_mean(smaller):.2f}x" if smaller else "–"],
        ["prelude, of a layer", "–", f"{max(shares):.1%} at most" if shares else "–"],
    ]  # fmt: skip
    return f"CoRa's tables\n{table(['', 'paper', 'here'], rows)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 1 if a peer failed."""
    parser = program.parser_of("ragged", TITLE)
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no case after that")
    rows = {row.name: row for section in SECTIONS.values() for row in section.rows}
    settings, chosen, options = program.chosen(parser, list(rows.values()), arguments)
    if options.rounds is None:
        settings = replace(settings, rounds=min(settings.rounds, ROUNDS))
    peers = [row.name for row in chosen]
    lines: Path = options.output.with_suffix(".jsonl")
    lines.parent.mkdir(parents=True, exist_ok=True)
    lines.write_text("", "utf-8")
    log = race.Log(lines, time.monotonic() + 60 * options.minutes)
    result = measure(options.sections, peers, settings, options.quick, log)
    print(render(result, aims(result)))
    print(f"\n{paper(result)}")
    program.write(result, options.output)
    program.drawn(chart.draw(result, TITLE, options.output))
    return int(any("error" in about for about in result["peers"].values()))


if __name__ == "__main__":
    sys.exit(main())
