"""Branches by scalars, and what branches bind: the interpreter, the virtual machine and native
code agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.passes.lower_shapes import lower_shapes
from relaxlab.passes.pipeline import cpu_pipeline
from relaxlab.runtime.vm.vm import VirtualMachine

BY_SIZE = """
@R.function
def main(x: R.Tensor(("n",), "float32")):
    c = R.prim_value(n > 4)
    if c:
        r = R.exp(x)
    else:
        r = R.negative(x)
    return r
"""
BY_FLAG = """
@R.function
def main(x: R.Tensor(("n",), "float32"), c: R.Prim("bool")):
    if c:
        if R.prim_value(n % 2 == 0):
            r = R.exp(x)
        else:
            r = R.add(x, x)
    else:
        r = R.negative(x)
    return r
"""
BOUND_IN_ONE_ARM = """
@R.function
def main(x: R.Tensor(("n",), "float32"), c: R.Tensor((), "bool"), k: R.Tensor((), "int64")):
    m = T.int64()
    u = R.unique(x, sorted=True)
    if c:
        a = R.match_cast(u, R.Tensor((m,), "float32"))
        r = R.sum(a)
    else:
        r = R.sum(x)
    w = R.unique(R.floor(x), sorted=True)
    b = R.match_cast(w, R.Tensor((m,), "float32"))
    s = R.sum(b)
    return (r, s)
"""
X = np.array([0.25, 0.5, 0.75, 1.5, 2.5, 2.75], "float32")
PROGRAMS: dict[str, tuple[str, list[tuple[Any, ...]]]] = {
    "by size": (BY_SIZE, [(X,), (X[:3],)]),
    "by flag": (BY_FLAG, [(X[:n], c) for n in (3, 6) for c in (True, False, np.bool_(True))]),
    "bound in one arm": (BOUND_IN_ONE_ARM, [(X, np.array(c), np.array(0)) for c in (True, False)]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_branches_mean_the_same_everywhere(name: str) -> None:
    text, calls = PROGRAMS[name]
    mod = rl.parse(text)
    exe = rl.compile(mod)
    machine = VirtualMachine(lower_shapes(cpu_pipeline().run(mod).result))
    for args in calls:
        want = rl.interpret(mod, "main", *args)
        for got in (machine.run("main", *args), exe["main"](*args)):
            for g, w in zip(np.atleast_1d(got), np.atleast_1d(want), strict=True):
                np.testing.assert_allclose(g, w, rtol=1e-6)
