"""Tuning of whole programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from relaxlab.ir import graph
from relaxlab.ir.module import Module
from relaxlab.ir.node import walk
from relaxlab.passes.bindings import tir_call
from relaxlab.tuning.tune import tune
from relaxlab.tvm.meta_schedule.database import Database, Workload
from relaxlab.tvm.meta_schedule.tune import TunerDatabase, open_database
from relaxlab.tvm.target import Target, core_target


def tune_relax(
    mod: Any,
    params: Mapping[str, Any] | None,
    target: Any,
    work_dir: str,
    max_trials_global: int,
    **options: Any,
) -> TunerDatabase:
    """Search for the schedules of all kernels of a program, with so many trials for each."""
    database = open_database(work_dir)
    tune(mod, core_target(target), trials=max_trials_global, database=database.core)
    return database


@dataclass(frozen=True)
class ExtractedTask:
    """A loop function to search a schedule for, as `main` of a module, and how often it is
    called."""

    task_name: str
    mod: Module
    target: Target
    dispatched: list[Module]
    weight: int


def extract_tasks(
    mod: Module, target: Any, params: Mapping[str, Any] | None = None,
    module_equality: str = "structural",
) -> list[ExtractedTask]:  # fmt: skip
    """The different loop functions that the graph functions of a module call."""
    calls = (
        call.callee
        for func in mod.graph_functions().values() for n in walk(func)
        if isinstance(n, graph.Call) and (call := tir_call(n)) is not None
    )  # fmt: skip
    found: dict[Workload, list[str]] = {}
    for name in calls:
        found.setdefault(Workload(Module.of({"main": mod[name]})), []).append(name)
    return [
        ExtractedTask(names[0], work.mod, Target(target), [work.mod], len(names))
        for work, names in found.items()
    ]


def compile_relax(
    database: Database, mod: Module, target: Any, params: Mapping[str, Any] | None = None,
    enable_warning: bool = False,
) -> Any:  # fmt: skip
    """The executable of a module with the best schedules of a database."""
    with Target(target):
        program = mod.with_functions(database.scheduled(mod))
    # `relax` has passes that search for schedules.
    return import_module("relaxlab.tvm.relax.vm").build(program, target, params)
