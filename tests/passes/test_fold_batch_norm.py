"""fold_batch_norm."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir import graph
from relaxlab.ir.node import walk
from relaxlab.passes.bind_params import bind_params
from relaxlab.passes.decompose_norms import decompose_norms
from relaxlab.passes.fold_batch_norm import fold_batch_norm
from relaxlab.passes.normalize import normalize

PROGRAM = """
@R.function
def main(
    x: R.Tensor(("b", 3, 5, 4), "float32"), w: R.Tensor((2, 3, 3, 3), "float32"),
    g: R.Tensor((2,), "float32"), t: R.Tensor((2,), "float32"),
    m: R.Tensor((2,), "float32"), v: R.Tensor((2,), "float32"),
):
    with R.dataflow():
        c = R.nn.conv2d(x, w, padding=1)
        n = R.nn.batch_norm(c, g, t, m, v, axis=1, training=False)
        y = n[0]
        R.output(y)
    return y
"""
NHWC = (
    PROGRAM.replace("3, 5, 4", "5, 4, 3")
    .replace("axis=1", "axis=-1")
    .replace("padding=1", 'padding=1, data_layout="NHWC"')
)


def bound(text: str) -> rl.Module:
    rng = np.random.default_rng(4)
    shapes = {"w": (2, 3, 3, 3), "g": 2, "t": 2, "m": 2, "v": 2}
    values = {k: rng.uniform(0.5, 2, s).astype("float32") for k, s in shapes.items()}
    return normalize(bind_params.with_options(params=values, function="main")(
        normalize(rl.parse(text))
    ))  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [PROGRAM, NHWC, PROGRAM.replace("axis=1, ", "axis=1, center=False, epsilon=0.1, "),
     PROGRAM.replace("axis=1, ", "axis=1, scale=False, ")],
)  # fmt: skip
def test_the_weights_are_scaled(text: str) -> None:
    before = bound(text)
    after = fold_batch_norm(before)
    assert "batch_norm" not in after.script() and fold_batch_norm(after) is after
    shape = (2, 5, 4, 3) if text is NHWC else (2, 3, 5, 4)
    x = np.random.default_rng(5).normal(size=shape).astype("float32")
    want = rl.interpret(decompose_norms(before), "main", x)
    np.testing.assert_allclose(rl.interpret(after, "main", x), want, rtol=1e-4, atol=1e-5)


def test_what_stays() -> None:
    unbound = normalize(rl.parse(PROGRAM))  # the weights are not known
    other_axis = bound(PROGRAM.replace("5, 4", "2, 2").replace("axis=1", "axis=2"))
    blocks = bound(PROGRAM.replace("padding=1", 'padding=1, out_layout="NCHW2c"').replace(
        "c, g, t", "R.reshape(c, (b, 2, 5, 4)), g, t"
    ))  # fmt: skip
    trains = bound(PROGRAM.replace("training=False", "training=True"))
    for mod in (unbound, other_axis, blocks, trains):
        after = fold_batch_norm(mod)
        assert [n for n in walk(after["main"]) if n == graph.Op("nn.batch_norm")]
    folded = fold_batch_norm.with_options(inference=True)(trains)
    assert "batch_norm" not in folded.script()
