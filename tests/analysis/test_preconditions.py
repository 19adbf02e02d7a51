"""Conditions on the sizes of loop functions: how they are derived, checked at calls, and used by
schedules."""

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.analysis.preconditions import preconditions
from relaxlab.ir.loops import PrimFunc
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.runtime.native.loaded import CheckFailed

HEAD = """
@T.prim_func
def f(pa: T.handle, pb: T.handle, n: T.int64, b: T.int64):
    m = T.int64()
    A = T.match_buffer(pa, (m, m), "float32")
    B = T.match_buffer(pb, (m, 64), "float32")
"""
CASES = {
    "rows": ("for i in range(n): A[i, 0] = T.float32(1)", ["n <= m"]),
    "a constant size": ("for i in range(n): B[0, i] = T.float32(1)", ["n < 65"]),
    "the last of several": ("for i in range(n - 2): A[i + 2, i] = A[i, i + 1]", ["n <= m"]),
    "an offset": ("for i in range(8): A[i + b, 0] = T.float32(1)", ["b >= 0", "b + 7 < m"]),
    "rows of a product": (
        "for i, j in T.grid(n, b):\n"
        "        with T.block('x'):\n"
        "            vi, vj = T.axis.remap('SS', [i, j])\n"
        "            A[vi, vj] = A[vi, vj] + B[vi, 0]",
        ["n <= m", "b <= m"],
    ),
    "a triangle": (
        "for i in range(n):\n        for j in range(i): A[i, j] = A[j, i]", ["n <= m"]
    ),
    # Where nothing is accessed for certain, nothing is required.
    "rows that a triangle leaves out": (
        "for i in range(b):\n        for j in range(i + 1, m): A[i, j] = A[j, 0]", []
    ),
    "a row of an inner loop": (
        "for i in range(n):\n        for j in range(i + 1, n): A[j, 0] = T.float32(1)", ["n <= m"]
    ),
    "a constant number in a loop": (
        "for i in range(n):\n        for j in range(3): A[j, 0] = T.float32(1)", []
    ),
    "a condition": ("for i in range(n):\n        if i < m: A[i, 0] = T.float32(1)", []),
    "a condition of two": (
        "for i in range(n):\n"
        "        if i < m and A[i, 0] > T.float32(0): B[0, 0] = T.float32(1)",
        [],
    ),
    "a choice": (
        "for i in range(8): B[0, i] = T.if_then_else(i < m, A[i, 0], T.float32(0))", ["m >= 1"]
    ),
    "an empty range beyond the end": ("for i in range(b, n): A[i, 0] = T.float32(1)", []),
    "an index of data": ("for i in range(8): B[T.int64(A[0, 0]), 0] = T.float32(1)", ["m >= 1"]),
    "one element": ("A[3, 4] = T.float32(1)", ["m >= 5"]),
    "one element in a loop": ("for i in range(n): B[i, 0] = A[0, 0]", ["n <= m"]),
    "the last row for those beyond": (
        "for i in range(m): B[i, 0] = A[T.min(i, m - 1), 0]", []
    ),
    "an axis not reached": (
        "for i in range(b):\n"
        "        with T.block('x'):\n"
        "            vi = T.axis.spatial(n, i)\n"
        "            A[vi, 0] = T.float32(1)",
        [],
    ),
    "the shapes imply it": ("for i, j in T.grid(m, m): A[i, j] = T.float32(1)", []),
    "it is stated": ("assert n <= m\n    for i in range(n): A[i, 0] = T.float32(1)", []),
}  # fmt: skip


def read(body: str) -> PrimFunc:
    return rl.parse(f"{HEAD}    {body}\n")["f"]


@pytest.mark.parametrize("name", CASES)
def test_what_is_required(name: str) -> None:
    body, expected = CASES[name]
    found = [str(s.condition) for s in preconditions(read(body))]
    assert sorted(found) == sorted(expected)


def test_numbers_that_are_no_sizes_may_be_negative() -> None:
    exe = rl.compile(read("for i in range(2): A[i + b, 0] = T.float32(1)"), "cpu")
    a, b = np.zeros((4, 4), "float32"), np.zeros((4, 64), "float32")
    exe(a, b, 0, 2)
    assert a[:, 0].tolist() == [0, 0, 1, 1]
    with pytest.raises(CheckFailed, match="needs b >= 0: index b \\+ i is in dimension 0 of A"):
        exe(a, b, 0, -1)


def test_calls_that_would_leave_a_buffer_are_refused() -> None:
    func = read("for i in range(n): A[i, 0] = A[i, 0] + T.float32(b)")
    exe = rl.compile(func)
    a, b = np.zeros((4, 4), "float32"), np.zeros((4, 64), "float32")
    exe(a, b, 4, 1)
    assert a[:, 0].tolist() == [1, 1, 1, 1]
    with pytest.raises(CheckFailed, match="needs n <= m: index i is in dimension 0 of A"):
        exe(a, b, 5, 1)
    exe(a, b, -3, 1)  # no iterations
    assert a.sum() == 4


STATED = "assert n <= 3, 'at most {}'.format(b)\n    for i in range(n): A[i, 0] = T.float32(1)"


def test_assertions_at_the_top_are_required() -> None:
    func = read(STATED)
    assert [str(s.condition) for s in func.requires] == ["n <= 3"]
    again = rl.parse(func.script())["f"]
    rl.assert_structural_equal(func, again)
    args = np.zeros((4, 4), "float32"), np.zeros((4, 64), "float32"), 4, 9
    with pytest.raises(ExecutionError, match="needs n <= 3: at most 9"):
        interpret_prim_func(func, args)
    with pytest.raises(CheckFailed, match="needs n <= 3: at most `b`"):
        rl.compile(func)(*args)


def test_messages_without_values_are_literal() -> None:
    func = read("assert n < 3, 'not {n}'\n    for i in range(n): A[i, 0] = T.float32(1)")
    args = np.zeros((4, 4), "float32"), np.zeros((4, 64), "float32"), 4, 9
    for run in (lambda: interpret_prim_func(func, args), lambda: rl.compile(func)(*args)):
        with pytest.raises((ExecutionError, CheckFailed), match=r"needs n < 3: not \{n\}"):
            run()


def test_graph_programs_check_what_their_calls_do_not_imply() -> None:
    mod = rl.parse("""
@T.prim_func
def first(A: T.Buffer(("m", 4), "float32"), B: T.Buffer(("n", 4), "float32")):
    for i, j in T.grid(n, 4):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)

@R.function
def main(x: R.Tensor(("m", 4), "float32"), s: R.Shape(["n"])):
    whole = R.call_tir(cls.first, (x,), out_sinfo=R.Tensor((m, 4), "float32"))
    part = R.call_tir(cls.first, (whole,), out_sinfo=R.Tensor((n, 4), "float32"))
    return part
""")
    exe, x = rl.compile(mod), np.ones((6, 4), "float32")
    assert (exe["main"](x, (3,)) == np.full((3, 4), 4)).all()
    with pytest.raises(CheckFailed, match=r"in `main` needs n <= m.*\(it is 6\)"):
        exe["main"](x, (7,))


def test_fused_loop_functions_keep_what_each_requires() -> None:
    mod = rl.parse("""
@T.prim_func
def double(A: T.Buffer(("n", 4), "float32"), B: T.Buffer(("n", 4), "float32")):
    assert n % 2 == 0, "rows come in pairs"
    for i, j in T.grid(n, 4):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)

@R.function
def main(x: R.Tensor(("n", 4), "float32")):
    with R.dataflow():
        a = R.call_tir(cls.double, (x,), out_sinfo=R.Tensor((n, 4), "float32"))
        b = R.exp(a)
        R.output(b)
    return b
""")
    trace = rl.trace(mod)
    assert list(trace.result.loop_functions()) == ["fused_double_exp"]
    exe = rl.compile(mod)
    assert exe["main"](np.zeros((4, 4), "float32")).sum() == 16
    with pytest.raises(CheckFailed, match="needs n % 2 == 0: rows come in pairs"):
        exe["main"](np.zeros((3, 4), "float32"))


PRODUCT = """
@T.prim_func
def f(A: T.Buffer(("m", "m"), "float32"), B: T.Buffer(("m", "m"), "float32"),
      C: T.Buffer(("m", "m"), "float32"), n: T.int64):
    for i, j, k in T.grid(n, n, n):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] += A[vi, vk] * B[vk, vj]
"""


def test_products_of_the_first_rows_are_scheduled_like_all_of_them() -> None:
    """No rule knew that n rows are at most the m that there are, so that the fallback took it."""
    func = rl.parse(PRODUCT)["f"]
    trace = rl.trace(func)
    assert any("by the rule matmul" in r.reason for p in trace.passes for r in p.remarks), trace
    exe, rng = rl.compile(func, checks="all"), np.random.default_rng(1)
    for n, m in ((0, 0), (0, 5), (-7, 5), (1, 1), (7, 9), (40, 40), (33, 64)):
        a, b = rng.normal(size=(2, m, m)).astype("float32")
        c = np.full((m, m), 7, "float32")
        exe(a, b, c, n)
        some = max(n, 0)
        assert np.allclose(c[:some, :some], a[:some, :some] @ b[:some, :some], atol=1e-4)
        c[:some, :some] = 7
        assert (c == 7).all()
