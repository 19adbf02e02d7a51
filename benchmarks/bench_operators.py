"""Operators on 8 MB, in float32 and in a narrow dtype, against NumPy and PyTorch.

    .venv/bin/python -m benchmarks.bench_operators --only sum argmax

See README.md in this folder for what is measured.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import machine
from benchmarks.kernels import program
from benchmarks.kernels.race import CORE, PAUSE_S, PEAKS, REFERENCE, Settings, environment, say
from benchmarks.kernels.table import Aim, aims_text
from benchmarks.limits import CLimits
from benchmarks.operators import BYTES, Call, all_calls
from benchmarks.process import Worker, WorkerFailed
from benchmarks.report import Spread, heading, table

Result = Mapping[str, Any]
OURS = "relaxlab"
PEERS = {
    OURS: ("RelaxlabOperators", CORE),
    "NumPy": ("NumPyOperators", CORE),
    "PyTorch": ("PyTorchOperators", REFERENCE),
}
"""The class and the interpreter of each."""
MOST = 1.25
"""The largest ratio to the time of the best peer that is no cliff."""
AT_ONCE = 12
"""Calls that are prepared together and measured in each turn."""
ROUNDS, SECONDS = 5, 0.03
"""Turns of each peer, and how long a call is repeated in one."""
TOLERANCE = 2e-2
"""Largest difference from the peer, relative to the largest result, half precision included."""


class Turns:
    """The workers, which take turns. `busy`: cores busy with other things in each pause."""

    def __init__(self, threads: int, folder: Path, stack: ExitStack) -> None:
        self._folder, self._limits = folder, CLimits(threads, folder)
        self._workers: dict[str, Worker] = {}
        self.about: dict[str, Any] = {}
        self.busy: list[float] = []
        for name, (worker, python) in PEERS.items():
            try:
                found = Worker(python, worker, {"threads": threads}, environment(
                    Settings(threads), folder))  # fmt: skip
            except WorkerFailed as error:
                self.about[name] = {"error": str(error)}
                continue
            stack.callback(found.close)
            self._workers[name], self.about[name] = found, found.about

    def measure(self, calls: Sequence[Call], rounds: int) -> Iterator[dict[str, Any]]:
        """The times of some calls, one per round of each peer that takes part."""
        found = {call.name: self._prepared(call) for call in calls}
        names = list(self._workers)
        for number in range(rounds):
            shift = number % len(names)  # nobody always follows the same other
            limits = self._limits.measure(("copy",), BYTES, PEAKS)
            for name in names[shift:] + names[:shift]:
                self.busy.append(machine.busy_cores(lambda: time.sleep(PAUSE_S))[0])
                wanted = [n for n, about in found.items() if name in about["peers"]]
                times = self._workers[name].ask("time", names=wanted, seconds=SECONDS)
                for call, seconds in times.items():
                    found[call]["peers"][name].append(seconds)
            for about in found.values():
                about["limits"].append(max(limits.values(), default=0.0))
        for worker in self._workers.values():
            worker.ask("forget")
        yield from found.values()

    def _prepared(self, call: Call) -> dict[str, Any]:
        """The call's results, without times yet; says where peers differ."""
        say(call.name)
        about: dict[str, Any] = {"name": call.name, "op": call.op, "peers": {}, "limits": []}
        results: dict[str, np.ndarray] = {}
        for name, worker in self._workers.items():
            file = self._folder / f"{name}.npy"
            answer = worker.ask("prepare", case=call.name, file=str(file))
            if answer:
                about["peers"][name] = []
                about["bytes"] = answer["bytes"]
                results[name] = np.load(file)
        for name, theirs in results.items():
            error = error_of(results[OURS], theirs)
            if not error < TOLERANCE:
                say(f"{call.name}: {name} differs by {error:.1e}")
        return about


def error_of(mine: np.ndarray, theirs: np.ndarray) -> float:
    """The largest difference, relative to the largest value."""
    if mine.size != theirs.size:
        return float("inf")
    a, b = (np.nan_to_num(x.ravel().astype(np.float64)) for x in (mine, theirs))
    return float(np.abs(a - b).max(initial=0) / max(1e-30, np.abs(b).max(initial=0)))


def ratio(case: Result) -> Spread | None:
    """The time in relation to that of the best peer of the same round; None without peers."""
    others = [times for name, times in case["peers"].items() if name != OURS]
    if not others:
        return None
    rounds = zip(case["peers"][OURS], *others, strict=True)
    return Spread.of([own / min(best) for own, *best in rounds])


def aims(result: Result) -> Iterator[Aim]:
    found = [(r.median, c["name"]) for c in result["cases"] if (r := ratio(c)) is not None]
    if found:
        slow = sum(value > MOST for value, _ in found)
        worst, where = max(found)
        text = f"no operator takes more than {MOST}x the time of the best peer"
        yield text, f"{slow} of {len(found)} do; the worst {worst:.2f}x: {where}", not slow


def render(result: Result) -> str:
    """All calls, the slowest in relation to their peers first."""
    s = result["settings"]
    measured = f"{s['threads']} threads; {s['rounds']} rounds"
    head = heading(result, measured, result["busy_cores"], s["seconds"])
    rows: list[tuple[float, list[str]]] = []
    for case in result["cases"]:
        found, peers = ratio(case), case["peers"]
        medians = {name: statistics.median(times) for name, times in peers.items()}
        turns = zip(peers[OURS], case["limits"], strict=True)
        of_limit = [case["bytes"] / seconds / most for seconds, most in turns if most]
        cells = [
            case["name"],
            "–" if found is None else found.text(2) + "x" + (" !" if found.median > MOST else ""),
            *(f"{medians[name] * 1e3:.3f}" if name in medians else "–" for name in PEERS),
            f"{statistics.median(of_limit):.0%}" if of_limit else "–",
        ]
        rows.append((0.0 if found is None else found.median, cells))
    rows.sort(key=lambda row: -row[0])
    title = ["operator", "time to best peer", *(f"{name} ms" for name in PEERS), "of copying"]
    return "\n\n".join([head, table(title, [cells for _, cells in rows]), aims_text(aims(result))])


def measure(calls: Sequence[Call], rounds: int, threads: int) -> dict[str, Any]:
    """All calls, some at a time."""
    started = time.monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="relaxlab-bench-")))
        turns = Turns(threads, folder, stack)
        parts = [calls[at : at + AT_ONCE] for at in range(0, len(calls), AT_ONCE)]
        cases = [case for part in parts for case in turns.measure(part, rounds)]
    seconds = time.monotonic() - started
    return {
        "machine": machine.describe(),
        "settings": {"rounds": rounds, "threads": threads, "seconds": seconds},
        "peers": turns.about, "busy_cores": turns.busy, "cases": cases,
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 1 if a peer could not start."""
    parser = program.parser_of("operators", (__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="calls that begin with it")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="turns of each peer")
    options = parser.parse_args(arguments)
    calls = all_calls()
    if options.only:
        calls = [c for c in calls if c.name.startswith(tuple(options.only))]
    if not calls:
        parser.error(f"no call begins with {' or '.join(options.only)}")
    rounds = options.rounds
    if options.quick:
        calls, rounds = calls[:: max(1, len(calls) // 8)], 2
    result = measure(calls, rounds, options.threads)
    print(render(result))
    program.write(result, options.output)
    return int(any("error" in about for about in result["peers"].values()))


if __name__ == "__main__":
    sys.exit(main())
