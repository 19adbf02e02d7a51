"""Names of TVM's packages, under which programs import what relaxlab has."""

from __future__ import annotations

from importlib import import_module

import pytest

import relaxlab as rl
import relaxlab.tvm as tvm
from relaxlab.ir import expr, loops
from relaxlab.tvm import tir
from relaxlab.tvm.script import from_source

NAMES = {
    "relax.dpl.pattern": "is_op wildcard",
    "relax.dpl.rewrite": "rewrite_call rewrite_bindings",
    "relax.global_info": "VDevice",
    "ir.base": "assert_structural_equal load_json save_json",
    "ir.expr": "Range GlobalVar Call",
    "ir.type": "FuncType TupleType",
    "tirx.stmt": "For IfThenElse AssertStmt stmt_seq stmt_list ForKind",
    "tirx.buffer": "Buffer decl_buffer",
    "runtime.vm": "VirtualMachine",
    "te.operation": "compute create_prim_func",
    "script.parser": "ir relax tirx ir_module",
    "target.target": "Target",
}


@pytest.mark.parametrize("path", NAMES)
def test_modules_have_their_names(path: str) -> None:
    module = import_module(f"relaxlab.tvm.{path}")
    assert all(hasattr(module, name) for name in NAMES[path].split())


def test_texts_may_use_names_with_values() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((N,), "float32")):
    for i in range(N):
        A[i] = scale
"""
    func = from_source(text, extra_vars={"N": 7, "scale": 1.5})
    assert func.params[0].shape == (expr.const(7),)
    assert rl.structural_equal(rl.parse(text, names={"N": 7, "scale": 1.5})["main"], func)
    with pytest.raises(rl.DiagnosticError, match="undefined name 'N'"):
        rl.parse(text)


def test_programs_as_json() -> None:
    func = from_source("@T.prim_func\ndef f(A: T.Buffer((4,), 'float32')):\n    A[0] = 1.0\n")
    again = tvm.ir.load_json(tvm.ir.save_json(func))
    assert rl.structural_equal(again, func)


def test_statements_and_intrinsics_by_name() -> None:
    x = tir.Var("x", "float32")
    call = tir.call_intrin("float32", "tirx.exp", x)
    assert (call.dtype, call.op) == ("float32", "exp")
    with pytest.raises(ValueError, match="there is no intrinsic 'nothing'"):
        tir.call_intrin("float32", "nothing", x)
    both = tir.stmt_seq(call, tir.stmt_seq(x, call))
    assert [type(s) for s in tir.stmt_list(both)] == [loops.Evaluate] * 3
    assert tir.call_pure_extern("float32", "f", x).args[0].value == "f"
    assert tir.convert([1, 2.5, x]) == [tir.const(1), tir.const(2.5), x]
    loop = from_source("@T.prim_func\ndef f(A: T.Buffer((4,), 'float32')):\n"
                       "    for i in T.parallel(4):\n        A[i] = 1.0\n").body  # fmt: skip
    assert loop.kind == tir.ForKind.PARALLEL
