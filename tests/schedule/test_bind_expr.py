"""Parts of what a block computes in blocks of their own, and the form of reductions."""

from __future__ import annotations

import numpy as np
import pytest

from relaxlab.ir.equal import assert_structural_equal
from relaxlab.ir.loops import Block, BufferStore, PrimFunc
from relaxlab.ir.node import replace
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.schedule import Schedule, ScheduleError, apply_trace
from relaxlab.schedule.order import KEEP_ORDER
from relaxlab.script import parse
from tests.schedule.programs import assert_same, assert_well_formed

LOOPS = """
@T.prim_func
def main(
    A: T.Buffer((6, 4), DTYPE), S: T.Buffer((6,), DTYPE), B: T.Buffer((4, 5), DTYPE),
    P: T.Buffer((6,), "int32"), C: T.Buffer((6, 5), DTYPE),
):
    for i, j, k in T.grid(6, 5, 4):
        with T.sblock("C"):
            y, x, z = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[y, x] = T.Cast(DTYPE, 0)
            C[y, x] = VALUE
"""


def function(value: str, dtype: str = "float32") -> PrimFunc:
    text = LOOPS.replace("VALUE", value).replace("DTYPE", f'"{dtype}"')
    return parse(text)["main"]  # type: ignore[return-value]


BOUND = {
    "rows": ("C[y, x] + A[y, z] / S[y] * B[z, x]", [0, 2], "A[y, z] / S[y]", "C_expr[y, z] * B"),
    "columns": ("C[y, x] + A[y, z] * T.exp(B[z, x])", [1, 2], "exp(B[z, x])", "C_expr[x, z]"),
    "twice": ("C[y, x] + (A[y, z] - S[y]) * B[z, x] * (A[y, z] - S[y])", [0, 2],
              "A[y, z] - S[y]", "C_expr[y, z] * B[z, x] * C_expr[y, z]"),
    "fewer axes": ("C[y, x] + A[y, z] * (S[y] + T.float32(1))", [0], "S[y] + 1.0",
                   "A[y, z] * C_expr[y]"),
    "an axis in it": ("C[y, x] + S[y] * T.Cast('float32', y) * B[z, x]", [0, 2],
                      "S[y] * float32(y)", "C_expr[y] * B"),
    "no axis": ("C[y, x] + A[y, z] * (S[3] * S[2])", [], "S[3] * S[2]", "A[y, z] * C_expr[()]"),
}  # fmt: skip


@pytest.mark.parametrize("name", BOUND)
def test_parts_are_computed_once(name: str, rng: np.random.Generator) -> None:
    value, axes, part, rest = BOUND[name]
    func = function(value)
    sch = Schedule(func)
    made = sch.bind_expr(sch.get_block("C"), axes, "global")
    block = sch.get(made)
    assert isinstance(block, Block) and isinstance(block.body, BufferStore)
    assert str(block.body.value) == part and rest in str(sch.func)
    assert_well_formed(sch.func)
    assert_same(func, sch.func, rng, [1])
    assert_structural_equal(apply_trace(func, sch.trace_json()).func, sch.func)


REFUSED = {
    "nothing to compute": ("C[y, x] + A[y, z] * B[z, x]", [0, 2], "one expression reads a buffer"),
    "two": ("C[y, x] + T.exp(A[y, z]) * B[z, x] * T.exp(S[y])", [0, 2],
            r"there are exp\(A\[y, z\]\), exp\(S\[y\]\)"),
    "its own element": ("T.exp(C[y, x]) + A[y, z]", [0, 1, 2], "one expression reads a buffer"),
    "no such axis": ("C[y, x] + A[y, z] * B[z, x]", [3], "axis 3 is one of its 3 axes"),
    "outside": ("C[y, x] + T.if_then_else(y > 0, T.exp(A[y - 1, z]), 0.0)", [0, 2],
                "index y - 1 may be outside"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    value, axes, message = REFUSED[name]
    sch = Schedule(function(value))
    with pytest.raises(ScheduleError, match=message):
        sch.bind_expr(sch.get_block("C"), axes, "global")


def test_one_of_several_parts(rng: np.random.Generator) -> None:
    func = function("C[y, x] + A[y, z] / S[y] * T.exp(B[z, x]) * (A[y, z] + S[y])")
    sch = Schedule(func)
    block = sch.get_block("C")
    with pytest.raises(ScheduleError, match="there are"):
        sch.bind_expr(block, [0, 2], "local")
    with pytest.raises(ScheduleError, match="there are"):
        sch.bind_expr(block, [0, 2], "local", 2)
    sch.bind_expr(block, [0, 2], "local", 1)
    sch.bind_expr(block, [0, 2], "local", 0)
    assert "C_expr_1[y, z] * T.exp(B[z, x]) * C_expr[y, z]" in str(sch.func)
    assert_same(func, sch.func, rng, [1])
    assert_structural_equal(apply_trace(func, sch.trace_json()).func, sch.func)


def test_integers_are_not_divided_before_it_is_asked_for() -> None:
    value = "C[y, x] + T.if_then_else(B[z, x] != 0, 7 // P[y], 0)"
    sch = Schedule(function(value, "int32"))
    with pytest.raises(ScheduleError, match="is computed without a condition"):
        sch.bind_expr(sch.get_block("C"), [0], "global")


TERMS = {
    "C[y, x] + A[y, z] + B[z, x]": "C[y, x] + (A[y, z] + B[z, x])",
    "C[y, x] + A[y, z] - B[z, x]": "C[y, x] + (A[y, z] - B[z, x])",
    "C[y, x] - A[y, z] + B[z, x]": "C[y, x] + (B[z, x] - A[y, z])",
    "C[y, x] - A[y, z] - B[z, x]": "C[y, x] + (A[y, z] + B[z, x]) * -1",
    "C[y, x] - A[y, z]": "C[y, x] + A[y, z] * -1",
    "S[y] + (A[y, z] + C[y, x]) - B[z, x]": "C[y, x] + (S[y] + A[y, z] - B[z, x])",
    "S[y] * C[y, x] * B[z, x]": "C[y, x] * (S[y] * B[z, x])",
    "T.max(T.max(C[y, x], A[y, z]), B[z, x])": "T.max(C[y, x], T.max(A[y, z], B[z, x]))",
    "T.min(S[y], T.min(B[z, x], C[y, x]))": "T.min(C[y, x], T.min(S[y], B[z, x]))",
}


@pytest.mark.parametrize("value", TERMS)
def test_terms_come_first(value: str, rng: np.random.Generator) -> None:
    func = function(value, "int64")
    sch = Schedule(func)
    sch.canonicalize_reduction(sch.get_block("C"))
    assert f"C[y, x] = {TERMS[value]}\n" in str(sch.func)
    assert_same(func, sch.func, rng, [1])
    assert_structural_equal(apply_trace(func, sch.trace_json()).func, sch.func)


def test_integers_are_added_in_their_own_type(rng: np.random.Generator) -> None:
    """Without a type a number is int64; sums wrap alike in both."""
    func = function("C[y, x] + T.Select(A[y, z] == B[z, x], 1, 70000)", "int16")
    assert "T.Cast(\"int64\", C[y, x])" in str(func)
    sch = Schedule(func)
    sch.canonicalize_reduction(sch.get_block("C"))
    assert 'C[y, x] = C[y, x] + T.Cast("int16", T.Select(' in str(sch.func)
    assert_same(func, sch.func, rng, [1])


def test_unsigned_integers_are_taken_away(rng: np.random.Generator) -> None:
    """They have no factor -1; what is taken is added up first."""
    func = function("C[y, x] - A[y, z] - B[z, x]", "uint8")
    sch = Schedule(func)
    sch.canonicalize_reduction(sch.get_block("C"))
    assert "C[y, x] = C[y, x] - (A[y, z] + B[z, x])" in str(sch.func)
    assert_same(func, sch.func, rng, [1])


@pytest.mark.parametrize(
    "value", ["C[y, x] + A[y, z] * B[z, x]", "A[y, z] - C[y, x] - S[y]", "C[y, x] * A[y, z] + S[y]"]
)
def test_what_has_one_term_or_is_no_sum_stays(value: str) -> None:
    sch = Schedule(function(value))
    with pytest.raises(ScheduleError, match="is not, but can be, one store"):
        sch.canonicalize_reduction(sch.get_block("C"))


def test_the_order_of_floats_is_kept_where_it_is_asked_for() -> None:
    func = function("C[y, x] + A[y, z] + B[z, x]")
    sch = Schedule(replace(func, attrs=func.attrs.with_(**{KEEP_ORDER: True})))
    with pytest.raises(ScheduleError, match="reassociate=True"):
        sch.canonicalize_reduction(sch.get_block("C"))


FORMS = {
    "if B[z, x] > 1:\n                C[y, x] = C[y, x] + A[y, z]":
        "C[y, x] + T.Select(B[z, x] > 1, A[y, z], T.int64(0))",
    "C[y, x] = T.if_then_else(B[z, x] > 1, C[y, x] + A[y, z] - S[y], C[y, x])":
        "C[y, x] + T.Select(B[z, x] > 1, A[y, z] - S[y], T.int64(0))",
    "C[y, x] = T.Select(B[z, x] > 1, C[y, x], C[y, x] * A[y, z])":
        "C[y, x] * T.Select(not B[z, x] > 1, A[y, z], T.int64(1))",
    "C[y, x] = T.Select(A[y, z] > C[y, x], A[y, z], C[y, x])": "T.max(C[y, x], A[y, z])",
    "C[y, x] = T.Select(C[y, x] <= A[y, z], C[y, x], A[y, z])": None,
    "if A[y, z] < C[y, x]:\n                C[y, x] = A[y, z]": "T.min(C[y, x], A[y, z])",
    "t = A[y, z] * B[z, x]\n            C[y, x] = C[y, x] + t * t":
        "C[y, x] + A[y, z] * B[z, x] * (A[y, z] * B[z, x])",
    "C[y, x] = C[y, x] ^ A[y, z] ^ B[z, x]": "C[y, x] ^ (A[y, z] ^ B[z, x])",
    "if z > 0:\n                C[y, x] = C[y, x] + A[y, z - 1]":
        "C[y, x] + T.if_then_else(z > 0, A[y, z - 1], T.int64(0))",
    "if S[y] != 0:\n                C[y, x] = C[y, x] + B[z, x] // S[y]":
        "C[y, x] + T.if_then_else(S[y] != 0, B[z, x] // S[y], T.int64(0))",
    # What is asked for changes with each step, and places may be outside where it does not hold.
    "if C[y, x] < 9:\n                C[y, x] = C[y, x] + A[y, z]": None,
    "if y > 0:\n                C[y - 1, x] = C[y - 1, x] + A[y, z]": None,
}  # fmt: skip


@pytest.mark.parametrize("body", FORMS)
def test_other_forms_of_reductions(body: str, rng: np.random.Generator) -> None:
    text = LOOPS.replace("C[y, x] = VALUE", body)
    if "y - 1, x" in body:
        text = text.replace("C[y, x] = T.Cast", "C[T.max(y - 1, 0), x] = T.Cast")
    func = parse(text.replace("DTYPE", '"int64"'))["main"]
    sch = Schedule(func)
    form = FORMS[body]
    if form is None:
        with pytest.raises(ScheduleError, match="is not, but can be, one store"):
            sch.canonicalize_reduction(sch.get_block("C"))
        return
    sch.canonicalize_reduction(sch.get_block("C"))
    assert f"C[y, x] = {form}\n" in str(sch.func)
    assert_well_formed(sch.func)
    assert_same(func, sch.func, rng, [1])
    assert_structural_equal(apply_trace(func, sch.trace_json()).func, sch.func)


def test_what_is_no_number_is_not_chosen() -> None:
    """`a if a > x else x` keeps x where a is NaN, unlike a maximum."""
    func = function("T.Select(A[y, z] > C[y, x], A[y, z], C[y, x])")
    sch = Schedule(func)
    sch.canonicalize_reduction(sch.get_block("C"))
    a = np.array([[np.nan, 2, -1, 5], [np.nan] * 4, [-np.inf, -3, np.nan, -4], *[[1] * 4] * 3])
    results: list[np.ndarray] = []
    for one in (func, sch.func):
        c = np.zeros((6, 5), "float32")
        zeros = [np.zeros(6, "float32"), np.zeros((4, 5), "float32"), np.zeros(6, "int32")]
        interpret_prim_func(one, [a.astype("float32"), *zeros, c])
        results.append(c)
    np.testing.assert_array_equal(results[0], results[1])
    assert results[0][:3, 0].tolist() == [5, 0, 0]
