"""Diagnostics of the parser: the documented examples, several at once, recovery."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from relaxlab.ir.diagnostics import Diagnostic, DiagnosticError
from relaxlab.script import parse
from tests.golden import Golden

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/errors.md"
SECTION = re.compile(r"^## (E\d{4}) .*?^```python( file)?\n(.*?)^```\n\n```text\n", re.S | re.M)
EXAMPLES = SECTION.findall(PAGE.read_text())


def errors(text: str, *, check: bool = False) -> tuple[Diagnostic, ...]:
    with pytest.raises(DiagnosticError) as caught:
        parse(text, check=check)
    return caught.value.diagnostics


def codes(text: str, *, check: bool = False) -> list[str]:
    return [d.code for d in errors(text, check=check)]


@pytest.mark.parametrize(("code", "is_file", "example"), EXAMPLES, ids=[e[0] for e in EXAMPLES])
def test_documented_example(
    code: str, is_file: str, example: str, tmp_path: Path, golden: Golden
) -> None:
    path = tmp_path / "program.py"
    with pytest.raises(DiagnosticError) as caught:
        if is_file:
            path.write_text(example)
            spec = importlib.util.spec_from_file_location("program", path)
            assert spec is not None and spec.loader is not None
            spec.loader.exec_module(importlib.util.module_from_spec(spec))
        else:
            parse(example, check=False)
    assert {d.code for d in caught.value.diagnostics} == {code}
    golden.page(PAGE, code, str(caught.value).replace(str(path), path.name))


def test_every_code_is_documented() -> None:
    used: set[str] = set()
    for path in (ROOT / "relaxlab/script").glob("*.py"):
        used |= set(re.findall(r'"(E\d{4})"', path.read_text()))
    sections = set(re.findall(r"^## (E\d+)", PAGE.read_text(), re.M))
    assert used == {code for code, *_ in EXAMPLES} == sections


def test_several_errors_in_one_pass() -> None:
    found = errors("""
@I.ir_module
class Module:
    @T.prim_func
    def f(A: T.Buffer((4,), "flot32")):
        for i in range(4):
            A[i] = B[i]
            A[j] = T.float32(0)

    @R.function
    def main(x: R.Tensor((4,), "float32"), y):
        a = R.add(x, p) + R.exp(q)
        b = R.nothing(a)
        c = R.add(b, x)
        return d
""")
    assert [(d.code, d.span.line) for d in found] == [
        ("E0111", 5),
        ("E0102", 7),
        ("E0109", 11),
        ("E0102", 12),
        ("E0102", 12),
        ("E0103", 13),
        ("E0102", 15),
    ]


def test_an_undefined_buffer_is_reported_once_per_use_but_a_failed_name_never() -> None:
    found = errors("""
@T.prim_func
def f(A: T.Buffer((4,), "float32")):
    x: T.let = undefined + 1
    for i in range(4):
        A[i] = x
        A[i] = x + x
""")
    assert [d.message for d in found] == ["undefined name 'undefined'"]


def test_output_that_is_not_bound() -> None:
    (found,) = errors("""
@R.function
def main(x: R.Tensor((4,), "float32")):
    with R.dataflow():
        yes = R.add(x, x)
        R.output(yess)
    return yess
""")
    assert found.code == "E0102" and found.suggestion == "did you mean 'yes'?"


def test_output_before_the_end() -> None:
    assert codes("""
@R.function
def main(x: R.Tensor((4,), "float32")):
    with R.dataflow():
        y = R.add(x, x)
        R.output(y)
        z = R.add(y, y)
    return z
""") == ["E0107", "E0107"]


def test_columns_count_characters() -> None:
    (found,) = errors(
        '@R.function\ndef main(x: R.Tensor((4,), "f32")):\n    return R.str("äöü"), ü\n'
    )[1:]
    assert (found.span.line, found.span.col, found.span.end_col) == (3, 25, 26)


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("x = [i for i in range(3)]", "E0104"),
        ("x = lambda: 0", "E0104"),
        ("x = (y := 3)", "E0104"),
        ("del A", "E0104"),
        ("import os", "E0104"),
        ("raise ValueError", "E0104"),
        ("A[0] = __import__('os')", "E0102"),
        ("A[0] = open('f')", "E0102"),
        ("A[0] = A.tofile('f')", "E0104"),
        ("A[0] = 9**9**9", "E0121"),
        ("A[0] = 1 << 10**9", "E0121"),
        ("A[0] = 10**30", "E0121"),
        ("A[0] = 1 // 0", "E0106"),
        ("A[0] = float('x')", "E0106"),
        ("A[0] = b''", "E0104"),
        ("A[0] = 1j", "E0104"),
        ("A[0] = ...", "E0104"),
        ("A[0] = 'text'", "E0106"),
        ("A[0:n] = 0", "E0102"),
        ("A[::-1] = 0", "E0104"),
        ("A[0] = T.max(1)", "E0105"),
        ("A[0] = T.exp(A)", "E0106"),
        ("A[0] = T.Cast('nope', 1)", "E0111"),
        ("A[0] = T.call_intrin('float32', 'tirx.nope', 1)", "E0103"),
        ("for i in 5: pass", "E0104"),
        ("for i in range(1, 9, -2): pass", "E0104"),
        ("for i in T.grid(): pass", "E0105"),
        ("for i in T.thread_binding(4): pass", "E0105"),
        ("for i in range(2.5): pass", "E0110"),
        ("while 1: pass", "E0110"),
        ("with open('f'): pass", "E0104"),
        ("T.reads(A[0])", "E0119"),
        ("return A", "E0108"),
        ("x = T.axis.remap('S', [A])", "E0106"),
        ("x: int = 3", "E0109"),
        ("x: T.int32 = 2.5", "E0110"),
        ("assert A[0] > 0, 3", "E0106"),
        ("T.evalute(0)", "E0103"),
        ("A[0] = T.Ramp(0, 1, 0)", "E0106"),
        ("A[0] = 1 / T.int64(2)", "E0110"),
        ("A = 3 = 4", "E0101"),
        ("x = y = 1", "E0104"),
        ("B = T.Buffer((4,))", "E0104"),
        ("A[0] = T.if_then_else(1, 2.0, 3.0)", "E0110"),
        ("A[0] = not 3.0 + A[0]", "E0110"),
        ("A[0] = ~A[0]", "E0110"),
    ],
)
def test_bad_loop_statements(statement: str, code: str) -> None:
    text = f'@T.prim_func\ndef f(A: T.Buffer((4,), "float32")):\n    {statement}\n'
    assert codes(text) == [code]


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("y = x[0]", "E0104"),
        ("x[0] = x", "E0104"),
        ("y = x and x", "E0104"),
        ("y = x if x else x", "E0104"),
        ("y = R.call_tir('f', (x,), R.Tensor((4,)))", "E0106"),
        ("y = R.call_tir(cls.f, (x,))", "E0105"),
        ("y = R.call_tir(cls.f, (x,), out_ty=3)", "E0109"),
        ("y = R.reshape(x)", "E0105"),
        ("y = R.const('text')", "E0105"),
        ("y = R.const('text', 'float32', (4,))", "E0122"),
        ("y = R.const(x)", "E0122"),
        ("y = R.match_cast(x)", "E0105"),
        ("y = R.match_cast(x, 3)", "E0109"),
        ("y = R.dataflow()", "E0104"),
        ("a, b = x, x, x", "E0113"),
        ("R.func_attr(3)", "E0106"),
        ("3", "E0104"),
        ("while x: pass", "E0104"),
        ("if x: y = x", "E0118"),
        ("return x\n    y = x", "E0108"),
        ("y = x @ x @", "E0101"),
        ("y = +x", "E0104"),
        ("y = R.call_packed(x)", "E0106"),
        ("y: R.Tensor((4,)", "E0101"),
        ("y: R.Tensor((4,), ndim=3) = x", "E0105"),
        ("y: R.Tensor(('a.b',)) = x", "E0104"),
        ("with R.dataflow(), R.dataflow(): pass", "E0104"),
    ],
)
def test_bad_graph_statements(statement: str, code: str) -> None:
    text = (
        "@I.ir_module\nclass M:\n"
        '  @T.prim_func\n  def f(A: T.Buffer((4,), "float32")):\n    A[0] = 0\n'
        f'  @R.function\n  def main(x: R.Tensor((4,), "float32")):\n    {statement}\n    return x\n'
    )
    assert codes(text)[0] == code


def test_an_empty_script() -> None:
    assert codes("") == codes("import os") == ["E0104"]
    assert codes("x = 1\n") == ["E0104"]


def test_nothing_is_executed(tmp_path: Path) -> None:
    target = tmp_path / "made"
    for line in (
        f"open({str(target)!r}, 'w')",
        f"T.func_attr({{'a': open({str(target)!r}, 'w')}})",
        f"T.evaluate([c for c in ().__class__.__base__.__subclasses__()][0]({str(target)!r}))",
    ):
        errors(f'@T.prim_func\ndef f(A: T.Buffer((4,), "float32")):\n    {line}\n')
    errors(f"open({str(target)!r}, 'w')\n")
    errors(f"@open({str(target)!r}, 'w')\nclass Module:\n    pass\n")
    assert not target.exists()


# --- What users of the reference implementation stumble over ----------------------------------


def test_an_annotation_that_lies() -> None:
    (found,) = errors(
        """
@R.function
def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor((3, 5), "float32"):
    return R.add(x, x)
""",
        check=True,
    )
    assert found.code == "E0207" and found.span is not None


def test_a_forgotten_output_is_called_that() -> None:
    found = errors("""
@R.function
def main(x: R.Tensor((4,), "float32")):
    with R.dataflow():
        y = R.add(x, x)
        z = R.add(y, y)
        R.output(z)
    return R.add(y, undefined)
""")
    assert [d.code for d in found] == ["E0107", "E0102"]
    assert "dataflow block" in found[0].message
    assert found[0].suggestion == "add it: `R.output(..., y)`"
    assert [span.line for _, span in found[0].related] == [5]


def test_a_loop_that_leaves_an_element_unwritten() -> None:
    (found,) = errors(
        """
@T.prim_func
def f(A: T.Buffer((128,), "float32")):
    for i in range(127):
        with T.sblock("A"):
            vi = T.axis.spatial(128, i)
            A[vi] = T.float32(0)
""",
        check=True,
    )
    assert found.code == "E0321" and found.span.line == 6
