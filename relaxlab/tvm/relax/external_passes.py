"""Passes of `tvm.relax.transform` that search for schedules or hand programs to compilers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from relaxlab.ir.module import Module
from relaxlab.ir.node import replace
from relaxlab.runtime.packed import get_func
from relaxlab.tvm.meta_schedule.tune import Database, open_database, tune_tir
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


def AttachExternModules(extern_modules: Sequence[Any]) -> Pass:  # noqa: N802
    """Note compiled modules in the attribute `external_mods`, after those that are there."""

    def run(mod: Module, _: PassContext) -> Module:
        if not extern_modules:
            return mod
        known = mod.attrs.get("external_mods", ())
        attrs = mod.attrs.with_(external_mods=(*known, *extern_modules))
        return replace(mod, attrs=attrs)

    return Pass(run, PassInfo(0, "AttachExternModules"))


def RunCodegen(  # noqa: N802
    target_options: Mapping[str, Any] | None = None, entry_functions: Sequence[str] | None = None
) -> Pass:
    """Give functions with the attribute `Codegen` to their compilers, which are functions that are
    registered as `relax.ext.` and their names. Raises KeyError for one that is not."""

    def run(mod: Module, _: PassContext) -> Module:
        compilers = {f.attrs.get("Codegen") for f in mod.graph_functions().values()}
        for name in sorted(compilers - {None}):
            get_func(f"relax.ext.{name}")
            raise NotImplementedError(f"modules that relax.ext.{name} makes are not linked")
        return mod

    return Pass(run, PassInfo(0, "RunCodegen"))
