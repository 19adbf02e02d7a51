"""Steps of lowering, one by one and after each other, keep what functions compute."""

from __future__ import annotations

import random

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.codegen.steps import (
    blocks,
    divisions,
    hoist,
    loops,
    partition,
    shared,
    statements,
    storage,
    threads,
)
from relaxlab.codegen.steps.allocations import plan_allocations
from relaxlab.codegen.steps.flatten import flatten_buffers
from relaxlab.ir.expr import Call, IntImm, Ramp
from relaxlab.ir.loops import For, IfThenElse, LetStmt, PrimFunc
from relaxlab.ir.module import Module
from relaxlab.ir.node import walk
from relaxlab.runtime.interpreter.interpreter import interpret
from relaxlab.schedule import Schedule, ScheduleError
from relaxlab.schedule.tree import all_blocks
from relaxlab.script import parse
from relaxlab.testing.schedule_steps import random_step
from tests.schedule.programs import PROGRAMS, assert_same

STEPS = (
    loops.loops_from_zero,
    blocks.init_blocks_as_conditions,
    plan_allocations,
    blocks.blocks_without_axes,
    blocks.views_as_regions,
    blocks.without_blocks,
    flatten_buffers,
    divisions.quotients_first,
    lambda func: partition.loops_partitioned(func, constant=True),
    loops.vectorized,
    loops.unrolled,
    loops.selects_as_branches,
    loops.without_no_ops,
    loops.conditions_outside,
    hoist.expressions_outside,
    shared.expressions_shared,
    storage.storage_reused,
)


@pytest.mark.parametrize("name", [*PROGRAMS, *PROGRAMS])
def test_each_step_keeps_scheduled_programs(name: str, rng: np.random.Generator) -> None:
    draw = random.Random(int(rng.integers(1 << 60)))
    before = PROGRAMS[name]()
    sch = Schedule(before)
    for _ in range(8):
        try:
            random_step(sch, draw)
        except ScheduleError:
            continue
    sch.show()
    func = sch.func
    for step in STEPS:
        func = step(func)
        try:
            assert_same(before, func, rng, [5])
        except Exception:
            print(f"after {step.__name__}\n{func}")
            raise
    fixed = {n.kind for n in walk(func.body) if isinstance(n, For) and isinstance(n.extent, IntImm)}
    assert not fixed & {"unrolled", "vectorized"}
    assert not any(n.init or n.iter_vars for n in all_blocks(func))
    flat = {n.ndim for block in all_blocks(func) for n in block.alloc_buffers}
    assert flat <= {1}


def function(text: str) -> PrimFunc:
    return parse(f"@T.prim_func\n{text}")["main"]  # type: ignore[return-value]


def test_lanes_are_ramps_and_broadcasts() -> None:
    func = function("""
def main(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4, 8), "float32"), s: T.float32):
    for i in range(4):
        for j in T.vectorized(8):
            B[i, j] = T.exp(A[i, 7 - j]) * s + T.Cast("float32", j)
        for j in T.vectorized(8):
            if j < i:
                B[i, j] = T.float32(0)
""")
    made = loops.vectorized(func)
    text = made.script()
    assert "= T.exp(A[i, T.Ramp(7, -1, 8)]) * T.Broadcast(s, 8) + T.Cast" in text, text
    (left,) = [n for n in walk(made.body) if isinstance(n, For) and n.loop_var.name == "j"]
    assert left.kind == "serial" and isinstance(left.body, IfThenElse)
    assert any(isinstance(n, Ramp) for n in walk(made.body))


def test_buffers_move_to_the_loop_that_fills_them() -> None:
    sch = Schedule(PROGRAMS["chain"]())
    i, _ = sch.get_loops(sch.get_block("C"))
    sch.compute_at(sch.get_block("B"), i)
    made = plan_allocations(sch.func)
    owners = {b.name for b in all_blocks(made) for a in b.alloc_buffers if a.name == "B"}
    assert owners == {f"{sch.get(i).loop_var.name}_body"}  # type: ignore[union-attr]


def test_axes_stay_until_initialisations_are_conditions() -> None:
    with pytest.raises(ValueError, match="LowerInitBlock"):
        blocks.blocks_without_axes(PROGRAMS["matmul"]())
    with pytest.raises(ValueError, match="LowerOpaqueBlock"):
        flatten_buffers(PROGRAMS["chain"]())


def test_what_does_nothing_is_left_out() -> None:
    func = function("""
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    for i in range(8):
        if i < 4:
            T.evaluate(0)
        else:
            A[i] = A[i]
        x: T.let = i * 2
        B[i] = A[i]
    for i in range(0):
        B[i] = A[i]
    for i in range(8):
        T.evaluate(T.exp(A[i]))
""")
    made = loops.without_no_ops(func)
    lines = [line.strip() for line in made.script().splitlines() if "A[" in line or "for" in line]
    assert lines == ["for i in range(8):", "B[i] = A[i]"]


@pytest.mark.parametrize("kind", ["spatial", "opaque"])
@pytest.mark.parametrize("domain", ["1", "(at[0], at[0] + 1)"])
@pytest.mark.parametrize("view", [False, True])
def test_axes_keep_the_values_that_they_have_when_a_block_begins(
    kind: str, domain: str, view: bool
) -> None:
    """Where it changes what their bindings read, they become variables."""
    writes = "at[0] = v + 2" if not view else (
        'cell = T.match_buffer(at[0:1], (1,), "int64")\n            cell[0] = v + 2'
    )  # fmt: skip
    module = parse(f"""
@T.prim_func
def f(at: T.Buffer((1,), "int64"), A: T.Buffer((8,), "int64")):
    for i in range(4):
        with T.sblock("b"):
            v = T.axis.{kind}({domain}, at[0])
            T.reads()
            T.writes(at[0], A[0:8])
            {writes}
            A[T.max(0, T.min(7, v))] = v
""")
    function = module["f"]
    exe = rl.compile(module)
    forms = [lambda *a: rl.interpret(module, "f", *a), exe["f"]]
    for step in (blocks.blocks_without_axes, blocks.without_blocks):
        changed = module.with_functions({"f": step(function)})
        forms.append(lambda *a, m=changed: rl.interpret(m, "f", *a))
    for form in forms:
        at, a = np.zeros(1, "int64"), np.full(8, -1)
        form(at, a)
        np.testing.assert_array_equal(at, [8])
        np.testing.assert_array_equal(a, [0, -1, 2, -1, 4, -1, 6, -1])
    schedule = Schedule(function)
    (loop,) = schedule.get_loops(schedule.get_block("b"))
    reason = "is opaque" if kind == "opaque" else r"bound to at\[0\], which the block changes"
    with pytest.raises(ScheduleError, match=reason):
        schedule.vectorize(loop)


@pytest.mark.parametrize(
    ("condition", "moves"),
    [("n < 4", True), ("n % 4 == 0", True), ("i < n", False), ("4 % n == 0", False),
     ("A[0] < T.float32(1)", False)],
)  # fmt: skip
def test_conditions_move_out_of_loops_where_iterations_find_the_same(
    condition: str, moves: bool
) -> None:
    func = parse(f"""
@T.prim_func
def f(A: T.Buffer((8,), "float32"), n: T.int64):
    for i in range(8):
        if {condition}:
            A[i] = T.float32(1)
        else:
            for j in range(2):
                A[i] = T.Cast("float32", j)
""")["f"]
    after = loops.conditions_outside(func)
    assert isinstance(after.body, IfThenElse if moves else For)
    assert len({n.loop_var for n in walk(after) if isinstance(n, For)}) == (3 if moves else 2)
    for n in (1, 3, 4):
        x, y = (np.full(8, 2, "float32") for _ in range(2))
        interpret(Module.of({"f": func}), "f", x, n)
        interpret(Module.of({"f": after}), "f", y, n)
        np.testing.assert_array_equal(x, y)


HOISTED = """
@T.prim_func
def f(A: T.Buffer((8,), "float32"), n: T.int64):
    for i in range(8):
        if n < 4 and i < 5:
            A[i] = A[i] + T.float32(1)
    for i in range(8):
        m: T.let[T.int64] = n * 2
        A[i] = A[i] + T.if_then_else(m < 4, T.Cast("float32", m), T.if_then_else(i < n, T.float32(9), A[i]))
    for i in range(8):
        with T.block("b"):
            vi = T.axis.spatial(8, i)
            A[vi] = T.if_then_else(vi < 3, A[vi], T.if_then_else(n < 7, A[vi] + T.float32(3), T.float32(0)))
"""  # noqa: E501


def test_loops_are_inside_of_what_is_the_same_in_their_iterations() -> None:
    func: PrimFunc = parse(HOISTED)["f"]  # type: ignore[assignment]
    after = hoist.expressions_outside(func)
    assert hoist.expressions_outside(after) is after
    inside = [n for loop in walk(after) if isinstance(loop, For) for n in walk(loop.body)]
    assert {str(n.condition) for n in inside if isinstance(n, IfThenElse)} == {"i < 5"}
    assert not any(isinstance(n, LetStmt) for n in inside)
    chosen = {str(n.args[0]) for n in inside if isinstance(n, Call) and n.op == "if_then_else"}
    assert chosen == {"i < n", "vi < 3"}
    for n in (0, 1, 3, 5, 8):
        x, y = (np.arange(8, dtype="float32") for _ in range(2))
        interpret(Module.of({"f": func}), "f", x, n)
        interpret(Module.of({"f": after}), "f", y, n)
        np.testing.assert_array_equal(x, y)


THREADS = """
@T.prim_func
def f(A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
    for b in T.thread_binding(2, thread="blockIdx.x"):
        for j in range(2):
            for i in T.thread_binding(1, 5, thread="threadIdx.x"):
                C[b * 8 + j * 4 + i - 1] = A[b * 8 + j * 4 + i - 1]
        for j in range(2):
            for k in T.thread_binding(4, thread="threadIdx.x", annotations={"note": 1}):
                C[b * 8 + j * 4 + k] = C[b * 8 + j * 4 + k] + T.float32(1)
"""


def test_a_kernel_has_one_loop_per_thread_axis() -> None:
    func: PrimFunc = parse(THREADS)["f"]  # type: ignore[assignment]
    after = threads.threads_unified(func)
    bound = [n for n in walk(after) if isinstance(n, For) and n.thread]
    assert [n.thread for n in bound] == ["blockIdx.x", "threadIdx.x"]
    assert bound[0].body is bound[1]
    assert [n.extent for n in walk(after) if isinstance(n, For) and n.annotations] == [IntImm(1)]
    x = np.arange(16, dtype="float32")
    y = np.zeros(16, "float32")
    interpret(Module.of({"f": after}), "f", x, y)
    np.testing.assert_array_equal(y, x + 1)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [("k in T.thread_binding(4", "k in T.thread_binding(3", "have the extents 4 and 3"),
     ("(1, 5", "(1, j + 2", r"the extent j \+ 1 of threadIdx.x is not known where")],
)  # fmt: skip
def test_thread_loops_that_no_loop_stands_for(old: str, new: str, message: str) -> None:
    func: PrimFunc = parse(THREADS.replace(old, new))["f"]  # type: ignore[assignment]
    with pytest.raises(ValueError, match=message):
        threads.threads_unified(func)


LEFT_OUT = """
@T.prim_func
def main(A: T.Buffer((4,), "int32"), n: T.int64):
    assert n > 3, "n is small"
    for i in range(4):
        T.evaluate(T.assume(A[i] >= 0))
        A[i] = T.undef()
    for i in range(4):
        A[i] = 2
"""


def test_statements_that_are_left_out() -> None:
    func: PrimFunc = parse(LEFT_OUT)["main"]  # type: ignore[assignment]
    steps = {
        statements.without_assertions: "assert",
        statements.without_assumptions: "T.assume",
        statements.without_undefined_stores: "T.undef",
    }
    for step, text in steps.items():
        new = step(func)
        assert text in func.script() and text not in new.script()
        assert step(new) is new
        func = new
    assert func.script().count("for i in") == 1  # the other loop is empty
    part = LEFT_OUT.replace("T.undef()", "T.undef() + 1")
    mixed: PrimFunc = parse(part)["main"]  # type: ignore[assignment]
    with pytest.raises(ValueError, match=r"T.undef\(\) is the whole value of a store"):
        statements.without_undefined_stores(mixed)
