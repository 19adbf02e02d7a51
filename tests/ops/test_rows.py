"""Every row: deduced types and loops against the NumPy reference."""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import product

import pytest

import relaxlab as rl
from relaxlab.ir import types
from relaxlab.ir.node import Attrs, replace
from relaxlab.ir.op_table import TypeDeductionError, infer_type, op_names, op_row
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


WRONG = ["a", 1.5, (1, "a"), None, (), True, Attrs(a=1), float("nan"), 2**70, (None,)]


@pytest.mark.parametrize("family", FAMILIES)
def test_attributes_of_wrong_kinds_are_refused(family: str) -> None:
    """An error of Python's own would have no place in the program."""
    firsts = {case.op: case for case in reversed(FAMILIES[family]())}
    for op, case in firsts.items():
        program = CaseProgram(case, case.sizes[0], symbolic=True)
        call, given = program.call, program.call.attrs
        for name, value in product((p.name for p in op_row(op).params if p.kind == "attr"), WRONG):
            wrong = replace(call, attrs=Attrs({**given, name: value}))
            with suppress(TypeDeductionError):
                infer_type(program.row, wrong, program.types, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("R.tril(x, k=1.5)", "k must be a whole number, is 1.5"),
        ("R.nn.dropout(x, rate='a')", "rate must be a number, is 'a'"),
        ("R.nn.softmax(x, axis=None)", "axis must be an int, is None"),
        ("R.expand_dims(x, axis=None)", "axis must be an int or a tuple of ints, is None"),
        ("R.concat((x, x), axis=())", "axis must be an int, is ()"),
        ("R.strided_slice(x, [0], [0], None)", "end must be a whole number, is None"),
        ("R.astype(x, 3)", "dtype 3 is not a data type"),
        ("R.tile(x, 'a')", "repeats must be an integer, is a"),
        ("R.arange(R.prim_value(float('nan')))", "the number of elements from"),
        ("R.nn.pad(x, 3)", "pad_width (3,) must have 4 entries"),
        ("R.clip(x, (0, 1), 1)", "min must be a number, is (0, 1)"),
        ("R.split(x, 1 << 40)", "at most 65536, is 1099511627776"),
        ("R.sum(x, keepdims='yes')", "keepdims must be True or False, is 'yes'"),
        ("R.topk(x, True)", "k must be a number, is True"),
    ],
)  # fmt: skip
def test_messages_of_attributes_of_wrong_kinds(text: str, message: str) -> None:
    source = f'@R.function\ndef main(x: R.Tensor(("n", 4), "float32")):\n    return {text}\n'
    with pytest.raises(rl.DiagnosticError, match=re.escape(message)):
        rl.parse(source, check=True)
