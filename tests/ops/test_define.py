"""Operators that users define: rules that do not fit each other are named."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import relaxlab as rl
from relaxlab.ir import expr, op_table, types
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.op_table import TypeDeductionError
from relaxlab.ops import te
from relaxlab.ops.define import define, fail, takes

TEXT = """
@R.function
def main(x: R.Tensor(("n", 8), "float32")):
    y = R.test_defined(x)
    return y
"""


def same(_call: Any, tys: Any) -> Any:
    return tys[0]


def copied(_call: Any, _out: Any, x: Any) -> Any:
    return te.compute(x.shape, lambda *i: x[i], "T_copied")


def rounded(_call: Any, _out: Any, x: Any) -> Any:
    return te.compute(x.shape, lambda *i: expr.Cast("int32", x[i]), "T_rounded")


@pytest.fixture(autouse=True)
def without_it_afterwards() -> Iterator[None]:
    yield
    op_table._TABLE.pop("test_defined", None)


@pytest.mark.parametrize(
    ("infer", "emit", "message"),
    [
        (lambda c, t: None, copied, "its rule for types returned None, which is no type"),
        (lambda c, t: "x", copied, "its rule for types returned a str, which is no type"),
        (lambda c, t: types.TensorType(t[0].shape, "int8"), copied,
         r"`emit` gave float32 in 2 dimensions, its rule for types R.Tensor\(\(n, 8\), 'int8'\)"),
        (lambda c, t: types.TensorType(t[0].shape[:1], "float32"), copied,
         r"`emit` gave float32 in 2 dimensions, its rule for types R.Tensor\(\(n,\)"),
        (lambda c, t: types.TupleType((t[0], t[0])), copied,
         "`emit` gave 1 results, its rule for types 2"),
        (same, rounded, "`emit` gave int32 in 2 dimensions, its rule for types .*'float32'"),
        (same, lambda c, out, x: None, "`emit` gave None, which is no tensor expression"),
    ],
)  # fmt: skip
def test_rules_that_do_not_fit(infer: Any, emit: Any, message: str) -> None:
    define("test_defined", "x", infer, emit=emit, reference=lambda x: x, override=True)
    with pytest.raises((DiagnosticError, TypeDeductionError), match=f"R.test_defined: {message}"):
        rl.compile(rl.parse(TEXT), use_cache=False)


@pytest.mark.parametrize(
    ("infer", "emit", "error", "note"),
    [
        (lambda c, t: t[1], copied, IndexError, "in its rule for types of R.test_defined, <"),
        (same, lambda c, x: x, TypeError, "in `emit` of R.test_defined, <script>:"),
    ],
)  # fmt: skip
def test_errors_in_rules_name_the_operator(infer: Any, emit: Any, error: Any, note: str) -> None:
    define("test_defined", "x", infer, emit=emit, override=True)
    with pytest.raises(error) as e:
        rl.compile(rl.parse(TEXT), use_cache=False)
    assert e.value.__notes__[0].startswith(note)


def test_errors_in_needs_name_the_operator() -> None:
    def second(_call: Any, tys: Any) -> Any:
        return tys[1]

    define("test_defined", "x", same, needs=[second], emit=copied, override=True)
    with pytest.raises(IndexError) as e:
        rl.parse(TEXT)
    assert e.value.__notes__[0].startswith("in its needs of R.test_defined, <script>:")


def test_needs_are_asked_where_the_type_is_known() -> None:
    def wide(call: Any, tys: Any) -> None:
        raise fail(call, "is for the wide")

    define("test_defined", "x", same, needs=[takes("integer or bool")], emit=copied, override=True)
    mod = rl.parse(TEXT, computable=False)
    assert "R.test_defined(x)" in str(mod)
    with pytest.raises(DiagnosticError, match=r"R.test_defined: x must be integer or bool, has dt"):
        rl.compile(mod, use_cache=False)
    define("test_defined", "x", same, needs=[wide, takes("integer")], emit=copied, override=True)
    with pytest.raises(DiagnosticError, match="R.test_defined: is for the wide"):
        rl.parse(TEXT)


def test_a_rule_that_reads_beside_its_argument_is_refused_at_the_call() -> None:
    def beyond(call: Any, out: Any, x: te.Tensor) -> te.Tensor:
        return te.compute(out.shape, lambda i, j: x[i + 1, j], "beyond")

    define("test_defined", "x", same, emit=beyond, override=True)
    with pytest.raises(DiagnosticError, match=r"reaches n, outside 0 to n - 1\n *--> <script>:"):
        rl.compile(rl.parse(TEXT), use_cache=False)


def test_an_unknown_trait_is_refused() -> None:
    with pytest.raises(
        ValueError, match="'test_defined': there is no trait 'views'; there are view"
    ):
        define("test_defined", "x", same, emit=copied, traits=["views"])  # type: ignore[list-item]
    assert op_table.find_op("test_defined") is None
