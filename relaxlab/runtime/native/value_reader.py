"""Values of data types that are given to a program, read in machine code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from relaxlab.codegen.llvm import reading_plan as native
from relaxlab.ir.types import DataType
from relaxlab.runtime.native.fields import Fields
from relaxlab.runtime.native.value_tables import ValueTables, value_function

Array = np.ndarray[Any, Any]
Words: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

FIRST_ROOM = 256
"""Values for which there is room at first."""


@dataclass(frozen=True, slots=True)
class Given:
    """Values as words. `groups` has for each dtype the words of values that stand for an array, the
    elements of all these arrays behind each other, and the bytes of each."""

    words: Words
    groups: tuple[tuple[Words, Array, Words], ...] = ()

    def table(self) -> Words:
        """The groups as machine code reads them."""
        rows = [
            (flat.ctypes.data, flat.nbytes, len(at), at.ctypes.data, sizes.ctypes.data)
            for at, flat, sizes in self.groups
        ]
        return np.array(rows, np.int64).reshape(-1, native.GROUP_WORDS)

    def address_arrays(self) -> None:
        """Let their addresses stand for the arrays."""
        for at, flat, sizes in self.groups:
            self.words[at] = flat.ctypes.data + np.cumsum(sizes) - sizes


class ValueReader:
    """Reads values of the data types of a program into memory that it has: `words`, and the groups
    of arrays, `groups`, a row of words for each."""

    def __init__(self, tables: ValueTables) -> None:
        self._tables, self._reading = tables, Fields(native.Reading)
        tables.describe(self._reading)
        self.address = self._reading.address
        self.room = FIRST_ROOM
        self._read = value_function(native.READ_VALUE)
        self._kept = list[Given]()
        """The memory for what is read next, and what it replaced."""
        self._make_table()

    def grow(self) -> None:
        """Make room for twice as many values, in new memory."""
        self.room *= 2
        self._make_table()

    def _make_table(self) -> None:
        entries = 4 * self.room  # a power of two
        pending = 1 + self.room * (1 + self._tables.most_fields)
        self._reading.hold(
            table=np.zeros(entries * native.ENTRY_WORDS, np.int64),
            pending=np.empty(pending * native.PENDING_WORDS, np.int64),
        )  # fmt: skip
        self.renew()
        # Last, as Ctrl-C may come in between.
        self._reading.set(room=self.room, mask=entries - 1)

    def renew(self) -> None:
        """Make memory for what is read next: what was read before stays as it is."""
        room = self.room
        groups = [
            (np.empty(room * of.most, np.int64), np.empty(room * of.most_bytes, np.uint8),
             np.empty(room * of.most, np.int64))
            for of in self._tables.groups.values()
        ]  # fmt: skip
        words = np.empty(room * (1 + self._tables.most_fields), np.int64)
        # Kept beside what was there before until all addresses are written.
        self._kept = [*self._kept[-1:], Given(words, tuple(groups))]
        self.words, self.groups = words, self._kept[-1].table()
        self._reading.hold(words=words, groups=self.groups)
        self._reading.set(group_count=len(groups))

    def read(self, value: Any, ty: DataType) -> tuple[int, Given] | None:
        """Read a value. Returns its address, and memory that the next call leaves alone; None where
        it is not as the program's data types have it, which `DataWriter` says."""
        place = np.empty(1, np.int64)
        while True:
            self.renew()
            number = self._tables.types[ty.name]
            code = self._read(self.address, value, number, place.ctypes.data)
            if code == native.DONE:
                return int(place[0]), Given(self.words, tuple(self._filled()))
            if code == native.UNEXPECTED:
                return None
            self.grow()

    def _filled(self) -> Sequence[tuple[Words, Array, Words]]:
        """The groups up to where they are filled."""
        counts = self.groups[:, list(native.Group.__annotations__).index("count")].tolist()
        return [
            (at[:n], flat, sizes[:n])
            for (at, flat, sizes), n in zip(self._kept[-1].groups, counts, strict=True)
        ]
