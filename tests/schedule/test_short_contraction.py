"""Convolutions of few terms store neighbours, whatever their operands could be packed for."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.loops import BlockRealize, For
from relaxlab.ir.node import walk
from relaxlab.ir.substitute import symbols_in


@pytest.mark.parametrize("channels, size, neighbours", [(3, 1, True), (3, 3, True), (64, 3, False)])
def test_vectors_of_results(
    channels: int, size: int, neighbours: bool, rng: np.random.Generator
) -> None:
    mod = rl.parse(f"""
@R.function
def main(
    x: R.Tensor((2, {channels}, 9, 56), "float32"),
    w: R.Tensor((64, {channels}, {size}, {size}), "float32"),
):
    return R.nn.conv2d(x, w, padding={size // 2})
""")
    scheduled = rl.trace(mod).find("schedule_kernels").after
    vectors = [n for n in walk(scheduled) if isinstance(n, For) and n.kind == "vectorized"]
    stored = [
        (loop.loop_var, realize.iter_values[-1])
        for loop in vectors
        for realize in (n for n in walk(loop) if isinstance(n, BlockRealize))
        if any(w.buffer.name == "T_conv2d" for w in realize.block.writes)
    ]
    assert stored and all((var in symbols_in(last)) is neighbours for var, last in stored)
    x = rng.standard_normal((2, channels, 9, 56), np.float32)
    w = rng.standard_normal((64, channels, size, size), np.float32)
    want = rl.interpret(mod, "main", x, w)
    np.testing.assert_allclose(rl.compile(mod, threads=2)["main"](x, w), want, 1e-4, 1e-3)
