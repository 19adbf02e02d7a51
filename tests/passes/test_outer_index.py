"""Ragged tensors whose extents follow from the index along the first dimension, as those of a
triangle do: against NumPy on padded matrices, in the interpreter and natively."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.errors import UserError
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.target import Target
from relaxlab.passes.base import Pipeline
from relaxlab.passes.flatten_ragged import flatten_ragged
from relaxlab.passes.normalize import normalize
from relaxlab.passes.pipeline import GRAPH_PASSES
from relaxlab.passes.schedule_kernels import schedule_kernels
from relaxlab.runtime.simt.simt import simt
from relaxlab.script.parser import parse
from relaxlab.testing.pass_check import check_module
from tests.passes.test_flatten_sequences import softmax

Array = np.ndarray
FOR_GPU = Pipeline((*GRAPH_PASSES, schedule_kernels.with_options(target=Target.cuda())))
SEED = int(os.environ.get("RELAXLAB_SEED", "1"))
SIZES = ((5, 3), (1, 1), (0, 2), (37, 18))
TOP = """
@R.function
def main(
    x: R.Tensor(("n", "n"), "float32"),
    y: R.Tensor(("n", "m"), "float32"),
    a: R.Ragged({"i": "n", "j": "i + 1"}, "float32"),
    b: R.Ragged({"row": "n", "column": "row + 1"}, "float32"),
    u: R.Ragged({"i": "n", "j": "n - i"}, "float32"),
    p: R.Ragged({"i": "n", "j": "i + 1", "d": 4}, "float32"),
):
    with R.dataflow():
        lower = R.strided_slice(x, axes=[1], begin=[0], end=[R.outer_index(n) + 1])
        rows = R.strided_slice(y, axes=[0], begin=[0], end=[R.outer_index(n) + 1])
        r = BODY
        R.output(r)
    return r
"""


def program(body: str, top: str = TOP) -> rl.Module:
    return parse(top.replace("BODY", body))


@dataclass(frozen=True)
class Case:
    """A value of the program, and its row i: x (n, n), y (n, m), a, b (i + 1,), u (n - i,), p
    (i + 1, 4)."""

    body: str
    of_row: Callable[..., Array]

    def __str__(self) -> str:
        return self.body


ON_ELEMENTS = (
    Case("a + b", lambda i, x, y, a, b, u, p: a + b),
    Case("R.exp(u) * u", lambda i, x, y, a, b, u, p: np.exp(u) * u),
    Case("R.sum(p, axis=2) * a", lambda i, x, y, a, b, u, p: p.sum(1) * a),
)
OVER_ROWS = (
    Case("R.matmul(lower, rows)", lambda i, x, y, a, b, u, p: x[i, : i + 1] @ y[: i + 1]),
    Case("R.matmul(a, rows)", lambda i, x, y, a, b, u, p: a @ y[: i + 1]),
    Case("R.strided_slice(x, axes=[1], begin=[0], end=[T.min(R.outer_index(n) + 2, n)])",
         lambda i, x, y, a, b, u, p: x[i, : i + 2]),
    Case("R.sum(lower, axis=1) * R.sum(u, axis=1)",
         lambda i, x, y, a, b, u, p: x[i, : i + 1].sum() * u.sum()),
    Case("lower + a", lambda i, x, y, a, b, u, p: x[i, : i + 1] + a),
    Case("R.add(lower, lower)", lambda i, x, y, a, b, u, p: 2 * x[i, : i + 1]),
    Case("R.tanh(lower) + b", lambda i, x, y, a, b, u, p: np.tanh(x[i, : i + 1]) + b),
    Case("R.nn.softmax(a, axis=1)", lambda i, x, y, a, b, u, p: softmax(a, 0)),
    Case("R.sum(p, axis=1)", lambda i, x, y, a, b, u, p: p.sum(0)),
    Case("R.flip(u, axis=1)", lambda i, x, y, a, b, u, p: u[::-1]),
    Case("R.concat((a, u), axis=1)", lambda i, x, y, a, b, u, p: np.concatenate([a, u])),
    Case("R.expand_dims(a, axis=2) * R.expand_dims(u, axis=1)",
         lambda i, x, y, a, b, u, p: np.outer(a, u)),
    Case("R.matmul(R.expand_dims(a, axis=1), p)", lambda i, x, y, a, b, u, p: a @ p),
    Case("R.permute_dims(p, axes=[0, 2, 1])", lambda i, x, y, a, b, u, p: p.T),
    Case("R.matmul(a, R.exp(rows))", lambda i, x, y, a, b, u, p: a @ np.exp(y[: i + 1])),
    Case("R.strided_slice(y, axes=[0], begin=[1], end=[R.outer_index(n) + 1]) "
         "+ R.reshape(R.sum(a, axis=1), (n, 1, 1))",
         lambda i, x, y, a, b, u, p: y[1 : i + 1] + a.sum()),
)  # fmt: skip


def operands(n: int, m: int) -> tuple[tuple[Array, ...], list[tuple[Array, ...]]]:
    """The arguments of the program, and a, b, u and p by row."""
    print(f"RELAXLAB_SEED={SEED}")
    rng = np.random.default_rng([SEED, n, m])
    x, y = rng.standard_normal((n, n), "float32"), rng.standard_normal((n, m), "float32")
    shapes = [((i + 1,), (i + 1,), (n - i,), (i + 1, 4)) for i in range(n)]
    rows = [tuple(rng.standard_normal(s, "float32") for s in of_row) for of_row in shapes]
    empty = tuple(np.zeros((0, *s), "float32") for s in ((), (), (), (4,)))
    packed = tuple(map(np.concatenate, zip(*rows, strict=True))) if n else empty
    return (x, y, *packed), rows


def check(case: Case, n: int, m: int, run: Callable[..., Array]) -> None:
    (x, y, *packed), rows = operands(n, m)
    want = [np.asarray(case.of_row(i, x, y, *rows[i])).reshape(-1) for i in range(n)]
    got = np.asarray(run(x, y, *packed)).reshape(-1)
    np.testing.assert_allclose(got, np.concatenate([*want, np.zeros(0, "float32")]), 1e-4, 1e-5)


@pytest.mark.parametrize("case", (*ON_ELEMENTS, *OVER_ROWS), ids=str)
def test_against_one_row_at_a_time(case: Case) -> None:
    mod = normalize(program(case.body))
    flat = flatten_ragged(mod)
    check_module(flatten_ragged, mod, flat)
    for size in SIZES[:3]:
        for m in (mod, flat):
            check(case, *size, lambda *args, m=m: rl.interpret(m, "main", *args))


@pytest.mark.parametrize("case", (ON_ELEMENTS[0], *OVER_ROWS[:2], OVER_ROWS[7]), ids=str)
def test_native_code(case: Case) -> None:
    exe = rl.compile(program(case.body))["main"]
    for size in SIZES:
        check(case, *size, exe)


def test_no_access_is_outside_of_its_buffer() -> None:
    exe = rl.compile(program(OVER_ROWS[4].body), checks="all")["main"]
    for size in SIZES:
        check(OVER_ROWS[4], *size, exe)


def test_on_a_simulated_gpu() -> None:
    scheduled = FOR_GPU.run(program(OVER_ROWS[0].body)).result
    check(OVER_ROWS[0], 5, 3, lambda *args: simt(scheduled, "main", *args).check().result)


def test_elements_are_computed_as_those_of_a_dense_tensor() -> None:
    flat = flatten_ragged(normalize(program(ON_ELEMENTS[0].body)))
    assert not any(n.startswith("ragged_add") for n in flat), list(flat)


PRODUCT = """
@R.function
def main(x: R.Tensor(("n", "n"), "float32"), y: R.Tensor(("n", "m"), "float32")):
    with R.dataflow():
        lower = R.strided_slice(x, axes=[1], begin=[0], end=[R.outer_index(n) + 1])
        rows = R.strided_slice(y, axes=[0], begin=[0], end=[R.outer_index(n) + 1])
        r = R.matmul(lower, rows)
        R.output(r)
    return r
"""


def test_a_triangular_product_reads_matrices_where_they_are() -> None:
    trace = rl.trace(parse(PRODUCT))
    kernels = [n for n, f in trace.result.items() if isinstance(f, PrimFunc)]
    assert kernels == ["ragged_matmul"]
    assert "ragged_matmul: scheduled by the rule ragged" in str(trace)


POSITIONS = """
@R.function
def main(s: R.Lengths("b", "n", at_most=16),
         x: R.Ragged({"i": "b", "j": "s[i]", "d": 4}, "float32"),
         table: R.Tensor((16, 4), "float32")):
    first = R.strided_slice(table, axes=[0], begin=[0], end=[s[i]])
    return x + first
"""


def test_the_first_rows_of_a_table_for_each_sequence() -> None:
    mod = parse(POSITIONS)
    rng = np.random.default_rng(SEED)
    xs = [rng.standard_normal((n, 4), "float32") for n in (3, 0, 16)]
    table, batch = rng.standard_normal((16, 4), "float32"), rl.ragged(xs)
    want = np.concatenate([x + table[: len(x)] for x in xs])
    for run in (rl.compile(mod)["main"], lambda *a: rl.interpret(mod, "main", *a)):
        np.testing.assert_allclose(run(batch.lengths, batch, table), want, 1e-6)


def test_a_script_is_read_as_it_is_printed() -> None:
    mod = program(OVER_ROWS[0].body)
    for m in (mod, normalize(mod), flatten_ragged(normalize(mod))):
        assert rl.structural_equal(parse(m.script()), m), m.script()
    assert 'a: R.Ragged({"i": "n", "j": "i + 1"}, "float32")' in mod.script()
    i = mod.script().replace("(m", "(i").replace('"m"', '"i"').replace(", m =", ", i =")
    renamed = normalize(parse(i))
    assert rl.structural_equal(parse(renamed.script()), renamed), renamed.script()


OVERWRITTEN = """
@T.prim_func
def clear(x: T.Buffer(("n", "n"), "float32")):
    for i, j in T.grid(n, n):
        x[i, j] = T.float32(0)

@R.function(pure=False)
def main(x: R.Tensor(("n", "n"), "float32"), y: R.Tensor(("n", "n"), "float32")):
    z = R.add(x, y)
    t = R.strided_slice(z, axes=[AXIS], begin=[0], end=[R.outer_index(n) + 1])
    w = R.call_tir_inplace(cls.clear, (z,), inplace_indices=[0],
                           out_ty=R.Tensor((n, n), "float32"))
    lower = R.strided_slice(w, axes=[1], begin=[0], end=[R.outer_index(n) + 1])
    r = OP
    return r
"""


def test_tensors_that_are_overwritten_are_not_read_where_they_are() -> None:
    x = np.arange(9, dtype="float32").reshape(3, 3)
    mod = parse(OVERWRITTEN.replace("AXIS", "1").replace("OP", "R.add(t, lower)"))
    for run in (rl.compile(mod)["main"], lambda *a: rl.interpret(mod, "main", *a)):
        assert np.asarray(run(x, x)).tolist() == [0, 6, 8, 12, 14, 16]
    mod = parse(OVERWRITTEN.replace("AXIS", "0").replace("OP", "R.matmul(lower, t)"))
    for run in (rl.compile(mod)["main"], lambda *a: rl.interpret(mod, "main", *a)):
        assert not np.asarray(run(x, x)).any()  # `lower` is cleared, and `t` was taken before
    mod = parse(OVERWRITTEN.replace("AXIS", "0").replace("OP", "R.matmul(R.exp(lower), t)"))
    for run in (rl.compile(mod)["main"], lambda *a: rl.interpret(mod, "main", *a)):
        sums = np.cumsum(2 * x, axis=0)
        np.testing.assert_allclose(run(x, x), sums)


CALLS = """
@R.function(private=True)
def twice(a: R.Ragged({"i": "k", "j": "i + 1"}, "float32"), size: R.Shape(["k"])) \\
        -> R.Ragged({"i": "k", "j": "i + 1"}, "float32"):
    return a + a

@R.function
def main(a: R.Ragged({"i": "n", "j": "i + 1"}, "float32"), size: R.Shape(["n"])):
    b = cls.twice(a, R.shape([n]))
    return R.sum(b + a, axis=1)
"""


def test_functions_are_called_with_triangles() -> None:
    mod = parse(CALLS)
    a = np.arange(6, dtype="float32")
    for run in (rl.compile(mod)["main"], lambda *a: rl.interpret(mod, "main", *a)):
        assert np.asarray(run(a, (3,))).tolist() == [0, 9, 36]
        with pytest.raises(UserError, match=r"is 5, expected .*sum_i.* = 6"):
            run(a[:-1], (3,))


LOCAL = """
@R.function
def main(a: R.Ragged({"i": "n", "j": "i + 1"}, "float32"), size: R.Shape(["n"])):
    @R.function
    def add(y: R.Ragged({"i": "n", "j": "i + 1"}, "float32")):
        return R.cumsum(R.add(y, a), axis=1)
    return add(R.cumsum(a, axis=1))
"""


def test_local_functions_take_triangles() -> None:
    mod = parse(LOCAL)
    rows = [np.arange(i + 1, dtype="float32") + i for i in range(3)]
    want = np.concatenate([np.cumsum(np.cumsum(r) + r) for r in rows])
    for run in (rl.compile(mod)["main"], lambda *a: rl.interpret(mod, "main", *a)):
        np.testing.assert_allclose(run(np.concatenate(rows), (3,)), want)


MIXED = """
@R.function
def main(s: R.Lengths("b", "n"), size: R.Shape(["n"]),
         x: R.Ragged({"i": "b", "j": "s[i]", "k": "i + 1"}, "float32")):
    return R.sum(R.nn.softmax(x, axis=1) * x, axis=2)
"""


def test_extents_by_lengths_beside_those_by_the_index() -> None:
    mod = normalize(parse(MIXED))
    assert rl.structural_equal(parse(mod.script()), mod)
    xs = [np.random.default_rng(SEED).standard_normal((n, i + 1), "float32")
          for i, n in enumerate((2, 0, 3))]  # fmt: skip
    want = np.concatenate([(softmax(x, 0) * x).sum(1) for x in xs])
    given = (np.array([2, 0, 3], "int32"), (5,), np.concatenate([x.reshape(-1) for x in xs]))
    for m in (mod, flatten_ragged(mod)):
        np.testing.assert_allclose(rl.interpret(m, "main", *given), want, 1e-5, 1e-6)


REFUSED = (
    ("R.add(a, u)", "i \\+ 1 against n - i|i \\+ 1.*n - i"),
    ("R.sum(rows, axis=0)", "is another one for each sequence, which its type does not say"),
    ("R.ones((4, R.outer_index(n)), 'float32')", "does not count the sequences, .* there are n"),
    ("R.matmul(a, y)", "i \\+ 1"),
    ("R.sum(a, axis=0)", "dimension 0 of its result"),
    ("rows", "is another tensor for each sequence, without a dimension that counts these"),
    ("R.strided_slice(y, axes=[1], begin=[0], end=[R.outer_index(m) + 1])",
     "does not count the sequences, of which there are m"),
)  # fmt: skip


@pytest.mark.parametrize(("body", "message"), REFUSED, ids=str)
def test_refused(body: str, message: str) -> None:
    with pytest.raises(DiagnosticError, match=message):
        rl.trace(program(body))


@pytest.mark.parametrize(("extent", "message"), [
    ("i - 1", "which may be negative"), ("R.outer_index(m) + 1", "an index below m"),
    ("n", "has no dimension that differs"),
])  # fmt: skip
def test_types_that_are_refused(extent: str, message: str) -> None:
    with pytest.raises(DiagnosticError, match=message):
        parse(TOP.replace("BODY", "x").replace('"n - i"', f'"{extent}"'))


def test_a_number_of_rows_that_nothing_determines_is_reported() -> None:
    text = 'def main(a: R.Ragged({"i": "n", "j": "i + 1"}, "float32")):\n    return R.exp(a)\n'
    with pytest.raises(DiagnosticError, match="do not determine `n`"):
        rl.trace(parse("@R.function\n" + text))


def test_random_arguments_fit() -> None:
    report = rl.check(parse(PRODUCT.replace("R.matmul(lower, rows)", "R.exp(lower)")), runs=2)
    assert report and "not compared" not in str(report), report
