"""Small networks of the operators, compiled once for all batch and image sizes, against the
interpreter: fusion, planning and threads change nothing."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.analysis.evaluate import evaluate
from relaxlab.ir.module import Module
from relaxlab.ir.types import TensorType
from relaxlab.testing.op_check import compare

SIZES = ((1, 8, 8), (2, 9, 13), (3, 16, 5), (1, 33, 20))

CLASSIFIER = """
@R.function
def main(
    x: R.Tensor(("n", 3, "h", "w"), "float32"),
    w1: R.Tensor((8, 3, 3, 3), "float32"), b1: R.Tensor((8, 1, 1), "float32"),
    w2: R.Tensor((8, 1, 3, 3), "float32"),
    w3: R.Tensor((24, 8, 1, 1), "float32"),
    gamma: R.Tensor((24,), "float32"), beta: R.Tensor((24,), "float32"),
    mean: R.Tensor((24,), "float32"), var: R.Tensor((24,), "float32"),
    w4: R.Tensor((10, 24), "float32"),
):
    with R.dataflow():
        a = R.nn.relu(R.add(R.nn.conv2d(x, w1, strides=2, padding=1), b1))
        b = R.nn.conv2d(a, w2, padding=1, groups=8)
        c = R.nn.conv2d(b, w3)
        d = R.nn.batch_norm(c, gamma, beta, mean, var, axis=1, training=False)
        e = R.nn.max_pool2d(R.nn.silu(d[0]), pool_size=2, strides=2)
        f = R.nn.adaptive_avg_pool2d(e, output_size=1)
        g = R.nn.log_softmax(R.linear(R.nn.batch_flatten(f), w4))
        h = R.nn.nll_loss(g, R.astype(R.argmax(g, axis=1), "int64"))
        out = (g, h)
        R.output(out)
    return out
"""
DECODER = """
@R.function
def main(
    x: R.Tensor(("n", "h", "w", 8), "float16"),
    w1: R.Tensor((3, 3, 8, 8), "float16"),
    gamma: R.Tensor((8,), "float16"), beta: R.Tensor((8,), "float16"),
    w2: R.Tensor((8, 2, 4, 4), "float16"),
):
    with R.dataflow():
        a = R.nn.conv2d(x, w1, padding=1, data_layout="NHWC", kernel_layout="HWIO")
        b = R.nn.group_norm(a, gamma, beta, num_groups=4, channel_axis=3, axes=[1, 2])
        c = R.permute_dims(R.add(R.nn.gelu(b), x), axes=[0, 3, 1, 2])
        d = R.nn.conv2d_transpose(c, w2, strides=2, padding=1)
        e = R.nn.pixel_shuffle(R.concat((d, d), axis=1), upscale_factor=2)
        y = R.nn.pad(e, pad_width=[0, 0, 0, 0, 1, 2, 2, 1], pad_mode="reflect")
        R.output(y)
    return y
"""


def weight_shapes(mod: Module) -> list[tuple[int, ...]]:
    """The shapes of all parameters but the first."""
    main = mod["main"]
    types = [p.ty for p in main.params[1:]]
    shapes = [t.shape for t in types if isinstance(t, TensorType) and t.shape is not None]
    return [tuple(evaluate(d, {}) for d in shape) for shape in shapes]


@pytest.mark.parametrize("text", [CLASSIFIER, DECODER], ids=["classifier", "decoder"])
@pytest.mark.parametrize("threads", [1, 2])
def test_network(text: str, threads: int) -> None:
    mod = rl.parse(text)
    exe = rl.compile(mod, use_cache=False, threads=threads)
    rng = np.random.default_rng(4)
    kind = np.float32 if text is CLASSIFIER else np.float16
    weights = [rng.uniform(0.1, 0.5, shape).astype(kind) for shape in weight_shapes(mod)]
    for n, h, w in SIZES:
        shape = (n, 3, h, w) if text is CLASSIFIER else (n, h, w, 8)
        x = rng.normal(size=shape).astype(kind)
        got, want = exe["main"](x, *weights), rl.interpret(mod, "main", x, *weights)
        pairs = zip(got, want, strict=True) if isinstance(got, tuple | list) else [(got, want)]
        for ours, theirs in pairs:
            compare(np.asarray(ours), np.asarray(theirs), f"{n} images of {h} x {w}")
