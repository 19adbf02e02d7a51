"""The depth of native recursion."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.runtime.native.function import CheckFailed

PROGRAM = """
@R.function
def down(n: R.Tensor((), "int64"), x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
    more = R.greater(n, R.const(0, "int64"))
    if more:
        less = R.subtract(n, R.const(1, "int64"))
        y = R.add(x, R.const(1, "float32"))
        r = cls.step(less, y)
    else:
        r = x
    return r

@R.function
def step(n: R.Tensor((), "int64"), x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
    r = cls.down(n, x)
    return r

@R.function
def main(n: R.Tensor((), "int64"), x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
    r = cls.down(n, x)
    return r
"""


@pytest.mark.parametrize("threads", [1, 3])
def test_the_stack_never_overflows(threads: int) -> None:
    exe = rl.compile(rl.parse(PROGRAM), threads=threads)
    zero = np.zeros(2, "float32")
    for name in ("main", "down"):
        np.testing.assert_array_equal(exe[name](np.array(500), zero), [500, 500])
        with pytest.raises(CheckFailed, match="is called too deeply: the calls take [0-9]+ bytes"):
            exe[name](np.array(10**9), zero)
        np.testing.assert_array_equal(exe[name](np.array(3), zero), [3, 3])
