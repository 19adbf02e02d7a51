"""Independent work on all cores, in forked processes.

Python runs on one core at a time, and llvmlite lets one thread into LLVM. A forked process has all
values that its parent has, so only results are sent.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from relaxlab.ir.node import Attrs, Node, values_with_nodes
from relaxlab.ir.node_pickle import pickled, unpickled

_T = TypeVar("_T")
_R = TypeVar("_R")
_S = TypeVar("_S")

LEAST = 0.05
"""Seconds of work that another process takes over at least: five times what a fork costs."""
_GROUPS = 4096
"""Most entries of the queue, of four bytes: they fit a pipe, which nobody reads while it is
filled."""
_CUT_OFF = (EOFError, pickle.UnpicklingError)
_is_forked = False


def cores() -> int:
    """The number of cores that this process may use; 1 in a process of `map_forked`, and where
    processes cannot be forked safely."""
    # On macOS system libraries do not survive a fork, and Windows has none.
    if _is_forked or not sys.platform.startswith("linux"):
        return 1
    return len(os.sched_getaffinity(0))


def map_forked(
    function: Callable[[_T], _R],
    items: Sequence[_T],
    seconds: Sequence[float],
    known: Sequence[Node] = (),
    *,
    keeps_memory: bool = True,
) -> list[_R]:
    """Return `[function(item) for item in items]`, computed by as many processes as pay.

    seconds: about how long each item takes. known: nodes from before the call, which results share
    with whatever else refers to them; all others are copies. The function may keep nothing but its
    result. keeps_memory: False leaves all of the work to other processes, so that the system gets
    back the memory that it takes. Raises what the function raises for the first item where it does.
    """
    left = sum(seconds) - max(seconds, default=0.0)
    count = min(cores(), 1 + int(left / LEAST))
    found: dict[int, _R] = {}
    if count > 1:
        longest_first = sorted(range(len(items)), key=lambda i: -seconds[i])
        work = _Work(function, items, longest_first, _reachable(known))
        found = work.shared(count - 1 if keeps_memory else count, takes_part=keeps_memory)
    # An item that failed elsewhere fails again here, where the error can be raised.
    return [found[i] if i in found else function(item) for i, item in enumerate(items)]


@dataclass(slots=True)
class _Work(Generic[_T, _R]):
    """Items, and the order of their numbers in which processes take them from a queue. `known`:
    nodes that are sent as their numbers."""

    function: Callable[[_T], _R]
    items: Sequence[_T]
    order: Sequence[int]
    known: Sequence[Node]
    places: dict[int, int] = field(init=False)

    def __post_init__(self) -> None:
        self.places = {id(n): i for i, n in enumerate(self.known)}

    def shared(self, others: int, *, takes_part: bool) -> dict[int, _R]:
        """Results by number, computed by other processes, and by this one if it takes part; without
        those of items that failed."""
        queue, filled = os.pipe()
        groups = min(_GROUPS, len(self.order))
        os.write(filled, b"".join(i.to_bytes(4, "little") for i in range(groups)))
        os.close(filled)
        children: dict[int, int] = {}
        try:
            with suppress(OSError):  # no memory or number for another process
                for _ in range(others):
                    child, results = self._fork(queue, groups)
                    children[child] = results
            found = dict(self._taken(queue, groups, self.function)) if takes_part else {}
            for results in children.values():
                # One that was killed has sent nothing, or a part.
                with open(results, "rb", closefd=False) as sent, suppress(*_CUT_OFF):
                    found |= {i: self._received(r) for i, r in pickle.load(sent)}
            return found
        finally:
            os.close(queue)
            for child, results in children.items():
                os.close(results)
                with suppress(ProcessLookupError, ChildProcessError):
                    os.kill(child, signal.SIGKILL)
                    os.waitpid(child, 0)

    def _fork(self, queue: int, groups: int) -> tuple[int, int]:
        """The number of a process that works on the queue, and where its results can be read."""
        results, written = os.pipe()
        with warnings.catch_warnings():
            # Python and JAX warn of locks that threads of this process hold: none of those is
            # asked for before the process ends.
            warnings.simplefilter("ignore")
            child = os.fork()
        if child:
            os.close(written)
            return child, results
        try:
            global _is_forked
            _is_forked = True
            gc.disable()  # or finalizers of the parent's garbage would run here, too
            with open(written, "wb") as file:
                pickle.dump(list(self._taken(queue, groups, self._computed_and_sent)), file)
        finally:
            # Nothing of the parent's is flushed or cleaned up twice.
            os._exit(0)

    def _taken(
        self, queue: int, groups: int, compute: Callable[[_T], _S]
    ) -> Iterator[tuple[int, _S]]:
        """Compute items of the queue until it is empty."""
        while entry := os.read(queue, 4):
            for number in self.order[int.from_bytes(entry, "little") :: groups]:
                with suppress(Exception):
                    yield number, compute(self.items[number])

    def _computed_and_sent(self, item: _T) -> bytes:
        return pickled(self.function(item), self.places)

    def _received(self, result: bytes) -> _R:
        return unpickled(result, self.known)


def _reachable(nodes: Iterable[Node]) -> list[Node]:
    """The nodes and all that they refer to, the shapes of buffers included."""
    found: dict[int, Node] = {}
    left: list[object] = [*nodes]
    while left:
        value = left.pop()
        if isinstance(value, Node):
            if id(value) not in found:
                found[id(value)] = value
                left += values_with_nodes[type(value)](value)
        elif isinstance(value, tuple):
            left += value  # type: ignore[reportUnknownArgumentType]
        elif isinstance(value, Attrs):
            left += value.values()
    return list(found.values())
