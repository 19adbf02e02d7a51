"""Every use of every operator and the tiny model on a GPU, where there is one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.module import Module
from relaxlab.runtime.vm.cuda import require_cupy
from relaxlab.runtime.vm.gpu import NoGpu
from relaxlab.testing.op_cases import FAMILIES
from relaxlab.testing.op_check import CaseProgram, compare, concrete_call
from tests.codegen.cuda.test_model import check, model


def _cupy() -> Any:
    try:
        return require_cupy()
    except NoGpu:
        return None


CUPY = _cupy()
pytestmark = pytest.mark.skipif(CUPY is None, reason="needs a GPU and CuPy")


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_operators(family: str) -> None:
    cases = {f"case{i}": c for i, c in enumerate(FAMILIES[family]())}
    functions = {n: CaseProgram(c, c.sizes[0], symbolic=True).function() for n, c in cases.items()}
    exe = rl.compile(Module.of(functions), target="cuda")
    for name, case in cases.items():
        for seed, env in enumerate(case.sizes):
            arrays, expected = concrete_call(case, env, seed)
            got = exe[name](*arrays, tuple(env.values()))
            results = got if isinstance(got, tuple | list) else (got,)
            for result, want in zip(results, expected, strict=True):
                where = f"{case} with {dict(env)}, seed={seed}"
                compare(np.asarray(CUPY.asnumpy(result)), want, where)


def test_the_model() -> None:
    exe = rl.compile(model()[0], target="cuda")

    def call(name: str, ids: Any, past: Any, *rest: Any) -> Any:
        return CUPY.asnumpy(exe[name](ids, past, *rest))

    check(call, CUPY.asarray)
