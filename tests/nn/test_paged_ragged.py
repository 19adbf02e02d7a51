"""Paged attention as a program on ragged tensors: against NumPy, interpreted and natively."""

from __future__ import annotations

import os

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.nn.loop_functions import Scores
from relaxlab.nn.paged_loops import PAGE, PoolShape
from relaxlab.passes.flatten_ragged import flatten_ragged
from relaxlab.passes.normalize import normalize
from relaxlab.script.parser import parse
from tests.nn.paged_batches import Batch

SEED = int(os.environ.get("RELAXLAB_SEED", "1"))
SHAPE = PoolShape(2, 8)
PROGRAM = """
@R.function
def main(
    s: R.Lengths("b", "n"), t: R.Lengths("b", "m"), size: R.Shape(["m"]),
    q: R.Ragged({"i": "b", "j": "s[i]", "h": 2, "d": 8}, "float32"),
    pages: R.Ragged({"i": "b", "p": "(t[i] + PAGE - 1) // PAGE"}, "int32"),
    keys: R.Tensor(("c + 1", 2, 8, PAGE), "float32"),
    values: R.Tensor(("c + 1", 2, PAGE, 8), "float32"),
):
    with R.dataflow():
        k = R.reshape(R.permute_dims(R.take(keys, pages, axis=0), axes=[0, 1, 4, 2, 3]), WHOLE)
        v = R.reshape(R.permute_dims(R.take(values, pages, axis=0), axes=[0, 1, 3, 2, 4]), WHOLE)
        a = R.nn.attention(
            q,
            R.strided_slice(k, axes=[1], begin=[0], end=[t[i]]),
            R.strided_slice(v, axes=[1], begin=[0], end=[t[i]]),
            causal_mask="BottomRight",
        )
        R.output(a)
    return a
""".replace("WHOLE", "R.shape([b, (t[i] + PAGE - 1) // PAGE * PAGE, 2, 8])").replace(
    "PAGE", str(PAGE)
)
"""Attention of s[i] new rows of a sequence to its t[i] positions, which lie in pages."""
LENGTHS = (
    ([1, 1, 1], [0, 40, 15]),
    ([3, 17, 1, 5], [30, 0, 16, 2]),
    ([64], [0]),
    ([2, 2], [14, 14]),
)


@pytest.fixture(scope="module")
def program() -> rl.Module:
    return parse(PROGRAM)


def test_against_rows_one_by_one(program: rl.Module) -> None:
    print(f"RELAXLAB_SEED={SEED}")
    rng, scores = np.random.default_rng(SEED), Scores(scale=8**-0.5)
    native = rl.compile(program)["main"]
    for new, past in LENGTHS:
        batch = Batch.random(rng, new, past, SHAPE)
        q = rng.standard_normal((1, sum(new), 2, 8), "float32")
        s, t = np.array(new, "int32"), np.add(new, past).astype("int32")
        given = (s, t, (int(t.sum()),), q[0], batch.pages, batch.keys, batch.values)
        want = batch.attention(q, SHAPE, scores)[0]
        for run in (native, lambda *a: rl.interpret(program, "main", *a)):
            np.testing.assert_allclose(run(*given), want, 1e-4, 1e-5)


def test_pages_become_positions_without_a_copy(program: rl.Module) -> None:
    flat = flatten_ragged(normalize(program))
    copies = {n.rstrip("0123456789") for n in flat if n.startswith("ragged_")}
    assert copies == {"ragged_take", "ragged_strided_slice"}
