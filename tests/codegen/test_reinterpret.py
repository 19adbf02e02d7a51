"""The bits of one type as another, one by one and in lanes."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl

PROGRAM = """
@T.prim_func
def bits(a: T.Buffer((64,), "float32"), b: T.Buffer((64,), "uint32")):
    for i0 in range(4):
        for i1 in KIND(16):
            with T.block("bits"):
                v = T.axis.spatial(64, i0 * 16 + i1)
                b[v] = T.reinterpret("uint32", a[v]) ^ T.uint32(1)

@R.function
def main(x: R.Tensor((64,), "float32")):
    with R.dataflow():
        y = R.call_tir(cls.bits, (x,), R.Tensor((64,), "uint32"))
        R.output(y)
    return y
"""


@pytest.mark.parametrize("kind", ["T.serial", "T.vectorized", "T.unroll"])
def test_bits_of_floats(kind):
    x = np.random.default_rng(0).normal(size=64).astype(np.float32)
    exe = rl.compile(rl.parse(PROGRAM.replace("KIND", kind)), use_cache=False)
    np.testing.assert_array_equal(np.asarray(exe["main"](x)), x.view(np.uint32) ^ 1)
