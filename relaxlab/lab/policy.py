"""The policy explorer: a learned automaton, and the batches of a minibatch under each policy."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from relaxlab.batching.automaton import Automaton, AutomatonChooser, State
from relaxlab.batching.bound import batch_bound
from relaxlab.batching.execution import (
    CriticalPaths,
    Execution,
    Frontier,
    Schedule,
    run_by,
)
from relaxlab.batching.graph import Graph, GraphError, depths_of
from relaxlab.batching.learn import Learned
from relaxlab.batching.policies import POLICIES, Policy
from relaxlab.ir.errors import counted
from relaxlab.lab.view import View

MOST_NODES = 400
"""Nodes of a minibatch that is drawn."""
MOST_STATES = 24
"""States that are drawn: those with most visits."""
WIDE, STATE, TALL = 1000, 24, 92
"""Pixels of the drawing of an automaton: its width, a type in a state, a row."""


def policy(subject: Automaton | Learned | None, minibatches: Sequence[Graph]) -> View:
    """A learned policy and what it does with some minibatches, beside the policies that need no
    learning.

    subject: what `learn_policy` returned, the policy of it, or None for the other policies alone.
    The first minibatch is stepped through. Raises GraphError for no minibatches, PolicyError for
    minibatches of other types than the policy's.
    """
    if not minibatches:
        raise GraphError("there is no minibatch to look at: give the graphs of some")
    automaton = subject.policy if isinstance(subject, Learned) else subject
    policies: dict[str, Policy] = dict(POLICIES)
    if automaton is not None:
        policies["fsm"] = automaton
    first = minibatches[0]
    schedules = {name: p.schedule(first) for name, p in policies.items()}
    state = {
        "types": list(first.types),
        "names": list(policies),
        "counts": _counts(policies, schedules, minibatches),
        "automaton": None if automaton is None else _automaton(automaton, minibatches),
        "learning": _learning(subject) if isinstance(subject, Learned) else None,
        "bound": batch_bound(first),
        "nodes": len(first),
        "runs": [_run(first, schedule) for schedule in schedules.values()],
        "drawing": _drawing(first) if len(first) <= MOST_NODES else None,
        "notes": [] if len(first) <= MOST_NODES else [
            f"The first minibatch has {len(first)} nodes; up to {MOST_NODES} are drawn."
        ],
    }  # fmt: skip
    return View("policy", "Batching policies", state, _text(state))


def _counts(
    policies: Mapping[str, Policy], first: Mapping[str, Schedule], minibatches: Sequence[Graph]
) -> list[list[Any]]:
    """Return a row per minibatch: nodes, bound, batches of each policy."""
    rows: list[list[Any]] = []
    for number, graph in enumerate(minibatches):
        batches = [
            len(p.schedule(graph) if number else first[name]) for name, p in policies.items()
        ]
        rows.append([len(graph), batch_bound(graph), *batches])
    return rows


@dataclass(slots=True)
class _Recorder:
    """Notes the states that an automaton goes through."""

    chooser: AutomatonChooser
    states: list[State] = field(default_factory=list)

    def choose(self, execution: Execution, types: list[int]) -> int:
        """Return the automaton's choice."""
        self.states.append(self.chooser.reader.read(execution, types)[0])
        return self.chooser.choose(execution, types)

    def ran(self, of_type: int, nodes: list[int]) -> None:
        """Take note of a batch."""
        self.chooser.ran(of_type, nodes)


def _automaton(automaton: Automaton, minibatches: Sequence[Graph]) -> dict[str, Any]:
    """The states that are known or came up, most visited first, with their places in a drawing, and
    how often each followed another one."""
    times: Counter[State] = Counter()
    moves: Counter[tuple[State, State]] = Counter()
    progress: dict[State, list[float]] = {}
    for graph in minibatches:
        recorder = _Recorder(automaton.chooser(graph))
        run_by(graph, recorder)
        times.update(recorder.states)
        moves.update(zip(recorder.states, recorder.states[1:], strict=False))
        for step, state in enumerate(recorder.states):
            progress.setdefault(state, []).append(step / len(recorder.states))
    known = [*times, *(state for state in automaton.table if state not in times)]
    states = sorted(known, key=lambda s: -times[s])
    number = {state: i for i, state in enumerate(states)}
    middle = [sum(p) / len(p) if (p := progress.get(s)) else 1.0 for s in states]
    widths = [STATE * len(state) for state in states]
    return {
        "encoding": automaton.encoding,
        "states": [_state(automaton, state, times[state]) for state in states],
        "moves": [[number[a], number[b], count] for (a, b), count in sorted(moves.items())],
        "places": _places(middle[:MOST_STATES], widths[:MOST_STATES]),
    }


def _state(automaton: Automaton, state: State, times: int) -> dict[str, Any]:
    entry = automaton.table.get(state)
    values = {} if entry is None else entry.values
    return {
        "types": list(state), "times": times,
        "action": None if entry is None else entry.best,
        "visits": 0 if entry is None else entry.visits,
        "values": [[t, round(values[t], 3)] for t in sorted(values, key=lambda t: -values[t])],
    }  # fmt: skip


def _places(middle: Sequence[float], widths: Sequence[int]) -> list[list[int]]:
    """Return the left and upper edge of each state: column after column in the order in which they
    come up on average, every second column somewhat lower, so that edges pass between states."""
    rows = max(1, math.ceil(math.sqrt(len(middle) / 2)))
    columns = max(1, math.ceil(len(middle) / rows))
    places = [[0, 0] for _ in middle]
    for rank, state in enumerate(sorted(range(len(middle)), key=lambda s: middle[s])):
        column, row = divmod(rank, rows)
        center = WIDE * (column + 0.5) / columns
        places[state] = [
            round(center - widths[state] / 2),
            34 + TALL * row + TALL // 2 * (column % 2),
        ]
    return places


def _learning(learned: Learned) -> dict[str, Any]:
    """The progress of learning: batches of the training minibatches at each check, by encoding."""
    return {
        "bound": learned.bound,
        "checks": {
            name: [[c.episode, c.batches] for c in checks]
            for name, checks in learned.checks.items()
        },
        "held_out": [[name, count] for name, count in learned.held_out.items()],
    }


def _run(graph: Graph, schedule: Schedule) -> dict[str, Any]:
    """The batches of a schedule. lost: 1 for a batch after which the bound of the rest is as high
    as before. ready, frontier: of each batch, by type, before it runs. batch: of each node."""
    kinds = len(graph.types)
    missing = (graph.starts[1:] - graph.starts[:-1]).tolist()
    types = graph.type_of.tolist()
    ready = [0] * kinds
    for node, count in enumerate(missing):
        ready[types[node]] += not count
    frontier, paths = Frontier(graph).counter(), CriticalPaths(graph).counter()
    found: dict[str, list[Any]] = {
        "types": [],
        "sizes": [],
        "lost": [],
        "ready": [],
        "frontier": [],
    }
    batch_of = [0] * len(graph)
    for number, (of_type, array) in enumerate(schedule):
        nodes, bound = array.tolist(), paths.bound
        found["ready"].append(ready.copy())
        found["frontier"].append(frontier.sizes.copy())
        frontier.ran(of_type, nodes)
        paths.ran(of_type, nodes)
        alone = of_type in graph.unbatchable
        found["lost"].append(int(not alone and paths.bound == bound))
        found["types"].append(of_type)
        found["sizes"].append(len(nodes))
        ready[of_type] -= len(nodes)
        for node in nodes:
            batch_of[node] = number
            for reader in graph.successors[graph.succ_starts[node] : graph.succ_starts[node + 1]]:
                missing[reader] -= 1
                ready[types[reader]] += not missing[reader]
    return {**found, "batch": batch_of if len(graph) <= MOST_NODES else []}


def _drawing(graph: Graph) -> dict[str, Any]:
    """Nodes from left to right by depth; each at the middle height of the nodes that it reads, or
    as near as there is room. Heights are in halves of a node."""
    depths = depths_of(graph).tolist()
    taken: set[tuple[int, int]] = set()
    heights: list[int] = []
    sources = 0
    for node in range(len(graph)):
        read = graph.predecessors_of(node)
        wanted = round(sum(heights[p] for p in read) / len(read)) if read else 2 * sources
        sources += not read
        apart = 0
        while any((depths[node], wanted + apart + near) in taken for near in (-1, 0, 1)):
            apart = -apart if apart > 0 else 1 - apart
        heights.append(wanted + apart)
        taken.add((depths[node], heights[-1]))
    least = min(heights, default=0)
    edges = [[p, v] for v in range(len(graph)) for p in dict.fromkeys(graph.predecessors_of(v))]
    nodes = [
        [of_type, depth, height - least]
        for of_type, depth, height in zip(graph.type_of.tolist(), depths, heights, strict=True)
    ]
    return {"nodes": nodes, "edges": edges}


def _text(state: Mapping[str, Any]) -> str:
    """The view's text, for readers without a script."""
    names = state["names"]
    sums = [sum(column) for column in zip(*state["counts"], strict=True)]
    minibatches = counted(len(state["counts"]), "minibatch", "minibatches")
    lines = [f"{minibatches}, {sums[0]} nodes, bound {sums[1]} batches"]
    width = max(map(len, names))
    for name, batches in zip(names, sums[2:], strict=True):
        lines.append(f"  {name:{width}}  {batches:6} batches, {batches / max(1, sums[1]):.2f}x")
    automaton = state["automaton"]
    if automaton is not None:
        lines += ["", f"automaton, encoding {automaton['encoding']}:"]
    for found in () if automaton is None else automaton["states"]:
        types = " ".join(state["types"][t] for t in found["types"])
        values = ", ".join(f"{state['types'][t]} {value}" for t, value in found["values"])
        lines.append(f"  [{types}] {found['times']} times, {found['visits']} in learning: {values}")
    return "\n".join(lines)
