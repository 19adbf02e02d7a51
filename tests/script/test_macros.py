"""Macros, and statements that calls open, as programs of TVM write them."""

from __future__ import annotations

import numpy as np
import pytest

from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.equal import structural_equal
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.script import parse
from relaxlab.script import relax as R

HEADER = "from tvm.script import ir as I, relax as R, tirx as T"
PARAMS = 'A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")'


def test_macros_with_the_names_of_their_callers() -> None:
    mod = parse(f"""{HEADER}
@T.macro(hygienic=False)
def bump(i):
    B[i] = B[i] + T.float32(N)
@T.prim_func
def main({PARAMS}):
    N = 5
    for i in range(16):
        bump(i)
""")
    out = np.zeros(16, "float32")
    interpret_prim_func(mod["main"], [out, out])  # type: ignore[arg-type]
    assert set(out) == {5.0}


@R.macro
def twice(x):  # type: ignore[no-untyped-def]
    y = R.add(x, x)
    return R.exp(y)


@R.macro(hygienic=False)  # pyright: ignore[reportCallIssue]
def shifted(x):  # type: ignore[no-untyped-def]
    return R.add(x, w)  # type: ignore[name-defined]  # noqa: F821


def test_macros_of_graph_functions() -> None:
    with_macros = parse(
        """
@R.macro
def unread(x):
    y = R.sin(x)
@R.function
def main(x: R.Tensor((4,), "float32"), w: R.Tensor((4,), "float32")):
    with R.dataflow():
        unread(x)
        b = R.add(twice(x), shifted(w))
        y = twice(b)
        R.output(y)
    return y
""",
        names={"twice": twice, "shifted": shifted},
    )
    written = parse("""
@R.function
def main(x: R.Tensor((4,), "float32"), w: R.Tensor((4,), "float32")):
    with R.dataflow():
        s = R.sin(x)
        p = R.add(x, x)
        b = R.add(R.exp(p), R.add(w, w))
        q = R.add(b, b)
        y = R.exp(q)
        R.output(y)
    return y
""")
    assert structural_equal(with_macros, written)
    assert structural_equal(parse(with_macros.script()), written)


def test_a_macro_is_hygienic_unless_it_says_otherwise() -> None:
    with pytest.raises(DiagnosticError, match="undefined name 'w'"):
        parse("""
@R.macro
def f(x):
    return R.add(x, w)
@R.function
def main(x: R.Tensor((4,), "float32"), w: R.Tensor((4,), "float32")):
    y = f(x)
    return y
""")


CALLED = """
    with T.While(A[0] < T.float32(4)):
        A[0] = A[0] + T.float32(1)
    with T.If(A[0] > T.float32(3)):
        with T.Then():
            B[0] = T.float32(1)
        with T.Else():
            B[0] = T.float32(2)
    T.Assert(A[0] > T.float32(2), "small")
    with T.Assert(condition=A[0] < T.float32(9), message="large"):
        B[1] = T.float32(3)
"""
PLAIN = """
    while A[0] < T.float32(4):
        A[0] = A[0] + T.float32(1)
    if A[0] > T.float32(3):
        B[0] = T.float32(1)
    else:
        B[0] = T.float32(2)
    assert A[0] > T.float32(2), "small"
    assert A[0] < T.float32(9), "large"
    B[1] = T.float32(3)
"""


def test_statements_that_calls_open() -> None:
    a, b = (parse(f"{HEADER}\n@T.prim_func\ndef main({PARAMS}):{x}") for x in (CALLED, PLAIN))
    assert structural_equal(a, b)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("with T.If(A[0] > 1.0):\n        B[0] = 1.0", "consists of T.Then and T.Else"),
        ("with T.If(A[0] > 1.0):\n        with T.Else():\n            T.evaluate(0)", "a T.Then"),
        ("with T.While():\n        B[0] = 1.0", "T.While takes condition"),
        ("T.Assert(A[0] > 1.0)", "T.Assert takes condition, message, error_kind"),
        ("with T.Assert(A[0] > 1.0, 'm', kind=3):\n        B[0] = 1.0", "T.Assert takes condition"),
        ("B[0] = T.let(A[0])", "needs `where="),
    ],
)
def test_calls_that_open_no_statement(body: str, message: str) -> None:
    with pytest.raises(DiagnosticError, match=message):
        parse(f"{HEADER}\n@T.prim_func\ndef main({PARAMS}):\n    {body}\n")
