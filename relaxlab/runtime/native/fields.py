"""Native records that Python fills: numbers, and addresses of arrays that it keeps."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

import numpy as np

from relaxlab.codegen.llvm.lowlevel import Record, layout_of

NOTHING = np.empty(0, np.int64)


class Fields:
    """A native record: its words, and the arrays that they are addresses of."""

    def __init__(self, record: type[Record]) -> None:
        self._at = {name: at // 8 for name, (at, _) in layout_of(record).items()}
        self.words = np.zeros(len(self._at), np.int64)
        self._cells = self.words.data  # one of its items takes half the time of an array's
        self.address: int = self.words.ctypes.data
        self._arrays: dict[str, Any] = {}

    def __getitem__(self, name: str) -> int:
        return self._cells[self._at[name]]

    def reader(self, *names: str) -> Callable[[], tuple[int, ...]]:
        """A function that reads several numbers, in the time of one."""
        read, cells = itemgetter(*(self._at[name] for name in names)), self._cells
        return lambda: read(cells)

    def array(self, name: str) -> Any:
        """The array whose address is there; an empty one before there is any."""
        return self._arrays.get(name, NOTHING)

    def set(self, **numbers: int) -> None:
        """Write numbers."""
        for name, value in numbers.items():
            self._cells[self._at[name]] = value

    def hold(self, **arrays: np.ndarray[Any, Any]) -> None:
        """Write the addresses of arrays, and keep these."""
        for name, array in arrays.items():
            if self._arrays.get(name) is array:
                continue
            at, address = self._at[name], array.ctypes.data
            # No call is between these: Ctrl-C comes at calls and jumps, and would leave the address
            # of an array that nobody keeps.
            self._arrays[name] = array
            self._cells[at] = address
