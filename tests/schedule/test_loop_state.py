"""The variables of hand-written loops belong to one thread, and sorts choose without branches."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.loops import Block, BufferLoad, IfThenElse
from relaxlab.ir.module import Module
from relaxlab.ir.node import walk


def program(call: str, dtype: str = "float32") -> Module:
    return rl.parse(f"""
@R.function
def main(x: R.Tensor(("n", "m"), "{dtype}"), ends: R.Tensor((4,), "{dtype}")):
    return {call}
""")


@pytest.mark.parametrize(
    "call, state",
    [
        ("R.sort(x, axis=1)", "T_starts"),
        ("R.argsort(x, axis=0)", "T_starts"),
        ("R.topk(x, k=3, axis=1)", "T_place"),
    ],
)
def test_variables_are_private(call: str, state: str) -> None:
    scheduled = rl.trace(program(call)).find("schedule_kernels").after
    allocated = [b for n in walk(scheduled) if isinstance(n, Block) for b in n.alloc_buffers]
    (found,) = (b for b in allocated if b.name == state)
    assert found.scope == "local"
    if "sort" in call:  # only short rows are told apart, by their number
        conditions = [n.condition for n in walk(scheduled) if isinstance(n, IfThenElse)]
        assert not any(isinstance(n, BufferLoad) for c in conditions for n in walk(c))


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32"])
@pytest.mark.parametrize("axis", [0, 1])
def test_sorts_against_the_interpreter(axis: int, dtype: str, rng: np.random.Generator) -> None:
    """Ties keep their order, NaN comes last (first when descending)."""
    for name in ("sort", "argsort"):
        for descending in (False, True):
            mod = program(f"R.{name}(x, axis={axis}, descending={descending})", dtype)
            exe = rl.compile(mod, threads=2, checks="all")
            for n, m in ((1, 1), (2, 3), (17, 33), (100, 65)):
                x = rng.integers(-5, 5, (n, m)).astype(dtype)
                if dtype != "int8":
                    x[n // 2, ::3], x[-1, -1] = -0.0, np.nan
                ends = np.zeros(4, dtype)
                want, got = rl.interpret(mod, "main", x, ends), exe["main"](x, ends)
                np.testing.assert_array_equal(got, want)
                if dtype != "int8":
                    np.testing.assert_array_equal(np.signbit(got), np.signbit(want))
