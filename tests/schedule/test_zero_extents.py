"""Schedules of operators whose extents may be zero, one or a few: constants and symbols."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from relaxlab.codegen.errors import CodegenError
from relaxlab.ir.expr import Var
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.module import Module
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.build import compile as build
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.runtime.native.loaded import CheckFailed
from relaxlab.schedule import Schedule, ScheduleError
from relaxlab.script import parse
from relaxlab.testing.op_check import CaseProgram, OpCase, T, concrete_call
from relaxlab.testing.random_schedules import COLLIDING, with_buffers_placed
from relaxlab.testing.schedule_steps import random_step

CASES = (
    OpCase("max", (T("n", "m", dtype="uint8", low=0, high=99),), {"axis": 1}),
    OpCase("max", (T("n", "m", dtype="int32"),), {"axis": 0}),
    OpCase("sum", (T("n", "m"),)),
    OpCase("variance", (T("n", "m"),), {"axis": 1}),
    OpCase("matmul", (T("n", "m"), T("m", "p"))),
    OpCase("nn.softmax", (T("n", "m"),)),
)
EXTENTS = (0, 0, 1, 3, 17)
STEPS = 8


def _accepted_steps(sch: Schedule, draw: random.Random) -> Iterator[None]:
    """Yield after each of some random steps that changed the function."""
    for _ in range(STEPS):
        before = sch.func
        try:
            random_step(sch, draw)
        except ScheduleError:
            continue
        if sch.func is not before:
            print(sch.trace[-1])
            yield



@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the mean of nothing
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("symbolic", [False, True])
def test_random_schedules(case: OpCase, symbolic: bool, rng: np.random.Generator) -> None:
    """Every accepted primitive keeps the results; a debug build of the last has them, too."""
    for _ in range(8):
        draw = random.Random(int(rng.integers(1 << 60)))
        env = {name: draw.choice(EXTENTS) for name in "nmp"}
        print(env)
        program = CaseProgram(case, env, symbolic)
        assert program.row.lower is not None
        func = program.row.lower(program.call, program.types, program.out)
        arrays, wanted = concrete_call(case, env, draw.randrange(1 << 30))
        scalars = [program.number(p) for p in func.params if isinstance(p, Var)]
        sch = Schedule(func)
        for _ in _accepted_steps(sch, draw):
            steps = partial(_interpreted, sch.func)
            _compare(steps, arrays, wanted, scalars)
        placed = with_buffers_placed(sch.func)
        if placed is None:
            continue
        try:
            exe = build(placed, use_cache=False, checks="all")
        except CodegenError as refused:
            assert COLLIDING in str(refused), refused
            continue
        _compare(exe, arrays, wanted, scalars)


def _interpreted(func: PrimFunc, *args: Any) -> None:
    interpret_prim_func(func, [*args])


def _compare(run, arrays, wanted, scalars) -> None:  # type: ignore[reportMissingParameterType]
    """Compare results; a loop over results and terms that a symbol leaves without iterations is
    reported instead."""
    made = [np.full_like(w, 7) for w in wanted]
    try:
        run(*arrays, *made, *scalars)
    except (ExecutionError, CheckFailed) as error:
        assert 0 in scalars or any(0 in a.shape for a in (*arrays, *wanted)), error
        assert "is over nothing" in str(error), error
        return
    for got, want in zip(made, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4)


def test_fuse_of_loops_without_iterations_shows_their_axes() -> None:
    program = CaseProgram(OpCase("sum", (T(0, 4),)), {}, symbolic=False)
    assert program.row.lower is not None
    sch = Schedule(program.row.lower(program.call, program.types, program.out))
    sch.fuse(*sch.get_loops(sch.get_block("T_sum")))
    made = np.full((), 7, np.float32)
    interpret_prim_func(sch.func, [np.zeros((0, 4), np.float32), made])
    assert made == 0 and "// 0" not in Module.of({"main": sch.func}).script()


FROM_ONE = """
@T.prim_func
def f(A: T.Buffer(("n", "m"), "float32"), B: T.Buffer(("m",), "float32"),
      C: T.Buffer(("n",), "float32")):
    for i in range(1, n):
        for j in range(2, m):
            A[i, j] = A[i, j] * B[j] + T.float32(1)
    for i in range(1, n):
        C[i] = T.float32(3)
    for j in range(m):
        B[j] = T.float32(2)
"""
"""Loops that have an extent of -1 or -2 where there are no rows or columns."""


def _from_one() -> Schedule:
    func = parse(FROM_ONE)["f"]
    sch = Schedule(func)
    sch.form_blocks()
    return sch


def _assert_same_from_one(sch: Schedule, data: np.random.Generator) -> None:
    for n, m in ((0, 0), (0, 5), (1, 9), (3, 1), (9, 11)):
        given = [data.integers(0, 9, shape).astype("float32") for shape in ((n, m), m, n)]
        made = [x.copy() for x in given]
        interpret_prim_func(sch.func, made)
        wanted = [x.copy() for x in given]
        wanted[0][1:, 2:] = given[0][1:, 2:] * given[1][2:] + 1
        wanted[1][:] = 2
        wanted[2][1:] = 3
        np.testing.assert_equal(made, wanted)


def test_random_schedules_of_loops_with_negative_extents(rng: np.random.Generator) -> None:
    for _ in range(8):
        draw = random.Random(int(rng.integers(1 << 60)))
        sch = _from_one()
        for _ in _accepted_steps(sch, draw):
            _assert_same_from_one(sch, rng)


def test_loops_with_negative_extents_in_parts_or_fused(rng: np.random.Generator) -> None:
    for apart in (True, False):
        sch = _from_one()
        (i, _), (j,), (k,) = (sch.get_loops(sch.get_block(name)) for name in "ABC")
        if apart:
            sch.partition(i, 8)
            sch.partition(j, 8)
        else:
            sch.horizontal_fuse(k, j)
        _assert_same_from_one(sch, rng)


SHIFTED = """
@T.prim_func
def f(A: T.Buffer(("n", "m"), "float32"), B: T.Buffer(("n",), "float32")):
    for i, j in T.grid(n, m):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, PLACE]
"""


@pytest.mark.parametrize("place", ["T.max(vj - 1, 0)", "T.min(vj + 1, m - 1)", "m - 1 - vj"])
def test_copies_of_buffers_without_elements(place: str) -> None:
    """A loop without iterations reads nothing of what its buffers do not have."""
    func = parse(SHIFTED.replace("PLACE", place))["f"]
    sch = Schedule(func)
    sch.cache_read(sch.get_block("B"), 0, "global")
    for m in (0, 1, 5):
        a = np.arange(3 * m, dtype="float32").reshape(3, m)
        made = [np.full(3, 7, "float32") for _ in range(2)]
        interpret_prim_func(func, [a, made[0]])
        build(sch.func, use_cache=False, checks="all")(a, made[1])
        np.testing.assert_array_equal(made[1], made[0])
