"""Each pass over loop functions makes what TVM's does, or a program with the same results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relaxlab.analysis.evaluate import evaluate
from relaxlab.ir.loops import Buffer, PrimFunc
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace
from relaxlab.ir.substitute import symbols_in
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.tvm.ir.equal import structural_equal
from relaxlab.tvm.script import from_source
from tests.schedule.programs import random_array
from tests.tvm.loop_pass_cases import CASES, OTHERWISE, REFUSED
from tests.tvm.wheel import needs_wheel, results

pytestmark = needs_wheel
TEXTS = tuple((program, expression) for expression, program in CASES.values())


def bare(func: PrimFunc) -> PrimFunc:
    return replace(func, attrs=func.attrs.with_(**dict.fromkeys(func.attrs)))


def functions(script: str) -> dict[str, PrimFunc]:
    read = from_source(script)
    mod = read if isinstance(read, Module) else Module.of({"main": read})
    return {name: bare(func) for name, func in mod.loop_functions().items()}


def arguments(func: PrimFunc, size: int) -> list[Any]:
    rng = np.random.default_rng(size)
    sizes = dict.fromkeys(symbols_in(func.params), size)
    return [
        random_array(rng, tuple(int(evaluate(d, sizes)) for d in p.shape), p.dtype)
        if isinstance(p, Buffer)
        else sizes[p]
        for p in func.params
    ]  # fmt: skip


def same_results(a: PrimFunc, b: PrimFunc) -> None:
    for size in (5, 8):
        given = arguments(a, size)
        other = [x.copy() if isinstance(x, np.ndarray) else x for x in given]
        interpret_prim_func(a, given)
        interpret_prim_func(b, other)
        for x, y in zip(given, other, strict=True):
            np.testing.assert_allclose(
                np.asarray(x, "float64"), np.asarray(y, "float64"), rtol=1e-4, atol=1e-5
            )


@pytest.mark.parametrize("name", CASES)
def test_passes_make_the_same_function(name: str) -> None:
    number = list(CASES).index(name)
    theirs, ours = (results(which, "loop_pass", TEXTS)[number] for which in ("tvm", "relaxlab"))
    if name in REFUSED:
        assert "script" not in theirs and "script" not in ours
        return
    assert "script" in theirs and "script" in ours, (theirs, ours)
    want, got = functions(theirs["script"]), functions(ours["script"])
    if want.keys() == got.keys() and all(structural_equal(f, got[k]) for k, f in want.items()):
        return
    if name not in OTHERWISE:
        same_results(want["main"], got["main"])
