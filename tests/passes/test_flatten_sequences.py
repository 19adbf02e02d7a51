"""Operators on ragged tensors: against NumPy, one sequence after the other, natively and in the
interpreter."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir import graph
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.node import walk
from relaxlab.ir.target import Target
from relaxlab.passes.base import Pipeline
from relaxlab.passes.flatten_ragged import flatten_ragged
from relaxlab.passes.normalize import normalize
from relaxlab.passes.pipeline import GRAPH_PASSES
from relaxlab.passes.schedule_kernels import schedule_kernels
from relaxlab.runtime.simt.simt import simt
from relaxlab.script.parser import parse
from relaxlab.testing.pass_check import check_module

Array = np.ndarray
FOR_GPU = Pipeline((*GRAPH_PASSES, schedule_kernels.with_options(target=Target.cuda())))
SEED = int(os.environ.get("RELAXLAB_SEED", "1"))
TOP = """
@R.function
def main(
    s: R.Lengths("b", "n", at_most=64),
    x: R.Ragged({"i": "b", "j": "s[i]", "d": 8}, "float32"),
    y: R.Ragged({"i": "b", "j": "s[i]", "d": 8}, "float32"),
    w: R.Tensor((12, 8), "float32"),
    g: R.Tensor(("b", 1, 8), "float32"),
):
    with R.dataflow():
        r = BODY
        R.output(r)
    return r
"""


def program(body: str, *, empty: bool = True, top: str = TOP) -> rl.Module:
    text = top if empty else top.replace("at_most", "at_least=1, at_most")
    return parse(text.replace("BODY", body))


def softmax(x: Array, axis: int) -> Array:
    e = np.exp(x - x.max(axis, keepdims=True, initial=-np.inf))
    return e / e.sum(axis, keepdims=True)


def attention(x: Array, y: Array) -> Array:
    q, k = (t.reshape(len(t), 2, 4) for t in (x, y))
    weights = softmax(np.einsum("ihd,jhd->hij", q, k) / 2, 2)
    return np.einsum("hij,jhd->ihd", weights, q)


@dataclass(frozen=True)
class Case:
    """A value of the program, and of one sequence: x, y (rows, 8), w (12, 8), g (1, 8)."""

    body: str
    of_one: Callable[[Array, Array, Array, Array], Array]
    empty: bool = True
    """Sequences may have no rows."""

    def __str__(self) -> str:
        return self.body


ON_ROWS = (
    Case("x * y + x", lambda x, y, w, g: x * y + x),
    Case('R.nn.gelu(R.maximum(x, y)) * R.const(2.0, "float32")',
         lambda x, y, w, g: gelu(np.maximum(x, y)) * 2),
    Case("R.linear(x, w)", lambda x, y, w, g: x @ w.T),
    Case("R.nn.softmax(R.matmul(x, R.permute_dims(w)), axis=-1)",
         lambda x, y, w, g: softmax(x @ w.T, 1)),
    Case("R.sum(x, axis=2)", lambda x, y, w, g: x.sum(1)),
    Case("R.concat((x, y), axis=2)", lambda x, y, w, g: np.concatenate([x, y], 1)),
    Case("R.split(x * y, 2, axis=2)[1]", lambda x, y, w, g: (x * y)[:, 4:]),
    Case("R.concat(R.split(x, 2, axis=2), axis=2)", lambda x, y, w, g: x),
    Case("R.reshape(x, (0, 0, 2, 4))", lambda x, y, w, g: x.reshape(-1, 2, 4)),
    Case("R.reshape(x, R.shape([b, s[i], 4, 2]))", lambda x, y, w, g: x.reshape(-1, 4, 2)),
    Case("R.permute_dims(R.reshape(x, (0, 0, 2, 4)), axes=[0, 1, 3, 2])",
         lambda x, y, w, g: x.reshape(-1, 2, 4).transpose(0, 2, 1)),
)  # fmt: skip
OVER_SEQUENCES = (
    Case("R.nn.softmax(x, axis=1)", lambda x, y, w, g: softmax(x, 0)),
    Case("R.mean(x, axis=1)", lambda x, y, w, g: x.mean(0), empty=False),
    Case("R.sum(x * y, axis=[1, 2])", lambda x, y, w, g: (x * y).sum()),
    Case("R.max(x, axis=1, keepdims=True)", lambda x, y, w, g: x.max(0, keepdims=True),
         empty=False),
    Case("x - R.sum(x, axis=1, keepdims=True)", lambda x, y, w, g: x - x.sum(0, keepdims=True)),
    Case("x * g", lambda x, y, w, g: x * g),
    Case("R.cumsum(x, axis=1)", lambda x, y, w, g: x.cumsum(0)),
    Case("R.flip(x, axis=1)", lambda x, y, w, g: x[::-1]),
    Case("R.argmax(x, axis=1)", lambda x, y, w, g: x.argmax(0), empty=False),
    Case("R.take(x, R.const([0], \"int64\"), axis=1)", lambda x, y, w, g: x[:1], empty=False),
    Case("R.tile(x, (1, 2, 1))", lambda x, y, w, g: np.tile(x, (2, 1))),
    Case("R.sort(x, axis=1)", lambda x, y, w, g: np.sort(x, 0)),
    Case("R.concat((x, y), axis=1)", lambda x, y, w, g: np.concatenate([x, y], 0)),
    Case("R.concat(R.split(x, 2, axis=2), axis=1)",
         lambda x, y, w, g: np.concatenate([x[:, :4], x[:, 4:]], 0)),
    Case("R.permute_dims(R.reshape(x, (0, 0, 2, 4)), axes=[0, 2, 1, 3])",
         lambda x, y, w, g: x.reshape(-1, 2, 4).transpose(1, 0, 2)),
    Case("R.matmul(R.permute_dims(x, axes=[0, 2, 1]), y)", lambda x, y, w, g: x.T @ y),
)  # fmt: skip
ATTENTION = Case(
    "R.nn.attention(R.reshape(x, (0, 0, 2, 4)), R.reshape(y, (0, 0, 2, 4)), "
    "R.reshape(x, (0, 0, 2, 4)))", lambda x, y, w, g: attention(x, y),
)  # fmt: skip


def gelu(x: Array) -> Array:
    from math import erf

    return np.array(0.5 * x * (1 + np.vectorize(erf, otypes="d")(x / 2**0.5)), "float32")


def operands(lengths: list[int]) -> tuple[Array, ...]:
    print(f"RELAXLAB_SEED={SEED}")
    rng = np.random.default_rng([SEED, *lengths])
    n = sum(lengths)
    shapes = ((n, 8), (n, 8), (12, 8), (len(lengths), 1, 8))
    return tuple(rng.standard_normal(s, "float32") for s in shapes)


def wanted(case: Case, lengths: list[int]) -> Array:
    """The results of all sequences, behind each other."""
    x, y, w, g = operands(lengths)
    ends = np.cumsum(lengths)
    parts = [case.of_one(x[e - k : e], y[e - k : e], w, g[i])
             for i, (e, k) in enumerate(zip(ends, lengths, strict=True))]  # fmt: skip
    return np.concatenate([np.asarray(p).reshape(-1) for p in parts])


def check(case: Case, lengths: list[int], run: Callable[..., Array]) -> None:
    got = np.asarray(run(np.array(lengths, "int32"), *operands(lengths)))
    np.testing.assert_allclose(got.reshape(-1), wanted(case, lengths), 1e-5, 1e-5)


@pytest.mark.parametrize("case", (*ON_ROWS, *OVER_SEQUENCES, ATTENTION), ids=str)
def test_against_one_sequence_at_a_time(case: Case) -> None:
    mod = program(case.body, empty=case.empty)
    for m in (mod, flatten_ragged(normalize(mod))):
        for lengths in ([3, 1, 7, 64], [5, 0, 0, 2] if case.empty else [1]):
            check(case, lengths, lambda *a, m=m: rl.interpret(m, "main", *a))


NATIVE = ("R.nn.softmax(x, axis=1)", "R.sort(x, axis=1)", "R.concat((x, y), axis=1)",
          "R.matmul(R.permute_dims(x, axes=[0, 2, 1]), y)")  # fmt: skip


@pytest.mark.parametrize("case", [c for c in OVER_SEQUENCES if c.body in NATIVE], ids=str)
def test_native_code(case: Case) -> None:
    exe = rl.compile(program(case.body))["main"]
    for lengths in ([3, 1, 7, 64], [5, 0, 0, 2]):
        check(case, lengths, exe)


@pytest.mark.parametrize("case", (ON_ROWS[0], OVER_SEQUENCES[0]), ids=str)
def test_on_a_simulated_gpu(case: Case) -> None:
    scheduled = FOR_GPU.run(program(case.body)).result
    check(case, [3, 0, 5], lambda *a: simt(scheduled, "main", *a).check().result)


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("case", (ON_ROWS[0], *OVER_SEQUENCES[:3]), ids=str)
def test_a_constant_number_of_sequences(case: Case, count: int) -> None:
    mod = parse(program(case.body, empty=case.empty).script().replace('"b"', str(count)))
    flat, lengths = flatten_ragged(normalize(mod)), [3, 1, 7, 2][:count]
    for m in (mod, flat):
        check(case, lengths, lambda *a, m=m: rl.interpret(m, "main", *a))


@pytest.mark.parametrize("case", (ON_ROWS[0], OVER_SEQUENCES[0]), ids=str)
def test_no_sequences(case: Case) -> None:
    arrays = (np.zeros(0, "int32"), *operands([]))
    for run in (rl.compile(program(case.body))["main"],
                lambda *a: rl.interpret(program(case.body), "main", *a)):  # fmt: skip
        assert np.asarray(run(*arrays)).shape == (0, 8)


def operators(mod: rl.Module) -> set[str]:
    nodes = (n for f in mod.graph_functions().values() for n in walk(f))
    return {n.op.name for n in nodes if isinstance(n, graph.Call) and isinstance(n.op, graph.Op)}


@pytest.mark.parametrize("case", ON_ROWS, ids=str)
def test_operators_on_rows_stay_operators(case: Case) -> None:
    mod = normalize(program(case.body))
    flat = flatten_ragged(mod)
    assert "call_tir" not in operators(flat)
    check_module(flatten_ragged, mod, flat)


@pytest.mark.parametrize("case", OVER_SEQUENCES, ids=str)
def test_others_become_loops(case: Case) -> None:
    mod = normalize(program(case.body, empty=case.empty))
    flat = flatten_ragged(mod)
    assert "call_tir" in operators(flat)
    check_module(flatten_ragged, mod, flat)


def test_a_script_is_read_as_it_is_printed() -> None:
    mod = program("R.nn.softmax(R.reshape(x, R.shape([b, s[i], 2, 4])), axis=1)")
    limited = program("R.argmax(x, axis=1)", empty=False)
    for m in (mod, limited, normalize(mod), flatten_ragged(normalize(mod))):
        assert rl.structural_equal(parse(m.script()), m), m.script()
    text = normalize(mod).script()
    assert 'R.Ragged({"i": "b", "j": "s[i]", "k": 2, "l": 4}, "float32")' in text
    assert "s[i]" in mod.script()


OVER_ALL: dict[str, Callable[[Array, Array], Array]] = {
    "R.sum(x, axis=[0, 1])": lambda x, y: x.sum(0),
    "R.mean(x * y)": lambda x, y: (x * y).mean(),
    "R.max(x, axis=[-2, 0], keepdims=True)": lambda x, y: x.max(0).reshape(1, 1, 8),
    "R.variance(R.reshape(x, (0, 0, 2, 4)), axis=[0, 1, 3])":
        lambda x, y: x.reshape(-1, 2, 4).var((0, 2)),
    "x - R.mean(x, axis=[0, 1])": lambda x, y: x - x.mean(0),
}  # fmt: skip


@pytest.mark.parametrize("body", OVER_ALL)
def test_reductions_over_the_rows_of_all_sequences(body: str) -> None:
    mod = program(body)
    flat = flatten_ragged(normalize(mod))
    check_module(flatten_ragged, normalize(mod), flat)
    assert "call_tir" not in operators(flat)
    exe = rl.compile(mod)["main"]
    for lengths in ([3, 1, 7, 64], [5, 0, 0, 2]):
        x, y, w, g = operands(lengths)
        want, given = OVER_ALL[body](x, y), np.array(lengths, "int32")
        for run in (lambda *a: rl.interpret(mod, "main", *a),
                    lambda *a: rl.interpret(flat, "main", *a), exe):  # fmt: skip
            got = np.asarray(run(given, x, y, w, g))
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, 1e-5, 1e-5)


REFUSED = (
    ("R.argmax(x)", "R.argmax: dimension 0 of its result|nothing to read"),
    ("R.sum(R.permute_dims(x, axes=[0, 2, 1]), axis=[0, 2])", "R.sum: dimension 0 of its result"),
    ("R.sum(x, axis=0)", "R.sum: dimension 0 of its result"),
    ("R.flatten(x)", r"R.flatten: dimension 0 of its result \(.*\) does not count the sequences"),
    ("R.unique(x)", "R.unique"),
    ("R.argmax(x, axis=1)", r"nothing to read along a dimension of s\[i\]"),
    ("R.flip(x, axis=0)", "R.flip cannot work on sequences of different lengths"),
)  # fmt: skip


@pytest.mark.parametrize(("body", "message"), REFUSED, ids=str)
def test_what_mixes_sequences_is_refused(body: str, message: str) -> None:
    with pytest.raises(DiagnosticError, match=message):
        rl.trace(program(body))


@pytest.mark.parametrize("extent", ["s[i] - 1", "s[i] * s[i] - s[i] - 1", "(s[i] - 3) // 2"])
def test_types_that_may_be_negative_are_refused(extent: str) -> None:
    with pytest.raises(DiagnosticError, match="which may be negative"):
        parse(TOP.replace("BODY", "x").replace('"s[i]", "d"', f'"{extent}", "d"'))


@pytest.mark.parametrize(
    ("extent", "message", "help"),
    [
        ("s[j, i]", "has lengths at j, i, and sequences are counted by i, and their rows", "write"),
        ("s[i + 1]", r"has lengths at i \+ 1, and sequences are counted by i", "write"),
        ("s[j]", "has lengths at j, and sequences are counted by i", "write"),
    ],
)
def test_lengths_at_other_places_are_refused(extent: str, message: str, help: str) -> None:
    with pytest.raises(DiagnosticError, match=message) as caught:
        parse(TOP.replace("BODY", "x").replace('"s[i]", "d"', f'"{extent}", "d"'))
    assert re.search(help, str(caught.value))


def test_equal_loops_are_one_function() -> None:
    flat = flatten_ragged(normalize(program("R.cumsum(R.cumsum(x, axis=1), axis=1)")))
    assert [n for n in flat if n.startswith("ragged_")] == ["ragged_cumsum"]


TWO = """
@R.function
def main(s: R.Lengths("b", "n"), t: R.Lengths("b", "k"),
         x: R.Ragged({"i": "b", "j": "s[i]", "d": 8}, "float32"),
         y: R.Ragged({"i": "b", "j": "t[i]", "d": 8}, "float32")):
    r = BODY
    return r
"""


def test_tensors_of_other_lengths_do_not_fit() -> None:
    with pytest.raises(DiagnosticError, match=re.escape("s[i] against t[i]")):
        rl.trace(parse(TWO.replace("BODY", "R.add(x, y)")))


def test_attention_to_sequences_of_other_lengths() -> None:
    mod = parse(TWO.replace("BODY", "R.nn.attention(R.reshape(x, (0, 0, 2, 4)), "
                            "R.reshape(y, (0, 0, 2, 4)), R.reshape(y, (0, 0, 2, 4)))"))  # fmt: skip
    rng = np.random.default_rng(SEED)
    s, t = np.array([2, 5, 1], "int32"), np.array([4, 1, 3], "int32")
    x, y = (rng.standard_normal((k.sum(), 8), "float32") for k in (s, t))
    want = rl.interpret(mod, "main", s, t, x, y)
    flat = flatten_ragged(normalize(mod))
    np.testing.assert_allclose(rl.interpret(flat, "main", s, t, x, y), want, 1e-5, 1e-5)
    q, k = x[2:7].reshape(5, 2, 4), y[4:5].reshape(1, 2, 4)
    np.testing.assert_allclose(want[2:7], np.broadcast_to(k, q.shape), 1e-5, 1e-5)


FLAT = """
@R.function
def main(s: R.Lengths("b", "n"), x: R.Tensor(("n", 8), "float32")):
    y = R.match_cast(x, R.Ragged({"i": "b", "j": "s[i]", "d": 8}, "float32"))
    z = R.cumsum(y, axis=1)
    r = R.match_cast(z, R.Tensor(("n", 8), "float32"))
    return r
"""


def test_rows_become_sequences_and_rows_again() -> None:
    mod = parse(FLAT)
    x = np.ones((6, 8), "float32")
    for run in (rl.compile(mod)["main"], lambda *a: rl.interpret(mod, "main", *a)):
        got = np.asarray(run(np.array([2, 0, 4], "int32"), x))
        assert got[:, 0].tolist() == [1, 2, 1, 2, 3, 4]


CALLS = """
@R.function(private=True)
def layer(t: R.Lengths("c", "m"), x: R.Ragged({"i": "c", "j": "t[i]", "d": 8}, "float32")) \\
        -> R.Ragged({"i": "c", "j": "t[i]", "d": 8}, "float32"):
    y = R.cumsum(x, axis=1)
    return y

@R.function
def main(s: R.Lengths("b", "n"), x: R.Ragged({"i": "b", "j": "s[i]", "d": 8}, "float32")):
    y = cls.layer(s, x)
    z = cls.layer(s, x + y)
    return z
"""


LOCAL = """
@R.function
def main(s: R.Lengths("b", "n"), x: R.Ragged({"i": "b", "j": "s[i]", "d": 8}, "float32")):
    @R.function
    def add(y: R.Ragged({"i": "b", "j": "s[i]", "d": 8}, "float32")):
        return R.cumsum(R.add(y, x), axis=1)

    y = R.cumsum(x, axis=1)
    return add(y)
"""


@pytest.mark.parametrize("text", [CALLS, LOCAL], ids=["global", "local"])
def test_functions_are_called_with_sequences(text: str) -> None:
    mod = parse(text)
    rng = np.random.default_rng(SEED)
    s, x = np.array([2, 0, 4], "int32"), rng.standard_normal((6, 8), "float32")
    twice = [np.cumsum(p + np.cumsum(p, 0), 0) for p in (x[:2], x[2:])]
    for run in (rl.compile(mod)["main"], lambda *a: rl.interpret(mod, "main", *a)):
        np.testing.assert_allclose(run(s, x), np.concatenate(twice), 1e-5, 1e-5)


LOOPS = """
@T.prim_func
def double(o_: T.handle, x: T.Buffer(("t", 8), "float32"), y: T.Buffer(("t", 8), "float32"),
           b: T.int64):
    o = T.index_function(o_, (b + 1,), "int64", facts=[T.nondecreasing(first=0, last=t)])
    for i in range(b):
        for j in range(o[i + 1] - o[i]):
            for k in range(8):
                y[o[i] + j, k] = x[o[i] + j, k] * T.Cast("float32", i)

@R.function
def main(s: R.Lengths("b", "n"), x: R.Ragged({"i": "b", "j": "s[i]", "d": 8}, "float32")):
    o = R.concat((R.const([0], "int64"), R.cumsum(s, axis=0, dtype="int64")), axis=0)
    y = R.call_tir(cls.double, (o, x, b), out_ty=R.Ragged(
        {"i": "b", "j": "s[i]", "d": 8}, "float32"))
    z = R.sum(y, axis=2)
    return z
"""


def test_loops_are_given_sequences() -> None:
    mod = parse(LOOPS)
    s, x = np.array([2, 0, 3], "int32"), np.ones((5, 8), "float32")
    for run in (rl.compile(mod)["main"], lambda *a: rl.interpret(mod, "main", *a)):
        assert np.asarray(run(s, x)).tolist() == [0, 0, 16, 16, 16]


BAD = (([3, -1, 4], r"s\[1\] is -1"), ([3, 65], r"s\[1\] is 65"),
       ([3, 1], "the lengths in s add up to 4, not n = 6"), ([], "add up to 0, not n = 6")
       )  # fmt: skip


@pytest.mark.parametrize(("lengths", "message"), BAD, ids=str)
def test_lengths_that_do_not_fit_are_refused(lengths: list[int], message: str) -> None:
    x, w = np.zeros((6, 8), "float32"), np.zeros((12, 8), "float32")
    g = np.zeros((len(lengths), 1, 8), "float32")
    with pytest.raises(rl.CheckFailed, match=message):
        rl.compile(program("x + y"))["main"](np.array(lengths, "int32"), x, x, w, g)


@pytest.mark.parametrize("case", (ON_ROWS[4], OVER_SEQUENCES[4]), ids=str)
def test_programs_are_checked_with_random_sequences(case: Case) -> None:
    report = rl.check(program(case.body), runs=2)
    assert report and "not compared" not in str(report), report


@pytest.mark.parametrize(
    ("call", "stated"),
    [("R.argmax(x, axis=1)", "…, at_least=1"), ("R.topk(x, 3, axis=1)", "…, at_least=3")],
)
def test_the_lengths_that_an_operator_needs_are_suggested(call: str, stated: str) -> None:
    """The program compiles with the lengths that the error suggests."""
    with pytest.raises(DiagnosticError, match=f"R.Lengths\\({stated}\\)"):
        program(call)
    lengths = stated.removeprefix("…, ")
    program(call, top=TOP.replace("at_most", f"{lengths}, at_most"))
