"""Shared libraries, loaded for programs that call their functions."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from functools import cache

from relaxlab.codegen.llvm.jit import add_symbol
from relaxlab.ir.c_libraries import CLibrary, libraries_of


@cache
def load_library(library: CLibrary) -> ctypes.CDLL:
    """Load a library, and make its symbols known to compiled code. Raises what `find` raises."""
    loaded = library.load(library.find())
    for symbol in library.symbols:
        address = ctypes.cast(getattr(loaded, symbol), ctypes.c_void_p).value
        assert address is not None
        add_symbol(symbol, address)
    return loaded


def load_libraries(symbols: Iterable[str]) -> None:
    """Load the registered libraries that have some of these symbols."""
    for library in libraries_of(symbols):
        load_library(library)
