"""Functions of TVM's run time and of GPU libraries, which scripts name and nothing computes."""

from __future__ import annotations

import pytest

from relaxlab.ir import expr, loops
from relaxlab.ir.equal import assert_structural_equal
from relaxlab.ir.tvm_intrinsics import tvm_rows
from relaxlab.script import parse, print_module

X = expr.Var("x", "float32")


@pytest.mark.parametrize("name, dtype", [(n, d) for n, _, d in tvm_rows()])
def test_functions_of_libraries_are_printed_and_read(name: str, dtype: str) -> None:
    named = {"given": "float32x2", "first": "float32", "second": "float32"}.get(dtype, dtype)
    args = (expr.StringImm("float32"),) if name == "type_annotation" else (X, X)
    call = expr.Call(named, name, args)
    func = loops.PrimFunc((X,), loops.Evaluate(call))
    again = parse(print_module(func))
    assert_structural_equal(list(again.loop_functions().values())[0], func)
