"""Conditions on shapes that operators cannot prove become checks before the call."""

from __future__ import annotations

import numpy as np
import pytest

from relaxlab.ir import graph
from relaxlab.ir.module import Module
from relaxlab.passes.normalize import normalize
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.interpreter.interpreter import interpret
from relaxlab.script import parse

PROGRAM = """
@R.function
def main(x: R.Tensor(("n", "m"), "float32"), w: R.Tensor((3, 4), "float32")):
    with R.dataflow():
        y = {call}
        R.output(y)
    return y
"""


def _normal(call: str) -> Module:
    return normalize(parse(PROGRAM.format(call=call)))


def _casts(mod: Module) -> list[str]:
    main = mod["main"]
    bindings = [b for block in main.body.blocks for b in block.bindings]
    return [b.var.name for b in bindings if isinstance(b, graph.MatchCast)]


@pytest.mark.parametrize(
    ("call", "cast", "fits", "fails"),
    [
        ("R.matmul(x, w)", "matmul_shape", (2, 3), (2, 5)),
        ("R.reshape(x, (m, 2))", "reshape_shape", (2, 5), (3, 5)),
        ('R.topk(x, k=2, ret_type="values")', "topk_shape", (2, 2), (2, 1)),
        ("R.broadcast_to(x, (2, m))", "broadcast_to_shape", (1, 3), (3, 3)),
    ],
)
def test_checked_before_the_call(
    call: str, cast: str, fits: tuple[int, int], fails: tuple[int, int]
) -> None:
    mod = _normal(call)
    assert _casts(mod) == [cast]
    assert normalize(mod) is mod
    w = np.ones((3, 4), np.float32)
    interpret(mod, "main", np.ones(fits, np.float32), w)
    with pytest.raises(ExecutionError, match=cast):
        interpret(mod, "main", np.ones(fails, np.float32), w)


def test_proved_dimensions_are_not_checked() -> None:
    assert _casts(_normal("R.reshape(x, (m, n))")) == []
    assert _casts(_normal("R.matmul(R.permute_dims(x), x)")) == []
