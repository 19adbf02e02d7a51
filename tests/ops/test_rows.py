"""Every row: deduced types and loops against the NumPy reference."""

from __future__ import annotations

import pytest

from relaxlab.ir.op_table import op_names, op_row
from relaxlab.runtime.interpreter import interpret_prim_func
from relaxlab.testing.op_cases import FAMILIES
from relaxlab.testing.op_check import OpCase, check_op

CASES = [case for family in FAMILIES.values() for case in family()]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_types_and_loops_match_the_reference(case: OpCase) -> None:
    for seed, env in enumerate(case.sizes):
        for symbolic in (False, True):
            check_op(case, env, symbolic=symbolic, run=interpret_prim_func, seed=seed)


def test_every_lowered_operator_has_a_case() -> None:
    lowered = {name for name in op_names() if op_row(name).lower is not None}
    assert lowered == {case.op for case in CASES}
