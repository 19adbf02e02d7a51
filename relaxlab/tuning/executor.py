"""Executors: they have requests of a tuner answered by worker processes, here or on other machines.

`local_executor` makes one of processes of this machine, `cluster.py` one of the workers of a Dask
scheduler.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeAlias

from relaxlab.tuning.children import Answer, Child, Pool, Request, TrialFailed, pool_of

Reply: TypeAlias = Answer | TrialFailed
"""The end of a request: its answer, or the reason why it failed."""


class Executor(Protocol):
    """Has requests answered. builders: how many programs are built side by side. dropped: the
    reasons why workers are not used, by their address."""

    dropped: dict[str, str]

    @property
    def builders(self) -> int: ...

    def build(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        """Yield the number of each request and its reply, in the order in which they end."""
        ...

    def measure(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        """The same for measurements: on any machine there is one at a time."""
        ...


class LocalExecutor:
    """An executor of processes of this machine: builds in a pool, and measurements in a process of
    their own, one after another."""

    def __init__(self, pool: Pool, child: Child) -> None:
        self.builders = pool.count
        self.dropped = dict[str, str]()
        self._pool, self._child = pool, child

    def build(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        """See `Executor`."""
        yield from enumerate(self._pool.map(reply_of, requests))

    def measure(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        """See `Executor`."""
        for number, request in enumerate(requests):
            yield number, reply_of(self._child, request)


def reply_of(child: Child, request: Request) -> Reply:
    """The reply of a worker process."""
    try:
        return child.ask(request)
    except TrialFailed as error:
        return error


@contextmanager
def local_executor(count: int) -> Iterator[LocalExecutor]:
    """An executor with so many processes for builds, which end with the context."""
    child = Child()
    try:
        with pool_of(count) as pool:
            yield LocalExecutor(pool, child)
    finally:
        child.close()
