"""The decisions of kernels that were found faster than the rules' own, for `compile`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from typing import Protocol, TypeAlias, runtime_checkable

from relaxlab.ir.errors import expect
from relaxlab.ir.target import Target, target_kind
from relaxlab.runtime.native.openmp import default_threads
from relaxlab.schedule.decisions import Made


@runtime_checkable
class Lookup(Protocol):
    """Knows tuned kernels."""

    def accepted(self, target: Target, threads: int) -> Mapping[str, Made]:
        """The schedules with which kernels are faster on this machine, by `Context.key_of` of the
        kernel."""
        ...


Tuned: TypeAlias = str | os.PathLike[str] | Lookup
"""A database of tuned kernels, or the name of its file."""


def tuned_decisions(
    tuned: Tuned, target: Target, threads: int | None
) -> Mapping[str, Made]:
    """The accepted schedules for a target, by `Context.key_of` of the kernel. threads:
    None for all cores.

    Raises ValueError for another target than CPUs, OSError where there is no such file.
    """
    if not target_kind(target.kind).llvm:
        raise ValueError(f"tuned decisions are for CPUs, not for {target.kind!r}")
    if isinstance(tuned, str | os.PathLike):
        # By name: the package is above this one, and needed by nobody else.
        database: Lookup = import_module("relaxlab.tuning.database").Database(tuned, create=False)
    else:
        expect(tuned, Lookup, "tuned is a database of rl.tune, or the path of its file")
        database = tuned
    return database.accepted(target, threads or default_threads())
