"""Passes of `tvm.relax.transform` that search for schedules, or apply those that were found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from relaxlab.ir.module import Module
from relaxlab.tvm.meta_schedule.database import Database
from relaxlab.tvm.meta_schedule.tune import open_database, tune_tir
from relaxlab.tvm.target import Target
from relaxlab.tvm.transform import Pass, PassContext, PassInfo


def MetaScheduleTuneTIR(work_dir: str, max_trials_global: int) -> Pass:  # noqa: N802
    """Search for the schedules of loop functions, for the target of `with target:`; the database is
    in a folder. Raises ValueError without a target."""

    def run(mod: Module, _: PassContext) -> Module:
        if max_trials_global > 0 and mod.loop_functions():
            tune_tir(mod, Target.current(allow_none=False), work_dir, max_trials_global)
        return mod

    return Pass(run, PassInfo(0, "MetaScheduleTuneTIR"))


def MetaScheduleTuneIRMod(  # noqa: N802
    params: Mapping[str, Any],
    work_dir: str,
    max_trials_global: int,
    max_trials_per_task: int | None = None,
    op_names: Sequence[str] | None = None,
) -> Pass:
    """Search for the schedules of the loop functions of a module, or of those in whose names one of
    `op_names` is."""

    def run(mod: Module, context: PassContext) -> Module:
        chosen = {
            name: func for name, func in mod.loop_functions().items()
            if op_names is None or any(one in name for one in op_names)
        }  # fmt: skip
        MetaScheduleTuneTIR(work_dir, max_trials_global)(Module.of(chosen))
        return mod

    return Pass(run, PassInfo(0, "MetaScheduleTuneIRMod"))


def MetaScheduleApplyDatabase(  # noqa: N802
    work_dir: str | None = None, enable_warning: bool = False
) -> Pass:
    """Schedule loop functions as searches found best, in the database of a folder or that of
    `with database:`. Raises ValueError without a target, as searches do."""

    def run(mod: Module, _: PassContext) -> Module:
        Target.current(allow_none=False)
        database = Database.current() if work_dir is None else open_database(work_dir)
        return mod if database is None else mod.with_functions(database.scheduled(mod))

    return Pass(run, PassInfo(0, "MetaScheduleApplyDatabase"))
