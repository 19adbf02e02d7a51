"""ED-Batch's learning of a policy: tabular Q-learning over the types that are ready.

An action runs the ready nodes of a type. Its reward is -1 plus the part of the type's frontier
that is ready: zero where the batch could begin an optimal schedule. The source is Chen and others,
*ED-Batch: Efficient Automatic Batching of Dynamic Neural Networks via Learned Finite State
Machines* (2023).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TypeAlias

from relaxlab.batching.automaton import ENCODINGS, Automaton, Entry, State, StateReader
from relaxlab.batching.bound import batch_bound
from relaxlab.batching.execution import (
    CriticalPaths,
    Execution,
    Frontier,
    FrontierCounter,
    run_by,
)
from relaxlab.batching.graph import Graph, GraphError
from relaxlab.batching.policies import POLICIES
from relaxlab.ir.arguments import names_arguments
from relaxlab.ir.brief import Brief
from relaxlab.ir.errors import brief, counted, expect

EPISODES = 1000
CHECK_EVERY = 50
"""Episodes between two looks at what is learned so far."""
CLOSE = 1.01
"""Learning ends with batches within this factor of the lower bound."""
RATE = 0.4
STEPS = 10
"""Rewards that are added up before the value of the state after them."""
EXPLORE, EXPLORE_FALL, EXPLORE_LEAST = 0.5, 0.9, 0.05
"""The probability of a random action: at first, its factor from an episode to the next, and the
least."""

Values: TypeAlias = dict[State, dict[int, float]]


@dataclass(frozen=True, slots=True)
class Check:
    """The state of learning after some episodes. batches: of the training minibatches, in sum."""

    episode: int
    batches: int
    states: int


@dataclass(frozen=True, slots=True, repr=False)
class Learned(Brief):
    """A learned policy and how it came about.

    policy: of the encoding with fewest batches on the minibatches held out. checks: by encoding.
    bound: the lower bound of the training minibatches. held_out: batches, in sum, of the
    minibatches that were not trained on, by policy: "bound", "fsm base", "agenda" and so on.
    """

    policy: Automaton
    checks: Mapping[str, tuple[Check, ...]]
    bound: int
    held_out: Mapping[str, int]

    def __str__(self) -> str:
        width = max(map(len, self.held_out))
        rows = [f"{name:{width}}  {count:6}" for name, count in self.held_out.items()]
        states = counted(len(self.policy.table), "state")
        head = f"{self.policy.encoding}, {states}; batches of the minibatches held out:"
        return "\n".join([head, *rows])


@names_arguments
@brief
def learn_policy(
    minibatches: Sequence[Graph],
    *,
    encodings: Sequence[str] = tuple(ENCODINGS),
    episodes: int = EPISODES,
    seed: int = 0,
) -> Learned:
    """Learn a policy for a program from the graphs of some minibatches.

    The last third of them (one at least) is held out: for each encoding, the table that needs
    fewest batches on those is kept, and of the encodings the best. The same arguments give the same
    policy.

    minibatches: two at least, with the same types. encodings: names of `ENCODINGS`.

    Raises GraphError for fewer minibatches, for minibatches of different types and for an unknown
    encoding.
    """
    _check(minibatches, encodings)
    held = max(1, len(minibatches) // 3)
    training = [_Minibatch(g, Frontier(g), CriticalPaths(g)) for g in minibatches[:-held]]
    validation = minibatches[-held:]
    bound = sum(batch_bound(m.graph) for m in training)
    counts = {"bound": sum(map(batch_bound, validation))}
    checks: dict[str, tuple[Check, ...]] = {}
    found: list[Automaton] = []
    for encoding in encodings:
        automaton, checks[encoding] = _learn(training, validation, bound, encoding, episodes, seed)
        counts[f"fsm {encoding}"] = _batches(automaton, validation)
        found.append(automaton)
    best = min(found, key=lambda a: counts[f"fsm {a.encoding}"])
    counts |= {n: sum(len(p.schedule(g)) for g in validation) for n, p in POLICIES.items()}
    return Learned(best, checks, bound, counts)


@dataclass(frozen=True, slots=True)
class _Minibatch:
    """A graph with what every run of it needs."""

    graph: Graph
    frontier: Frontier
    paths: CriticalPaths

    def reader(self, encoding: str) -> StateReader:
        """Return what reads the states of a run."""
        return StateReader(encoding, self.paths.counter() if encoding == "critical" else None)


def _learn(
    training: Sequence[_Minibatch],
    validation: Sequence[Graph],
    bound: int,
    encoding: str,
    episodes: int,
    seed: int,
) -> tuple[Automaton, tuple[Check, ...]]:
    """Return the policy of one encoding, and the checks on the way."""
    random = Random(seed)
    values: Values = {}
    visits: dict[State, int] = {}
    explore = EXPLORE
    checks: list[Check] = []
    best: tuple[int, int, Automaton] | None = None
    types = training[0].graph.types
    for episode in range(1, episodes + 1):
        minibatch = training[(episode - 1) % len(training)]
        counter = minibatch.frontier.counter()
        explorer = _Explorer(values, minibatch.reader(encoding), counter, random, explore)
        run_by(minibatch.graph, explorer)
        explorer.learn()
        for state in explorer.states:
            visits[state] = visits.get(state, 0) + 1
        explore = max(EXPLORE_LEAST, EXPLORE_FALL * explore)
        if episode % CHECK_EVERY and episode < episodes:
            continue
        table = {s: Entry(dict(v), visits[s]) for s, v in values.items()}
        automaton = Automaton(types, encoding, table)
        batches = _batches(automaton, [m.graph for m in training])
        checks.append(Check(episode, batches, len(table)))
        score = (_batches(automaton, validation), batches)
        if best is None or score < best[:2]:
            best = (*score, automaton)
        if batches <= CLOSE * bound:
            break
    assert best is not None, "there is a check after the last episode"
    return best[2], tuple(checks)


@dataclass(slots=True)
class _Explorer:
    """Chooses batches by the values so far, and now and then at random; records what it saw."""

    values: Values
    reader: StateReader
    counter: FrontierCounter
    random: Random
    explore: float
    states: list[State] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)

    def choose(self, execution: Execution, types: list[int]) -> int:
        """Return the type of the next batch."""
        state, types = self.reader.read(execution, types)
        known = self.values.setdefault(state, dict.fromkeys(types, 0.0))
        if self.random.random() < self.explore:
            action = self.random.choice(types)
        else:
            action = max(types, key=lambda t: (known[t], -t))
        self.states.append(state)
        self.actions.append(action)
        self.rewards.append(len(execution.ready[action]) / self.counter.sizes[action] - 1)
        return action

    def ran(self, of_type: int, nodes: list[int]) -> None:
        """Take note of a batch."""
        self.reader.ran(of_type, nodes)
        self.counter.ran(of_type, nodes)

    def learn(self) -> None:
        """Move the value of each choice towards what followed: the rewards of some steps, and the
        best value of the state after them."""
        for step, (state, action) in enumerate(zip(self.states, self.actions, strict=True)):
            after = step + STEPS
            outcome = sum(self.rewards[step:after])
            if after < len(self.states):
                outcome += max(self.values[self.states[after]].values())
            known = self.values[state]
            known[action] += RATE * (outcome - known[action])


def _batches(automaton: Automaton, graphs: Sequence[Graph]) -> int:
    return sum(len(automaton.schedule(graph)) for graph in graphs)


def _check(minibatches: Sequence[Graph], encodings: Sequence[str]) -> None:
    """Raise GraphError where there is nothing to learn from."""
    expect(minibatches, Sequence, "minibatches are a list of graphs (rl.minibatch_graph makes one)")
    if len(minibatches) < 2:
        raise GraphError(
            f"{counted(len(minibatches), 'minibatch', 'minibatches')}: learning takes two at "
            "least, one to learn from and one to judge by; six are a good number"
        )
    for number, graph in enumerate(minibatches):
        if graph.types != minibatches[0].types:
            raise GraphError(
                f"minibatch {number} has the types {', '.join(graph.types)}, the first one "
                f"{', '.join(minibatches[0].types)}"
            )
    unknown = [name for name in encodings if name not in ENCODINGS]
    if unknown or not encodings:
        raise GraphError(
            f"no encoding is called {(*unknown, '')[0]!r}; there are {', '.join(ENCODINGS)}"
        )
