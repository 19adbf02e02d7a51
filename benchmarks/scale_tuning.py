"""Tuning on a cluster of any size, simulated with durations that were recorded on one machine.

    .venv/bin/python -m benchmarks.scale_tuning --record    # some minutes, else idle
    .venv/bin/python -m benchmarks.scale_tuning             # the table of docs/tuning.md

The searches are the real ones, over the decisions of real kernels. Only the executor is not: it
answers at once, and adds up how long its machines would have taken. Which candidates are faster is
drawn, as many as were recorded.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from relaxlab.ir.target import Target
from relaxlab.script import parse
from relaxlab.tuning.children import Child, Request, TrialFailed
from relaxlab.tuning.database import Database
from relaxlab.tuning.executor import Executor, Reply, reply_of
from relaxlab.tuning.generic import GENERIC, generic_space
from relaxlab.tuning.kernels import Kernel, context_alone, kernels_of
from relaxlab.tuning.measured import measured_of
from relaxlab.tuning.methods import Method
from relaxlab.tuning.tune_kernel import KernelTuner, Limits
from relaxlab.tuning.workshop import ROUNDS, Workers

FILE = Path(__file__).parent / "results" / "tuning-durations.json"
MACHINES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)
TRIALS = 64
DISPATCH_SECONDS = 1e-3
"""For which the process that tunes, and Dask's scheduler, are busy with one request."""
PROGRAM = """\
@R.function
def main(x: R.Tensor(("n", 256), "float32"), w: R.Tensor((256, 512), "float32"),
         v: R.Tensor((512, 256), "float32"), g: R.Tensor((256,), "float32"),
         image: R.Tensor(("n", 32, 14, 14), "float32"),
         k: R.Tensor((32, 32, 3, 3), "float32"), a: R.Tensor(("n", 2048), "float32")):
    with R.dataflow():
        h = R.nn.relu(R.matmul(R.nn.layer_norm(x, g, g, axes=[-1]), w))
        y = R.add(R.matmul(h, v), x)
        c = R.nn.conv2d(image, k, padding=1)
        s = R.nn.softmax(a)
        t = R.sum(a, axis=0)
        R.output(y, c, s, t)
    return y, c, s, t
"""
SHAPES = {"n": (1, 16, 64)}


@dataclass(frozen=True, slots=True)
class Durations:
    """Seconds of builds, of measurements in a search, of openings (a machine's first measurement of
    a kernel, for which it computes what is expected), and of plans, per request. faster: the share
    of candidates that were faster than the best before them."""

    build: Sequence[float]
    measure: Sequence[float]
    opening: Sequence[float]
    plan: Sequence[float]
    faster: float


@dataclass(slots=True)
class Recorder:
    """An executor of one process for builds and one for measurements, which notes durations."""

    builders: int = 1
    dropped: dict[str, str] = field(default_factory=dict[str, str])
    found: dict[str, list[float]] = field(
        default_factory=lambda: {"build": [], "measure": [], "opening": [], "plan": []}
    )
    claims: list[bool] = field(default_factory=list[bool])
    _children: tuple[Child, Child] = field(default_factory=lambda: (Child(), Child()))
    _opened: Request | None = None
    _ended: float = field(default_factory=time.monotonic)

    def build(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        """See `Executor`."""
        planned = (time.monotonic() - self._ended) / max(1, len(requests))
        self.found["plan"] += [planned] * len(requests)
        for number, request in enumerate(requests):
            yield number, self._timed(self._children[0], request, "build")

    def measure(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        """See `Executor`."""
        for number, request in enumerate(requests):
            name = "measure" if request.opening is self._opened else "opening"
            self._opened = request.opening
            reply = self._timed(self._children[1], request, name)
            if not isinstance(reply, TrialFailed) and request.message["rounds"] == ROUNDS:
                self.claims.append(measured_of(reply[0]["ratios"]).is_faster)
            yield number, reply

    def _timed(self, child: Child, request: Request, name: str) -> Reply:
        start = time.monotonic()
        reply = reply_of(child, request)
        self._ended = time.monotonic()
        self.found[name].append(self._ended - start)
        return reply

    def durations(self) -> Durations:
        """All of them; ends the processes."""
        for child in self._children:
            child.close()
        return Durations(**self.found, faster=sum(self.claims) / max(1, len(self.claims)))


@dataclass(slots=True)
class Simulated:
    """An executor of so many machines, each of which builds and measures. seconds: the time that
    has passed since the search for a kernel began; busy: the sum of that in which machines worked,
    planned: in which the process that tunes made schedules."""

    builders: int
    durations: Durations
    drawn: random.Random
    dropped: dict[str, str] = field(default_factory=dict[str, str])
    seconds: float = 0.0
    busy: float = 0.0
    planned: float = 0.0
    _opened: set[int] = field(default_factory=set[int])

    def build(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        """See `Executor`."""
        plans = sum(self._draw(self.durations.plan, len(requests)))
        self.planned += plans
        self.seconds += plans
        self._run(self._draw(self.durations.build, len(requests)), measured=False)
        for number, _ in enumerate(requests):
            digest = f"{self.drawn.getrandbits(64):x}"
            yield number, ({"digest": digest, "trace": ""}, [digest.encode()])

    def measure(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        """See `Executor`. What is faster is measured on a second machine, where there is one."""
        replies = [self._ratios(request) for request in requests]
        again = sum(measured_of(r).is_faster for r in replies) if self.builders > 1 else 0
        for count in (len(requests), again):
            self._run(self._draw(self.durations.measure, count), measured=True)
        for number, ratios in enumerate(replies):
            yield number, ({"ratios": ratios, "seconds": [1.0] * len(ratios)}, [])

    def _draw(self, durations: Sequence[float], count: int) -> list[float]:
        return self.drawn.choices(durations, k=count)

    def _ratios(self, request: Request) -> list[list[float]]:
        base, other = request.blobs
        rounds, sizes = request.message["rounds"], request.message["sizes"]
        faster = rounds > ROUNDS or self.drawn.random() < self.durations.faster
        ratio = 1.0 if base == other else 1.1 if faster else 0.9
        return [[ratio] * rounds for _ in sizes]

    def _run(self, jobs: Sequence[float], measured: bool) -> None:
        """Have jobs done, each by the machine that is free first; one that measures for the first
        time has to open the kernel."""
        start = end = self.seconds
        free = [(start, machine) for machine in range(self.builders)]
        for number, job in enumerate(jobs, 1):
            at, machine = heapq.heappop(free)
            if measured and machine not in self._opened:
                self._opened.add(machine)
                job += self._draw(self.durations.opening, 1)[0]
            done = max(at, start + DISPATCH_SECONDS * number) + job
            self.busy += job
            heapq.heappush(free, (done, machine))
            end = max(end, done)
        self.seconds = end


def search(
    kernel: Kernel, executor: Executor, target: Target, trials: int, method: Method = "coordinate"
) -> int:
    """Search for a kernel, and return how many trials there were."""
    spaces = {GENERIC: generic_space(context_alone(kernel.program, target))}
    with tempfile.TemporaryDirectory() as folder:
        tuner = KernelTuner(
            kernel, Workers(executor, target, 2), Database(Path(folder) / "tuning.db"), target, 2,
            Limits(trials), lambda _: None, method, False, spaces,
        )  # fmt: skip
        return sum(tuner.run().trials.values())


@dataclass(frozen=True, slots=True)
class Row:
    """Searches for several kernels on so many machines. seconds: one kernel after another; aside:
    all at once, each on its share of the machines. busy: the share of the machines' time in which
    they work, planned: that of all time in which the process that tunes does."""

    machines: int
    trials: int
    seconds: float
    aside: float
    busy: float
    planned: float

    @property
    def rate(self) -> float:
        """Trials per second."""
        return self.trials / self.seconds


def row_of(
    kernels: Sequence[Kernel], machines: int, durations: Durations, target: Target,
    trials: int = TRIALS, seed: int = 0,
) -> Row:  # fmt: skip
    """The row of a number of machines."""

    def simulated(count: int) -> tuple[list[Simulated], int]:
        drawn = random.Random(seed)
        made = [Simulated(count, durations, drawn) for _ in kernels]
        return made, sum(search(k, s, target, trials) for k, s in zip(kernels, made, strict=True))

    every, found = simulated(machines)
    seconds = sum(s.seconds for s in every)
    shares, _ = simulated(max(1, machines // len(kernels)))
    at_once = min(machines, len(kernels))
    aside = max(max(s.seconds for s in shares), sum(s.seconds for s in shares) / at_once)
    return Row(
        machines, found, seconds, aside, sum(s.busy for s in every) / seconds / machines,
        sum(s.planned for s in every) / seconds,
    )  # fmt: skip


def table(rows: Sequence[Row]) -> str:
    """Rows as a table of Markdown."""
    first = rows[0]
    heads = ("machines", "trials", "seconds", "trials/s", "speed-up", "busy", "planning", "at once")
    lines = [f"| {' | '.join(heads)} |", "|" + "---:|" * len(heads)]
    for row in rows:
        cells = (
            f"{row.machines}", f"{row.trials}", f"{row.seconds:.0f}", f"{row.rate:.1f}",
            f"{row.rate / first.rate:.1f}", f"{row.busy:.0%}", f"{row.planned:.0%}",
            f"{row.aside:.0f} s",
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def kernels(target: Target) -> list[Kernel]:
    """The kernels of the program."""
    found, _ = kernels_of(parse(PROGRAM), target, SHAPES)
    return found


def main() -> None:
    """Record durations, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--trials", type=int, default=TRIALS)
    options = parser.parse_args()
    target = Target.host()
    if options.record:
        recorder = Recorder()
        for kernel in kernels(target):
            count = search(kernel, recorder, target, options.trials)
            print(f"{kernel.name}: {count} trials", flush=True)
        text = json.dumps(asdict(recorder.durations()))
        rounded = json.loads(text, parse_float=lambda seconds: round(float(seconds), 5))
        FILE.write_text(json.dumps(rounded) + "\n", "utf-8")
        return
    durations = Durations(**json.loads(FILE.read_text("utf-8")))
    print(table([row_of(kernels(target), m, durations, target, options.trials) for m in MACHINES]))


if __name__ == "__main__":
    main()
