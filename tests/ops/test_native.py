"""One use of every operator, compiled, against its reference."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.module import Module
from relaxlab.testing.op_cases import FAMILIES
from relaxlab.testing.op_check import CaseProgram, OpCase, compare, concrete_call

ONE_EACH = {case.op: case for family in FAMILIES.values() for case in reversed(family())}


@pytest.mark.parametrize("case", ONE_EACH.values(), ids=str)
def test_compiled_operator(case: OpCase) -> None:
    program = CaseProgram(case, case.sizes[0], symbolic=True)
    mod = Module.of({"main": program.function()})
    exe = rl.compile(mod, use_cache=False, threads=1)
    for seed, env in enumerate(case.sizes):
        arrays, expected = concrete_call(case, env, seed)
        got = exe["main"](*arrays, tuple(env.values()))
        results = got if isinstance(got, tuple | list) else (got,)
        for result, want in zip(results, expected, strict=True):
            assert np.shape(result) == want.shape
            compare(np.asarray(result), want, f"{case} with {dict(env)}, seed={seed}")
