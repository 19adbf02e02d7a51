"""Time cases on peers that take turns, round after round."""

from __future__ import annotations

import json
import math
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import machine
from benchmarks.kernels.cases import KINDS, Case, error_of
from benchmarks.limits import CLimits
from benchmarks.process import ROOT, Worker, WorkerFailed

CORE = Path(sys.executable)
REFERENCE = ROOT / ".venv-reference" / "bin" / "python"
PAUSE_S = 0.3
"""Between turns: idle threads of the last peer stop spinning."""
CHECKED = 32 << 20
"""Bytes: results of larger cases are compared in samples if the kind has some; else they are not,
and come from the same programs as those of smaller ones."""
PEAKS = 200
"""Measurements of what takes some milliseconds or less: what disturbs one does not all."""
LEAST = 1 << 16
"""Bytes that the bandwidth is measured with at least."""
TOLERANCE = 1e-4
"""Largest error allowed, relative to the largest value of the result."""


@dataclass(frozen=True, slots=True)
class Row:
    """A peer: the class of its worker and what that is given. rival: True for another way to use
    relaxlab, with which the one that is measured is compared."""

    name: str
    worker: str
    options: Mapping[str, Any] = field(default_factory=dict)
    rival: bool = False

    @property
    def ours(self) -> bool:
        return self.worker.startswith("Relaxlab") and not self.rival

    @property
    def python(self) -> Path:
        return CORE if self.worker.startswith("Relaxlab") else REFERENCE


RELAXLAB = Row("relaxlab", "RelaxlabKernels")
NUMPY = Row("NumPy", "NumPyKernels")
PYTORCH = Row("PyTorch", "PyTorchKernels")
COMPILED = Row("torch.compile", "PyTorchKernels", {"compiled": True})
JAX = Row("JAX", "JAXKernels")


@dataclass(frozen=True, slots=True)
class Settings:
    """threads: of every peer. rounds: turns of each. seconds: of a case in a turn. fresh:
    whether nothing that was compiled before this run may be found."""

    threads: int = 2
    rounds: int = 5
    seconds: float = 0.15
    fresh: bool = True

    def quick(self) -> Settings:
        return replace(self, rounds=2, seconds=0.05, fresh=False)


def environment(settings: Settings, folder: Path) -> dict[str, str]:
    """Variables of every peer's process: as many threads for all, large pages for all."""
    threads = dict.fromkeys(
        ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(settings.threads)
    )
    caches = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")} if settings.fresh else {}
    return threads | caches | {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Log:
    """The place of the cases that were measured, a line of JSON each, written after every group;
    `until`, by the clock `time.monotonic`: no group begins after that."""

    file: Path
    until: float = math.inf

    def write(self, cases: Iterable[Mapping[str, Any]]) -> None:
        """Add cases to the file."""
        with self.file.open("a", encoding="utf-8") as lines:
            lines.writelines(json.dumps(case) + "\n" for case in cases)


def run(
    rows: Sequence[Row], groups: Sequence[Sequence[Case]], settings: Settings,
    log: Log | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Run the benchmark and return its results as one JSON object, with the names of the cases for
    which there was no time. The cases of a group are prepared together and measured in each turn;
    their arrays are dropped before the next group."""
    started = time.monotonic()
    cases: list[dict[str, Any]] = []
    left_out: list[str] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="relaxlab-bench-")))
        race = Race(rows, settings, folder, stack)
        for group in groups:
            if log is not None and time.monotonic() > log.until:
                left_out += [case.name for case in group]
                continue
            found = race.measure(group)
            cases += found
            if log is not None:
                log.write({**case, "threads": settings.threads} for case in found)
    if left_out:
        say(f"no time for {', '.join(left_out)}")
    return {
        "machine": machine.describe(),
        "settings": asdict(settings) | {"seconds_in_all": time.monotonic() - started},
        "peers": race.about,
        "ours": [row.name for row in rows if row.ours],
        "cases": cases,
        "left_out": left_out,
        "busy_cores": race.busy_cores,
    }


class Race:
    """The workers. `about`: the description of each, or its error. One that fails takes no further
    part in the cases of its group."""

    def __init__(
        self, rows: Sequence[Row], settings: Settings, folder: Path, stack: ExitStack
    ) -> None:
        self._settings, self._folder, self._stack = settings, folder, stack
        self._limits = CLimits(settings.threads, folder)
        self._rows = {row.name: row for row in rows}
        self._workers: dict[str, Worker] = {}
        self.about: dict[str, Any] = {}
        self.busy_cores: list[float] = []
        for name in self._rows:
            self._start(name)

    def _start(self, name: str) -> None:
        say(f"{name}: start")
        row = self._rows[name]
        options = {"threads": self._settings.threads, **row.options}
        variables = environment(self._settings, self._folder)
        try:
            worker = Worker(row.python, row.worker, options, variables)
        except WorkerFailed as error:
            self._fail(name, error)
        else:
            self._stack.callback(worker.close)
            self._workers[name] = worker
            self.about[name] = dict(worker.about)

    def _fail(self, name: str, error: WorkerFailed) -> None:
        self._workers.pop(name, None)
        self.about.setdefault(name, {})["error"] = str(error)
        say(f"{name}: {error}")

    def measure(self, group: Sequence[Case]) -> list[dict[str, Any]]:
        """Measure the cases of a group, and return the results of each."""
        results = {
            case.name: {**case.request(), "name": case.name, "work": case.work, "limits": []}
            | {"peers": {}}
            for case in group
        }
        for name in list(self._workers):
            self._prepare(name, group, results)
        for number in range(self._settings.rounds):
            say(f"round {number + 1} of {self._settings.rounds}")
            self._measure_limits(group, results)
            names = list(self._workers)
            shift = number % max(1, len(names))  # nobody always follows the same other
            for name in names[shift:] + names[:shift]:
                self.busy_cores.append(machine.busy_cores(lambda: time.sleep(PAUSE_S))[0])
                self._turn(name, results)
        for name in list(self._workers):
            self._ask(name, "forget")
        return list(results.values())

    def _ask(self, name: str, do: str, **request: Any) -> dict[str, Any] | None:
        """The answer, or None when the worker failed."""
        try:
            return self._workers[name].ask(do, **request)
        except WorkerFailed as error:
            self._fail(name, error)
            return None

    def _prepare(
        self, name: str, group: Sequence[Case], results: Mapping[str, dict[str, Any]]
    ) -> None:
        say(f"{name}: prepare {', '.join(dict.fromkeys(case.kind for case in group))}")
        for case in group:
            checked = KINDS[case.kind].sample is not None or _largest(case) <= CHECKED
            file = self._folder / "result.npy" if checked else None
            path = None if file is None else str(file)
            found = self._ask(name, "prepare", case=case.request(), file=path)
            if found is None:
                return
            if file is not None:
                found["error"] = error_of(case, np.load(file))
                if not found["error"] < TOLERANCE:
                    raise RuntimeError(f"{name}: {case.name} is wrong by {found['error']:.1e}")
            results[case.name]["peers"][name] = found | {"seconds": []}

    def _measure_limits(self, group: Sequence[Case], results: Mapping[str, dict[str, Any]]) -> None:
        """Work per second that the machine allows: floating-point operations or bytes."""
        known: dict[object, float] = {}
        for case in group:
            size = 4 if case.limit == "fma" else max(_largest(case), LEAST)
            key = case.limit, size
            if key not in known:
                found = self._limits.measure((case.limit,), size, 3 if size > CHECKED else PEAKS)
                if not found:  # no C compiler
                    return
                factor = 2 if case.limit == "fma" else 1  # a multiply-add is two operations
                known[key] = factor * max(found.values())
            results[case.name]["limits"].append(known[key])

    def _turn(self, name: str, results: Mapping[str, dict[str, Any]]) -> None:
        names = [n for n, found in results.items() if name in found["peers"]]
        times = self._ask(name, "time", names=names, seconds=self._settings.seconds)
        for case, seconds in (times or {}).items():
            results[case]["peers"][name]["seconds"].append(seconds)


def _largest(case: Case) -> int:
    """The bytes of its largest argument."""
    return 4 * max(math.prod(shape) for shape in KINDS[case.kind].shapes(case.sizes))
