"""Each operator of two scalars has one row, which scripts, Python and NumPy agree with."""

from __future__ import annotations

import numpy as np
import pytest

from relaxlab.analysis.evaluate import evaluate
from relaxlab.ir import expr
from relaxlab.ir.scalar_operators import SCALAR_OPERATORS
from relaxlab.script import parse
from relaxlab.script.print_expr import scalar
from relaxlab.script.writer import Writer


def leaves(cls: type) -> set[type]:
    """The classes of the module without subclasses in it."""
    below = [c for c in cls.__subclasses__() if c.__module__ == expr.__name__]
    return set().union(*map(leaves, below)) if below else {cls}


def test_every_class_has_a_row() -> None:
    assert {c.__name__ for c in leaves(expr.BinaryOp)} == set(SCALAR_OPERATORS)


@pytest.mark.parametrize("name", SCALAR_OPERATORS)
def test_values_of_numbers_and_arrays_agree(name: str) -> None:
    row = SCALAR_OPERATORS[name]
    logical = name in ("And", "Or")
    pairs = [(0, 1), (1, 1), (0, 0)] if logical else [(7, 2), (-7, 2), (7, 3), (4, 4)]
    if name.startswith("Shift"):
        pairs = [(7, 2), (-7, 1), (0, 3)]
    dtype = "bool" if logical else "int64"
    for a, b in pairs:
        node = getattr(expr, name)(expr.const(a, dtype), expr.const(b, dtype))
        value = evaluate(node, {})
        if row.arrays is not None:
            assert value == row.arrays(np.array([a], dtype), np.array([b], dtype))[0]
        if row.infix and name != "Div":  # of integers, Python's is a fraction
            assert value == eval(f"a {row.infix} b", {"a": a, "b": b})
    if row.is_division:
        with pytest.raises(ZeroDivisionError):
            row.exact(1, 0)


@pytest.mark.parametrize("name", SCALAR_OPERATORS)
def test_precedence_is_that_of_python(name: str) -> None:
    """Printed with other operators on both sides, each reads back as the same expression."""
    dtype = "bool" if name in ("And", "Or") else "int64"
    for other in SCALAR_OPERATORS:
        if (other in ("And", "Or")) != (name in ("And", "Or")):
            continue
        x, y, z = (expr.Var(v, dtype) for v in "xyz")
        outer, inner = getattr(expr, name), getattr(expr, other)
        if issubclass(inner, expr.CmpOp) or (issubclass(outer, expr.CmpOp) and dtype == "bool"):
            continue
        for e in (outer(inner(x, y), z), outer(x, inner(y, z))):
            text = scalar(Writer(), e)
            f = parse(f"""
@T.prim_func
def f(x: T.{dtype}, y: T.{dtype}, z: T.{dtype}):
    T.evaluate({text})
""")["f"]
            assert scalar(Writer(), f.body.value) == text  # type: ignore[attr-defined]


@pytest.mark.parametrize("dtype", ["int64", "int32", "float32"])
def test_the_dtype_of_a_long_sum(dtype: str) -> None:
    """It is found without a call for each term, of which Python allows about a thousand."""
    terms = [expr.Var(f"x{i}", dtype) for i in range(5000)]
    total = expr.as_expr(terms[0])
    for term in terms[1:]:
        total = total + term
    assert total.dtype == dtype
    assert (total < terms[0]).dtype == "bool"
    assert expr.And(total < terms[0], total > terms[1]).dtype == "bool"
