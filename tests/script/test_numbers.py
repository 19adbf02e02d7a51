"""Bare numbers and empty tuples in graph functions take their types from what stands beside."""

from __future__ import annotations

import pytest

import relaxlab as rl
from relaxlab.ir.diagnostics import DiagnosticError

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
    assert "float16" in str(rl.trace(mod).result["main"].ret_ty)


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
    assert str(rl.trace(mod).result["main"].ret_ty) == "R.Tensor((), 'float16')"


def test_symbols_of_shapes_are_int64() -> None:
    loops = """
@T.prim_func
def f(a: T.handle):
    n = T.int32()
    A = T.match_buffer(a, (n,), "float32")
    for i in range(n):
        A[i] = T.float32(0)
"""
    cast = PROGRAM.replace(
        "BODY", '    m = T.int32()\n    y = R.match_cast(R.unique(x), R.Tensor((m,), "float16"))'
    )
    for text, symbol in ((loops, "n"), (cast, "m")):
        with pytest.raises(DiagnosticError, match=f"a dimension must be int64, {symbol} is int32"):
            rl.parse(text)


@pytest.mark.parametrize(
    ("number", "dtype"),
    [("1", "int32"), ("[1, -2]", "int32"), ("3000000000", "int64"), ("1.5", "float32"),
     ("True", "bool"), ("1, 'int64'", "int64")],
)  # fmt: skip
def test_constants_have_the_dtypes_of_relax(number: str, dtype: str) -> None:
    mod = rl.parse(PROGRAM.replace("BODY", f"    y = R.const({number})"))
    assert str(rl.trace(mod).result["main"].ret_ty).endswith(f"'{dtype}')")
