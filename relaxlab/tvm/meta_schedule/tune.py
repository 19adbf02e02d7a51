"""`tune_tir`: search for the schedules of the loop functions of a module."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.module import Module
from relaxlab.runtime.programs import as_module
from relaxlab.schedule.decisions import SPACE
from relaxlab.schedule.schedule import Schedule as Core
from relaxlab.schedule.trace import from_json
from relaxlab.tuning import database as core
from relaxlab.tuning.tune import tune
from relaxlab.tuning.tune_kernel import TunedKernel
from relaxlab.tvm.meta_schedule.database import JSONDatabase, MemoryDatabase, TuningRecord
from relaxlab.tvm.meta_schedule.space_generator import ScheduleFn
from relaxlab.tvm.target import Target, core_target
from relaxlab.tvm.tir.schedule.trace import Trace

OWN = "schedule_fn"
"""The name of the user's space in records."""


@dataclass(frozen=True)
class TuneConfig:
    """The effort of a search, in older programs."""

    max_trials_global: int = 64
    num_trials_per_iter: int = 64
    max_trials_per_task: int | None = None
    strategy: str = "evolutionary"


class TunerDatabase(JSONDatabase):
    """The results of searches in a folder. `core` is the tuner's own database, beside them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(work_dir=str(folder))
        self.core = core.Database(folder / "tuning.db")


def keep(
    database: MemoryDatabase, tuner: core.Database, func: PrimFunc, found: TunedKernel,
    space: str | None,
) -> None:  # fmt: skip
    """Keep the trace that the search for a kernel found best: of the given space, where there is
    one; none if none of its schedules could be run."""
    if space is None:
        ends = [r for r in tuner.records() if r.kernel == found.key and r.trace]
        best = [
            (r.interval[0] if r.interval else 1.0, r.trace)
            for r in ends if r.outcome in ("accepted", "default")
        ][-1:]  # fmt: skip
    else:
        within = [(t.ratio, t.trace) for t in found.tried if t.point.get(SPACE) == space]
        best = sorted(within)[-1:]
    for ratio, trace in best:
        workload = database.commit_workload(Module.of({"main": func}))
        steps = Trace({"main": tuple(from_json(trace))})
        seconds = [s / ratio for s in found.seconds]
        database.commit_tuning_record(TuningRecord(steps, workload, seconds))


def tune_tir(
    mod: Module | PrimFunc,
    target: Any,
    work_dir: str = "tune_tmp",
    max_trials_global: int = 64,
    *,
    config: TuneConfig | None = None,
    space: ScheduleFn | str | Callable[..., Any] = "post-order-apply",
    max_trials_per_task: int | None = None,
    num_trials_per_iter: int = 64,
    database: MemoryDatabase | None = None,
    seed: int | None = None,
    task_name: str = "main",
    **options: Any,
) -> Any:
    """Search for the schedules of a module's loop functions, with so many trials in all, in
    relaxlab's spaces or in that of a `ScheduleFn`. Returns the database of the results; with a
    `config`, as in older programs, the best schedule."""
    program = as_module(mod)
    functions = program.loop_functions()
    trials = config.max_trials_global if config else max_trials_global
    tuner = open_database(work_dir)
    kept = tuner if database is None else database
    own = space if isinstance(space, ScheduleFn) else ScheduleFn(space) if callable(space) else None
    for name, func in functions.items():
        alone = Module.of({name: func})
        kernel = alone.fresh_name(f"{name}_kernel")
        spaces = {kernel: _space(own, name)} if own else {}
        found = tune(
            alone, core_target(target), trials=max(1, trials // len(functions)),
            database=tuner.core, threads=_threads(target),
            spaces=spaces, search="own" if own else "coordinate",
        )  # fmt: skip
        for one in found.kernels:
            keep(kept, tuner.core, func, one, OWN if own else None)
    if config is not None:
        return kept.query_schedule(program, target)
    return kept


def _space(own: ScheduleFn, name: str) -> Callable[[Core], Core]:
    """The user's space of a function, as one of the core's."""

    def make(sch: Core) -> Core:
        return own.make(sch, name)

    make.__name__ = OWN
    return make


def _threads(target: Any) -> int | None:
    cores = Target(target).attrs.get("num-cores")
    return None if cores is None else int(cores)


_OPEN: dict[Path, TunerDatabase] = {}


def open_database(work_dir: str) -> TunerDatabase:
    """The database in a folder, which is made; one for all who open it."""
    folder = Path(work_dir).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if folder not in _OPEN:
        _OPEN[folder] = TunerDatabase(folder)
    return _OPEN[folder]
