"""`tune_tir`: search for the schedules of the loop functions of a module."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relaxlab.ir.equal import structural_key
from relaxlab.ir.loops import IS_SCHEDULED, PrimFunc
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace
from relaxlab.runtime.programs import as_module
from relaxlab.schedule.decisions import SPACE
from relaxlab.schedule.replay import apply_trace
from relaxlab.schedule.schedule import Schedule as Core
from relaxlab.tuning import database as core
from relaxlab.tuning.tune import tune
from relaxlab.tuning.tune_kernel import TunedKernel
from relaxlab.tvm.meta_schedule.space_generator import ScheduleFn
from relaxlab.tvm.target import Target, core_target
from relaxlab.tvm.tir.schedule.schedule import Schedule

OWN = "schedule_fn"
"""The name of the user's space in records."""


@dataclass(frozen=True)
class TuneConfig:
    """The effort of a search, in older programs."""

    max_trials_global: int = 64
    num_trials_per_iter: int = 64
    max_trials_per_task: int | None = None
    strategy: str = "evolutionary"


@dataclass(frozen=True)
class Database:
    """The results of searches. `core` is the tuner's database, in the folder of the search."""

    core: core.Database
    traces: dict[str, str] = field(default_factory=dict)

    def keep(self, func: PrimFunc, found: TunedKernel, space: str | None) -> None:
        """Keep the trace that the search for a kernel found best: of the given space, where there
        is one; none if none of its schedules could be run."""
        if space is None:
            records = [r for r in self.core.records() if r.kernel == found.key and r.trace]
            best = [r.trace for r in records if r.outcome in ("accepted", "default")][-1:]
        else:
            within = [one for one in found.tried if one.point.get(SPACE) == space]
            best = [one.trace for one in sorted(within, key=lambda one: one.ratio)][-1:]
        self.traces.update({structural_key(func): trace for trace in best})

    def __enter__(self) -> Database:
        _CURRENT.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _CURRENT.pop()

    @staticmethod
    def current() -> Database | None:
        """The innermost database of `with database:`; None outside."""
        return _CURRENT[-1] if _CURRENT else None

    def scheduled(self, mod: Module) -> dict[str, PrimFunc]:
        """The loop functions of a module for which there are schedules, scheduled."""
        found: dict[str, PrimFunc] = {}
        for name, func in mod.loop_functions().items():
            trace = self.traces.get(structural_key(func))
            if trace is not None and not func.attrs.get(IS_SCHEDULED):
                new = apply_trace(func, trace).func
                found[name] = replace(new, attrs=new.attrs.with_(**{IS_SCHEDULED: True}))
        return found

    def has_workload(self, mod: Module) -> bool:
        """True if there is a schedule for each loop function of the module."""
        return all(structural_key(f) in self.traces for f in mod.loop_functions().values())

    def query_schedule(self, mod: Any, target: Any, workload_name: str = "main") -> Schedule | None:
        """The best schedule of a module of one loop function; None where none was found."""
        (name, func), *others = as_module(mod).loop_functions().items()
        if others:
            raise ValueError(f"the module has several loop functions: {name} and others")
        trace = self.traces.get(structural_key(func))
        return None if trace is None else Schedule.around(apply_trace(func, trace))

    def query_ir_module(self, mod: Any, target: Any, workload_name: str = "main") -> Any:
        """The module with the best schedule; None where none was found."""
        sch = self.query_schedule(mod, target, workload_name)
        return None if sch is None else sch.mod


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
    database: Database | None = None,
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
    kept = database or open_database(work_dir)
    own = space if isinstance(space, ScheduleFn) else ScheduleFn(space) if callable(space) else None
    for name, func in functions.items():
        alone = Module.of({name: func})
        kernel = alone.fresh_name(f"{name}_kernel")
        spaces = {kernel: _space(own, name)} if own else {}
        found = tune(
            alone, core_target(target), trials=max(1, trials // len(functions)),
            database=kept.core, threads=_threads(target),
            spaces=spaces, search="own" if own else "coordinate",
        )  # fmt: skip
        for one in found.kernels:
            kept.keep(func, one, OWN if own else None)
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


_CURRENT: list[Database] = []
_OPEN: dict[Path, Database] = {}


def open_database(work_dir: str) -> Database:
    """The database in a folder, which is made; one for all who open it."""
    folder = Path(work_dir).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if folder not in _OPEN:
        _OPEN[folder] = Database(core.Database(folder / "tuning.db"))
    return _OPEN[folder]
