"""Programs that overwrite their arguments, for the tests of what passes know about it."""

from __future__ import annotations

import re
from textwrap import indent

import relaxlab as rl
from relaxlab.ir.module import Module

BUMP = """
@I.ir_module
class Module:
    @T.prim_func
    def bump(A: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.sblock("A"):
                vi = T.axis.spatial(4, i)
                A[vi] = A[vi] + T.float32(1)

"""


def bumping(functions: str) -> Module:
    """The module of `functions` and of `bump`, which adds 1 to four float32 in place; `BUMP(x)` in
    the functions stands for its call, whose result is the memory of x, `TENSOR` for the type."""
    call = r"R.call_tir_inplace(Module.bump, (\1,), out_sinfo=TENSOR, inplace_indices=[0])"
    text = BUMP + indent(re.sub(r"BUMP\((\w+)\)", call, functions), "    ")
    return rl.parse(text.replace("TENSOR", 'R.Tensor((4,), "float32")'))
