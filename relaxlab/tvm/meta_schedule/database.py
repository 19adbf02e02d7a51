"""`tvm.meta_schedule.database`: schedules of loop functions, with the times that were measured."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from relaxlab.ir.equal import structural_key
from relaxlab.ir.loops import IS_SCHEDULED, PrimFunc
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace
from relaxlab.runtime.programs import as_module
from relaxlab.schedule.replay import apply_steps
from relaxlab.schedule.trace import from_json
from relaxlab.script import parse
from relaxlab.script.printer import print_module
from relaxlab.tvm.accessors import without_attr
from relaxlab.tvm.meta_schedule.arg_info import ArgInfo
from relaxlab.tvm.target import Target
from relaxlab.tvm.tir.schedule.schedule import Schedule
from relaxlab.tvm.tir.schedule.trace import Trace

_FAILED = 1e9
"""The seconds from which on a run counts as one that failed, as in TVM's records."""


def _only(mod: Any) -> tuple[str, PrimFunc]:
    (name, func), *others = as_module(mod).loop_functions().items()
    if others:
        raise ValueError(f"the module has several loop functions: {name} and others")
    return name, func


@dataclass(frozen=True)
class Workload:
    """A module of one loop function; those whose functions are the same are equal."""

    mod: Module

    @cached_property
    def key(self) -> str:
        """A text that is the same for equal functions, whatever their names."""
        return structural_key(without_attr(_only(self.mod)[1], "global_symbol"))

    def as_json(self) -> list[str]:
        """The key and the script."""
        return [self.key, print_module(self.mod)]

    @staticmethod
    def from_json(json_obj: Sequence[str]) -> Workload:
        """The workload that `as_json` described."""
        return Workload(parse(json_obj[1]))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Workload) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@dataclass(frozen=True)
class TuningRecord:
    """A schedule of a workload, and the seconds of its runs; None where it was not run."""

    trace: Trace
    workload: Workload
    run_secs: Sequence[float] | None = None
    target: Any = None
    args_info: Sequence[ArgInfo] | None = None

    @property
    def seconds(self) -> float | None:
        """The mean of the runs; None where none succeeded, or where nothing is scheduled."""
        runs = [float(s) for s in self.run_secs or ()]
        works = self.trace.insts and any(s < _FAILED for s in runs)
        return sum(runs) / len(runs) if works else None

    def schedule(self, func: PrimFunc, name: str) -> Schedule:
        """The schedule of an equal function."""
        (steps,) = self.trace.steps.values()
        made = Schedule(Module.of({name: func}))
        apply_steps(made.of(name), steps)
        return made

    def as_json(self) -> list[Any]:
        """The trace, the seconds, the target and the parameters."""
        target = None if self.target is None else Target(self.target).description()
        infos = None if self.args_info is None else [info.as_json() for info in self.args_info]
        runs = None if self.run_secs is None else [float(s) for s in self.run_secs]
        return [self.trace.as_json(), runs, target, infos]

    @staticmethod
    def from_json(json_obj: Any, workload: Workload) -> TuningRecord:
        """The record that `as_json` described."""
        steps, runs, target, infos = json_obj
        trace = Trace({n: tuple(from_json(json.dumps(one))) for n, one in steps.items()})
        known = None if infos is None else [ArgInfo.from_json(info) for info in infos]
        return TuningRecord(trace, workload, runs, target and Target(target), known)


class Database:
    """Schedules of workloads, of which queries return the fastest. A subclass has `get_top_k` and
    the records, or `query_schedule`."""

    def get_all_tuning_records(self) -> list[TuningRecord]:
        """All records."""
        return []

    def get_top_k(self, workload: Workload, top_k: int) -> list[TuningRecord]:
        """The fastest records of a workload, the best first."""
        found = [
            (r.seconds, r) for r in self.get_all_tuning_records()
            if r.seconds is not None and r.workload == workload
        ]  # fmt: skip
        return [r for _, r in sorted(found, key=lambda one: one[0])][:top_k]

    def has_workload(self, mod: Any) -> bool:
        """True if there is a record or a workload of the module's function."""
        return any(r.workload == Workload(as_module(mod)) for r in self.get_all_tuning_records())

    def query_tuning_record(
        self, mod: Any, target: Any, workload_name: str = "main"
    ) -> TuningRecord | None:
        """The fastest record of a module of one loop function; None where there is none."""
        return next(iter(self.get_top_k(Workload(as_module(mod)), 1)), None)

    def query_schedule(self, mod: Any, target: Any, workload_name: str = "main") -> Schedule | None:
        """The best schedule of a module of one loop function; None where there is none."""
        record = self.query_tuning_record(mod, target, workload_name)
        name, func = _only(mod)
        return None if record is None else record.schedule(func, name)

    def query_ir_module(self, mod: Any, target: Any, workload_name: str = "main") -> Any:
        """The module with the best schedule; None where there is none."""
        sch = self.query_schedule(mod, target, workload_name)
        return None if sch is None else sch.mod

    def query(
        self, mod: Any, target: Any, *, workload_name: str = "main", kind: str = "schedule"
    ) -> Any:
        """The best of a kind: "schedule", "record" or "ir_module"; None where there is none."""
        ways = {
            "schedule": self.query_schedule, "record": self.query_tuning_record,
            "ir_module": self.query_ir_module,
        }  # fmt: skip
        if kind not in ways:
            raise ValueError(f"unknown kind {kind!r}; known: {', '.join(ways)}")
        return ways[kind](mod, target, workload_name)

    def dump_pruned(self, destination: MemoryDatabase) -> None:
        """Put the best record of each workload into another database."""
        for workload in dict.fromkeys(r.workload for r in self.get_all_tuning_records()):
            for record in self.get_top_k(workload, 1):
                destination.commit_workload(workload.mod)
                destination.commit_tuning_record(record)

    def scheduled(self, mod: Module) -> dict[str, PrimFunc]:
        """The loop functions of a module for which there are schedules, scheduled."""
        found: dict[str, PrimFunc] = {}
        for name, func in mod.loop_functions().items():
            if func.attrs.get(IS_SCHEDULED):
                continue
            sch = self.query_schedule(Module.of({name: func}), Target.current())
            if sch is not None:
                new = sch.mod.loop_functions()[name]
                found[name] = replace(new, attrs=new.attrs.with_(**{IS_SCHEDULED: True}))
        return found

    def __len__(self) -> int:
        return len(self.get_all_tuning_records())

    def __enter__(self) -> Database:
        _CURRENT.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _CURRENT.pop()

    @staticmethod
    def current() -> Database | None:
        """The innermost database of `with database:`; None outside."""
        return _CURRENT[-1] if _CURRENT else None

    @staticmethod
    def create(kind: Any = "json", *args: Any, **kwargs: Any) -> Database:
        """A database of a kind, or of the schedules that a function makes."""
        if callable(kind):
            return ScheduleFnDatabase(kind, *args, **kwargs)
        if kind not in _KINDS:
            raise ValueError(f"unknown kind {kind!r}; known: {', '.join(_KINDS)}")
        return _KINDS[kind](*args, **kwargs)


class MemoryDatabase(Database):
    """Records in memory."""

    def __init__(self, module_equality: str = "structural") -> None:
        self.workloads: list[Workload] = []
        self.records: list[TuningRecord] = []

    def commit_workload(self, mod: Any) -> Workload:
        """The workload of a module of one loop function, which is kept."""
        workload = Workload(as_module(mod))
        if workload not in self.workloads:
            self.workloads.append(workload)
        return workload

    def commit_tuning_record(self, record: TuningRecord) -> None:
        """Keep a record."""
        self.records.append(record)

    def get_all_tuning_records(self) -> list[TuningRecord]:
        """All records."""
        return list(self.records)

    def has_workload(self, mod: Any) -> bool:
        """True if the module's function was committed."""
        return Workload(as_module(mod)) in self.workloads


class JSONDatabase(MemoryDatabase):
    """Records in two files, of a line of JSON for each; those that are there are read first. The
    lines are relaxlab's, and TVM does not read them."""

    def __init__(
        self,
        path_workload: str | None = None,
        path_tuning_record: str | None = None,
        *,
        work_dir: str | None = None,
        allow_missing: bool = True,
        module_equality: str = "structural",
    ) -> None:
        super().__init__(module_equality)
        if work_dir is not None:
            path_workload = path_workload or f"{work_dir}/database_workload.json"
            path_tuning_record = path_tuning_record or f"{work_dir}/database_tuning_record.json"
        if path_workload is None or path_tuning_record is None:
            raise ValueError("give the folder `work_dir`, or the paths of both files")
        self.path_workload, self.path_tuning_record = path_workload, path_tuning_record
        for path in map(Path, (path_workload, path_tuning_record)):
            if allow_missing:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
        self.workloads += map(Workload.from_json, _lines(path_workload))
        self.records += [
            TuningRecord.from_json(one, self.workloads[at])
            for at, one in _lines(path_tuning_record)
        ]

    def commit_workload(self, mod: Any) -> Workload:
        """The workload of a module of one loop function, which is kept."""
        known = len(self.workloads)
        workload = super().commit_workload(mod)
        if len(self.workloads) > known:
            _append(self.path_workload, workload.as_json())
        return workload

    def commit_tuning_record(self, record: TuningRecord) -> None:
        """Keep a record. Raises ValueError for one whose workload was not committed."""
        at = self.workloads.index(record.workload)
        super().commit_tuning_record(record)
        _append(self.path_tuning_record, [at, record.as_json()])


def _lines(path: str) -> list[Any]:
    return [json.loads(line) for line in Path(path).read_text("utf-8").splitlines()]


def _append(path: str, value: Any) -> None:
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(json.dumps(value) + "\n")


class UnionDatabase(Database):
    """Databases of which queries return the fastest record of all."""

    def __init__(self, *databases: Database) -> None:
        self.databases = databases

    def get_all_tuning_records(self) -> list[TuningRecord]:
        """Those of all databases."""
        return [r for one in self.databases for r in one.get_all_tuning_records()]


class OrderedUnionDatabase(UnionDatabase):
    """Databases of which queries return what the first one has that has something."""

    def get_top_k(self, workload: Workload, top_k: int) -> list[TuningRecord]:
        """The fastest records of a workload in the first database that has some."""
        found = (one.get_top_k(workload, top_k) for one in self.databases)
        return next(filter(None, found), [])


class ScheduleFnDatabase(Database):
    """The schedules that a function makes, which returns False where it makes none."""

    def __init__(
        self, schedule_fn: Callable[[Schedule], Any], module_equality: str = "structural"
    ) -> None:
        self.schedule_fn = schedule_fn

    def query_schedule(self, mod: Any, target: Any, workload_name: str = "main") -> Schedule | None:
        """The schedule that the function makes of a module."""
        sch = Schedule(as_module(mod))
        return sch if self.schedule_fn(sch) else None


create = Database.create
_CURRENT: list[Database] = []
_KINDS: dict[str, type[Database]] = {
    "json": JSONDatabase, "memory": MemoryDatabase, "union": UnionDatabase,
    "ordered_union": OrderedUnionDatabase,
}  # fmt: skip
