"""Pickles of values that refer to objects which both the writer and the reader have."""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

NOT_COPIED = (pickle.PicklingError, TypeError, AttributeError, RecursionError)
"""Raised for values that have no pickle: functions without a name, locks, nodes in great depth."""


def pickled(value: object, places: Mapping[int, int]) -> bytes:
    """The pickle of a value, in which the objects with these identities (`id`) are numbers. Raises
    one of `NOT_COPIED`."""
    file = io.BytesIO()
    _Pickler(file, places).dump(value)
    return file.getvalue()


def unpickled(data: bytes, known: Sequence[object]) -> Any:
    """The value of a pickle, in which the numbers are places in `known`; all else is a copy."""
    return _Unpickler(io.BytesIO(data), known).load()


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, places: Mapping[int, int]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._places = places

    def persistent_id(self, obj: object) -> int | None:
        return self._places.get(id(obj))


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, known: Sequence[object]) -> None:
        super().__init__(file)
        self._known = known

    def persistent_load(self, pid: int) -> object:
        return self._known[pid]
