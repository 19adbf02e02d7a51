"""Answers about integer expressions are those of TVM."""

from __future__ import annotations

import pytest

from tests.tvm.wheel import needs_wheel, results

pytestmark = needs_wheel

QUESTIONS = """
a.simplify(i + j - i)
a.simplify((i * 4 + 2) // 4)
a.simplify((i * 4 + 2) % 4)
a.simplify(i // 8)
a.simplify(i % 8)
a.simplify((i + 8 * n) % 8)
a.simplify((i + 8 * n) // 8)
a.simplify(i * 2 - i - i)
a.simplify(tirx.max(i, -1))
a.simplify(tirx.min(i, j + 8))
a.simplify(i < 8)
a.simplify(tirx.And(i >= 0, n > 3))
a.simplify(tirx.Select(i < 9, n, m))
a.simplify((n * 16 + j) // 4)
a.simplify((n * 16 + j) // 16 * 16 + (n * 16 + j) % 16)
a.simplify(n + 1 < n + 2)
a.simplify(i // 2 * 2 + i % 2)
a.rewrite_simplify(n * 2 // 2)
a.canonical_simplify((n + m) * 2 - m - m)
a.simplify(tirx.floordiv(i * 8 + j // 2, 8))
a.can_prove(i < 8)
a.can_prove(i < 7)
a.can_prove(i + j <= 22)
a.can_prove(i * j <= 105)
a.can_prove(n * 0 == 0)
a.can_prove(i // 4 < 2)
a.can_prove_equal(i * 2, i + i)
a.can_prove_equal(n // 2, n)
a.can_prove_equal((n + 3) // 4 * 4 - 4, (n - 1) // 4 * 4)
a.const_int_bound(i * 2 + 1)
a.const_int_bound(i - j)
a.const_int_bound(n)
a.const_int_bound(i * j)
a.const_int_bound(j // 3)
a.const_int_bound(n % 5)
a.const_int_bound(tirx.max(i, 3))
a.const_int_bound(tirx.min(n, 3))
a.const_int_bound_is_bound(i)
a.const_int_bound_is_bound(n)
a.modular_set(n * 4 + 2)
a.modular_set(n * 6 + m * 9 + 1)
a.modular_set(tirx.const(5, "int64"))
a.modular_set(n)
a.modular_set((n * 4 + 2) * 3)
a.int_set(i * 2 + n, {i: sym.IntervalSet(0, 7)})
a.int_set(i - j, {i: sym.IntervalSet(0, 7), j: sym.IntervalSet(1, 2)})
a.int_set(i // 2, {i: sym.IntervalSet(0, 7)})
a.int_set(i + 1)
a.int_set(n + 1)
a.try_compare(i, tirx.const(8, "int64"))
a.try_compare(i + 1, i)
a.try_compare(i, tirx.const(0, "int64"))
a.try_compare(i + j, j + i)
a.try_compare(n, m)
sym.detect_linear_equation(n * 3 + m * i + 2, [n])
sym.detect_linear_equation(n * 3 + m * 2 + 2, [n, m])
sym.detect_linear_equation(n * m, [n, m])
sym.detect_linear_equation(n // 2, [n])
sym.detect_linear_equation(i + 1, [n])
sym.iter_map_simplify([i // 8, i % 8 + j * 1], {i: Range(0, 8), j: Range(0, 16)})
a.bind(i, Range(0, 9))
a.bind(i, Range(0, 8))
(a.bind(i, Range(0, 9), True), a.can_prove(i < 8))
(a.bind(n, m + 1), a.simplify(n - m))
(a.update(n, sym.ConstIntBound(2, 7)), a.can_prove(n > 1), a.const_int_bound(n * 2))
(a.clone().bind(n, tirx.const(3, "int64")), a.simplify(n + 1))
(a.bind(n, Range(2, 6)), a.const_int_bound(n))
(a.bind(n, Range(6)), a.const_int_bound(n))
(b := a.clone(), b.bind(n, tirx.const(3, "int64")), b.simplify(n + 1))[1:]
sym.IntervalSet(3, 2).is_nothing()
sym.IntervalSet(2, 3).is_everything()
""".strip().splitlines()
DIFFERENT = {
    "a.simplify(tirx.And(i >= 0, n > 3))": "a comparison in another form",
    "a.can_prove(n * 0 == 0)": "`==` compares expressions",
    "a.int_set(i * 2 + n, {i: sym.IntervalSet(0, 7)})": "the order of a sum",
    "sym.detect_linear_equation(n * 3 + m * i + 2, [n])": "the order of a product",
    "a.try_compare(i + 1, i)": "more is proved",
    "a.try_compare(i + j, j + i)": "more is proved",
    "sym.IntervalSet(3, 2).is_nothing()": "more is proved",
}
"""The questions with other answers, and why."""


@pytest.mark.parametrize("question", QUESTIONS)
def test_answers_are_the_same(question: str) -> None:
    cases = tuple(("", q) for q in QUESTIONS)
    theirs, ours = (
        results(which, "arithmetic", cases)[QUESTIONS.index(question)]
        for which in ("tvm", "relaxlab")
    )
    same = "refused" in theirs and "refused" in ours or theirs == ours
    assert same != (question in DIFFERENT), f"TVM: {theirs}\nrelaxlab: {ours}"
