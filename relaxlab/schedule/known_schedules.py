"""A cache of the schedules that rules made in this process. Functions that differ only in their
source locations share an entry, so that after a change of one operator, as in a notebook, the other
kernels of a program are not scheduled again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Any

from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.node import Atom, Attrs, Node, values_with_nodes
from relaxlab.ir.node_pickle import NOT_COPIED, pickled, unpickled
from relaxlab.ir.source_files import python_files
from relaxlab.ir.target import target_kind
from relaxlab.schedule.rules.context import Context

MOST_BYTES = 64 << 20
"""The limit of the pickles that are kept. 33 kernels of a small language model take 0.3 MB."""


class KnownSchedules:
    """Scheduled kernels by key, least recently used first. A kernel is kept as a pickle in which
    the nodes and source locations of the unscheduled function are numbers; `find` puts in those of
    the function that it is given."""

    def __init__(self) -> None:
        self._pickles: OrderedDict[Any, bytes] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def find(self, key: Any, func: PrimFunc) -> Any:
        """The result with this key, made of the nodes of `func`; None if there is none."""
        with self._lock:
            data = self._pickles.get(key)
            if data is not None:
                self._pickles.move_to_end(key)
        return None if data is None else unpickled(data, list(_parts(func)))

    def keep(self, key: Any, func: PrimFunc, result: Any) -> None:
        """Keep what was made of a function, unless it holds what cannot be copied, such as a
        function among the attributes of a user's rule."""
        places: dict[int, int] = {}
        for number, part in enumerate(_parts(func)):
            if part is not None:
                places.setdefault(id(part), number)
        try:
            data = pickled(result, places)
        except NOT_COPIED:
            return
        with self._lock:
            self._bytes += len(data) - len(self._pickles.pop(key, b""))
            self._pickles[key] = data
            while self._bytes > MOST_BYTES:
                self._bytes -= len(self._pickles.popitem(last=False)[1])


def key_of(name: str, func: PrimFunc, context: Context) -> Any:
    """A key that is equal where rules make the same of a kernel, names included. The kind of
    targets and its rules are those of now: a user may register others of that name."""
    # A node without a source location is told apart from one that has one: its location would be
    # lost in the kernel.
    names = [
        part is None or getattr(part, "name", None) or getattr(part, "name_hint", None)
        for part in _parts(func)
    ]
    kind = target_kind(context.target.kind)
    return name, context.key_of(func), tuple(names), context.target, kind, tuple(kind.rules())


def source_stamp() -> int:
    """The time, in nanoseconds, of the latest change of the source that schedules are made by.
    After such a file was changed and loaded anew, kernels are scheduled again."""
    package = Path(__file__).parents[1]
    folders = (package / name for name in ("schedule", "analysis", "ir"))
    return max(s.st_mtime_ns for folder in folders for _, s in python_files(folder))


def _parts(func: PrimFunc) -> Iterator[Any]:
    """Yield the nodes of a function and their source locations, parents first, in an order that
    structurally equal functions share. The fields of an atom follow its first occurrence."""
    met: set[Atom] = set()
    left: list[object] = [func]
    while left:
        value = left.pop()
        if isinstance(value, Node):
            yield value
            yield getattr(value, "span", None)
            if isinstance(value, Atom):
                if value in met:
                    continue
                met.add(value)
            left += reversed(values_with_nodes[type(value)](value))
        elif isinstance(value, tuple):
            left += reversed(value)  # type: ignore[reportUnknownArgumentType]
        elif isinstance(value, Attrs):
            left += reversed(list(value.values()))
