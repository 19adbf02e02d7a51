"""Random programs with control flow of their own, in batches, against the interpreter."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from unittest.mock import patch

import numpy as np

from relaxlab.batching.learn import learn_policy
from relaxlab.batching.policies import Policy
from relaxlab.batching.recorded import batches_by, recorded_graph
from relaxlab.codegen import program
from relaxlab.ir.data import DataValue
from relaxlab.ir.errors import UserError
from relaxlab.models.dynamic.inputs import random_weights
from relaxlab.passes.base import Pipeline
from relaxlab.passes.batch_twins import batch_twins
from relaxlab.passes.pipeline import batched_pipeline
from relaxlab.runtime.build import compile as build
from relaxlab.runtime.interpreter.interpreter import interpret
from relaxlab.script import parse
from relaxlab.testing.data_programs import random_data_program, random_instance
from relaxlab.testing.quick_code import unoptimised

LEFT_OUT = (
    "clone_by_weights", "split_concat_product", "combine_gates", "split_phases",
    "annotate_recording", "fuse_ops", "limit_rows",
)  # fmt: skip
"""Passes that a program can do without."""
OPTIONS = (
    ("make_blocks", "coarse"), ("make_blocks", "hoist"), ("annotate_recording", "ghosts"),
    ("annotate_recording", "side_by_side"), ("annotate_recording", "memoize"),
    ("batch_blocks", "fuse_gathers"),
)  # fmt: skip
"""Options of passes that can be off."""
POLICIES = ("depth", "agenda", "ratio", "critical")
EPISODES = 20
"""Runs from which a policy is learned: it need not be a good one."""
INSTANCES = 6
"""Different instances of a program: the interpreter takes long."""
TOLERANCE = 2e-3
"""Differences that roundings may make, through some dozens of cells."""
SECONDS = 120.0
"""Time for making a program smaller."""


@dataclass(frozen=True, slots=True)
class BatchFailure:
    """A program whose batches go wrong, as small as it could be made."""

    seed: int
    problem: str
    text: str

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.problem}\n{self.text}\n"


def pipeline_of_seed(seed: int) -> Pipeline:
    """The passes that a program of this seed goes through: each option is off in some, and half of
    them have what GPUs have besides."""
    rng, pipeline = np.random.default_rng(seed), batched_pipeline()
    for name, option in OPTIONS:
        if rng.random() < 0.25:
            pipeline = pipeline.with_options(name, **{option: False})
    if rng.random() < 0.5:
        pipeline = pipeline.after("combine_gates", batch_twins)
    for name in LEFT_OUT:
        if rng.random() < 0.2:
            pipeline = pipeline.without(name)
    return pipeline


def run_batched_program(seed: int, *, shrink: bool = True) -> BatchFailure | None:
    """Make the program of a seed, and compare calls of it, and its batches: of 1 instance, of
    several and of 64, as few as are found and by each policy, a learned one too."""
    text = random_data_program(np.random.default_rng(seed))
    problem = batch_problem(text, seed)
    if problem is None:
        return None
    if shrink:
        kind = _kind(problem)

        def still_fails(candidate: str) -> bool:
            found = batch_problem(candidate, seed)
            return found is not None and _kind(found) == kind

        text = shrunk_text(text, still_fails)
    return BatchFailure(seed, batch_problem(text, seed) or problem, text)


def batch_problem(text: str, seed: int) -> str | None:
    """The first difference between the batches of a program and the interpreter, in words; or the
    error. None if there is neither."""
    rng = np.random.default_rng(seed)
    try:
        mod = parse(text)
        weights = random_weights(mod, rng, 0.5)
        instances = [random_instance(mod, rng) for _ in range(INSTANCES)]
        expected = [interpret(mod, "main", *i, *weights) for i in instances]
    except Exception as error:  # noqa: BLE001  a candidate need not be a program
        return f"no program: {error}"
    try:
        with patch.object(program, "compile_objects", unoptimised):
            exe = build(mod, pipeline=pipeline_of_seed(seed), threads=1, checks=_checks(seed))
            alone = build(mod, use_cache=False, threads=1, checks=_checks(seed))
        for given, wanted in zip(instances[:2], expected, strict=False):
            found = alone["main"](*given, *alone.packed_weights("main", weights))
            place = differs(found, wanted, "the result of one by itself")
            if place is not None:
                return f"differs: {place}"
        main = exe["main"].bind(*weights)
        return _difference(main, instances, expected, rng) or (
            None if "R.phase()" in text else _excess(main, instances, rng)
        )
    except (UserError, AssertionError, ValueError, LookupError, TypeError) as error:
        return f"{type(error).__name__}: {error}"


def _checks(seed: int) -> Literal["all", "default"]:
    return "all" if seed % 5 == 1 else "default"


def _difference(
    main: Any, instances: Sequence[Any], expected: Sequence[Any], rng: np.random.Generator
) -> str | None:
    sizes = (1, INSTANCES, int(rng.integers(2, 64)), 64)
    runs: list[tuple[int, str, Policy | str | None]] = [(size, "default", None) for size in sizes]
    runs += [(INSTANCES, policy, policy) for policy in POLICIES]
    graphs = [recorded_graph(main.record([i])) for i in instances]
    if all(map(len, graphs)):
        learned = learn_policy(graphs, episodes=EPISODES)
        runs.append((INSTANCES, "a learned policy", learned.policy))
    for size, name, policy in runs:
        members = rng.integers(0, INSTANCES, size).tolist()
        choose = None if policy is None else batches_by(policy)
        results = main.batch([instances[i] for i in members], choose=choose)
        for at, (i, found) in enumerate(zip(members, results, strict=True)):
            place = differs(found, expected[i], "the result")
            if place is not None:
                return f"differs: batch of {size} by {name}, instance {at}: {place}"
    return None


def _excess(main: Any, instances: Sequence[Any], rng: np.random.Generator) -> str | None:
    """More batches than by the policy `agenda`, in words; None where there are not more. A program
    that asks for phases may have more."""
    for size in (1, INSTANCES, 33):
        given = [instances[i] for i in rng.integers(0, INSTANCES, size).tolist()]
        counts: list[int] = []
        for choose in (None, batches_by("agenda")):
            main.batch(given, choose=choose)
            counts.append(main.last_batch.batches)
        if counts[0] > counts[1]:
            return f"batches: {counts[0]} for {size} instances, {counts[1]} by agenda"
    return None


def differs(found: Any, expected: Any, what: str) -> str | None:
    """Return the place where two results differ, with both; None where they agree."""
    if isinstance(expected, tuple | DataValue):
        if isinstance(expected, DataValue):
            if found.constructor != expected.constructor:
                return f"{what} is a {found.constructor}, expected {expected.constructor}"
            found, expected = found.fields, expected.fields
        pairs = enumerate(zip(found, expected, strict=True))
        places = (differs(f, e, f"{what}[{k}]") for k, (f, e) in pairs)
        return next((p for p in places if p is not None), None)
    if np.allclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True):
        return None
    return f"{what} is {found}, expected {expected}"


def _kind(problem: str) -> str:
    return problem.split(":")[0]


def shrunk_text(text: str, fails: Callable[[str], bool]) -> str:
    """A program with fewer lines for which `fails` is still true."""
    end = time.monotonic() + SECONDS
    found = True
    while found:
        found = False
        for candidate in _shorter(text):
            if time.monotonic() > end:
                return text
            if fails(candidate):
                text, found = candidate, True
                break
    return text


def _shorter(text: str) -> Iterator[str]:
    """The program without a line and all that is indented below it."""
    lines = text.split("\n")
    for at in range(len(lines)):
        depth = _indent(lines[at])
        end = at + 1
        while end < len(lines) and _indent(lines[end]) > depth:
            end += 1
        yield "\n".join(lines[:at] + lines[end:])


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
