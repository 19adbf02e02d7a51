"""Policies for programs that are recorded (`rl.batched_pipeline`)."""

from __future__ import annotations

from collections.abc import Callable

from relaxlab.batching.execution import Schedule
from relaxlab.batching.graph import Graph, GraphError, graph_of_records
from relaxlab.batching.policies import Policy, policy_of, schedule_batches
from relaxlab.ir.arguments import names_arguments
from relaxlab.ir.errors import kind_of
from relaxlab.runtime.batch.records import Records


@names_arguments
def batches_by(policy: Policy | str = "critical") -> Callable[[Records], Schedule]:
    """Return the function that chooses the batches of a recorded program by a policy:
    `main.batch(instances, choose=rl.batches_by("agenda"))`.

    Raises PolicyError for what is no policy.
    """
    chosen = policy_of(policy)  # now: an error belongs to this line, not to a batch

    def choose(records: Records) -> Schedule:
        return schedule_batches(recorded_graph(records), chosen)

    return choose


@names_arguments
def recorded_graph(records: Records) -> Graph:
    """The graph of what was recorded: `main.record(instances)`. Raises GraphError for
    anything else."""
    # A notebook, where nothing checks the type before the call, may pass anything.
    given: object = records
    if not isinstance(given, Records):
        raise GraphError(
            f"expected what `main.record(instances)` returns, got {kind_of(given)}"
        )
    return graph_of_records(
        records.types, records.type_of, records.starts, records.handles, records.producer
    )
