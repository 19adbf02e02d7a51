"""The analyzer on chosen expressions; `fuzz_arith` compares it with brute force."""

import random

import pytest

from relaxlab.analysis.arith import Analyzer, prove_equal, simplify
from relaxlab.ir import expr, loops
from relaxlab.ir.expr import Var, binary
from tests.analysis import fuzz_arith

V = expr.Var
n, m, x, y, i, j, k, io, ii = (V(s) for s in "n m x y i j k io ii".split())


def bound() -> Analyzer:
    an = Analyzer()
    for v in (n, m, x):
        an.bind_shape(v)
    an.bind(y, 0, 3)
    an.bind(k, 0, 63)
    an.bind(i, 0, n - 1)
    an.bind(j, 0, m - 1)
    an.bind(io, 0, (n + 15) // 16 - 1)
    an.bind(ii, 0, 15)
    return an


SIMPLIFIED = [
    ((x * 4 + y) // 4, "x"),
    ((x * 4 + y) % 4, "y"),
    (x // 4 * 4 + x % 4, "x"),
    (x - x // 4 * 4, "x % 4"),
    (x - x % 4, "x // 4 * 4"),
    (x // 4 // 5, "x // 20"),
    (x % 12 // 4, "x // 4 % 3"),
    (x // 4 % 3 * 4 + x % 4, "x % 12"),
    (x // 64 * 64 + x % 64 // 16 * 16 + x % 16, "x"),
    (x % 12 % 4, "x % 4"),
    ((x * 8 + 5) // 4, "x * 2 + 1"),
    ((x * 8 + 5) % 4, "1"),
    ((i * m + j) // m, "i"),
    ((i * m + j) % m, "j"),
    (((i * m + j) * 64 + k) // 64 // m, "i"),
    (((i * m + j) * 64 + k) % (m * 64) // 64, "j"),
    (x * (n + 1) // (n + 1), "x"),
    ((n - 1) // 16 - (n + 15) // 16, "-1"),
    ((x + 1) * (x - 1), "x * x - 1"),
    (n * m - m * n, "0"),
    (expr.Min(i, n), "i"),
    (binary(expr.Max, n, 0), "n"),
    (expr.Min(x + 1, x + 3), "x + 1"),
    (expr.Min(x + y, x + k), "x + min(k, y)"),
    (expr.Max(expr.Max(n, m), n), "max(m, n)"),
    (expr.Select(expr.LT(i, n), x, y), "x"),
    (expr.Select(expr.LT(x, n), y, y), "y"),
    (expr.Div(x, expr.const(4)), "x // 4"),
    (expr.Mod(x * 4 + y, expr.const(4)), "y"),
    (expr.Cast("int64", V("a", "int32") + expr.const(0, "int32")), "int64(a)"),
    (expr.LT(i * m + j, n * m), "True"),
    (expr.LT(x * 2, y * 2 + 5), "x < y + 3"),
    (expr.And(binary(expr.LT, x, 4), binary(expr.LT, x, 8)), "x < 4"),
    (expr.Or(binary(expr.LT, x, 4), binary(expr.LT, x, 8)), "x < 8"),
    (expr.Not(expr.LT(x, n)), "n <= x"),
    (binary(expr.GE, x * 3, 7), "x >= 3"),
    (binary(expr.EQ, x * 2 + 4, y * 2), "y == x + 2"),
]


@pytest.mark.parametrize(("e", "text"), SIMPLIFIED, ids=[str(e) for e, _ in SIMPLIFIED])
def test_simplify(e: expr.PrimExpr, text: str) -> None:
    assert str(bound().simplify(e)) == text


def test_simplify_is_idempotent_and_keeps_normal_forms() -> None:
    an = bound()
    for e, _ in SIMPLIFIED:
        once = an.simplify(e)
        assert an.simplify(once) is once


PROVED = [
    (expr.LT(io * 16 + ii, n), None),
    (expr.LT(io * 16 + ii, n + 15), True),
    (expr.LT(io * 16 + ii, (n + 15) // 16 * 16), True),
    (expr.LT(i * m + j, n * m), True),
    (expr.LT((i * m + j) * 64 + k, n * m * 64), True),
    (binary(expr.GT, n * m + 1, 0), True),
    (binary(expr.EQ, n * 2 + 1, m * 2), False),
    (expr.EQ(n * (m + 1), n * m + n), True),
    (expr.EQ(n * 4, n * 4 + 1), False),
    (expr.EQ(n, m), None),
    (expr.LE(expr.Min(n, m), expr.Max(n, m)), True),
    (expr.EQ(expr.Min(n, m) + expr.Max(n, m), n + m), True),
    (binary(expr.GE, (n + 3) // 4 * 4, n), True),
    (binary(expr.LT, (n + 3) // 4 * 4, n + 4), True),
    (binary(expr.LE, binary(expr.Min, 16, n - io * 16) + io * 16, n), True),
    (expr.And(expr.LT(i, n), expr.EQ(n, m)), None),
    (expr.Or(expr.LT(x, n), expr.GE(x, n)), True),
    (expr.And(expr.LT(x, n), expr.GE(x, n)), False),
    (binary(expr.LE, (y * 7 + 3) % 5 * y, 12), True),
    (expr.LT(n, n), False),
    (expr.LT(i // 8 * 8 + 7, (n + 7) // 8 * 8), True),
    (expr.EQ((n + 15) // 16 * 16 * 4, (n * 4 + 63) // 64 * 64), True),
    (expr.EQ(0 - ((0 - n) // 16), (n + 15) // 16), True),
    (binary(expr.GE, binary(expr.Min, 16, n - io * 16), 1), True),
]


@pytest.mark.parametrize(("e", "verdict"), PROVED, ids=[str(e) for e, _ in PROVED])
def test_prove(e: expr.PrimExpr, verdict: bool | None) -> None:
    assert bound().prove(e) is verdict


def test_bounds() -> None:
    an = Analyzer()
    an.bind_shape(n, 2048)
    an.bind(io, 0, (n + 15) // 16 - 1)
    an.bind(ii, 0, 15)
    assert an.bounds_of(io * 16 + ii) == (0, 2047)
    assert an.bounds_of(io * 16 + ii - n) == (-2048, 14)
    assert an.bounds_of((n + 3) // 4 * 4 - n) == (0, 3)
    assert an.upper_bound(n * n) == 2048 * 2048
    assert an.bounds_of(m) == (None, None)
    assert an.bounds_of(expr.Cast("int64", V("byte", "uint8"))) == (0, 255)


def test_assumptions_are_local() -> None:
    an = Analyzer()
    an.bind_shape(n)
    an.bind_shape(m)
    with an.assuming(binary(expr.EQ, n % 16, 0)):
        assert an.prove_equal(n // 16 * 16, n) is True
        assert str(an.simplify((n + 15) // 16 * 16)) == "n"
        assert str(an.simplify((n * m + x) // 16)) == "m * (n // 16) + x // 16"
    with an.assuming(binary(expr.EQ, n, 1)):
        assert str(an.simplify((n * m + x) // 16)) == "(m + x) // 16"
    with an.assuming(binary(expr.LE, n, 8)):
        assert an.bounds_of(n * 3) == (0, 24)
    with an.scope():
        an.bind(n, 2, 2)
        assert str(an.simplify(n * m)) == "m * 2"
    assert an.prove(binary(expr.LE, n, 8)) is None
    assert an.bounds_of(n) == (0, None)


def test_binding_again_replaces() -> None:
    an = Analyzer()
    an.bind(i, 0, n - 1)
    assert an.prove(expr.LT(i, n)) is True
    an.bind(i, 0, 7)
    assert an.prove(expr.LT(i, n)) is None
    assert an.bounds_of(i) == (0, 7)


def test_range_of_one_is_its_value() -> None:
    an = Analyzer()
    an.bind_range(i, loops.Range(n * 2, expr.const(1)))
    assert str(an.simplify(i + 1)) == "n * 2 + 1"


def test_floats_are_left_alone() -> None:
    a = loops.Buffer("A", (n,))
    load = loops.BufferLoad(a, (x * 4 // 4 + 0 * y,))
    e = (load + 0.0) * 1.0
    new = bound().simplify(e)
    assert str(new) == "(A[x] + 0.0) * 1.0"
    kept = expr.Not(expr.LT(load, expr.const(0.0)))
    assert isinstance(bound().simplify(kept), expr.Not)  # not (a >= 0), which NaN tells apart


def test_unsigned_wraps_so_it_is_left_alone() -> None:
    a, b = V("a", "uint8"), V("b", "uint8")
    e = (a + b) - b
    assert simplify(e) is e


def test_calls_with_effects_stay() -> None:
    call = expr.Call("int64", "call_extern", (expr.StringImm("tick"),))
    e = call - call
    assert simplify(e) is e


def test_loads_of_the_same_element_cancel() -> None:
    a = loops.Buffer("A", (n,), "int32")
    first, second = (loops.BufferLoad(a, (e,)) for e in (x + 1, expr.const(1) + x))
    assert str(simplify(first - second)) == "0"


def test_if_then_else_sees_its_condition() -> None:
    e = expr.Call("int64", "if_then_else", (expr.LT(x, n), expr.Min(x, n), n))
    assert str(bound().simplify(e)) == "if_then_else(x < n, x, n)"


def test_results_do_not_depend_on_what_came_before() -> None:
    an = bound()
    for e, _ in SIMPLIFIED:
        an.simplify(e)
    assert [str(an.simplify(e)) for e, _ in SIMPLIFIED] == [t for _, t in SIMPLIFIED]


def test_unknown_variables_may_be_negative() -> None:
    assert prove_equal(x // 1, x) is True
    assert Analyzer().prove(binary(expr.GE, x, 0)) is None
    assert Analyzer.for_shapes(x * 2).prove(binary(expr.GE, x, 0)) is True
    assert Analyzer.for_shapes(x, upper={"x": 7}).bounds_of(x) == (0, 7)


def test_divisors_that_only_differences_make_positive() -> None:
    """`n - k + 6` for k < n; neither variable alone says that it is."""
    n, k, f = Var("n"), Var("k"), Var("f")
    an = Analyzer.for_shapes(n)
    an.bind_range(f, loops.Range(expr.const(0), n * 8))
    by = (n - k + 6) // 8
    assert an.prove(binary(expr.GE, f // by, 0)) is None
    assert an.prove(binary(expr.GE, f % by, 0)) is None
    an.bind_range(k, loops.Range(expr.const(0), n))
    assert an.prove(binary(expr.GE, f // by, 0)) is True
    assert an.prove(binary(expr.GE, f % by, 0)) is True
    an.bind_range(k, loops.Range(expr.const(0), n + 100))
    assert an.prove(binary(expr.GE, f // by, 0)) is None


def test_against_brute_force() -> None:
    seed = random.randrange(10**9)
    print("seed", seed)
    for number in range(400):
        fuzz_arith.check(seed + number)


def test_fuzzing_finds_a_wrong_simplifier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Analyzer, "prove", lambda self, e: True)
    with pytest.raises(AssertionError, match="prove"):
        for seed in range(100):
            fuzz_arith.check(seed)


def test_indices_that_are_loaded_are_simplified() -> None:
    """Sums and products of data as such, quotients where it is known not to wrap."""
    rows, cells = (loops.Buffer(b, (n,), d) for b, d in (("rows", "int64"), ("cells", "int32")))
    an = bound()
    row, cell = loops.BufferLoad(rows, (i,)), loops.BufferLoad(cells, (i,))
    wide = expr.Cast("int64", cell)
    assert str(an.simplify((row + 1) * 4 + y - row * 4)) == "y + 4"
    assert str(an.simplify((wide * 4 + y) // 4)) == "int64(cells[i])"
    assert str(an.simplify((wide * 4 + y) % 4)) == "y"
    assert an.simplify((row * 4 + y) // 4) == (row * 4 + y) // 4
    assert an.simplify((cell * 4) // 4) == (cell * 4) // 4
    assert an.bounds_of(wide + 1) == (-(2**31) + 1, 2**31)
    assert an.bounds_of(cell + 1) == (None, None)
    inside = expr.And(binary(expr.GE, row, 0), binary(expr.LT, row, m))
    with an.assuming(inside):
        assert str(an.simplify((row * 4 + y) // 4)) == "rows[i]"
        assert an.prove(binary(expr.LT, row * 4 + y, m * 4)) is True
    with an.assuming(expr.And(binary(expr.GE, row, 0), binary(expr.LT, row, 1 << 62))):
        assert an.prove(binary(expr.GE, row * 4, 0)) is None


def test_what_an_expression_is_a_multiple_of() -> None:
    n, m, an = expr.Var("n"), expr.Var("m"), Analyzer()
    assert an.modulus_of(n * 6 + m * 9 + 13) == (3, 1)
    assert an.modulus_of(n * 4 - 1) == (4, 3)
    assert an.modulus_of(expr.const(-5)) == (0, -5)
    assert an.modulus_of(n) == (1, 0)


def test_factors_of_variables() -> None:
    n, m, k = (expr.Var(name) for name in "nmk")
    an = Analyzer()
    assert list(map(str, an.linear_in(n * 3 + m * k + n * k + 2, (n,)) or ())) == [
        "k + 3", "k * m + 2",
    ]  # fmt: skip
    for e in (n * n, n * m, n // 2, expr.Max(n, m)):
        assert an.linear_in(e, (n, m)) is None
    assert list(map(str, an.linear_in(k // 2, (n, m)) or ())) == ["0", "0", "k // 2"]
