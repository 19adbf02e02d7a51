"""Tensors that are another one for each sequence, such as the positions in it: what makes them of
nothing, and operators on them, against NumPy on one sequence after the other."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.passes.flatten_ragged import flatten_ragged
from relaxlab.passes.normalize import normalize
from relaxlab.runtime.simt.simt import simt
from relaxlab.script.parser import parse
from relaxlab.testing.pass_check import check_module
from tests.passes.test_outer_index import FOR_GPU

Array = np.ndarray
SEED = int(os.environ.get("RELAXLAB_SEED", "1"))
LENGTHS = ([3, 0, 5, 1], [0, 0], [], [7])
TOP = """
@R.function(private=True)
def twice(x: R.Tensor(("k",), "int64")):
    return x + x

@R.function
def main(s: R.Lengths("b", "n", at_most=64),
         x: R.Ragged({"i": "b", "j": "s[i]", "d": 4}, "float32")):
    one = R.const(1, "float32")
    r = BODY
    return r
"""


@dataclass(frozen=True)
class Case:
    """A value of the program, and of sequence i with the rows x."""

    body: str
    of_one: Callable[[int, Array], Array]

    def __str__(self) -> str:
        return self.body


def lower(n: int) -> Array:
    return np.tril(np.ones((n, n)))


CASES = (
    Case("R.broadcast_to(R.arange(0, s[i]), (b, s[i]))", lambda i, x: np.arange(len(x))),
    Case("x + R.expand_dims(R.astype(R.arange(1, s[i] + 1), 'float32'), 1)",
         lambda i, x: x + np.arange(1, len(x) + 1)[:, None]),
    Case("R.broadcast_to(R.arange(0, s[i] + R.outer_index(b), 2), "
         "(b, (s[i] + R.outer_index(b) + 1) // 2))",
         lambda i, x: np.arange(0, len(x) + i, 2)),
    Case("R.matmul(R.tril(R.ones((s[i], s[i]), 'float32')), x)", lambda i, x: lower(len(x)) @ x),
    Case("R.matmul(R.eye(s[i]), x)", lambda i, x: x),
    Case("R.where(R.less_equal(R.arange(0, s[i]), R.expand_dims(R.arange(0, s[i]), 1)), "
         "R.matmul(x, R.permute_dims(x, axes=[0, 2, 1])), R.zeros((s[i], s[i]), 'float32'))",
         lambda i, x: np.tril(x @ x.T)),
    Case("x * R.cumsum(R.full((s[i], 4), one), axis=0)",
         lambda i, x: x * np.arange(1, len(x) + 1)[:, None]),
    Case("R.split(R.cumsum(R.ones((s[i], 4), 'float32'), axis=0), 2, axis=1)[1] "
         "+ R.split(x, 2, axis=2)[0]", lambda i, x: x[:, :2] + np.arange(1, len(x) + 1)[:, None]),
    Case("R.sum(R.sum(x, axis=2) * R.nn.softmax(R.astype(R.arange(0, s[i]), 'float32'), axis=0), "
         "axis=1)", lambda i, x: (x.sum(1) * weights(len(x))).sum()),
)  # fmt: skip


def weights(n: int) -> Array:
    e = np.exp(np.arange(n) - n + 1)
    return e / e.sum()


def program(body: str) -> rl.Module:
    return parse(TOP.replace("BODY", body))


def check(case: Case, lengths: list[int], run: Callable[..., Array]) -> None:
    print(f"RELAXLAB_SEED={SEED}")
    rng = np.random.default_rng(SEED)
    xs = [rng.standard_normal((n, 4), "float32") for n in lengths]
    want = [np.asarray(case.of_one(i, x)).reshape(-1) for i, x in enumerate(xs)]
    rows = np.concatenate([*xs, np.zeros((0, 4), "float32")])
    got = np.asarray(run(np.array(lengths, "int32"), rows)).reshape(-1)
    np.testing.assert_allclose(got, np.concatenate([*want, []]), 1e-4, 1e-5)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_against_one_sequence_at_a_time(case: Case) -> None:
    mod = normalize(program(case.body))
    assert rl.structural_equal(parse(mod.script()), mod)
    flat = flatten_ragged(mod)
    check_module(flatten_ragged, mod, flat)
    for lengths in LENGTHS:
        for m in (mod, flat):
            check(case, lengths, lambda *args, m=m: rl.interpret(m, "main", *args))


@pytest.mark.parametrize("case", CASES[1::2], ids=str)
def test_native_code(case: Case) -> None:
    run = rl.compile(program(case.body), checks="all")["main"]
    for lengths in LENGTHS:
        check(case, lengths, run)


def test_on_a_simulated_gpu() -> None:
    scheduled = FOR_GPU.run(program(CASES[5].body)).result
    check(CASES[5], [3, 0, 5], lambda *args: simt(scheduled, "main", *args).check().result)


def test_positions_are_added_to_the_rows_of_all_sequences_as_to_one() -> None:
    """No loops over sequences but those that make the positions."""
    flat = flatten_ragged(normalize(program(CASES[1].body)))
    assert [n for n in flat if n.startswith("ragged")] == ["ragged_arange"]


REFUSED = (
    ("R.arange(0, s[i])", "is another tensor for each sequence, without a dimension that counts"),
    ("R.sum(R.arange(0, s[i]))", "is another one for each sequence, which its type does not say"),
    ("R.ones((4, s[i]), 'float32')", "does not count the sequences, of which there are b"),
    ("R.expand_dims(R.arange(0, s[i]), 0)", "does not count the sequences, of which there are b"),
    ("cls.twice(R.arange(0, s[i]))", "is another tensor for each sequence"),
    ("R.match_cast(R.arange(0, s[i]), R.Tensor((s[i],), 'int64'))", "another tensor for each"),
)


@pytest.mark.parametrize(("body", "message"), REFUSED)
def test_refused(body: str, message: str) -> None:
    with pytest.raises(DiagnosticError, match=message):
        rl.trace(program(body))
