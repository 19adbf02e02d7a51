"""Messages about graph functions name the value and the function."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.codegen.llvm.host_frame import UnsupportedHost


def test_a_value_of_unknown_rank_is_named() -> None:
    mod = rl.parse("""
@R.function
def main(x: R.Tensor(("n", 6), "float32")):
    narrow = R.squeeze(R.expand_dims(x, [0, 3]))
    flat = R.flatten(narrow)
    return (x, flat)
""")
    with pytest.raises(UnsupportedHost, match="in `main`: `narrow` has type R.Tensor"):
        rl.compile(mod, use_cache=False)


def test_a_failing_assertion_names_the_function() -> None:
    mod = rl.parse("""
@R.function(pure=False)
def main(x: R.Tensor((2,), "float32")):
    done = R.assert_op(R.const(False), x, format="not {}")
    return x
""")
    exe = rl.compile(mod, use_cache=False)
    with pytest.raises(rl.CheckFailed, match=r"computing the effects of `main`: R.assert_op: not"):
        exe["main"](np.ones(2, "float32"))
