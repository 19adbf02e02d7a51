"""Operators that read at given places, of tensors without elements: refused, never read."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.native.function import CheckFailed

PROGRAM = """\
@R.function
def main(x: R.Tensor(("n", "m"), "float32"), i: R.Tensor(SHAPE, "int64")):
    z = CALL
    return z
"""
CALLS = {
    "R.take(x, i, axis=0)": ("k",),
    "R.take(x, i, axis=0, mode='wrap')": ("k",),
    "R.index_tensor(x, (i,))": ("k",),
    "R.gather_nd(x, i)": ("k", 1),
}


def program(call: str, x: str = '("n", "m")') -> str:
    return PROGRAM.replace("SHAPE", str(CALLS[call])).replace("CALL", call).replace(
        '("n", "m")', x
    )  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_only_nothing_is_read_where_there_is_nothing(call: str) -> None:
    mod = rl.parse(program(call))
    main = rl.compile(mod)["main"]
    tail = CALLS[call][1:]
    for n, k in ((0, 0), (2, 0), (2, 3)):
        x, i = np.ones((n, 4), "float32"), np.zeros((k, *tail), "int64")
        assert main(x, i).shape == rl.interpret(mod, "main", x, i).shape == (k, 4)
    x, i = np.ones((0, 4), "float32"), np.zeros((3, *tail), "int64")
    with pytest.raises(CheckFailed):
        main(x, i)
    with pytest.raises(ExecutionError):
        rl.interpret(mod, "main", x, i)


@pytest.mark.parametrize("call", CALLS)
def test_errors_known_early_are_raised_early(call: str) -> None:
    text = program(call, "(0, 4)").replace('"k"', "3").replace("'k'", "3")
    with pytest.raises(DiagnosticError, match="there is nothing to read"):
        rl.parse(text)
