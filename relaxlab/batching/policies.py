"""Policies: which nodes of a minibatch's graph run together, and in which order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from relaxlab.batching.bound import batch_bound
from relaxlab.batching.execution import Schedule, schedule_of
from relaxlab.batching.graph import Graph, depths_of
from relaxlab.batching.native import native_schedule
from relaxlab.codegen.llvm.batch_policies import AGENDA, RATIO
from relaxlab.ir.arguments import names_arguments
from relaxlab.ir.errors import UserError, kind_of
from relaxlab.ir.names import meant


class PolicyError(UserError):
    """A policy that is not there, or that a file does not describe."""


class Policy(Protocol):
    """A way to make a schedule of a graph, under a name. The same graph gives the same schedule."""

    name: ClassVar[str]

    def schedule(self, graph: Graph) -> Schedule:
        """Return batches that run every node."""
        ...


@dataclass(frozen=True, slots=True)
class Depth:
    """Nodes of one type at one depth, the shallow ones first: TensorFlow Fold (Looks and others,
    *Deep Learning with Dynamic Computation Graphs*, 2017)."""

    name: ClassVar[str] = "depth"

    def schedule(self, graph: Graph) -> Schedule:
        """Return batches that run every node."""
        depths = depths_of(graph)
        batches: dict[tuple[int, int, int], list[int]] = {}
        for node in np.lexsort((graph.type_of, depths)).tolist():
            of_type = int(graph.type_of[node])
            alone = node if of_type in graph.unbatchable else -1
            batches.setdefault((int(depths[node]), of_type, alone), []).append(node)
        return schedule_of(graph, [(of_type, nodes) for (_, of_type, _), nodes in batches.items()])


@dataclass(frozen=True, slots=True)
class Agenda:
    """The ready type whose nodes that have not run lie least deep on average: DyNet (Neubig,
    Goldberg, Dyer, *On-the-fly Operation Batching in Dynamic Computation Graphs*, 2017)."""

    name: ClassVar[str] = "agenda"

    def schedule(self, graph: Graph) -> Schedule:
        """Return batches that run every node."""
        return native_schedule(graph, AGENDA)


@dataclass(frozen=True, slots=True)
class Ratio:
    """The ready type of which the largest part of the frontier is ready; of several, the one with
    most ready nodes. That is the reward of ED-Batch (Chen and others, *ED-Batch: Efficient
    Automatic Batching of Dynamic Neural Networks via Learned Finite State Machines*, 2023), taken
    greedily."""

    name: ClassVar[str] = "ratio"

    def schedule(self, graph: Graph) -> Schedule:
        """Return batches that run every node."""
        return native_schedule(graph, RATIO)


@dataclass(frozen=True, slots=True)
class Critical:
    """A ready type whose batch lowers the bound of what is left, else the choice of `Ratio`.

    The bound (`bound.batch_bound`) counts, of each type, the most nodes on a path. A batch takes
    one off if all nodes with which such a path begins are ready: nothing is lost then, though other
    nodes of the frontier may have to wait for a later batch.
    """

    name: ClassVar[str] = "critical"

    def schedule(self, graph: Graph) -> Schedule:
        """Return batches that run every node."""
        return native_schedule(graph, RATIO, critical=True)


@dataclass(frozen=True, slots=True)
class Fewest:
    """The schedule with fewest batches of several policies, tried in order until one needs no more
    than the lower bound."""

    policies: tuple[Policy, ...]
    name: ClassVar[str] = "fewest"

    def schedule(self, graph: Graph) -> Schedule:
        """Return batches that run every node."""
        least = batch_bound(graph)
        best: Schedule | None = None
        for policy in self.policies:
            found = policy.schedule(graph)
            if best is None or len(found) < len(best):
                best = found
            if len(best) <= least:
                break
        if best is None:
            raise PolicyError("there are no policies to choose from")
        return best


POLICIES: Mapping[str, Policy] = {p.name: p for p in (Depth(), Agenda(), Ratio(), Critical())}
"""The policies that need no learning, by name."""


def _known() -> str:
    return ", ".join(POLICIES)


def policy_called(name: str) -> Policy:
    """Return one of `POLICIES`. Raises PolicyError for another name."""
    if name not in POLICIES:
        raise PolicyError(
            f"no policy is called {name!r}: there are {_known()}, and those that "
            f"`rl.learn_policy` gives{meant(name, list(POLICIES))}"
        )
    return POLICIES[name]


def policy_of(policy: Policy | str) -> Policy:
    """Return a policy that is given itself or by its name. Raises PolicyError for what is none."""
    if isinstance(policy, str):
        return policy_called(policy)
    if not callable(getattr(policy, "schedule", None)):
        raise PolicyError(
            f"expected a policy, got {kind_of(policy)}: give the name of one ({_known()}) or what "
            "`rl.learn_policy` gives"
        )
    return policy


@names_arguments
def schedule_batches(graph: Graph, policy: Policy | str = "critical") -> Schedule:
    """Return a policy's schedule of a minibatch's graph, or that of the policy `agenda` where it
    has fewer batches: a learned policy may meet graphs unlike those that it has seen.

    Raises PolicyError for what is no policy, and GraphError for what is no graph.
    """
    return Fewest((policy_of(policy), POLICIES["agenda"])).schedule(graph)
