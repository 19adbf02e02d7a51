"""Ragged tensors whose rows differ in length, `t[i, j]`: the interpreter, and compiled code with
all checks, against NumPy on one row of one sequence after the other."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir import graph
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.errors import UserError
from relaxlab.ir.node import walk
from relaxlab.passes.flatten_ragged import flatten_ragged
from relaxlab.passes.normalize import normalize
from relaxlab.script.parser import parse
from relaxlab.testing.pass_check import check_module
from relaxlab.testing.ragged_row_programs import EXTENTS, OF_SEQUENCES, STEPS, RowProgram
from relaxlab.testing.ragged_tensor_programs import drawn_lengths
from tests.passes.ragged_checks import SEED, check_drawn, compare

EVERY = (*STEPS, *OF_SEQUENCES)
TOP = """
@R.function
def main(
    s: R.Lengths("b", "n", at_most=16),
    t: R.Lengths("n", "m", at_most=16),
    x: R.Ragged({"i": "b", "j": "s[i]", "k": "t[i, j]", "d": 4}, "float32"),
    a: R.Ragged({"i": "b", "j": "s[i]", "k": "t[i, j]", "l": "t[i, j]"}, "float32"),
    v: R.Ragged({"i": "b", "j": "s[i]", "d": 4}, "float32"),
    g: R.Tensor(("b", 1, 1, 4), "float32"),
):
    with R.dataflow():
        r = BODY
        R.output(r)
    return r
"""


def given(made: RowProgram, rng: np.random.Generator) -> tuple[Any, ...]:
    s = np.minimum(drawn_lengths(rng), 7).astype("int32")
    n = int(s.sum())
    t = rng.integers(0, 9, n).astype("int32")
    if n and rng.integers(3) == 0:
        t[rng.integers(n)] = rng.integers(40, 60)
    u = rng.permutation(t) if rng.integers(2) else rng.integers(0, 6, n).astype("int32")
    return made.arguments(s, t, u, rng)


def calls(mod: rl.Module, name: str) -> int:
    """The number of calls of an operator in the function `main`."""
    return sum(isinstance(n, graph.Op) and n.name == name for n in walk(mod["main"]))


@pytest.mark.parametrize("number", range(12))
def test_random_programs(number: int) -> None:
    check_drawn(RowProgram, given, number)


@pytest.mark.parametrize("step", EVERY, ids=[s.text for s in EVERY])
def test_each_step(step: Any) -> None:
    rng = np.random.default_rng(SEED)
    made = RowProgram.of(step, EXTENTS[rng.integers(len(EXTENTS))])
    mod = made.module()
    for of in (mod, flatten_ragged(normalize(mod))):
        for _ in range(2):
            args = given(made, rng)
            compare(rl.interpret(of, "main", *args), made.expected(args), args)


def test_rows_of_all_sequences_are_those_of_one() -> None:
    """Operators on rows are called once on the rows of all sequences, and read no lengths."""
    body = "R.nn.gelu(x @ R.ones((4, 8), 'float32'))"
    mod = normalize(parse(TOP.replace("BODY", body)))
    flat = flatten_ragged(mod)
    check_module(flatten_ragged, mod, flat)
    assert calls(flat, "nn.gelu") == calls(flat, "matmul") == 1
    assert [name for name, _ in flat.functions] == ["main", "prefix_sums"]  # those of t[i] * t[i]
    assert not calls(flat, "cumsum")


def test_one_kernel_for_the_rows_of_all_sequences() -> None:
    """A sum over each row is one loop over all rows: the prefix sums of s are not needed."""
    mod = normalize(parse(TOP.replace("BODY", "R.sum(x, axis=2)")))
    flat = flatten_ragged(mod)
    check_module(flatten_ragged, mod, flat)
    assert re.search(r"\(each, .*\) in T.grid\(n, |for each, .* in T.grid\(n, ", flat.script())
    assert calls(flat, "cumsum") == 1


def test_rows_as_sequences_and_back() -> None:
    """A cast changes nothing in memory."""
    ty = 'R.Ragged({"i": "n", "k": "t[i]", "d": 4}, "float32")'
    two_lines = f"y = R.match_cast(x, {ty})\n        r = R.sum(y, axis=1)"
    mod = parse(TOP.replace("r = BODY", two_lines))
    rng = np.random.default_rng(SEED)
    s, t = np.array([2, 0, 1], "int32"), np.array([3, 0, 2], "int32")
    x, a = rng.random((5, 4), "float32"), rng.random(13, "float32")
    args = s, t, x, a, rng.random((3, 4), "float32"), rng.random((3, 1, 1, 4), "float32")
    want = np.array([x[:3].sum(0), np.zeros(4), x[3:].sum(0)])
    np.testing.assert_allclose(rl.interpret(mod, "main", *args), want, 1e-5)
    np.testing.assert_allclose(rl.compile(mod, use_cache=False)["main"](*args), want, 1e-5)


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("R.sum(x, axis=1)", r"do not count the sequences and the s\[i\] rows of each"),
        ("R.sum(x, axis=[1, 2])", r"dimensions 0 and 1 of its result \(b, 4\) do not count"),
        ("R.permute_dims(x, axes=[0, 2, 1, 3])", "do not count the sequences"),
        ("R.arange(0, t[i, j])", "is another tensor for each row of each sequence"),
        ("R.matmul(x, R.permute_dims(v, axes=[0, 2, 1]))", "R.matmul"),
    ],
)
def test_refused_types(body: str, what: str) -> None:
    with pytest.raises(DiagnosticError, match=what):
        parse(TOP.replace("BODY", body))


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("R.flip(x, axis=1)", "R.flip cannot work .* combines elements of several rows"),
        ("R.cumsum(x, axis=1)", "R.cumsum cannot work"),
        ("R.cumsum(x, axis=0)", "R.cumsum cannot work"),
        ("R.nn.softmax(x, axis=1)", "R.nn.softmax cannot work"),
        ("x + g", "R.add cannot work .* computes with the number of a row"),
        ("R.tril(R.reshape(x, (0, 0, t[i, j] * 4)))", "R.tril cannot work"),
    ],
)
def test_what_mixes_rows_is_refused(body: str, what: str) -> None:
    with pytest.raises(DiagnosticError, match=what) as refused:
        flatten_ragged(normalize(parse(TOP.replace("BODY", body))))
    assert refused.value.diagnostics[0].code == "E0510"


@pytest.mark.parametrize(
    ("dims", "what"),
    [
        ('{"i": "b", "j": "s[i]", "k": "t[j, i]"}', "counted by i, and their rows by j"),
        ('{"i": "b", "j": "s[i] + 1", "k": "t[i, j]"}', r"has rows of s\[i\], and j, which counts"),
        ('{"i": "b", "j": 3, "k": "t[i, j]"}', r"and j, which counts them, is 3"),
        ('{"i": "b", "j": "s[i]", "k": "t[i, j]", "l": "s[i]"}', "lengths of rows, and one by"),
        ('{"i": "n", "j": "s[i]", "k": "t[i, j]"}', "has n sequences, and their lengths are"),
        ('{"i": "b", "j": "s[i]", "k": "s[i, j]"}', "no parameter before has sequences"),
        ('{"i": "b", "j": "s[i]", "k": "t[i, j] - 1"}', "which may be negative"),
    ],
)  # fmt: skip
def test_refused_annotations(dims: str, what: str) -> None:
    text = (
        '@R.function\ndef main(s: R.Lengths("b", "n"), t: R.Lengths("n", "m"),\n'
        f'         x: R.Ragged({dims}, "float32")):\n    return x\n'
    )
    with pytest.raises(DiagnosticError, match=what):
        parse(text)


@pytest.mark.parametrize("compiled", [False, True])
def test_lengths_are_checked_on_entry(compiled: bool) -> None:
    """Lengths of rows are as many as rows, not negative, and add up to the rows that are given."""
    mod = parse(TOP.replace("BODY", "R.sum(x, axis=2)"))
    run = rl.compile(mod, use_cache=False)["main"] if compiled else (
        lambda *args: rl.interpret(mod, "main", *args)
    )  # fmt: skip
    s, t = np.array([2, 1], "int32"), np.array([1, 0, 3], "int32")

    def args(s: Any, t: Any, rows: int = 4, pairs: int = 10) -> tuple[Any, ...]:
        zeros = (np.zeros(z, "float32") for z in ((rows, 4), pairs, (3, 4), (2, 1, 1, 4)))
        return (s, t, *zeros)

    assert run(*args(s, t)).shape == (3, 4)
    for wrong in (
        args(np.array([2, 2], "int32"), t),
        args(s, np.array([1, 3], "int32")),
        args(s, np.array([2, -1, 3], "int32")),
        args(s, t, rows=5),
        args(s, t, pairs=9),
    ):
        with pytest.raises((UserError, rl.ExecutionError)):
            run(*wrong)


BETWEEN = """
@R.function(private=True)
def f(u: R.Lengths("c", "k"), v: R.Lengths("k", "q"),
      x: R.Ragged({"i": "c", "j": "u[i]", "k": "v[i, j]", "d": 4}, "float32")):
    return R.nn.softmax(x, axis=2)

@R.function
def main(s: R.Lengths("b", "n", at_most=9), t: R.Lengths("n", "m", at_most=9),
         x: R.Ragged({"i": "b", "j": "s[i]", "k": "t[i, j]", "d": 4}, "float32")):
    y = cls.f(s, t, x)
    return R.sum(y * x, axis=2)
"""


def test_between_functions() -> None:
    """A function takes rows with lengths of its own; all forms of the program agree."""
    mod = parse(BETWEEN)
    assert rl.structural_equal(parse(mod.script()), mod)
    rl.check(mod, sizes=(1, 3))
    with pytest.raises(DiagnosticError, match="expected v.i, j. = s.i, j."):
        parse(BETWEEN.replace("f(s, t, x)", "f(s, s, x)"))


TWO_GROUPS = """
@R.function
def main(s: R.Lengths("b", "n"), s2: R.Lengths("c", "n"), t: R.Lengths("n", "m"),
         x: R.Ragged({"i": "c", "j": "s2[i]", "k": "t[i, j]", "d": 4}, "float32")):
    return R.reshape(x, (0, 0, EXTENT, 2, 2))
"""


def test_rows_of_two_groupings() -> None:
    """A type says by its second dimension which sequences its rows are of."""
    mod = parse(TWO_GROUPS.replace("EXTENT, 2, 2", "0, 4"))
    assert rl.structural_equal(parse(mod.script()), mod)
    with pytest.raises(DiagnosticError, match="2 parameters have the n lengths in t as their rows"):
        parse(TWO_GROUPS.replace("EXTENT", "t[i, j]"))
