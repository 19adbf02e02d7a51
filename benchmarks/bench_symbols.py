"""Programs compiled once for all values of some of their extents, against the same programs
compiled for constants.

    .venv/bin/python -m benchmarks.bench_symbols --only matmul conv2d

See README.md in this folder for what is measured.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import relaxlab as rl
from benchmarks import machine
from benchmarks.kernels import program
from benchmarks.kernels.race import say
from benchmarks.kernels.table import Aim, aims_text
from benchmarks.report import Spread, heading, table
from benchmarks.symbols import Case, all_cases

Result = Mapping[str, Any]
CONSTANTS = ""
"""The version without symbols."""
MOST = 1.25
"""The largest ratio to the time of the constants that is no cliff."""
TOLERANCE = 1e-3
"""Largest error, relative to the largest result: versions add in different orders."""
ROUNDS, SECONDS = 9, 0.004
"""Turns of each version, and how long one lasts at least."""
PAUSE_S = 0.2


@dataclass(frozen=True, slots=True)
class Version:
    """A compiled program: a call of it, and the rules that scheduled its kernels."""

    call: Callable[[], Any]
    rules: tuple[str, ...]


def _version(case: Case, symbols: str, arrays: Sequence[np.ndarray], threads: int) -> Version:
    module = rl.parse(case.script(symbols.split()))
    main = rl.compile(module, threads=threads)["main"]
    prefix = "scheduled by the rule "
    notes = (note for record in rl.trace(module).passes for note in record.remarks)
    rules = [n.reason.removeprefix(prefix) for n in notes if n.reason.startswith(prefix)]
    return Version(lambda: main(*arrays), tuple(rules))


def _results(value: Any) -> list[np.ndarray]:
    return [np.asarray(part) for part in (value if isinstance(value, tuple) else (value,))]


def _check(case: Case, symbols: str, got: Any, wanted: Any) -> None:
    """Raise RuntimeError where two versions give different results."""
    for mine, other in zip(_results(got), _results(wanted), strict=True):
        scale = max(1.0, float(np.abs(other).max(initial=0)))
        if mine.shape != other.shape or not np.allclose(mine, other, TOLERANCE, TOLERANCE * scale):
            raise RuntimeError(f"{case.name}: with the symbols {symbols} the result differs")


def _seconds(call: Callable[[], Any]) -> float:
    """The median time of calls in one turn."""
    times: list[float] = []
    end = time.perf_counter() + SECONDS
    while len(times) < 3 or times[-1] < end:
        begin = time.perf_counter()
        call()
        times += [time.perf_counter() - begin, time.perf_counter()]
    return statistics.median(times[::2])


def measure_case(case: Case, rounds: int, threads: int) -> dict[str, Any]:
    """The times of each version, one per round, versions in turns."""
    arrays = case.arrays(np.random.default_rng(1))
    versions = {s: _version(case, s, arrays, threads) for s in (CONSTANTS, *case.symbols)}
    wanted = versions[CONSTANTS].call()
    for symbols, version in versions.items():
        _check(case, symbols, version.call(), wanted)
    times: dict[str, list[float]] = {s: [] for s in versions}
    names = list(versions)
    for number in range(rounds):
        shift = number % len(names)  # nobody always follows the same other
        for name in names[shift:] + names[:shift]:
            times[name].append(_seconds(versions[name].call))
    return {
        "name": case.name,
        "versions": {
            s: {"seconds": times[s], "rules": versions[s].rules} for s in versions
        },
    }  # fmt: skip


def measure(cases: Sequence[Case], rounds: int, threads: int) -> dict[str, Any]:
    """All cases, one after the other."""
    started = time.monotonic()
    found: list[dict[str, Any]] = []
    busy: list[float] = []
    for case in cases:
        say(case.name)
        busy.append(machine.busy_cores(lambda: time.sleep(PAUSE_S))[0])
        found.append(measure_case(case, rounds, threads))
    return {
        "machine": machine.describe(),
        "settings": {"rounds": rounds, "threads": threads, "seconds": time.monotonic() - started},
        "busy_cores": busy,
        "cases": found,
    }


def ratios(result: Result) -> Iterator[tuple[str, str, Spread]]:
    """Case, symbols, and the time in relation to that of the constants in the same round."""
    for case in result["cases"]:
        constants = case["versions"][CONSTANTS]["seconds"]
        for symbols, version in case["versions"].items():
            if symbols != CONSTANTS:
                pairs = zip(version["seconds"], constants, strict=True)
                yield case["name"], symbols, Spread.of([a / b for a, b in pairs])


def aims(result: Result) -> Iterator[Aim]:
    found = [
        (spread.median, f"{name}, symbols {symbols}") for name, symbols, spread in ratios(result)
    ]
    slow = sum(ratio > MOST for ratio, _ in found)
    worst, where = max(found)
    text = f"no version with symbols takes more than {MOST}x the time with constants"
    yield text, f"{slow} of {len(found)} do; the worst {worst:.2f}x: {where}", not slow


def render(result: Result) -> str:
    s = result["settings"]
    measured = f"{s['threads']} threads; {s['rounds']} rounds"
    head = heading(result, measured, result["busy_cores"], s["seconds"])
    cases = {case["name"]: case["versions"] for case in result["cases"]}
    rows: list[list[str]] = []
    for name, symbols, spread in ratios(result):
        version, constants = cases[name][symbols], cases[name][CONSTANTS]
        rows.append([
            f"{name}: {symbols}", f"{spread.text(2)}x" + (" !" if spread.median > MOST else ""),
            *(f"{statistics.median(v['seconds']) * 1e3:.3f}" for v in (version, constants)),
            *(" ".join(v["rules"]) for v in (version, constants)),
        ])  # fmt: skip
    title = ["program: symbols", "time to constants", "ms", "constants", "rule", "constants"]
    return "\n\n".join([head, table(title, rows), aims_text(aims(result))])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    parser = program.parser_of("symbols", (__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="programs whose names contain it")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="turns of each version")
    options = parser.parse_args(arguments)
    cases = [c for c in all_cases() if not options.only or any(t in c.name for t in options.only)]
    if not cases:
        parser.error(f"no program's name contains {' or '.join(options.only)}")
    rounds = options.rounds
    if options.quick:
        cases, rounds = cases[:: max(1, len(cases) // 8)], 2
    result = measure(cases, rounds, options.threads)
    print(render(result))
    program.write(result, options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
