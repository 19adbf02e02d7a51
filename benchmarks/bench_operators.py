"""Operators at three sizes, in float32 and in a narrow dtype, against NumPy, PyTorch and JAX.

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

from benchmarks import machine, operators_page
from benchmarks.kernels import program
from benchmarks.kernels.race import LEAST as LEAST_COPIED
from benchmarks.kernels.race import PAUSE_S, PEAKS, Row, Settings, environment, say
from benchmarks.kernels.table import Aim, aims_text
from benchmarks.limits import CLimits
from benchmarks.operators import Call, all_calls
from benchmarks.process import Worker, WorkerFailed
from benchmarks.report import Spread, heading, table

Result = Mapping[str, Any]
OURS = "relaxlab"
PEERS: Mapping[str, Row] = {row.name: row for row in (
    Row(OURS, "RelaxlabOperators"),
    Row("NumPy", "NumPyOperators"),
    Row("PyTorch", "PyTorchOperators"),
    Row("torch.compile", "PyTorchOperators", {"compiled": True}),
    Row("JAX", "JAXOperators"),
)}  # fmt: skip
LEAST, MEAN = 0.8, 1.5
"""The least speed in relation to the best peer that is no cliff, and the aim for all together."""
AT_ONCE, MOST_BYTES = 48, 400 << 20
"""Calls that are prepared together and measured in each turn, and about the most bytes of their
largest operands."""
ROUNDS, SECONDS = 5, 0.03
"""Turns of each peer, and how long a call is repeated in one."""
TOLERANCE = 2e-2
"""Largest difference from the peer, relative to the largest result, half precision included."""


class Turns:
    """The workers, which take turns. `busy`: cores busy with other things in each pause."""

    def __init__(self, rows: Sequence[Row], threads: int, folder: Path, stack: ExitStack) -> None:
        self._folder, self._limits = folder, CLimits(threads, folder)
        self._workers: dict[str, Worker] = {}
        self.about: dict[str, Any] = {}
        self.busy: list[float] = []
        self.fma = max(self._limits.measure(("fma",), repeats=PEAKS).values(), default=0.0)
        variables = environment(Settings(threads, fresh=False), folder)
        for row in rows:
            try:
                options = {"threads": threads, **row.options}
                found = Worker(row.python, row.worker, options, variables)
            except WorkerFailed as error:
                self.about[row.name] = {"error": str(error)}
                continue
            stack.callback(found.close)
            self._workers[row.name], self.about[row.name] = found, found.about

    def measure(self, calls: Sequence[Call], rounds: int) -> Iterator[dict[str, Any]]:
        """The times of some calls of about one size, one per round of each peer that takes part."""
        found = {call.name: self._prepared(call) for call in calls}
        names = list(self._workers)
        size = max(LEAST_COPIED, *(about["bytes"] // 2 for about in found.values()))
        for number in range(rounds):
            shift = number % len(names)  # nobody always follows the same other
            limits = self._limits.measure(("copy",), size, PEAKS)
            for name in names[shift:] + names[:shift]:
                self.busy.append(machine.busy_cores(lambda: time.sleep(PAUSE_S))[0])
                wanted = [n for n, about in found.items() if name in about["peers"]]
                times = self._workers[name].ask("time", names=wanted, seconds=SECONDS)
                for call, seconds in times.items():
                    found[call]["peers"][name].append(seconds)
            for about in found.values():
                about["copy"].append(max(limits.values(), default=0.0))
        for worker in self._workers.values():
            worker.ask("forget")
        yield from found.values()

    def _prepared(self, call: Call) -> dict[str, Any]:
        """The call's results, without times yet; says where peers differ."""
        say(call.name)
        about: dict[str, Any] = {"name": call.name, "op": call.op, "peers": {}, "copy": []}
        results: dict[str, np.ndarray] = {}
        for name, worker in self._workers.items():
            file = self._folder / f"{name}.npy"
            answer = worker.ask("prepare", case=call.name, file=str(file))
            if answer:
                about["peers"][name] = []
                about["bytes"] = answer["bytes"]
                about.setdefault("flops", answer["flops"])
                results[name] = np.load(file)
        for name, theirs in results.items():
            error = error_of(results[OURS], theirs)
            if not error < TOLERANCE:
                say(f"{call.name}: {name} differs by {error:.1e}")
                about.setdefault("differs", {})[name] = error
        return about


def error_of(mine: np.ndarray, theirs: np.ndarray) -> float:
    """The largest difference, relative to the largest value."""
    if mine.size != theirs.size:
        return float("inf")
    a, b = (np.nan_to_num(x.ravel().astype(np.float64)) for x in (mine, theirs))
    return float(np.abs(a - b).max(initial=0) / max(1e-30, np.abs(b).max(initial=0)))


def ratio(case: Result) -> Spread | None:
    """The speed in relation to that of the best peer of the same round; None without peers."""
    others = [times for name, times in case["peers"].items() if name != OURS]
    if not others:
        return None
    rounds = zip(case["peers"][OURS], *others, strict=True)
    return Spread.of([min(best) / own for own, *best in rounds])


def bound(case: Result, fma: float) -> tuple[float, str]:
    """The least seconds that a call can take, and what says so: the bytes of operands and results
    at the bandwidth of copying, or the operations at the peak of float32 multiply-adds."""
    copying = case["bytes"] / statistics.median(case["copy"]) if any(case["copy"]) else 0.0
    computing = (case["flops"] or 0.0) / (2 * fma) if fma else 0.0
    return (copying, "bytes") if copying >= computing else (computing, "operations")


def share_of_bound(case: Result, fma: float) -> float | None:
    """The bound in relation to the time taken; None where no limit was measured."""
    least, _ = bound(case, fma)
    return least / statistics.median(case["peers"][OURS]) if least else None


def aims(result: Result) -> Iterator[Aim]:
    found = [(r.median, c["name"]) for c in result["cases"] if (r := ratio(c)) is not None]
    if found:
        slow = sum(value < LEAST for value, _ in found)
        worst, where = min(found)
        text = f"no operator is below {LEAST} of the speed of the best peer"
        yield text, f"{slow} of {len(found)} are; the slowest {worst:.2f}: {where}", not slow
        mean = statistics.geometric_mean([value for value, _ in found])
        yield f"{MEAN} times the best peer's speed, geometric mean", f"{mean:.2f}", mean >= MEAN


def heading_of(result: Result) -> str:
    """The machine, the run, and the versions of the peers."""
    s = result["settings"]
    versions = ", ".join(
        f"{name} {about.get('version', 'FAILED')}" for name, about in result["peers"].items()
    )
    measured = f"{s['threads']} threads; {s['rounds']} rounds; {versions}"
    return heading(result, measured, result["busy_cores"], s["seconds"])


def render(result: Result) -> str:
    """All calls, the slowest in relation to their peers first."""
    names = [name for name, about in result["peers"].items() if "error" not in about]
    rows: list[tuple[float, list[str]]] = []
    for case in result["cases"]:
        found, peers = ratio(case), case["peers"]
        medians = {name: statistics.median(times) for name, times in peers.items()}
        share, (_, by) = share_of_bound(case, result["fma"]), bound(case, result["fma"])
        cells = [
            case["name"],
            "–" if found is None else found.text(2) + "x" + (" !" if found.median < LEAST else ""),
            *(f"{medians[name] * 1e6:.1f}" if name in medians else "–" for name in names),
            "–" if share is None else f"{share:.0%} of {by}",
        ]
        rows.append((float("inf") if found is None else found.median, cells))
    rows.sort(key=lambda row: row[0])
    title = ["operator", "speed to best peer", *(f"{name} us" for name in names), "of the bound"]
    head = heading_of(result)
    return "\n\n".join([head, table(title, [cells for _, cells in rows]), aims_text(aims(result))])


def parts_of(calls: Sequence[Call]) -> Iterator[list[Call]]:
    """The calls by size, as many together as fit."""
    part: list[Call] = []
    size = 0
    for call in sorted(calls, key=size_of):
        if part and (len(part) == AT_ONCE or size + size_of(call) > MOST_BYTES):
            yield part
            part, size = [], 0
        part.append(call)
        size += size_of(call)
    yield part


def size_of(call: Call) -> int:
    """Bytes of the operand that has the extent `n`, about those of the largest."""
    return call.row_bytes * call.sizes["n"]


def measure(
    calls: Sequence[Call], rows: Sequence[Row], rounds: int, threads: int
) -> dict[str, Any]:
    """All calls, some at a time."""
    started = time.monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="relaxlab-bench-")))
        turns = Turns(rows, threads, folder, stack)
        cases = [case for part in parts_of(calls) for case in turns.measure(part, rounds)]
    seconds = time.monotonic() - started
    return {
        "machine": machine.describe(),
        "settings": {"rounds": rounds, "threads": threads, "seconds": seconds},
        "peers": turns.about, "busy_cores": turns.busy, "fma": turns.fma, "cases": cases,
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 1 if a peer could not start."""
    parser = program.parser_of("operators", (__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="calls that begin with it")
    parser.add_argument("--peers", nargs="+", metavar="NAME", choices=PEERS, default=list(PEERS))
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
    rows = [row for name, row in PEERS.items() if name in (OURS, *options.peers)]
    result = measure(calls, rows, rounds, options.threads)
    print(render(result))
    program.write(result, options.output)
    page = options.output.with_suffix(".html")
    operators_page.write(result, ratio, bound, heading_of(result), LEAST, page)
    say(f"drawn: {page}")
    return int(any("error" in about for about in result["peers"].values()))


if __name__ == "__main__":
    sys.exit(main())
