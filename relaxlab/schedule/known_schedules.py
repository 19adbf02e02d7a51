"""The schedules that rules made in this process, for functions that are the same but for where they
stand in the source: a program that is compiled again after a change of one of its operators, as in
a notebook, and the layers that models have in common, are scheduled once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from threading import Lock
from typing import Any

from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.node import Atom, Attrs, Node, values_with_nodes
from relaxlab.ir.node_pickle import pickled, unpickled
from relaxlab.ir.target import target_kind
from relaxlab.schedule.rules.context import Context

MOST_BYTES = 64 << 20
"""Of the pickles that are kept. Those of the 60 kernels of a small language model take 4 MB."""


class KnownSchedules:
    """Results of scheduling, the latest `MOST_BYTES` of them. They are kept as pickles that have
    numbers for the parts of the function, for which a reader puts in those of its own function:
    parameters, symbols, and places in the source."""

    def __init__(self) -> None:
        self._pickles: OrderedDict[Any, bytes] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def find(self, key: Any, func: PrimFunc) -> Any:
        """The result that was kept with this key, about this function now; None for none."""
        with self._lock:
            data = self._pickles.get(key)
            if data is not None:
                self._pickles.move_to_end(key)
        return None if data is None else unpickled(data, list(_parts(func)))

    def keep(self, key: Any, func: PrimFunc, result: Any) -> None:
        """Keep what was made of a function."""
        places: dict[int, int] = {}
        for number, part in enumerate(_parts(func)):
            if part is not None:
                places.setdefault(id(part), number)
        data = pickled(result, places)
        with self._lock:
            self._bytes += len(data) - len(self._pickles.pop(key, b""))
            self._pickles[key] = data
            while self._bytes > MOST_BYTES:
                self._bytes -= len(self._pickles.popitem(last=False)[1])


def key_of(name: str, func: PrimFunc, context: Context) -> Any:
    """What the schedule of a kernel follows from by rule, with the names that the result has. The
    kind of targets and its rules are those of now: a user may register others of that name."""
    names = [getattr(n, "name", None) or getattr(n, "name_hint", None) for n in _parts(func)]
    kind = target_kind(context.target.kind)
    return name, context.key_of(func), tuple(names), context.target, kind, tuple(kind.rules())


def _parts(func: PrimFunc) -> Iterator[Any]:
    """The nodes of a function and their places in the source, in an order that is the same for all
    functions of one structure: an atom is looked into where it is met first."""
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
