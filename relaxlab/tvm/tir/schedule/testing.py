"""`tvm.tir.schedule.testing`: checks of schedules."""

from __future__ import annotations

from typing import Any

from relaxlab.ir.equal import assert_structural_equal
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.module import Module, name_of
from relaxlab.ir.node import replace
from relaxlab.tvm.tir.schedule.schedule import Schedule
from relaxlab.tvm.tir.schedule.trace import Trace


def verify_trace_roundtrip(
    sch: Schedule,
    mod: PrimFunc | Module,
    *,
    debug_mask: str | int = "all",
    text_format: Any = ("python", "json"),
) -> Schedule:
    """Make the steps of a schedule again on its program, from their JSON, and check that the result
    is the same. Returns the new schedule."""
    again = Schedule(mod)
    Trace.apply_json_to_schedule(sch.trace.as_json(), again)
    assert_structural_equal(again.mod, sch.mod)
    return again


def assert_structural_equal_ignore_global_symbol(
    func1: PrimFunc | Module, func2: PrimFunc | Module, map_free_vars: bool = False
) -> None:
    """Raise ValueError unless two programs are equal, but for the names that functions export."""
    assert_structural_equal(_unnamed(func1), _unnamed(func2))


def _unnamed(program: PrimFunc | Module) -> Module:
    mod = Module.of({name_of(program): program}) if isinstance(program, PrimFunc) else program
    return Module.of(
        {
            f"f{i}": replace(func, attrs=func.attrs.with_(global_symbol=None))
            for i, func in enumerate(mod.loop_functions().values())
        }
    )
