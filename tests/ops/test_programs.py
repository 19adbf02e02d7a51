"""Every use of an operator as a module: well formed, and its script reads back as itself."""

from __future__ import annotations

import pytest

from relaxlab.analysis.well_formed import check_well_formed
from relaxlab.ir.equal import assert_structural_equal
from relaxlab.ir.module import Module
from relaxlab.script.parser import parse
from relaxlab.testing.op_cases import FAMILIES
from relaxlab.testing.op_check import CaseProgram, OpCase

CASES = [case for family in FAMILIES.values() for case in family()]


def _module(case: OpCase) -> Module:
    """A function that calls the operator, and the loops of the call."""
    program = CaseProgram(case, case.sizes[0], symbolic=True)
    lower = program.row.lower
    kernel = lower(program.call, program.types, program.out)
    return Module.of({"main": program.function(), "loops": kernel})


@pytest.mark.parametrize("case", CASES, ids=str)
def test_program(case: OpCase) -> None:
    mod = _module(case)
    assert [d.render() for d in check_well_formed(mod)] == []
    assert_structural_equal(parse(mod.script()), mod)
