"""Each primitive makes of a program what TVM's does, and refuses what TVM's refuses."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

import relaxlab as rl
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.node import replace
from relaxlab.schedule.tree import normalized
from relaxlab.tvm.script.normal import from_source
from tests.tvm import (
    further_schedule_cases,
    nested_schedule_cases,
    reduction_schedule_cases,
    region_schedule_cases,
    schedule_cases,
)
from tests.tvm.wheel import needs_wheel, results

pytestmark = [needs_wheel, pytest.mark.filterwarnings("ignore:(?s).*E0321")]
TABLES = (
    schedule_cases, region_schedule_cases, further_schedule_cases, reduction_schedule_cases,
    nested_schedule_cases,
)  # fmt: skip
PROGRAMS = {name: text for table in TABLES for name, text in table.PROGRAMS.items()}
CASES = tuple(case for table in TABLES for case in table.CASES)
DIFFERENT = {table.CASES: table.DIFFERENT for table in TABLES}
TEXTS = tuple((PROGRAMS[program], steps) for program, steps in CASES)


def function_of(result: dict[str, str]) -> PrimFunc:
    """The function of a result, with different names for all blocks, but for what is exported."""
    func: Any = from_source(result["script"])
    unnamed = {"global_symbol": None, "tir.noalias": None}
    return normalized(replace(func, attrs=func.attrs.with_(**unnamed)))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}: {case[1]}"[:100])
def test_steps_make_the_same_program(case: tuple[str, str]) -> None:
    number = CASES.index(case)
    theirs, ours = (results(which, "schedule", TEXTS)[number] for which in ("tvm", "relaxlab"))
    same = True
    if "script" in theirs and "script" in ours:
        # The stated regions are untrue after that, of which reading the program warns.
        hidden = "unsafe_hide_buffer_access" in case[1] and '"write"' in case[1]
        said = pytest.warns(UserWarning, match="E0333.*is written") if hidden else nullcontext()
        with said:
            same = rl.structural_equal(function_of(theirs), function_of(ours))
        same = same and theirs["printed"] == ours["printed"]
    else:
        assert "error" not in ours, ours
        same = "script" not in theirs and "refused" in ours
    program, steps = case
    different = next(known for cases, known in DIFFERENT.items() if case in cases)
    known = any(program == p and part in steps for p, part, _ in different)
    assert same == (not known), f"TVM: {theirs}\nrelaxlab: {ours}"
