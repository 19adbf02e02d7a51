"""Primitives that change what is computed: approximations, and zeros beyond the end of an array."""

# Functions here are programs of the script language, whose annotations are buffers.
# pyright: basic, reportInvalidTypeForm=false

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.expr import Call, Select
from relaxlab.ir.node import walk
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.schedule.error import ScheduleError
from relaxlab.script import tir as T


@T.prim_func
def weights(
    A: T.Buffer((8,), "float32"), M: T.Buffer((1,), "float32"), B: T.Buffer((8,), "float32")
):
    for i in range(8):
        with T.sblock("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = T.Select(
                A[vi] == T.float32("-inf"), T.float32(0), T.exp(A[vi] - M[0])
            ) / T.float32(3)


def test_fast_math_keeps_zeros_of_minus_infinity() -> None:
    sch = rl.Schedule(weights)
    sch.unsafe_fast_math(sch.get_block("B"))
    assert {n.op for n in walk(sch.func) if isinstance(n, Call)} == {"fast_exp", "fast_divide"}
    assert not any(isinstance(n, Select) for n in walk(sch.func))
    a = np.array([0, -1, -np.inf, -80, 1, -3, -np.inf, -2], np.float32)
    for most in (1.0, float(np.finfo(np.float32).min)):
        got, want = (np.zeros(8, np.float32) for _ in range(2))
        m = np.array([most], np.float32)
        low = np.full(8, -np.inf, np.float32) if most < 0 else a
        interpret_prim_func(sch.func, [low, m, got])
        interpret_prim_func(weights, [low, m, want])
        np.testing.assert_allclose(got, want, rtol=1e-6)


@T.prim_func
def copied(A: T.Buffer((5, 4), "float32"), B: T.Buffer((8, 4), "float32")):
    for i, j in T.grid(8, 4):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[T.min(vi, 4), vj]


def test_copies_have_zeros_beyond_the_end() -> None:
    sch = rl.Schedule(copied)
    sch.unsafe_zero_beyond(sch.get_block("B"))
    a, got = np.ones((5, 4), np.float32), np.full((8, 4), 7, np.float32)
    interpret_prim_func(sch.func, [a, got])
    assert (got[:5] == 1).all() and (got[5:] == 0).all()


def test_only_copies_have_an_end() -> None:
    sch = rl.Schedule(weights)
    with pytest.raises(ScheduleError, match=r"it is a copy, X\[…\] = A\[…\]"):
        sch.unsafe_zero_beyond(sch.get_block("B"))
