"""Values that share memory because of a view, a branch or a function, and calls in place."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.module import Module

HEAD = """
@T.prim_func
def bump(A: T.Buffer((2,), "float32")):
    for i in range(2):
        with T.sblock("bump"):
            vi = T.axis.spatial(2, i)
            A[vi] = A[vi] + T.float32(1)

@R.function(private=True)
def chosen(x: R.Tensor((2,), "float32"), c: R.Tensor((), "bool")) -> R.Tensor((2,), "float32"):
    if c:
        r = x
    else:
        r = R.exp(x)
    return r

@R.function
def main(given: R.Tensor((2,), "float32"), c: R.Tensor((), "bool")):
    x = R.exp(given)
"""
INPLACE = (
    "R.call_tir_inplace(cls.bump, ({},), inplace_indices=[0], "
    'out_sinfo=R.Tensor((2,), "float32"))'
)
BRANCH = "if c:\n    r = {}\nelse:\n    r = {}\n"


def program(body: str, *overwritten: str) -> Module:
    """`z` is computed in place of what `overwritten` names."""
    text = body.format(*(INPLACE.format(name) for name in overwritten))
    return rl.parse(HEAD + textwrap.indent(text, " " * 4))


LATE = {
    **{
        f"{view} of it is read": (f"v = {view}\nz = {{}}\nreturn (v, z)", "x")
        for view in (
            "R.reshape(x, R.shape([2, 1]))", "R.flatten(x)", "R.expand_dims(x, axis=[0])",
            "R.squeeze(R.expand_dims(x, axis=[1]), axis=[1])",
        )
    },
    "it is overwritten through a branch": (
        BRANCH.format("x", "R.exp(x)") + "z = {}\nreturn (x, z)", "r",
    ),
    "a branch returned it": (BRANCH.format("R.exp(x)", "x") + "z = {}\nreturn (r, z)", "x"),
    "a branch of a branch returned it": (
        "if c:\n    if c:\n        s = R.exp(x)\n    else:\n        s = x\n    r = s\n"
        "else:\n    r = R.exp(x)\nz = {}\nreturn (r, z)", "x",
    ),
    "a tuple from a branch has it": (
        BRANCH.format("(R.exp(x), x)", "(x, R.exp(x))") + "f = r[1]\nz = {}\nreturn (f, z)", "x",
    ),
    "a function returned it": ("r = cls.chosen(x, c)\nz = {}\nreturn (r, z)", "x"),
    "a function's result is overwritten": ("r = cls.chosen(x, c)\nz = {}\nreturn (x, z)", "r"),
}  # fmt: skip


@pytest.mark.parametrize("case", LATE)
def test_late_reads_are_refused(case: str) -> None:
    with pytest.raises(DiagnosticError, match="is read after it was overwritten in place"):
        rl.trace(program(*LATE[case]))


FINE = {
    "parts are values": (
        "p = R.split(x, 1, axis=0)\nv = p[0]\nw = R.permute_dims(x)\n"
        "s = R.strided_slice(x, axes=[0], begin=[0], end=[2])\n"
        "b = R.broadcast_to(x, R.shape([2]))\nz = {}\nreturn (v, w, s, b, z)", "x",
    ),
    "one branch overwrites": (
        "if c:\n    r = {}\nelse:\n    r = x\nz = {}\nreturn z", "x", "r",
    ),
    "each branch overwrites": (
        "if c:\n    r = {}\nelse:\n    y = {}\n    r = R.exp(y)\nz = {}\nreturn z", "x", "x", "r",
    ),
    "other memory is overwritten": (
        BRANCH.format("x", "R.exp(x)") + "y = R.exp(r)\nz = {}\nreturn (x, r, z)", "y",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FINE)
def test_arguments_without_shared_memory_run_as_interpreted(case: str) -> None:
    mod = program(*FINE[case])
    exe = rl.compile(mod, threads=2)
    for c in (False, True):
        args = (np.array([0.5, -1], "float32"), np.array(c))
        got, want = exe["main"](*args), rl.interpret(mod, "main", *args)
        for g, w in zip(got, want, strict=True):
            np.testing.assert_allclose(g, w, 1e-6)
