"""Ragged tensors with several dimensions as long as a sequence: against NumPy, one sequence after
the other, in the interpreter and natively."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir import graph
from relaxlab.ir.errors import UserError
from relaxlab.ir.expr import Var
from relaxlab.ir.node import walk
from relaxlab.ir.target import Target
from relaxlab.ir.types import Length
from relaxlab.passes.base import Pipeline
from relaxlab.passes.flatten_ragged import flatten_ragged
from relaxlab.passes.normalize import normalize
from relaxlab.passes.pipeline import GRAPH_PASSES
from relaxlab.passes.ragged_loops import product_sums
from relaxlab.passes.schedule_kernels import schedule_kernels
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.runtime.simt.simt import simt
from relaxlab.script.parser import parse
from relaxlab.testing.pass_check import check_module
from tests.passes import test_flatten_sequences as flatten_sequences
from tests.passes.test_flatten_sequences import softmax

Array = np.ndarray
FOR_GPU = Pipeline((*GRAPH_PASSES, schedule_kernels.with_options(target=Target.cuda())))
SEED = int(os.environ.get("RELAXLAB_SEED", "1"))
TOP = """
@R.function
def main(
    s: R.Lengths("b", "n", at_most=64),
    t: R.Lengths("b", "m", at_most=64),
    x: R.Ragged({"i": "b", "j": "s[i]", "d": 4}, "float32"),
    y: R.Ragged({"i": "b", "j": "t[i]", "d": 4}, "float32"),
    a: R.Ragged({"i": "b", "h": 2, "j": "s[i]", "k": "t[i]"}, "float32"),
    p: R.Ragged({"i": "b", "j": "s[i]", "k": "t[i]", "d": 4}, "float32"),
    w: R.Tensor((3, 4), "float32"),
    g: R.Tensor(("b", 1, 4), "float32"),
):
    with R.dataflow():
        r = BODY
        R.output(r)
    return r
"""


program = partial(flatten_sequences.program, top=TOP)


@dataclass(frozen=True)
class Case:
    """A value of the program, and of one sequence: x (s, 4), y (t, 4), a (2, s, t), p (s, t, 4), w
    (3, 4), g (1, 4)."""

    body: str
    of_one: Callable[..., Array]
    empty: bool = True
    """Sequences may have no rows."""

    def __str__(self) -> str:
        return self.body


ON_ROWS = (
    Case("p * p + p", lambda x, y, a, p, w, g: p * p + p),
    Case("R.linear(p, w)", lambda x, y, a, p, w, g: p @ w.T),
    Case("R.nn.softmax(p, axis=3)", lambda x, y, a, p, w, g: softmax(p, 2)),
    Case("R.sum(p, axis=-1)", lambda x, y, a, p, w, g: p.sum(2)),
    Case("R.reshape(p, (0, 0, 0, 2, 2))", lambda x, y, a, p, w, g: p.reshape(*p.shape[:2], 2, 2)),
    Case("R.split(p, 2, axis=3)[1]", lambda x, y, a, p, w, g: p[..., 2:]),
    Case("R.exp(a) * a", lambda x, y, a, p, w, g: np.exp(a) * a),
)
TRANSPOSED = "R.permute_dims(y, axes=[0, 2, 1])"
OVER_SEQUENCES = (
    Case(f"R.matmul(x, {TRANSPOSED})", lambda x, y, a, p, w, g: x @ y.T),
    Case(f"R.nn.softmax(R.matmul(x, {TRANSPOSED}), axis=2)",
         lambda x, y, a, p, w, g: softmax(x @ y.T, 1)),
    Case("R.nn.softmax(a, axis=2)", lambda x, y, a, p, w, g: softmax(a, 1)),
    Case("R.matmul(a, R.expand_dims(y, axis=1))", lambda x, y, a, p, w, g: a @ y),
    Case("R.permute_dims(a, axes=[0, 1, 3, 2])", lambda x, y, a, p, w, g: a.transpose(0, 2, 1)),
    Case("R.permute_dims(a, axes=[0, 2, 3, 1])", lambda x, y, a, p, w, g: a.transpose(1, 2, 0)),
    Case("R.permute_dims(p, axes=[0, 2, 1, 3])", lambda x, y, a, p, w, g: p.transpose(1, 0, 2)),
    Case("R.matmul(a, R.permute_dims(a, axes=[0, 1, 3, 2]))",
         lambda x, y, a, p, w, g: a @ a.transpose(0, 2, 1)),
    Case("R.sum(a, axis=3)", lambda x, y, a, p, w, g: a.sum(2)),
    Case("R.sum(a, axis=[2, 3])", lambda x, y, a, p, w, g: a.sum((1, 2))),
    Case("R.sum(p, axis=1)", lambda x, y, a, p, w, g: p.sum(0)),
    Case("R.max(a, axis=2)", lambda x, y, a, p, w, g: a.max(1), empty=False),
    Case("R.mean(p, axis=[1, 2])", lambda x, y, a, p, w, g: p.mean((0, 1)), empty=False),
    Case("R.cumsum(a, axis=3)", lambda x, y, a, p, w, g: a.cumsum(2)),
    Case("R.flip(p, axis=2)", lambda x, y, a, p, w, g: p[:, ::-1]),
    Case("R.sort(p, axis=1)", lambda x, y, a, p, w, g: np.sort(p, 0)),
    Case("R.matmul(R.concat((x, y), axis=1), R.permute_dims(R.concat((x, y), axis=1), "
         "axes=[0, 2, 1]))",
         lambda x, y, a, p, w, g: (z := np.concatenate([x, y])) @ z.T),
    Case("R.concat((p, p), axis=2)", lambda x, y, a, p, w, g: np.concatenate([p, p], 1)),
    Case("R.expand_dims(x, axis=2) + R.expand_dims(y, axis=1)",
         lambda x, y, a, p, w, g: x[:, None] + y[None]),
    Case("p + R.expand_dims(g, axis=1)", lambda x, y, a, p, w, g: p + g),
    Case("R.einsum((x, y), 'bid,bjd->bij')", lambda x, y, a, p, w, g: x @ y.T),
    Case("R.tile(a, (1, 1, 2, 1))", lambda x, y, a, p, w, g: np.tile(a, (1, 2, 1))),
    Case("R.reshape(R.concat((p, p), axis=1), (0, 0, 0, 2, 2))",
         lambda x, y, a, p, w, g: np.concatenate([p, p], 0)),
    Case("R.tril(a)", lambda x, y, a, p, w, g: np.tril(a)),
)  # fmt: skip


def lengths_of(number: int, *, empty: bool) -> tuple[list[int], list[int]]:
    """Random lengths, zeros and ones among them, and one long sequence."""
    rng = np.random.default_rng([SEED, number])
    low = 0 if empty else 1
    count = int(rng.integers(1, 6))
    s, t = (np.minimum(rng.integers(low, 9, count), rng.integers(low, 9, count)) for _ in "st")
    s[int(rng.integers(count))] = low
    t[int(rng.integers(count))] = 17
    return s.tolist(), t.tolist()


def operands(s: list[int], t: list[int]) -> tuple[Array, ...]:
    print(f"RELAXLAB_SEED={SEED}")
    rng = np.random.default_rng([SEED, *s, *t])
    both = sum(i * j for i, j in zip(s, t, strict=True))
    shapes = ((sum(s), 4), (sum(t), 4), (2 * both,), (both, 4), (3, 4), (len(s), 1, 4))
    return tuple(rng.standard_normal(n, "float32") for n in shapes)


def one_by_one(case: Case, s: list[int], t: list[int], given: tuple[Array, ...]) -> Array:
    """The results of all sequences, behind each other."""
    x, y, a, p, w, g = given
    parts, at, to, of = list[Array](), 0, 0, 0
    for i, (m, n) in enumerate(zip(s, t, strict=True)):
        scores = a[2 * of : 2 * (of + m * n)].reshape(2, m, n)
        pairs = p[of : of + m * n].reshape(m, n, 4)
        parts.append(case.of_one(x[at : at + m], y[to : to + n], scores, pairs, w, g[i]))
        at, to, of = at + m, to + n, of + m * n
    return np.concatenate([np.asarray(r).reshape(-1) for r in parts])


def check(case: Case, s: list[int], t: list[int], run: Callable[..., Array]) -> None:
    given = operands(s, t)
    got = np.asarray(run(np.array(s, "int32"), np.array(t, "int32"), *given))
    np.testing.assert_allclose(got.reshape(-1), one_by_one(case, s, t, given), 1e-4, 1e-5)


@pytest.mark.parametrize("case", (*ON_ROWS, *OVER_SEQUENCES), ids=str)
def test_against_one_sequence_at_a_time(case: Case) -> None:
    mod = normalize(program(case.body, empty=case.empty))
    flat = flatten_ragged(mod)
    check_module(flatten_ragged, mod, flat)
    for number in range(3):
        s, t = lengths_of(number, empty=case.empty)
        for m in (mod, flat):
            check(case, s, t, lambda *a, m=m: rl.interpret(m, "main", *a))


OTHER_LENGTHS = """
@R.function
def main(s: R.Lengths("b", "n", at_least=3, at_most=64), m: R.Shape(["k"]),
         x: R.Ragged({"i": "b", "j": "s[i]", "d": 4}, "float32"),
         h: R.Ragged({"i": "b", "j": "s[i] // k", "l": "s[i]", "d": 2}, "float32"),
         w: R.Tensor((5, 3, 4), "float32")):
    r = BODY
    return r
"""
FROM_LENGTHS: dict[str, Callable[[Array, Array, Array], Array]] = {
    "R.strided_slice(x, axes=[1], begin=[0], end=[2])": lambda x, h, w: x[:2],
    "R.strided_slice(x, axes=[1], begin=[0], end=[64], strides=[2])": lambda x, h, w: x[::2],
    "h * h": lambda x, h, w: h * h,
    "R.sum(h, axis=1)": lambda x, h, w: h.sum(0),
    "R.permute_dims(h, axes=[0, 2, 1, 3])": lambda x, h, w: h.transpose(1, 0, 2),
    "R.median(x, axis=1)[0]": lambda x, h, w: np.sort(x, 0)[(len(x) - 1) // 2],
    'R.nn.avg_pool1d(x, pool_size=2, strides=2, layout="NWC")':
        lambda x, h, w: (x[: len(x) // 2 * 2 : 2] + x[1::2]) / 2,
    'R.nn.conv1d(x, w, strides=2, data_layout="NWC", kernel_layout="OWI")':
        lambda x, h, w: np.stack([np.tensordot(x[i : i + 3], w, ((0, 1), (1, 2)))
                                  for i in range(0, len(x) - 2, 2)]),
}  # fmt: skip


@pytest.mark.parametrize("body", FROM_LENGTHS)
def test_dimensions_that_follow_from_lengths(body: str) -> None:
    mod = normalize(parse(OTHER_LENGTHS.replace("BODY", body)))
    flat = flatten_ragged(mod)
    check_module(flatten_ragged, mod, flat)
    rng = np.random.default_rng(SEED)
    for s in ([3, 7, 4], [5], [12, 3]):
        x = [rng.standard_normal((n, 4), "float32") for n in s]
        h = [rng.standard_normal((n // 3, n, 2), "float32") for n in s]
        w = rng.standard_normal((5, 3, 4), "float32")
        given = (np.array(s, "int32"), (3,), np.concatenate(x), rl.ragged(h, dims=2).data, w)
        want = [FROM_LENGTHS[body](p, q, w).reshape(-1) for p, q in zip(x, h, strict=True)]
        runs = [lambda *a, m=m: rl.interpret(m, "main", *a) for m in (mod, flat)]
        runs += [rl.compile(mod)["main"]] if body == "R.sum(h, axis=1)" else []
        for run in runs:
            got = np.asarray(run(*given)).reshape(-1)
            np.testing.assert_allclose(got, np.concatenate(want), 1e-4, 1e-5)


def test_reductions_over_all_sequences() -> None:
    wanted = {"R.sum(a)": lambda a, p: a.sum(), "R.mean(p, axis=[0, 1, 2])":
              lambda a, p: p.mean((0,)), "R.max(a, keepdims=True)":
              lambda a, p: a.max().reshape(1, 1, 1, 1)}  # fmt: skip
    s, t = [3, 0, 5], [2, 4, 1]
    for body, of in wanted.items():
        mod = normalize(program(body))
        given = (np.array(s, "int32"), np.array(t, "int32"), *operands(s, t))
        for m in (mod, flatten_ragged(mod)):
            got = rl.interpret(m, "main", *given)
            np.testing.assert_allclose(got, of(given[4], given[5]), 1e-4, 1e-5)


IN_NATIVE_CODE = ("R.exp(a) * a", f"R.matmul(x, {TRANSPOSED})", "R.nn.softmax(a, axis=2)")


def operators(mod: rl.Module) -> set[str]:
    nodes = (n for f in mod.graph_functions().values() for n in walk(f))
    return {n.op.name for n in nodes if isinstance(n, graph.Call) and isinstance(n.op, graph.Op)}


@pytest.mark.parametrize("case", ON_ROWS, ids=str)
def test_what_works_on_rows_is_called_on_all_of_them(case: Case) -> None:
    flat = flatten_ragged(normalize(program(case.body)))
    assert not any(n.startswith("ragged_") for n in flat), list(flat)


@pytest.mark.parametrize("body", IN_NATIVE_CODE)
def test_native_code(body: str) -> None:
    (case,) = (c for c in (*ON_ROWS, *OVER_SEQUENCES) if c.body == body)
    exe = rl.compile(program(case.body))["main"]
    for number in range(3):
        check(case, *lengths_of(number, empty=True), exe)


def test_on_a_simulated_gpu() -> None:
    case = OVER_SEQUENCES[1]
    scheduled = FOR_GPU.run(program(case.body)).result
    check(case, [3, 0, 5], [2, 4, 1], lambda *a: simt(scheduled, "main", *a).check().result)


def test_a_script_is_read_as_it_is_printed() -> None:
    mod = program(f"R.nn.softmax(R.matmul(x, {TRANSPOSED}), axis=2)")
    for m in (mod, normalize(mod), flatten_ragged(normalize(mod))):
        assert rl.structural_equal(parse(m.script()), m), m.script()
    assert '{"i": "b", "j": "s[i]", "k": "t[i]"}' in normalize(mod).script()


def test_no_sequences() -> None:
    mod = program("R.exp(a) * a")
    given = (np.zeros(0, "int32"), np.zeros(0, "int32"), *operands([], []))
    for run in (rl.compile(mod)["main"], lambda *a: rl.interpret(mod, "main", *a)):
        assert np.asarray(run(*given)).shape == (0,)


def test_arguments_of_another_size_are_refused() -> None:
    mod = program("R.exp(a)")
    s, t = np.array([2, 3], "int32"), np.array([1, 2], "int32")
    x, y, a, *others = operands([2, 3], [1, 2])
    for run in (rl.compile(mod)["main"], lambda *a: rl.interpret(mod, "main", *a)):
        with pytest.raises(UserError, match=r"`a`.* is 15, expected sum_s_t \* 2 = 16"):
            run(s, t, x, y, a[:-1], *others)


def test_random_arguments_fit() -> None:
    report = rl.check(program("R.exp(a) * a"), runs=2)
    assert report and "not compared" not in str(report), report


def test_products_of_sequences_are_tiled() -> None:
    """Rows of scores are proved not to overlap from the lengths, which loops are given."""
    trace = str(rl.trace(program(f"R.matmul(x, {TRANSPOSED})")))
    assert "ragged_matmul: scheduled by the rule ragged" in trace


def test_sizes_beyond_any_memory_are_refused() -> None:
    each = Length("s[i]")
    sums = product_sums(Var("b"), (each, each, each))
    with pytest.raises(UserError, match="sequences up to 1, which is 4194304 long, have too many"):
        interpret_prim_func(sums, (np.array([3, 1 << 22, 4]), np.zeros(4, "int64")))


BIASED = """
@R.function
def main(s: R.Lengths("b", "n"), x: R.Ragged({"i": "b", "j": "s[i]", "h": 2, "d": 4}, "float32"),
         bias: R.Ragged({"i": "b", "h": 1, "j": "s[i]", "k": "s[i]"}, "float32")):
    return R.nn.attention(x, x, x, bias)
"""


def test_attention_with_a_bias_of_each_sequence() -> None:
    rng = np.random.default_rng(SEED)
    xs = [rng.standard_normal((n, 2, 4), "float32") for n in (2, 0, 4)]
    biases = [rng.standard_normal((n, n), "float32") for n in (2, 0, 4)]
    x, bias = rl.ragged(xs), rl.ragged(biases, dims=2)
    want = [np.einsum("hij,jhd->ihd", softmax(np.einsum("ihd,jhd->hij", q, q) / 2 + m, 2), q)
            for q, m in zip(xs, biases, strict=True)]  # fmt: skip
    mod = parse(BIASED)
    for m in (mod, flatten_ragged(normalize(mod))):
        got = rl.interpret(m, "main", x.lengths, x.data, bias.data)
        np.testing.assert_allclose(got, np.concatenate(want), 1e-4, 1e-5)


DOCUMENTS = """
@R.function
def main(s: R.Lengths("b", "n"), t: R.Lengths("n", "m"),
         x: R.Ragged({"i": "n", "j": "t[i]", "d": 4}, "float32")):
    y = R.sum(R.nn.softmax(x, axis=1) * x, axis=1)
    z = R.match_cast(y, R.Ragged({"i": "b", "j": "s[i]", "d": 4}, "float32"))
    w = R.nn.softmax(R.einsum((z, z), "bid,bjd->bij"), axis=2)
    return R.sum(R.matmul(w, z), axis=1)
"""


def test_words_of_sentences_of_documents() -> None:
    rng = np.random.default_rng(SEED)
    s, t = [2, 0, 1], [3, 0, 4]
    words = [rng.standard_normal((n, 4), "float32") for n in t]
    sentences = np.stack([(softmax(w, 0) * w).sum(0) for w in words])
    documents = np.split(sentences, np.cumsum(s)[:-1])
    want = np.stack([(softmax(z @ z.T, 1) @ z).sum(0) for z in documents])
    given = (np.array(s, "int32"), np.array(t, "int32"), np.concatenate(words))
    mod = parse(DOCUMENTS)
    for m in (mod, flatten_ragged(normalize(mod))):
        np.testing.assert_allclose(rl.interpret(m, "main", *given), want, 1e-4, 1e-5)


SUMS = """
@R.function
def main(s: R.Lengths("b", "n"), t: R.Lengths("b", "m"), size: R.Shape(["n", "m"]),
         h: R.Ragged({"i": "b", "j": "s[i] + t[i]", "k": "s[i]"}, "float32"),
         g: R.Ragged({"i": "b", "h": 2, "k": "s[i]"}, "float32")):
    return R.sum(h, axis=1)
"""


def test_sizes_that_no_parameter_determines() -> None:
    mod = parse(SUMS)
    flat = flatten_ragged(normalize(mod))
    assert flat.script().count("R.match_cast") == 3  # two sums, and the rows of h
    h, g = np.arange(15, dtype="float32"), np.zeros(10, "float32")
    given = (np.array([2, 3], "int32"), np.array([1, 0], "int32"), (5, 1), h, g)
    for run in (rl.compile(mod)["main"], lambda *a: rl.interpret(flat, "main", *a)):
        assert np.asarray(run(*given)).tolist() == [6, 9, 27, 30, 33]
        with pytest.raises(UserError, match=r"`h`.* 14, expected sum_s_s \+ sum_s_t"):
            run(*given[:3], h[:-1], g)
