"""The partial results of a row, one per lane, are combined by one intrinsic."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.loops import Block
from relaxlab.ir.node import walk
from relaxlab.schedule.tensor_intrin import TENSOR_INTRIN

VECTORS = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}


@pytest.mark.parametrize("dtype", ["int8", "int32", "float32"])
@pytest.mark.parametrize("name", VECTORS)
def test_lanes_are_folded_at_once(name: str, dtype: str, rng: np.random.Generator) -> None:
    mod = rl.parse(f"""
@R.function
def main(x: R.Tensor(("n", 64), "{dtype}")):
    return R.{name}(x, axis=1)
""")
    scheduled = rl.trace(mod).find("schedule_kernels").after
    blocks = [n for n in walk(scheduled) if isinstance(n, Block)]
    named = [str(b.annotations.get(TENSOR_INTRIN)) for b in blocks]
    assert any(n.startswith(f"reduce_{VECTORS[name]}_{dtype}_") for n in named)
    x = (9 * rng.random((5, 64)) if dtype != "float32" else 0.5 + rng.random((5, 64))).astype(dtype)
    want = rl.interpret(mod, "main", x)
    np.testing.assert_allclose(rl.interpret(scheduled, "main", x), want, 1e-5)
    np.testing.assert_allclose(rl.compile(mod)["main"](x), want, 1e-5)
