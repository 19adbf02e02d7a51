"""Tuning of whole programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relaxlab.tuning.tune import tune
from relaxlab.tvm.meta_schedule.tune import TunerDatabase, open_database
from relaxlab.tvm.target import core_target


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
