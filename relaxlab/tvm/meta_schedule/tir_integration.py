"""Tuning of loop functions."""

from __future__ import annotations

from typing import Any

from relaxlab.tvm.meta_schedule.database import Database
from relaxlab.tvm.meta_schedule.tune import tune_tir as tune_tir
from relaxlab.tvm.tir.schedule.schedule import Schedule


def compile_tir(database: Database, mod: Any, target: Any) -> Schedule | None:
    """The best schedule that a search found for a loop function; None where it found none."""
    return database.query_schedule(mod, target)
