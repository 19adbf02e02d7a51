"""Attention of sequences that lie one behind the other, by the first rows of sequences."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl

PROGRAM = """
@R.function
def main(q: R.Tensor((2, 3, 2, 8), "float32"), k: R.Tensor((2, 17, 2, 8), "float32"),
         v: R.Tensor((2, 17, 2, 8), "float32"), a: R.Tensor((3,), "{0}"),
         b: R.Tensor((3,), "{1}"), c: R.Tensor((3,), "{2}")):
    y = R.nn.attention_within(q, k, v, a, b, c, scale=0.3)
    return y
"""


@pytest.mark.parametrize("dtypes", [
    ("int64", "int64", "int64"), ("int32", "int32", "int32"),
    ("int64", "int32", "int32"), ("int32", "int32", "int64"), ("int32", "int64", "int32"),
])  # fmt: skip
def test_integers_of_either_width_say_which_rows(dtypes, rng: np.random.Generator) -> None:
    """Places are computed as int64, whatever the arrays of first rows are."""
    mod = rl.parse(PROGRAM.format(*dtypes))
    q = rng.normal(size=(2, 3, 2, 8)).astype("float32")
    k, v = (rng.normal(size=(2, 17, 2, 8)).astype("float32") for _ in range(2))
    first, last, cuts = np.array([[0, 5, 5], [4, 16, 16], [0, 1, 3]])
    rows = [x.astype(d) for x, d in zip((first, last, cuts), dtypes, strict=True)]
    want = rl.interpret(mod, "main", q, k, v, *rows)
    got = rl.compile(mod, use_cache=False)["main"](q, k, v, *rows)
    np.testing.assert_allclose(got, np.asarray(want), 1e-4, 1e-5)
