"""Random loop functions with variables and conditions compute what the interpreter finds."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from tests.schedule.hand_loops import arrays_for, random_hand_loops

SIZES = ((3, 4), (1, 1), (2, 37), (0, 3), (20, 2))


@pytest.mark.parametrize("number", range(12))
def test_random_hand_loops(number: int, rng: np.random.Generator) -> None:
    seed = int(rng.integers(1 << 40)) + number
    text = random_hand_loops(seed)
    print(f"random_hand_loops({seed})\n{text}")
    (func,) = rl.parse(text).loop_functions().values()
    exe = rl.compile(rl.parse(text), checks="all" if number % 3 == 0 else "default")
    for n, m in SIZES:
        given = arrays_for(seed, text, n, m)
        expected = [a.copy() for a in given]
        interpret_prim_func(func, expected)
        exe["main"](*given)
        for name, got, want in zip("XWKOPC", given, expected, strict=True):
            np.testing.assert_array_equal(got, want, err_msg=f"{name} at {n} x {m}")
