"""Reductions over the rows of each sequence, from programs on packed rows."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.script import parse

POOL = """
@R.function
def main(
    s: R.Lengths("b", "n", at_most=512),
    x: R.Tensor(("n", 6), "float32"),
):
    with R.dataflow():
        ends = R.cumsum(s, axis=0, dtype="int64")
        starts = R.concat((R.const([0], "int64"), ends), axis=0)
        weights = R.nn.segment_softmax(x, starts)
        mean = R.nn.segment_reduce(x * weights, starts, mode="mean")
        R.output(mean)
    return mean
"""


def pooled(parts: list[np.ndarray]) -> np.ndarray:
    def one(x: np.ndarray) -> np.ndarray:
        if not len(x):
            return np.zeros(6, "float32")
        w = np.exp(x - x.max(0))
        return (x * w / w.sum(0)).mean(0)

    return np.stack([one(p) for p in parts])


@pytest.mark.parametrize("lengths", [[3, 0, 1, 40], [0], [5, 5, 5], [1]])
def test_weighted_means_of_sequences(lengths: list[int]) -> None:
    rng = np.random.default_rng(len(lengths))
    parts = [rng.standard_normal((n, 6), dtype="float32") for n in lengths]
    batch, module = rl.ragged(parts), parse(POOL)
    for run in (rl.compile(module)["main"], lambda *a: rl.interpret(module, "main", *a)):
        got = np.asarray(run(batch.lengths, batch.data))
        np.testing.assert_allclose(got, pooled(parts), rtol=1e-5, atol=1e-6)


EACH = """
@R.function
def main(x: R.Tensor(("n", 6), "float32"), o: R.Tensor(("b",), "int64")):
    with R.dataflow():
        s = R.nn.segment_softmax(x, o)
        a = R.nn.segment_reduce(x, o, mode="sum")
        m = R.nn.segment_reduce(x, o, mode="mean")
        t = R.nn.segment_reduce(x, o, mode="max")
        R.output(s, a, m, t)
    return s, a, m, t
"""


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_stays_in_its_segment(bad: float) -> None:
    """Results of the other segments are the same to the last bit."""
    starts, run = np.array([0, 3, 3, 24, 25, 34]), rl.compile(parse(EACH))["main"]
    x = np.random.default_rng(3).standard_normal((34, 6), "float32")
    want = [np.asarray(y) for y in run(x, starts)]
    for at in (0, 2, 3):
        dirty = x.copy()
        dirty[starts[at] : starts[at + 1]] = bad
        got = [np.asarray(y) for y in run(dirty, starts)]
        rows = np.delete(np.arange(34), np.s_[starts[at] : starts[at + 1]])
        np.testing.assert_array_equal(got[0][rows], want[0][rows])
        for y, clean in zip(got[1:], want[1:], strict=True):
            np.testing.assert_array_equal(np.delete(y, at, 0), np.delete(clean, at, 0))
            assert not np.isfinite(y[at]).any()


def test_starts_that_do_not_fit_their_rows_are_refused() -> None:
    module = parse("""
@R.function
def main(x: R.Tensor(("n", 2), "float32"), o: R.Tensor(("b",), "int32")):
    return R.nn.segment_reduce(x, o)
""")
    run = rl.compile(module)["main"]
    x = np.ones((4, 2), "float32")
    assert np.asarray(run(x, np.array([0, 3, 4], "int32"))).tolist() == [[3, 3], [1, 1]]
    with pytest.raises(rl.CheckFailed, match="ends with 3, not n = 4"):
        run(x, np.array([0, 3], "int32"))
    with pytest.raises(rl.CheckFailed, match="is 1, less than the element before it"):
        run(x, np.array([0, 3, 1, 4], "int32"))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ('R.nn.segment_reduce(x, o, mode="median")', "mode must be one of sum, mean, max"),
        ("R.nn.segment_reduce(x, x)", "int32 or int64"),
        ("R.nn.segment_softmax(o, o)", "floating point"),
    ],
)
def test_calls_that_cannot_be(call: str, message: str) -> None:
    with pytest.raises(DiagnosticError, match=message):
        parse(f"""
@R.function
def main(x: R.Tensor(("n",), "float32"), o: R.Tensor(("b",), "int32")):
    return {call}
""")
