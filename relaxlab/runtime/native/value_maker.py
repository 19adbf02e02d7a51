"""Values of data types of the words that native code has left, made in machine code."""

from __future__ import annotations

from typing import Any

import numpy as np

from relaxlab.codegen.llvm import reading_plan as native
from relaxlab.ir.data import DataValue
from relaxlab.ir.types import DataType
from relaxlab.runtime.native.fields import Fields
from relaxlab.runtime.native.value_reader import FIRST_ROOM, Words
from relaxlab.runtime.native.value_tables import ValueTables, value_function


class NativeMaker:
    """Makes values of the data types of a program. Machine code makes some by itself, given the
    `address` of what this makes them with."""

    def __init__(self, tables: ValueTables) -> None:
        self._tables, self._making = tables, Fields(native.Making)
        tables.describe(self._making)
        self.address = self._making.address
        self._make = value_function(native.MAKE_VALUES)
        self._make_room(FIRST_ROOM)

    def _make_room(self, room: int) -> None:
        """Make room for so many values."""
        entries = 4 * room  # a power of two
        self._making.hold(
            table=np.zeros(entries * native.ENTRY_WORDS, np.int64),
            holes=np.empty((1 + room * self._tables.most_fields) * native.HOLE_WORDS, np.int64),
        )
        # Last, as Ctrl-C may come in between.
        self._making.set(room=room, mask=entries - 1)

    def made(
        self, roots: Words, ty: DataType, arena: int = 0, offsets: Words | None = None
    ) -> list[DataValue]:
        """The values at some addresses. What several share is one object; arrays are copies. Their
        words are slots, whose places in the arena are `offsets`, or addresses.

        Raises MemoryError.
        """
        making, addresses = self._making, np.ascontiguousarray(roots)
        making.set(arena=arena, offsets=0 if offsets is None else offsets.ctypes.data)
        number = self._tables.types[ty.name]
        while True:
            made = list[Any]()
            at = addresses.ctypes.data
            code = self._make(making.address, made, at, len(addresses), number)
            if code == native.DONE:
                return made
            self._make_room(2 * making["room"])
