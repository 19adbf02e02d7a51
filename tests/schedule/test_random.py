"""Random schedules of small programs compute what the programs compute."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from relaxlab.analysis.evaluate import evaluate
from relaxlab.codegen.llvm.builder import CodegenError
from relaxlab.ir.equal import assert_structural_equal
from relaxlab.ir.expr import Var
from relaxlab.ir.loops import Block, PrimFunc
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.build import compile as build
from relaxlab.schedule import Schedule, ScheduleError, apply_trace
from relaxlab.schedule.compact import compact_buffers
from relaxlab.schedule.tree import all_blocks
from relaxlab.script import print_module
from tests.schedule.programs import (
    PROGRAMS,
    assert_same,
    assert_well_formed,
    random_array,
    run,
    unwritten,
)
from tests.schedule.random_programs import random_program

STEPS = 14
SIZES = [1, 3, 8, 13]


def _random_step(sch: Schedule, rng: random.Random) -> str:
    """Try one random primitive at a random place; returns its name. Raises ScheduleError."""
    names = [b.name for b in all_blocks(sch.func) if b.name != "root"]
    block = sch.get_block(rng.choice(names))
    loops = sch.get_loops(block)
    loop = rng.choice(loops) if loops else None
    found = sch.get(block)
    assert isinstance(found, Block)
    choice = rng.choice(STEP_NAMES)
    other = sch.get_block(rng.choice(names))
    places = sch.get_loops(other)
    match choice:
        case "compute_inline" | "reverse_compute_inline":
            getattr(sch, choice)(block)
        case "compute_at" | "reverse_compute_at" if places:
            unit, index = rng.random() < 0.3, rng.choice([-1, -2])
            getattr(sch, choice)(block, rng.choice(places), unit, index)
        case "cache_read" if found.reads:
            sch.cache_read(block, rng.randrange(len(found.reads)), rng.choice(["global", "local"]))
        case "cache_write" if found.writes:
            sch.cache_write(block, 0, rng.choice(["global", "local"]))
        case "set_scope":
            sch.set_scope(block, 0, "local")
        case "transform_layout":
            _random_layout(sch, block, found, rng)
        case "split" if loop:
            factor = rng.choice([2, 3, 4, 8])
            sch.split(loop, rng.choice([[None, factor], [factor, None], [None, 2, factor]]))
        case "fuse" if len(loops) > 1:
            first = rng.randrange(len(loops) - 1)
            sch.fuse(*loops[first : first + rng.choice([2, 3])])
        case "reorder" if len(loops) > 1:
            sch.reorder(*rng.sample(loops, rng.randint(2, len(loops))))
        case "parallel" | "vectorize" | "unroll" | "decompose_reduction" | "rfactor" if loop:
            _loop_step(sch, choice, block, loop, rng)
        case "blockize" if loop:
            sch.blockize(loop)
        case "pad_einsum":
            sch.pad_einsum(block, [rng.choice([1, 2, 4]) for _ in found.iter_vars])
        case "add_unit_loop":
            sch.add_unit_loop(block)
        case _:
            pass
    return choice


def _loop_step(sch, choice, block, loop, rng):  # type: ignore[no-untyped-def]
    if choice == "decompose_reduction":
        sch.decompose_reduction(block, loop)
    elif choice == "rfactor":
        sch.rfactor(loop, rng.choice([0, -1]))
    else:
        getattr(sch, choice)(loop)


def _random_layout(sch: Schedule, block, found: Block, rng: random.Random) -> None:  # type: ignore
    target = found.writes[0].buffer
    if any(p is target for p in sch.func.params):
        return
    tile = rng.choice([2, 4])
    if target.ndim == 1:
        fn = rng.choice([lambda i: (i // tile, i % tile), lambda i: (i % tile, i // tile)])
    else:
        fn = rng.choice([
            lambda i, j, *r: (j, i, *r), lambda i, j, *r: (i, j // tile, *r, j % tile),
        ])  # fmt: skip
    sch.transform_layout(block, ("write", 0), fn, pad_value=rng.choice([None, 0.0]))


STEP_NAMES = (
    *("split", "split", "split", "fuse", "reorder", "reorder", "compute_at", "compute_at"),
    *("reverse_compute_at", "reverse_compute_at", "compute_inline", "reverse_compute_inline"),
    *("cache_read", "cache_write", "set_scope", "parallel", "vectorize", "unroll"),
    *("decompose_reduction", "rfactor", "blockize", "transform_layout", "add_unit_loop"),
    "pad_einsum",
)

COUNTS: Counter[str] = Counter()


def _schedule(before: PrimFunc, rng: random.Random, data: np.random.Generator, every: bool):
    """A random schedule of a function; with `every`, each accepted primitive is compared."""
    sch = Schedule(before)
    for _ in range(STEPS):
        func = sch.func
        try:
            name = _random_step(sch, rng)
        except ScheduleError as error:
            assert sch.func is func, "a refused primitive changed the function"
            assert 1 < len(str(error).splitlines()) <= 5
            continue
        COUNTS[name] += 1
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
    assert_well_formed(sch.func, except_for=("E0324",))  # compute_at leaves out what nobody reads
    assert_same(before, sch.func, data, SIZES)
    assert_structural_equal(apply_trace(before, sch.trace).func, sch.func)
    assert_structural_equal(apply_trace(before, sch.trace_json()).func, sch.func)
    assert_same(before, compact_buffers(sch.func), data, SIZES[-1:])


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("case", range(6))
def test_random_schedules_keep_the_meaning(program: str, case: int, rng) -> None:
    draw = random.Random(int(rng.integers(1 << 60)))
    before = PROGRAMS[program]()
    _same_when_done(before, _schedule(before, draw, rng, every=False), rng)


@pytest.mark.parametrize("case", range(60))
def test_every_primitive_keeps_random_programs(case: int, rng) -> None:
    draw = random.Random(int(rng.integers(1 << 60)))
    before = random_program(draw)
    print(print_module(before))
    _same_when_done(before, _schedule(before, draw, rng, every=True), rng)


@pytest.mark.parametrize("case", range(25))
def test_random_schedules_as_debug_builds(case: int, rng) -> None:
    """A compiled schedule agrees with the interpreter. The code generator may refuse one, with a
    CodegenError. Unwritten memory holds the same values in both."""
    draw = random.Random(int(rng.integers(1 << 60)))
    before = random_program(draw) if case % 3 else PROGRAMS[draw.choice(list(PROGRAMS))]()
    sch = _schedule(before, draw, rng, every=False)
    print(print_module(sch.func))
    try:
        exe = build(sch, use_cache=False, checks="all")
    except CodegenError as refused:
        print(refused)
        return
    symbols = [d for b in before.buffers for d in b.shape if isinstance(d, Var)]
    for size in SIZES:
        values = {v: size + i for i, v in enumerate(dict.fromkeys(symbols))}
        shapes = [tuple(evaluate(d, values) for d in b.shape) for b in before.buffers]
        inputs = [random_array(rng, s, b.dtype)
                  for s, b in zip(shapes[:-1], before.buffers, strict=False)]  # fmt: skip
        want = run(before, inputs, shapes)
        got = unwritten(before, shapes[-1])
        exe(*inputs, got)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_every_primitive_was_applied() -> None:
    """Runs after the random schedules of this file: each primitive succeeded somewhere."""
    if sum(COUNTS.values()) < 200:
        pytest.skip("the random schedules did not run")
    assert not set(STEP_NAMES) - COUNTS.keys()


