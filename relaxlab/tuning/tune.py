"""`tune`: search for faster decisions of a program's kernels, and keep them in a database."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

from relaxlab.ir.arguments import names_arguments
from relaxlab.ir.errors import brief, counted, expect_number
from relaxlab.ir.names import among
from relaxlab.ir.target import Target, parse_target
from relaxlab.runtime.native.openmp import default_threads
from relaxlab.runtime.programs import Program, as_module, with_entries
from relaxlab.runtime.timing import seconds_text
from relaxlab.schedule.rules.base import Space
from relaxlab.tuning.cluster import cluster_executor
from relaxlab.tuning.database import Database
from relaxlab.tuning.executor import Executor, local_executor
from relaxlab.tuning.generic import GENERIC, generic_space
from relaxlab.tuning.kernels import Kernel, TuneError, context_alone, kernels_of
from relaxlab.tuning.methods import METHODS, Method
from relaxlab.tuning.tune_kernel import KernelTuner, Limits, Report, State, TunedKernel
from relaxlab.tuning.workshop import Workers, sizes_text

TRIALS = 64
"""Default number of trials for each kernel."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """The result of the search for the kernels of a program. left_out: the reasons why others of
    them were not tuned, by name. interrupted: True if Ctrl-C ended it before all were. dropped: the
    reasons why workers of a cluster were not used, by their address."""

    kernels: tuple[TunedKernel, ...]
    left_out: Mapping[str, str]
    database: Database
    interrupted: bool = False
    dropped: Mapping[str, str] = field(default_factory=dict[str, str])

    def __repr__(self) -> str:
        better = sum(1 for k in self.kernels if k.interval is not None)
        trials = sum(sum(k.trials.values()) for k in self.kernels)
        parts = [
            f"{better} of {counted(len(self.kernels), 'kernel')} faster",
            counted(trials, "trial"),
            str(self.database.path),
        ]
        return f"Tuning({', '.join(parts)}{', interrupted' if self.interrupted else ''})"

    def __str__(self) -> str:
        return self.table()

    def table(self) -> str:
        """A line for each kernel: how many times as fast it is as with its rule's decisions, with
        the interval, then its trials; below it the decisions, and what was refused and why."""
        lines = [line for kernel in self.kernels for line in _lines(kernel)]
        lines += [f"{name}: not tuned: {reason}" for name, reason in self.left_out.items()]
        lines += [f"{address}: not used: {reason}" for address, reason in self.dropped.items()]
        if self.interrupted:
            lines.append("interrupted: other kernels were not tuned; `resume=True` goes on")
        return "\n".join(lines) or "the program has no kernel with decisions"

    def __getitem__(self, name: str) -> TunedKernel:
        for kernel in self.kernels:
            if kernel.name == name:
                return kernel
        names = among(name, (k.name for k in self.kernels))
        raise KeyError(f"no kernel {name!r} was tuned; there are: {names}")


def _lines(kernel: TunedKernel) -> list[str]:
    ratio = "default" if kernel.interval is None else f"{kernel.interval} times as fast"
    total = sum(kernel.trials.values())
    rate = f"{counted(total, 'trial')} in {kernel.duration:.1f} s"
    lines = [f"{kernel.name}: {ratio}; {kernel.note}; {rate}"]
    sizes = [sizes_text(s) for s in kernel.sizes]
    timed = zip(sizes, kernel.seconds, strict=False)
    times = "; ".join(f"{s + ': ' if s else ''}{seconds_text(t)}" for s, t in timed)
    if times:
        lines.append(f"    default: {times}")
    if kernel.point and kernel.matrix is not None and len(sizes) > 1:
        rows = kernel.matrix.rows
        last = next(row for row in rows if row.point == kernel.point)
        found = [f"{size}: {r} times" for size, r in zip(sizes, last.intervals, strict=True)]
        lines.append(f"    as fast: {'; '.join(found)}")
    if kernel.point:
        lines.append("    " + ", ".join(f"{key} = {value}" for key, value in kernel.point.items()))
    counts = Counter(kernel.refusals).most_common()
    return [*lines, *(f"    {number} x {reason}" for reason, number in counts)]


@names_arguments
@brief
def tune(
    mod: Program,
    target: str | Target = "cpu",
    *,
    trials: int = TRIALS,
    seconds: float | None = None,
    shapes: Mapping[str, Sequence[int] | int] | None = None,
    database: str | os.PathLike[str] | Database = "tuning.db",
    threads: int | None = None,
    workers: int | None = None,
    spaces: Mapping[str, Space] | None = None,
    search: Method = "coordinate",
    resume: bool = False,
    report: Report | None = None,
    scheduler: str | None = None,
) -> Tuning:
    """Search for decisions with which the kernels of a program are faster on this machine.

    mod: as `compile` takes it. trials: for each kernel at most, besides the default; seconds: for
    all of it, each kernel getting its share of what is left (which ends neither the building and
    measuring of its default nor the confirmation of its best: some seconds). shapes: values of the
    program's symbols for which kernels are measured, all combinations; other symbols are 256, or
    their bound where that is less. database: where trials and results are kept, which `compile(mod,
    tuned=database)` uses. threads: of calls, all cores by default. spaces: by the name of a kernel,
    a function that schedules it with decisions of its own (see docs/tuning.md); `generic` is tried
    for every kernel. search: "coordinate" goes from the rule's choice to neighbours, "random"
    draws, "evolution" goes by a cost model, "own" draws in a kernel's own space alone. resume:
    leave out points that the database has trials of, by this compiler. report: is called after each
    trial. scheduler: the address of a Dask scheduler, such as "tcp://host:8786", whose workers
    build and measure instead of processes of this machine (see docs/tuning.md); the target is then
    the CPU of those that are to measure, by default that of this machine.

    Decisions are accepted where the kernel is faster than the default by one percent with 95 %
    confidence when the two are measured in turns once more, after the search, and slower at none of
    the sizes. Ctrl-C ends the search, and what is the best so far is confirmed.

    Raises TuneError for shapes, spaces or a search that do not fit, and for a cluster without
    workers that do; ValueError for another target than the CPU of this machine, or than a CPU;
    LightGBMNotFound and DaskNotFound where these are needed and not installed; DatabaseError for a
    file that is no database, and what passes raise.
    """
    chosen = parse_target(target)
    _require_cpu(chosen, scheduler)
    if search not in METHODS:
        raise TuneError(f"the search is {search!r}; it is one of: {among(search, METHODS)}")
    _require_limits(trials, seconds)
    kept = database if isinstance(database, Database) else Database(database)
    kernels, left = kernels_of(with_entries(as_module(mod))[0], chosen, shapes or {})
    own = spaces or {}
    _require_kernels(own, [*(k.name for k in kernels), *left])
    count = threads or default_threads()
    end = None if seconds is None else time.monotonic() + seconds

    def tuner(kernel: Kernel, shop: Workers, limits: Limits) -> KernelTuner:
        spaces = _spaces_for(kernel, chosen, own.get(kernel.name))
        return KernelTuner(
            kernel, shop, kept, chosen, count, limits, report or _silent, search, resume, spaces
        )

    with _executor(scheduler, chosen, workers or default_threads()) as executor:
        shop = Workers(executor, chosen, count)
        found, interrupted = _each(
            kernels, lambda kernel, left: tuner(kernel, shop, Limits(trials, _share(end, left)))
        )
        return Tuning(found, left, kept, interrupted, dict(executor.dropped))


def _require_limits(trials: int, seconds: float | None) -> None:
    expect_number(trials, "trials is a whole number", whole=True)
    if trials < 1:
        raise TuneError(f"there is at least 1 trial, not {trials}")
    if seconds is not None:
        expect_number(seconds, "seconds is a number, or None for as long as the trials take")
    if seconds is not None and seconds < 0:
        raise TuneError(f"the search takes 0 seconds or more, not {seconds}")


def _each(
    kernels: Sequence[Kernel], tuner: Callable[[Kernel, int], KernelTuner]
) -> tuple[tuple[TunedKernel, ...], bool]:
    """The results for kernels one after another, until Ctrl-C; True if that ended it. tuner: makes
    the search for a kernel, of so many that are left."""
    found: list[TunedKernel] = []
    try:
        for i, kernel in enumerate(kernels):
            one = tuner(kernel, len(kernels) - i)
            found.append(one.run())
            if one.interrupted:
                return tuple(found), True
    except KeyboardInterrupt:
        return tuple(found), True
    return tuple(found), False


def _require_cpu(target: Target, scheduler: str | None) -> None:
    """Raise ValueError for a target that cannot be measured."""
    if scheduler is not None and target.kind != Target.host().kind:
        raise ValueError(f"kernels are tuned for CPUs; the target is {target!r}")
    exact = replace(target, contract=True, reassociate=True)
    if scheduler is None and exact != Target.host():
        raise ValueError(
            "kernels are tuned for the CPU of this machine; the target is 'cpu', or a scheduler "
            "has machines with that CPU"
        )


def _executor(
    scheduler: str | None, target: Target, workers: int
) -> AbstractContextManager[Executor]:
    """The executor of a scheduler's workers, or of so many processes here."""
    if scheduler is None:
        return local_executor(workers)
    return cluster_executor(scheduler, replace(target, contract=True, reassociate=True))


def _require_kernels(spaces: Mapping[str, Space], names: Sequence[str]) -> None:
    """Raise TuneError for a space of a kernel that is not among the names."""
    for name in spaces:
        if name not in names:
            listed = among(name, names)
            raise TuneError(f"the program has no kernel {name!r} for a space; it has: {listed}")


def _spaces_for(kernel: Kernel, target: Target, own: Space | None) -> dict[str, Space]:
    """The spaces in which a kernel is tuned, by name."""
    found = {GENERIC: generic_space(context_alone(kernel.program, target))}
    if own is not None:
        found[getattr(own, "__name__", "own")] = own
    return found


def _share(end: float | None, kernels: int) -> float | None:
    """The time at which the next of so many kernels ends, if all end in time."""
    now = time.monotonic()
    return None if end is None else now + max(0.0, end - now) / kernels


def _silent(_: State) -> None:
    """Report nothing."""
