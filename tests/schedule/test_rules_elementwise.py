"""Elementwise kernels: one flat loop where rows may be ignored."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir import loops
from relaxlab.ir.node import walk

PROGRAM = """
@R.function
def main(x: R.Tensor(("n", W), "int8"), y: R.Tensor(("m", W), "int8")):
    with R.dataflow():
        z = R.concat((x, y), axis=AXIS)
        R.output(z)
    return z
"""


def program(axis: int, width: str) -> rl.Module:
    return rl.parse(PROGRAM.replace("AXIS", str(axis)).replace("W", width).replace(
        '"m"', '"n"' if axis else '"m"'
    ))  # fmt: skip


def is_flat(mod: rl.Module) -> bool:
    """True if the loop over vectors goes through rows, rather than beginning anew in each."""
    (kernel,) = rl.trace(mod).result.loop_functions().values()
    (vector,) = (n for n in walk(kernel.body) if isinstance(n, loops.For) and n.kind != "parallel")
    return "fused" in vector.loop_var.name


@pytest.mark.parametrize(
    ("axis", "width", "flat"), [(0, "3", True), (0, '"k"', False), (1, "3", False)]
)
def test_concatenated_rows_are_one_loop(axis: int, width: str, flat: bool) -> None:
    """Rows of constant length, chosen by their number."""
    assert is_flat(program(axis, width)) == flat


def test_concatenated_rows_of_any_number(rng: np.random.Generator) -> None:
    exe = rl.compile(program(0, "3"), threads=2, use_cache=False)
    for n in (0, 1, 10, 11, 21, 32, 100):
        for m in (0, 1, 11, 32, 75):
            x, y = (rng.integers(-99, 99, (k, 3)).astype("int8") for k in (n, m))
            np.testing.assert_array_equal(exe["main"](x, y), np.concatenate((x, y)))
