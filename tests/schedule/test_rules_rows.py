"""Reductions over rows of every width around that of a vector, compiled, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl

PROGRAM = """
from relaxlab.script import ir as I, relax as R

@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", WIDTH), "float32"), w: R.Tensor((10, WIDTH), "float32")):
        with R.dataflow():
            a = R.sum(x, axis=1)
            b = R.max(x, axis=1)
            c = R.nn.softmax(x)
            d = R.linear(x, w)
            R.output(a, b, c, d)
        return (a, b, c, d)
"""


@pytest.mark.parametrize("width", [1, 2, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65])
def test_widths_around_a_vector(width):
    rng = np.random.default_rng(width)
    x, w = (rng.normal(size=(rows, width)).astype(np.float32) for rows in (5, 10))
    exe = rl.compile(rl.parse(PROGRAM.replace("WIDTH", str(width))), use_cache=False)
    got = [np.asarray(t) for t in exe["main"](x, w)]
    weight = np.exp(x - x.max(axis=1, keepdims=True))
    share = weight / weight.sum(axis=1, keepdims=True)
    for mine, want in zip(got, (x.sum(axis=1), x.max(axis=1), share, x @ w.T), strict=True):
        np.testing.assert_allclose(mine, want, rtol=2e-5, atol=2e-5)


SYMBOLIC = """
from relaxlab.script import ir as I, relax as R

@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", "d"), "float32"), w: R.Tensor(("d",), "float32")):
        with R.dataflow():
            a = R.sum(x, axis=1)
            b = R.max(x, axis=1)
            c = R.nn.softmax(x)
            d = R.nn.rms_norm(x, w, axes=[-1])
            R.output(a, b, c, d)
        return (a, b, c, d)
"""


def test_symbolic_widths():
    mod = rl.parse(SYMBOLIC)
    softmax = rl.trace(mod).result.loop_functions()["softmax"]
    assert len(softmax.buffers) == 2  # exponentials are computed twice, not stored
    exe = rl.compile(mod, threads=2, use_cache=False)
    for n, width in [(1, 1), (5, 7), (0, 3), (3, 16), (2, 63), (3, 64), (2, 65), (4, 200)]:
        rng = np.random.default_rng(width)
        x, w = (rng.normal(size=size).astype(np.float32) for size in ((n, width), (width,)))
        got = [np.asarray(t) for t in exe["main"](x, w)]
        weight = np.exp(x - x.max(axis=1, keepdims=True))
        share = weight / weight.sum(axis=1, keepdims=True)
        norm = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-5) * w
        for mine, want in zip(got, (x.sum(axis=1), x.max(axis=1), share, norm), strict=True):
            np.testing.assert_allclose(mine, want, rtol=2e-5, atol=2e-5)
