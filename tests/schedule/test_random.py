"""Random schedules of small programs compute what the programs compute."""

from __future__ import annotations

import contextlib
import random

import numpy as np
import pytest

from relaxlab.codegen.errors import CodegenError
from relaxlab.ir import expr
from relaxlab.ir.equal import assert_structural_equal
from relaxlab.ir.loops import BlockRealize, PrimFunc
from relaxlab.ir.module import Module
from relaxlab.ir.node import Node, replace, rewrite
from relaxlab.ir.substitute import substitute
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.build import compile as build
from relaxlab.schedule import Schedule, ScheduleError, apply_trace
from relaxlab.schedule.compact import compact_buffers
from relaxlab.schedule.primitive import PRIMITIVES
from relaxlab.schedule.tree import all_blocks
from relaxlab.script import print_module
from relaxlab.testing.random_schedules import (
    COLLIDING,
    schedule_at_random,
    with_buffers_placed,
)
from relaxlab.testing.schedule_steps import NOT_DRAWN, RULES, random_step
from tests.schedule.programs import (
    PROGRAMS,
    assert_same,
    assert_well_formed,
    random_inputs,
    run,
    unwritten,
    with_result,
)
from tests.schedule.ragged_cases import RAGGED_CASES
from tests.schedule.random_programs import random_program

CASES = {**PROGRAMS, **RAGGED_CASES}
STEPS = 14
PARTS = ("E0324",)
"""The code for elements that are never computed: compute_at leaves out what nobody reads."""
SIZES = [1, 3, 8, 13]


def _schedule(before: PrimFunc, rng: random.Random, data: np.random.Generator, every: bool):
    """A random schedule of a function; with `every`, each accepted primitive is compared."""
    sch = Schedule(before)
    for _ in range(STEPS):
        func = sch.func
        try:
            random_step(sch, rng)
        except ScheduleError as error:
            assert sch.func is func, "a refused primitive changed the function"
            assert 1 < len(str(error).splitlines()) <= 5
            continue
        if every and sch.func is not func:
            try:
                assert_same(before, sch.func, data, SIZES[:3])
            except (AssertionError, IndexError, ExecutionError):
                print(f"after {sch.trace[-1]}, of\n{print_module(func)}\nwhich became\n")
                print(print_module(sch.func))
                raise
    return sch


def _same_when_done(before: PrimFunc, sch: Schedule, data: np.random.Generator) -> None:
    """The schedule computes what the function does, also replayed and with compact buffers."""
    sch.show()
    assert_well_formed(sch.func, except_for=PARTS)
    assert_same(before, sch.func, data, SIZES)
    assert_structural_equal(apply_trace(sch.original, sch.trace).func, sch.func)
    assert_structural_equal(apply_trace(sch.original, sch.trace_json()).func, sch.func)
    assert_same(before, compact_buffers(sch.func), data, SIZES[-1:])


@pytest.mark.parametrize("program", CASES)
@pytest.mark.parametrize("case", range(6))
def test_random_schedules_keep_the_meaning(program: str, case: int, rng) -> None:
    draw = random.Random(int(rng.integers(1 << 60)))
    before = CASES[program]()
    _same_when_done(before, _schedule(before, draw, rng, every=False), rng)


@pytest.mark.parametrize("case", range(60))
def test_every_primitive_keeps_random_programs(case: int, rng) -> None:
    draw = random.Random(int(rng.integers(1 << 60)))
    before = random_program(draw)
    print(print_module(before))
    _same_when_done(before, _schedule(before, draw, rng, every=True), rng)


@pytest.mark.parametrize("case", range(25))
def test_random_schedules_as_debug_builds(case: int, rng) -> None:
    """A compiled schedule agrees with the interpreter. The code generator may refuse one whose
    lanes store into one element. Unwritten memory holds the same values in both."""
    draw = random.Random(int(rng.integers(1 << 60)))
    before = random_program(draw) if case % 3 else PROGRAMS[draw.choice(list(PROGRAMS))]()
    sch = _schedule(before, draw, rng, every=False)
    print(print_module(sch.func))
    placed = with_buffers_placed(sch.func)
    if placed is None:
        return
    try:
        exe = build(placed, use_cache=False, checks="all")
    except CodegenError as refused:
        assert COLLIDING in str(refused), refused
        return
    for size in SIZES:
        inputs, shape = random_inputs(before, rng, size)
        want = run(before, inputs, shape)
        got = unwritten(before, shape)
        exe(*with_result(before, inputs, got))
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def _guarded(before: PrimFunc, draw: random.Random) -> PrimFunc:
    """The function with guards that say no more than the domains of axes: beyond these some loops
    go now, others have always ended there."""
    sch = Schedule(before)
    for name in [b.name for b in all_blocks(before) if b.name != "root"]:
        for loop in sch.get_loops(sch.get_block(name)):
            if draw.random() < 0.3:
                with contextlib.suppress(ScheduleError):
                    sch.pad_loop(loop, draw.choice([2, 3, 4]))

    def guard(n: Node) -> Node | None:
        if not isinstance(n, BlockRealize) or draw.random() < 0.4:
            return None
        pairs = zip(n.block.iter_vars, n.iter_values, strict=True)
        axes = {it.var: value for it, value in pairs}
        ends = [expr.LT(v, substitute(it.dom.min + it.dom.extent, axes))
                for it, v in zip(n.block.iter_vars, n.iter_values, strict=True)]  # fmt: skip
        return replace(n, predicate=expr.all_of([n.predicate, *ends]))

    return replace(sch.func, body=rewrite(sch.func.body, guard))


@pytest.mark.parametrize("name", RULES)
def test_guards_that_say_where_axes_end_may_be_there_or_not(name: str, rng) -> None:
    draw = random.Random(int(rng.integers(1 << 60)))
    for program in draw.sample([*PROGRAMS], 2):
        before = PROGRAMS[program]()
        for _ in range(2):
            sch = Schedule(_guarded(before, draw))
            with contextlib.suppress(ScheduleError):
                random_step(sch, draw, name)
            if sch.trace:
                _same_when_done(before, sch, rng)


def test_blockize_refuses_loops_inside_that_may_have_no_iteration() -> None:
    """The number of blocks would be a quotient by it: drawn for rows, of which there were none."""
    sch = Schedule(PROGRAMS["stencil"]())
    _, inner = sch.split(sch.get_loops(sch.get_block("C"))[0], factors=[3, None])
    with pytest.raises(ScheduleError, match=r"there are \(n \+ 2\) // 3, perhaps none"):
        sch.blockize(inner)


def test_random_schedules_of_the_kernels_of_a_program() -> None:
    """Each seed gives one schedule; kernels that have one keep it."""
    before = Module.of({"softmax": PROGRAMS["softmax"](), "chain": PROGRAMS["chain"]()})
    first, other = (schedule_at_random.with_options(seed=s) for s in (3, 4))
    once = first(before)
    assert once.script() == first(before).script() != other(before).script()
    assert once.script().count('"tir.is_scheduled": True') == 2
    assert first(once) is once


def test_private_buffers_have_a_place() -> None:
    """Buffers of a symbolic size go to main memory, those of one iteration to the stack; both
    schedules are compiled."""
    sch = Schedule(PROGRAMS["chain"]())
    block = sch.get_block("C")
    copy = sch.cache_read(block, 0, "local")
    (whole,) = _scopes(with_buffers_placed(sch.func), "local")
    assert whole == "global"
    sch.compute_at(copy, sch.get_loops(block)[-1])
    placed = with_buffers_placed(sch.func)
    assert placed is not None and _scopes(placed, "local") == ["local"]
    build(placed, use_cache=False)


def _scopes(func: PrimFunc | None, suffix: str) -> list[str]:
    assert func is not None
    buffers = [b for block in all_blocks(func) for b in block.alloc_buffers]
    return [b.scope for b in buffers if b.name.endswith(suffix)]


def test_every_primitive_is_drawn_or_says_why_not() -> None:
    looking = {name for name in PRIMITIVES if name.startswith("get_")}
    assert RULES.keys() | NOT_DRAWN.keys() == PRIMITIVES.keys() - looking
    assert not RULES.keys() & NOT_DRAWN.keys()


@pytest.mark.parametrize("name", RULES)
def test_every_rule_succeeds_somewhere(name: str, rng) -> None:
    """In some schedule of random steps the primitive is accepted and changes something."""
    draw = random.Random(int(rng.integers(1 << 60)))
    for case in range(400):
        before = CASES[draw.choice([*CASES])]() if case % 3 else random_program(draw)
        sch = Schedule(before)
        for step in range(6):
            try:
                if random_step(sch, draw, name if step % 2 else None) == name:
                    return
            except ScheduleError:
                continue
    pytest.fail(f"400 random schedules never applied {name}")
