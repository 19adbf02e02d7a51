"""Bare numbers and empty tuples in graph functions take their types from the operands beside
them."""

from __future__ import annotations

import ast
import re

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.equal import assert_structural_equal
from relaxlab.passes.lower_shapes import lower_shapes
from relaxlab.passes.normalize import normalize
from relaxlab.passes.pipeline import cpu_pipeline
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.native.arguments import ArgumentError
from relaxlab.runtime.vm.vm import VirtualMachine

PROGRAM = """
from relaxlab.script import relax as R, tir as T

@R.function
def main(x: R.Tensor(("n",), "float16"), c: R.Tensor((), "bool")):
    n = T.int64()
BODY
    return y
"""
BODIES = {
    "the number first": "y = R.maximum(2.0, x)",
    "a branch's result": """
if c:
    v = R.exp(x)
else:
    v = x
y = R.maximum(2.0, v)""",
    "a local function's result": """
@R.function
def f(z: R.Tensor(("k",), "float16")) -> R.Tensor(("k",), "float16"):
    w = R.maximum(2.0, z)
    return w
v = f(x)
y = R.maximum(2.0, v)""",
    "beside a condition": "y = R.where(R.greater(x, 0.0), 1.0, x)",
}


@pytest.mark.parametrize("name", BODIES)
def test_numbers_take_the_dtype_of_the_tensor_beside_them(name: str) -> None:
    body = "\n".join("    " + line for line in BODIES[name].splitlines())
    mod = rl.parse(PROGRAM.replace("BODY", body))
    assert 'const(2, "float32")' not in mod.script() and "float32" not in mod.script()
    assert "float16" in str(rl.trace(mod).result.graph_functions()["main"].ret_ty)


@pytest.mark.parametrize(
    ("numbers", "dtype"),
    [
        ("2.0, 3.0", "float32"),
        ("2, 3.5", "float32"),
        ("2, 3", "int64"),
        ("True, False", "bool"),
        ("R.prim_value(2.0), R.prim_value(3.5)", "float32"),
        ("R.prim_value(2), 3", "int64"),
    ],
)
def test_numbers_beside_a_condition_alone_keep_their_values(numbers: str, dtype: str) -> None:
    mod = rl.parse(PROGRAM.replace("BODY", f"    y = R.where(c, {numbers})"))
    values = [ast.literal_eval(v) for v in re.sub(r"R.prim_value|[()]", "", numbers).split(", ")]
    for c in (True, False):
        args = np.zeros(3, "float16"), np.array(c)
        for result in (rl.interpret(mod, "main", *args), rl.compile(mod)["main"](*args)):
            assert np.asarray(result).dtype == dtype
            assert result == (values[0] if c else values[1])


@pytest.mark.parametrize(
    "call",
    [
        'R.zeros((), "float16")',
        'R.ones((), "float16")',
        'R.full((), R.const(1, "float16"))',
        "R.reshape(R.sum(x), ())",
        "R.broadcast_to(R.sum(x), ())",
    ],
)
def test_an_empty_tuple_is_the_shape_of_a_scalar(call: str) -> None:
    mod = rl.parse(PROGRAM.replace("BODY", f"    y = {call}"))
    assert str(rl.trace(mod).result.graph_functions()["main"].ret_ty) == "R.Tensor((), 'float16')"


def test_symbols_of_shapes_are_int64() -> None:
    """Parameters of loop functions become int64 where they are dimensions."""
    loops = """
@T.prim_func
def f(a: T.handle, n: T.int32):
    A = T.match_buffer(a, (n,), "float32")
    for i in range(n):
        A[i] = T.float32(0)
"""
    assert [p.dtype for p in rl.parse(loops)["f"].params] == ["float32", "int64"]
    cast = PROGRAM.replace(
        "BODY", '    m = T.int32()\n    y = R.match_cast(R.unique(x), R.Tensor((m,), "float16"))'
    )
    with pytest.raises(DiagnosticError, match="a dimension must be int64, m is int32"):
        rl.parse(cast)


@pytest.mark.parametrize(
    ("number", "dtype"),
    [("1", "int32"), ("[1, -2]", "int32"), ("3000000000", "int64"), ("1.5", "float32"),
     ("True", "bool"), ("1, 'int64'", "int64")],
)  # fmt: skip
def test_constants_have_the_dtypes_of_relax(number: str, dtype: str) -> None:
    mod = rl.parse(PROGRAM.replace("BODY", f"    y = R.const({number})"))
    assert str(rl.trace(mod).result.graph_functions()["main"].ret_ty).endswith(f"'{dtype}')")


VALUES = {
    "bool": "True", "int8": "-128", "int16": "7", "int32": "-2147483648", "int64": "5",
    "uint8": "255", "uint16": "65535", "uint32": "1", "uint64": "18446744073709551615",
    "float16": "0.1", "bfloat16": "0.1", "float32": "-0.0", "float64": "1e300",
}  # fmt: skip
SCALAR = """
@R.function
def main(x: R.Tensor(("n",), "float32"), k: R.Prim("DTYPE")):
    n = T.int64()
    a = R.prim_value(T.DTYPE(VALUE))
    t = (a, k, n + 1)
    return t
"""


@pytest.mark.parametrize("dtype", VALUES)
def test_scalars_keep_their_dtype(dtype: str) -> None:
    """In deduced annotations, printed and read; and their value, rounded to the dtype."""
    mod = rl.parse(SCALAR.replace("DTYPE", dtype).replace("VALUE", VALUES[dtype]))
    typed = normalize(mod)
    assert dtype == "int64" or f"R.Prim(value=T.{dtype}(" in typed.script()
    assert_structural_equal(typed, rl.parse(typed.script()))
    given = numpy_dtype(dtype).type(eval(VALUES[dtype])).item()
    x = np.zeros(3, "float32")
    results = [rl.interpret(mod, "main", x, given), rl.compile(mod)["main"](x, given)]
    assert results == [(given, given, 4)] * 2


@pytest.mark.parametrize(
    ("dtype", "given"), [("int32", 1 << 31), ("uint8", -1), ("bool", 2), ("int64", 1.5)]
)
def test_arguments_that_no_scalar_of_the_dtype_holds(dtype: str, given: float) -> None:
    mod = rl.parse(SCALAR.replace("DTYPE", dtype).replace("VALUE", "1"))
    x = np.zeros(3, "float32")
    outside = f"outside of the range of {dtype}"
    reason = "must be an integer" if isinstance(given, float) else outside
    with pytest.raises(ExecutionError, match=reason):
        rl.interpret(mod, "main", x, given)
    with pytest.raises(ExecutionError, match=reason):
        VirtualMachine(lower_shapes(cpu_pipeline().run(mod).result)).run("main", x, given)
    with pytest.raises(ArgumentError, match=reason):
        rl.compile(mod)["main"](x, given)
