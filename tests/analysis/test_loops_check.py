"""Well-formedness of loop functions; every example of `docs/errors-loops.md` is run."""

import re
from dataclasses import replace as replace_fields
from pathlib import Path
from typing import Any

import pytest

import relaxlab.analysis.loops_check
from relaxlab.analysis.loops_check import check_loops
from relaxlab.ir import expr, loops
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.script.parser import parse
from tests.golden import Golden

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/errors-loops.md"
SECTION = re.compile(r"^## (E03\d\d):.*?```python\n(.*?)```\n\n```text\n", re.M | re.S)
EXAMPLES = SECTION.findall(PAGE.read_text())


def prim_func(text: str) -> tuple[str, loops.PrimFunc]:
    indented = "\n".join("    " + line for line in text.strip("\n").splitlines())
    module = parse(f"@I.ir_module\nclass M:\n{indented}\n", check=False)
    [(name, func)] = module.items()
    return name, func


def example(code: str) -> tuple[str, loops.PrimFunc]:
    if code.startswith("@T.prim_func"):
        return prim_func(code)
    scope: dict[str, Any] = {"expr": expr, "loops": loops}
    exec(code, scope)
    return "func", scope["func"]


@pytest.mark.parametrize(("code", "program"), EXAMPLES, ids=[e[0] for e in EXAMPLES])
def test_documented_example(code: str, program: str, golden: Golden) -> None:
    found = check_loops(*example(program))
    assert [d.code for d in found] == [code]
    golden.page(PAGE, code, replace_fields(found[0], span=None).render())
    if program.startswith("@T.prim_func"):
        assert found[0].span is not None


def test_every_code_is_documented() -> None:
    source = Path(relaxlab.analysis.loops_check.__file__).read_text()
    assert set(re.findall(r'"(E03\d\d)"', source)) == {code for code, _ in EXAMPLES}


def codes(text: str) -> list[str]:
    return [d.code for d in check_loops(*prim_func("@T.prim_func\n" + text))]


GOOD = {
    "matmul with symbols": """
def f(A: T.Buffer(("n", "m"), "float32"), B: T.Buffer(("m", 64), "float32"),
      C: T.Buffer(("n", 64), "float32")):
    for i, j, k in T.grid(n, 64, m):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
""",
    "a split with a predicate": """
def f(A: T.Buffer(("n",), "float32"), C: T.Buffer(("n",), "float32")):
    for io, ii in T.grid((n + 15) // 16, 16):
        with T.block("C"):
            vi = T.axis.spatial(n, io * 16 + ii)
            T.where(io * 16 + ii < n)
            C[vi] = A[vi]
""",
    "fused loops": """
def f(A: T.Buffer(("n", "m"), "float32"), C: T.Buffer(("n", "m"), "float32")):
    for f in range(n * m):
        with T.block("C"):
            vi = T.axis.spatial(n, f // m)
            vj = T.axis.spatial(m, f % m)
            C[vi, vj] = A[vi, vj]
""",
    "a guarded neighbour": """
def f(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi] = T.if_then_else(vi < 7, A[vi + 1], T.float32(0))
""",
    "an update after its initial value": """
def f(A: T.Buffer((4, 8), "float32"), C: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.block("init"):
            vi = T.axis.spatial(4, i)
            C[vi] = T.float32(0)
    for i, k in T.grid(4, 8):
        with T.block("update"):
            vi, vk = T.axis.remap("SR", [i, k])
            C[vi] = C[vi] + A[vi, vk]
""",
    "an extent that may or may not fit": """
def f(A: T.Buffer(("n",), "float32"), C: T.Buffer(("m",), "float32")):
    for i in range(n):
        with T.block("C"):
            vi = T.axis.spatial(n, i)
            C[vi] = A[vi]
""",
    "scratch memory of one iteration, indexed from there": """
def f(A: T.Buffer((32,), "float32"), C: T.Buffer((32,), "float32")):
    for i in range(4):
        with T.block("scope"):
            t = T.alloc_buffer((8,), "float32", scope="local")
            for k in range(8):
                with T.block("fill"):
                    vk = T.axis.spatial(32, i * 8 + k)
                    t[vk - i * 8] = A[vk]
            for k in range(8):
                with T.block("use"):
                    vk = T.axis.spatial(32, i * 8 + k)
                    C[vk] = t[vk - i * 8] * T.float32(2)
""",
    "no blocks": """
def f(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    for i in range(8):
        C[i] = A[7 - i]
""",
    "a branch whose conditions contradict each other": """
def f(C: T.Buffer(("n",), "float32")):
    if n > 32:
        if n <= 8:
            for i in range(8):
                with T.block("C"):
                    vi = T.axis.spatial(n, i)
                    T.where(i < n)
                    C[vi] = T.float32(0)
""",
    "rows of a triangle but the first": """
def f(A: T.Buffer((5,), "float32")):
    for i in range(5):
        for j in range(i):
            A[i - 1] = A[j]
""",
    "rows of a triangle but the last": """
def f(A: T.Buffer((5,), "float32")):
    for i in range(10):
        for j in range(i + 1, 5):
            A[i] = A[j]
""",
}


@pytest.mark.parametrize("name", GOOD)
def test_good(name: str) -> None:
    assert codes(GOOD[name]) == []


BAD = {
    "a symbolic axis, one short": ("""
def f(C: T.Buffer(("n",), "float32")):
    for i in range(n - 1):
        with T.block("C"):
            vi = T.axis.spatial(n, i)
            C[vi] = T.float32(0)
""", ["E0321"]),
    "a predicate that cuts too much": ("""
def f(C: T.Buffer((100,), "float32")):
    for io, ii in T.grid(7, 16):
        with T.block("C"):
            vi = T.axis.spatial(100, io * 16 + ii)
            T.where(io * 16 + ii < 99)
            C[vi] = T.float32(0)
""", ["E0321"]),
    "a start that is left out": ("""
def f(C: T.Buffer((8,), "float32")):
    for i in range(7):
        with T.block("C"):
            vi = T.axis.spatial(8, i + 1)
            C[vi] = T.float32(0)
""", ["E0321"]),
    "every other element": ("""
def f(C: T.Buffer((9,), "float32")):
    for i in range(5):
        with T.block("C"):
            vi = T.axis.spatial(9, i * 2)
            C[vi] = T.float32(0)
""", ["E0324"]),
    "a negative index": ("""
def f(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    for i in range(8):
        C[i] = A[i - 1]
""", ["E0334"]),
    "a symbolic access beyond the end": ("""
def f(A: T.Buffer(("n",), "float32"), C: T.Buffer(("n",), "float32")):
    for i in range(n):
        C[i] = A[n - i]
""", ["E0334"]),
    "several at once": ("""
def f(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    for i in range(7):
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi] = A[vi + 1]
""", ["E0321", "E0334"]),
    "a bound of a `while` that is no symbol of a buffer": ("""
def f(A: T.Buffer((5,), "int64")):
    n = T.int64()
    while A[0] < n:
        A[0] = A[0] + 1
""", ["E0329"]),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad(name: str) -> None:
    text, expected = BAD[name]
    assert codes(text) == expected


def test_reports_name_the_function_and_underline_the_place() -> None:
    [found] = check_loops(*prim_func(EXAMPLES[0][1]))
    text = found.render()
    assert "double, 'C'" in text and "T.axis.spatial(128, i)" in text and "^" in text


def test_nothing_is_out_of_bounds_where_nothing_runs():
    """Under a guard that never holds, in a loop over nothing, and after an assertion."""
    n = expr.Var("n")
    i = expr.Var("i")
    a = loops.Buffer("A", (n,))
    far = loops.BufferStore(a, expr.const(0.0), (n + i,))
    near = loops.BufferStore(a, expr.const(0.0), (i,))

    def over(extent: expr.ExprLike, body: loops.Stmt) -> loops.PrimFunc:
        nest = loops.For(i, expr.const(0), expr.as_expr(extent), "serial", body)
        return loops.PrimFunc((a,), nest)

    assert [d.code for d in check_loops("f", over(n, far))] == ["E0334"]
    assert not check_loops("f", over(0, far))
    assert not check_loops("f", over(n, loops.IfThenElse(expr.LT(i, expr.const(0)), far)))
    twice = over(n * 2, near)
    assert [d.code for d in check_loops("f", twice)] == ["E0334"]
    empty = loops.AssertStmt(expr.EQ(n, n * 2), "n is 0")
    assert not check_loops("f", loops.PrimFunc((a,), loops.seq(empty, twice.body)))


def test_bounds_that_contradict_each_other_show_nothing() -> None:
    """Three elements, or two, are rounded up to six places: the last of these is no element."""
    name, func = prim_func("""
@T.prim_func
def rest(A: T.Buffer(("n",), "float32"), B: T.Buffer(("n",), "float32")):
    if n <= 2:
        C = T.alloc_buffer((2,), "float32")
        for i in range(n):
            C[i] = A[i]
        for i in range((n + 2) // 3 * 3 % 2):
            with T.sblock("last"):
                v = T.axis.spatial(((n + 2) // 3 * 3 // 2 * 2, (n + 2) // 3 * 3 % 2),
                                   (n + 2) // 3 * 3 // 2 * 2 + i)
                B[v] = T.if_then_else(v < n, C[v], T.float32(0))
""")
    assert "E0334" not in [d.code for d in check_loops(name, func)]


def test_a_loop_variable_is_reported_where_the_block_uses_it() -> None:
    with pytest.raises(DiagnosticError) as caught:
        parse(
            """@T.prim_func
def scale(A: T.Buffer((8, 8), "float32"), s: T.Buffer((8,), "float32")):
    for i, j in T.grid(8, 8):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            A[vi, vj] = A[vi, vj] * s[i + 0 * vj]
"""
        )
    (error,) = caught.value.diagnostics
    assert error.code == "E0330" and error.span.line == 6
    assert error.suggestion == "use the axis vi, which is bound to i"
