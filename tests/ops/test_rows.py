"""Every row: deduced types and loops against the NumPy reference."""

from __future__ import annotations

import pytest

from relaxlab.ir import types
from relaxlab.ir.op_table import infer_type, op_names, op_row
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.testing.op_cases import FAMILIES
from relaxlab.testing.op_check import CaseProgram, OpCase, check_op

CASES = [case for family in FAMILIES.values() for case in family()]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_types_and_loops_match_the_reference(case: OpCase) -> None:
    for seed, env in enumerate(case.sizes):
        for symbolic in (False, True):
            check_op(case, env, symbolic=symbolic, run=interpret_prim_func, seed=seed)


def test_every_lowered_operator_has_a_case() -> None:
    lowered = {name for name in op_names() if op_row(name).lower is not None}
    assert lowered == {case.op for case in CASES}


def blurred(ty: types.Type, level: int) -> types.Type:
    """`ty` with less known of its tensors: ranks and dtypes, dtypes, or nothing."""
    match ty:
        case types.TensorType(_, dtype, ndim):
            return types.TensorType(None, None if level == 2 else dtype, ndim if level == 0 else -1)
        case types.TupleType(fields):
            return types.TupleType(tuple(blurred(f, level) for f in fields))
        case _:
            return ty


def covers(coarse: types.Type, fine: types.Type) -> bool:
    """True if every value of type `fine` may be one of type `coarse`."""
    match coarse, fine:
        case types.TensorType(shape, dtype, ndim), types.TensorType():
            known = shape is None or shape == fine.shape
            return known and dtype in (None, fine.dtype) and ndim in (-1, fine.ndim)
        case types.TupleType(a), types.TupleType(b):
            return len(a) == len(b) and all(map(covers, a, b))
        case _:
            return coarse == fine


@pytest.mark.parametrize("case", CASES, ids=str)
def test_types_of_unknown_shapes(case: OpCase) -> None:
    program = CaseProgram(case, case.sizes[0], symbolic=True)
    for level in range(3):
        given = tuple(blurred(ty, level) for ty in program.types)
        result = infer_type(program.row, program.call, given, None)
        assert covers(result, program.out), f"{case}: {result} for {given}, not {program.out}"
