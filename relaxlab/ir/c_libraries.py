"""Shared libraries whose functions compiled programs call."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class CLibrary:
    """A shared library: `find` returns its file, or raises an error that says how to get it;
    `load` is given the file and returns it as `ctypes.CDLL` does. `symbols`: its functions that
    programs call."""

    find: Callable[[], Path]
    load: Callable[[Path], Any]
    symbols: tuple[str, ...]


_LIBRARIES: dict[str, CLibrary] = {}


def add_c_library(library: CLibrary) -> None:
    """Make the symbols of a library known. Raises ValueError for one that another library has."""
    for symbol in library.symbols:
        if _LIBRARIES.setdefault(symbol, library) is not library:
            raise ValueError(f"the symbol {symbol!r} is registered already")


def libraries_of(symbols: Iterable[str]) -> tuple[CLibrary, ...]:
    """The libraries that some of these symbols belong to, each once."""
    return tuple(dict.fromkeys(_LIBRARIES[s] for s in symbols if s in _LIBRARIES))
