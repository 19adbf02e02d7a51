"""Loops over nothing whose extent is a constant: no code is made of what they hold."""

from __future__ import annotations

import numpy as np

import relaxlab as rl

TEXT = """
@R.function
def main(x: R.Tensor((0, 2, 7, 3), "float32"), w: R.Tensor((2, 6, 2, 2), "float32")):
    with R.dataflow():
        y = R.nn.conv1d(x, w, data_layout="NCW3c", kernel_layout="OIW2o", out_layout="NCW")
        z = R.tanh(y)
        R.output(z)
    return z
"""


def test_a_convolution_of_no_images() -> None:
    main = rl.compile(rl.parse(TEXT), use_cache=False)["main"]
    got = main(np.zeros((0, 2, 7, 3), "float32"), np.zeros((2, 6, 2, 2), "float32"))
    assert got.shape == (0, 4, 6)
