"""Every operator with every data type that it takes.

One use of each operator, with its float32 tensors in another type; what the type rule refuses is
left out. All are interpreted; one type per operator, drawn by RELAXLAB_SEED, runs as machine code.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.dtypes import is_float, is_uint
from relaxlab.ir.module import Module
from relaxlab.ir.op_table import TypeDeductionError
from relaxlab.runtime.interpreter import interpret_prim_func
from relaxlab.testing.op_cases import FAMILIES
from relaxlab.testing.op_check import CaseProgram, OpCase, T, check_op, compare, concrete_call

SEED = int(os.environ.get("RELAXLAB_SEED", "3"))
DTYPES = (
    "float16", "bfloat16", "float64", "int8", "int16", "int32", "int64",
    "uint8", "uint16", "uint32", "uint64", "bool",
)  # fmt: skip


def in_dtype(arg: Any, dtype: str) -> Any:
    """An argument with its float32 tensors in another type; integers have whole bounds."""
    if isinstance(arg, tuple):
        return tuple(in_dtype(a, dtype) for a in arg)  # type: ignore[reportUnknownVariableType]
    if not isinstance(arg, T) or arg.dtype != "float32":
        return arg
    if is_float(dtype):
        return T(*arg.shape, dtype=dtype, low=arg.low, high=arg.high, values=arg.values)
    low = max(np.ceil(arg.low), 0) if is_uint(dtype) else np.ceil(arg.low)
    return T(*arg.shape, dtype=dtype, low=low, high=max(np.floor(arg.high), low))


def accepted(dtype: str) -> Iterator[OpCase]:
    """The first case of each operator, in another type where the operator takes it."""
    first = {c.op: c for family in FAMILIES.values() for c in reversed(family())}
    for case in first.values():
        args = in_dtype(case.args, dtype)
        if args == case.args:
            continue
        other = replace(case, args=args, sizes=case.sizes[:1])
        try:
            CaseProgram(other, other.sizes[0], symbolic=True)
        except TypeDeductionError:
            continue
        yield other


@pytest.mark.parametrize("dtype", DTYPES)
def test_interpreted(dtype: str) -> None:
    cases = list(accepted(dtype))
    assert len(cases) > 20
    for case in cases:
        check_op(case, case.sizes[0], symbolic=True, run=interpret_prim_func, seed=SEED)


def test_native() -> None:
    rng = np.random.default_rng(SEED)
    by_op: dict[str, list[OpCase]] = {}
    for dtype in DTYPES:
        for case in accepted(dtype):
            by_op.setdefault(case.op, []).append(case)
    drawn = [cases[rng.integers(len(cases))] for cases in by_op.values()]
    programs = {f"f{i}": CaseProgram(c, c.sizes[0], symbolic=True) for i, c in enumerate(drawn)}
    mod = Module.of({name: p.function() for name, p in programs.items()})
    exe = rl.compile(mod, use_cache=False, threads=1)
    for name, case in zip(programs, drawn, strict=True):
        arrays, expected = concrete_call(case, case.sizes[0], SEED)
        got = exe[name](*arrays, tuple(case.sizes[0].values()))
        results = got if isinstance(got, tuple | list) else (got,)
        for result, want in zip(results, expected, strict=True):
            compare(np.asarray(result), want, f"{case}, seed={SEED}")
