"""Policies for programs that are recorded (`rl.batched_pipeline`)."""

from __future__ import annotations

from collections.abc import Callable

from relaxlab.batching.execution import Schedule
from relaxlab.batching.graph import Graph, graph_of_records
from relaxlab.batching.policies import Policy, schedule_batches
from relaxlab.runtime.batch.records import Records


def batches_by(policy: Policy | str = "critical") -> Callable[[Records], Schedule]:
    """Return the function that chooses the batches of a recorded program by a policy:
    `main.batch(instances, choose=rl.batches_by("agenda"))`."""

    def choose(records: Records) -> Schedule:
        return schedule_batches(recorded_graph(records), policy)

    return choose


def recorded_graph(records: Records) -> Graph:
    """The graph of what was recorded: `main.record(instances)`."""
    return graph_of_records(
        records.types, records.type_of, records.starts, records.handles, records.producer
    )
