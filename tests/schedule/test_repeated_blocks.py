"""Blocks in loops that give no axis its value, which run the same instances again."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.loops import PrimFunc
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.schedule import Schedule, ScheduleError

KERNELS = {
    "copy": ("SS", "C[x, y] = A[x, y] + T.float32(1)", None),
    "diagonal": ("SS", "C[x, x] = A[x, 3]", None),
    "transpose": ("SS", "C[y, x] = A[x, y]", None),
    "accumulation": ("SS", "C[x, y] = C[x, y] + A[x, y]", None),
    "rows": ("SR", "E[x] = E[x] + A[x, y]", "E[x] = T.float32(0)"),
    "columns": ("RS", "E[y] = E[y] + A[x, y]", "E[y] = T.float32(0)"),
    "maximum": ("SR", "E[x] = T.max(E[x], A[x, y])", "E[x] = T.min_value('float32')"),
}


def kernel(name: str, order: str, size: int) -> PrimFunc:
    kinds, store, init = KERNELS[name]
    extents = ", ".join("3" if v == "p" else str(size) for v in order)
    text = f"""
@T.prim_func
def f(A: T.Buffer(({size}, {size}), "float32"), C: T.Buffer(({size}, {size}), "float32"),
      E: T.Buffer(({size},), "float32")):
    for {", ".join(order)} in T.grid({extents}):
        with T.sblock("a"):
            x, y = T.axis.remap("{kinds}", [i, j])
"""
    if init is not None:
        text += f"            with T.init():\n                {init}\n"
    return rl.parse(f"{text}            {store}\n")["f"]


@pytest.mark.parametrize("size", [6, 20])
@pytest.mark.parametrize("order", ["".join(p) for p in permutations("ijp")])
@pytest.mark.parametrize("name", KERNELS)
def test_compiled_as_interpreted(
    name: str, order: str, size: int, rng: np.random.Generator
) -> None:
    func = kernel(name, order, size)
    arrays = [rng.uniform(0.5, 1, (size,) * n).astype("float32") for n in (2, 2, 1)]
    plain, compiled = ([a.copy() for a in arrays] for _ in range(2))
    interpret_prim_func(func, plain)
    rl.compile(func, checks="all", use_cache=False)(*compiled)
    for x, y in zip(compiled, plain, strict=True):
        np.testing.assert_allclose(x, y, 1e-5)


@pytest.mark.parametrize("order", ["ijp", "pij"])
def test_reorder_keeps_what_is_initialised_again(order: str) -> None:
    sch = Schedule(kernel("rows", order, 6))
    first, second, third = sch.get_loops(sch.get_block("a"))
    with pytest.raises(ScheduleError, match="runs over axes of block 'a', which initialises"):
        sch.reorder(third, second, first)


def test_terms_that_are_added_again_are_no_reduction() -> None:
    sch = Schedule(kernel("rows", "ijp", 6))
    _, j, _ = sch.get_loops(sch.get_block("a"))
    with pytest.raises(ScheduleError, match="reduction with its initialisation"):
        sch.rfactor(j, 0)
    again = Schedule(kernel("rows", "pij", 6))
    _, _, j = again.get_loops(again.get_block("a"))
    again.rfactor(j, 0)
