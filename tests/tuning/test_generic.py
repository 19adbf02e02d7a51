"""The generic space: what its points compute is what the program computes, whatever is drawn."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

import relaxlab as rl
from relaxlab.ir.module import Module
from relaxlab.ir.substitute import symbols_in
from relaxlab.passes.pipeline import cpu_pipeline
from relaxlab.runtime.build import compile
from relaxlab.runtime.check.inputs import copy_value
from relaxlab.runtime.interpreter.interpreter import interpret
from relaxlab.schedule.decisions import SPACE, Sampled
from relaxlab.schedule.trace import to_json
from relaxlab.testing.mixed_programs import mixed_program
from relaxlab.testing.pass_check import assert_same
from relaxlab.tuning.generic import GENERIC, generic_space
from relaxlab.tuning.kernels import KERNEL, Kernel, context_alone, kernels_of
from relaxlab.tuning.plans import Plan, Planner
from relaxlab.tuning.worker import arguments_for
from tests.schedule.test_random_decisions import CALLS, SIZES, TOLERANCE, program

HOST = rl.Target.host()
OWN = {SPACE: GENERIC}
BOUNDED = (1, 2, 5, 8)
"""Sizes within the bounds that random programs declare."""


def planner_of(kernel: Kernel) -> Planner:
    space = generic_space(context_alone(kernel.program, HOST))
    return Planner(kernel, HOST, {GENERIC: space})


def check(kernel: Kernel, plan: Plan, about: str) -> None:
    """Compare the kernel as it is planned, as a debug build, with the interpreter."""
    made = {KERNEL: to_json(plan.steps)}
    passes = cpu_pipeline().with_options("schedule_kernels", decisions=made)
    exe = compile(kernel.program, pipeline=passes, checks="all", use_cache=False)
    for sizes in kernel.sizes:
        args = arguments_for(kernel.program, sizes)
        want = interpret(kernel.program, "main", *copy_value(args))
        assert_same(exe["main"](*copy_value(args)), want, f"{about}, {sizes}", TOLERANCE)


def check_drawn(mod: Module, seed: int, sizes: Sequence[int] = SIZES) -> int:
    """Check a point of each kernel of a program, for some of the sizes; return how many kernels
    have one."""
    rng = random.Random(seed)
    shapes = {name: [rng.choice(sizes)] for name in "nmkb"}
    count = 0
    names = {s.name for f in mod.graph_functions().values() for s in symbols_in(f)}
    for kernel in kernels_of(mod, HOST, {n: v for n, v in shapes.items() if n in names})[0]:
        plan = planner_of(kernel).drawn(OWN, Sampled(seed))
        if plan is None:
            continue
        count += 1
        check(kernel, plan, f"{kernel.name}, seed {seed}, {plan.point}")
    return count


@pytest.mark.parametrize("case", range(4))
def test_any_point_makes_a_right_kernel(case: int) -> None:
    name, seed = random.choice(list(CALLS)), random.getrandbits(32)
    print(f"{name}, point of seed {seed}")
    check_drawn(program(name), seed)


@pytest.mark.parametrize("case", range(2))
def test_any_point_of_a_random_program_is_right(case: int) -> None:
    seed = random.getrandbits(32)
    print(f"mixed program and points of seed {seed}")
    check_drawn(mixed_program(seed, 4), seed, BOUNDED)
