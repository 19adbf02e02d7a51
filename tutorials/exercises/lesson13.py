"""Checks of lesson 13, batching, and schedules by the name of a policy."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from math import isclose
from random import Random
from typing import TypeAlias

from relaxlab.batching.bound import batch_bound
from relaxlab.batching.execution import Execution, Frontier, Schedule
from relaxlab.batching.graph import Graph, minibatch_graph
from relaxlab.batching.policies import policy_called

from relaxlab.lab.verdict import Hint, ask, exercise, value_of

Table: TypeAlias = dict[str, dict[str, float]]


def schedule(graph: Graph, name: str) -> Schedule:
    """Return the schedule of a policy alone; `rl.schedule_batches` compares it with agenda's."""
    return policy_called(name).schedule(graph)


def _trees(seed: int, instances: int) -> tuple[list[str], list[list[int]]]:
    """Trees of eight leaves at most, with a classifier at each root."""
    random = Random(seed)
    types: list[str] = []
    reads: list[list[int]] = []

    def add(of_type: str, before: list[int]) -> int:
        types.append(of_type)
        reads.append(before)
        return len(types) - 1

    def tree(leaves: int) -> int:
        if leaves == 1:
            return add("leaf", [])
        left = random.randint(1, leaves - 1)
        return add("inner", [tree(left), tree(leaves - left)])

    for _ in range(instances):
        add("output", [tree(random.randint(1, 8))])
    return types, reads


def _graph(types: list[str], reads: list[list[int]]) -> Graph:
    names = list(dict.fromkeys(types))
    return minibatch_graph(names, [names.index(name) for name in types], reads)


@exercise
def bound(answer: Callable[[list[str], list[list[int]]], int]) -> str:
    """The sum over the types of the most nodes on a path."""
    crossed = (["a", "b", "b", "a"], [[], [0], [], [2]])
    skipped = (["a", "b", "a", "b", "a"], [[], [0], [1], [0], [3]])
    apart = (["a", "a", "b", "b"], [[], [0], [], [2]])
    for types, reads in (crossed, skipped, apart, *(_trees(seed, 3) for seed in range(4))):
        want = batch_bound(_graph(types, reads))
        got = value_of(answer, list(types), deepcopy(reads))
        if got != want:
            example = (
                f" for types {types} that read {reads}" if len(types) < 6 else " for some trees"
            )
            raise Hint(
                f"the bound is {want}, not {got!r},{example}: nodes of one type count only if they "
                "lie on one path, and a path may go through other types"
            )
    return "no schedule has fewer batches."


@exercise
def choose(answer: Callable[[dict[str, int], dict[str, int]], str]) -> str:
    """A policy that reaches the bound on trees."""
    for seed in range(8):
        graph = _graph(*_trees(seed, 6))
        numbers = {name: number for number, name in enumerate(graph.types)}
        execution, counter = Execution(graph), Frontier(graph).counter()
        while types := execution.ready_types():
            ready = {graph.types[t]: len(execution.ready[t]) for t in types}
            frontier = {graph.types[t]: counter.sizes[t] for t in types}
            name = value_of(answer, dict(ready), dict(frontier))
            if name not in list(ready):
                raise Hint(f"ready are {', '.join(ready)}; the answer is {name!r}")
            counter.ran(numbers[name], execution.run(numbers[name]))
        batches, least = len(execution.batches), batch_bound(graph)
        if batches > least:
            order = " ".join(graph.types[t] for t, _ in execution.batches)
            raise Hint(
                f"{batches} batches where {least} will do: {order}. A batch loses nothing if all "
                "of its type's frontier is ready"
            )
    return "trees need no more batches than the bound."


@exercise
def update(answer: Callable[[Table, list[tuple[str, str, float]]], object]) -> str:
    """One update of the table, with two rewards and the value after them."""
    # States with several actions after which nothing, one and two rewards come.
    values: Table = {
        "abc": {"a": -3.0, "b": -1.5, "c": -2.5}, "ab": {"a": -1.0, "b": -0.5}, "a": {"a": 0.25},
    }  # fmt: skip
    steps = [
        ("abc", "b", -0.25), ("abc", "a", -0.5), ("abc", "c", 0.0), ("abc", "b", -2.0),
        ("ab", "b", -1.0), ("ab", "a", -0.75), ("a", "a", -0.125),
    ]  # fmt: skip
    want = deepcopy(values)
    for i, (state, action, _) in enumerate(steps):
        outcome = sum(reward for *_, reward in steps[i : i + 2])
        if i + 2 < len(steps):
            outcome += max(want[steps[i + 2][0]].values())
        want[state][action] += 0.4 * (outcome - want[state][action])
    got = deepcopy(values)
    ask(answer, got, list(steps))
    if got == values:
        raise Hint("the table is as before: change the numbers of `values` itself, in its place")
    for i, (state, action, _) in enumerate(steps):
        if not isclose(got[state][action], want[state][action], rel_tol=1e-5):
            after = "nothing more" if i + 2 >= len(steps) else f"state {steps[i + 2][0]!r}"
            raise Hint(
                f"the value of {action!r} in state {state!r} should be {want[state][action]:.3f}, "
                f"is {got[state][action]:.3f}: at step {i} two rewards count, if there are so "
                f"many, and after them {after}"
            )
    return "choices are judged by what follows."
