"""The table of (pattern, library function) pairs.

A pair says which calls of operators a library can take over and how it is called. The call is a
`call_dps_packed`: the library writes into memory that the program planned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from relaxlab.ir import graph, types
from relaxlab.passes.patterns import Match, Pattern

LibraryCall: TypeAlias = Callable[[graph.Call, Match], "graph.Call | str"]
"""Given the call that matched, the call of the library (see `library_call`), or why not."""


@dataclass(frozen=True, slots=True)
class LibraryPattern:
    """A pattern of a computation that a library function performs, and the call of that
    function."""

    name: str
    pattern: Pattern
    lower: LibraryCall


_TABLE: dict[str, LibraryPattern] = {}


def register_library(name: str, pattern: Pattern, lower: LibraryCall) -> LibraryPattern:
    """Make a pair known under a name, with which `lower_to_libraries` switches it on.

    Raises ValueError when the name is taken.
    """
    if name in _TABLE:
        raise ValueError(f"a library pattern named {name!r} is registered already")
    _TABLE[name] = LibraryPattern(name, pattern, lower)
    return _TABLE[name]


def library_pattern(name: str) -> LibraryPattern:
    """The pair of that name. Raises KeyError naming the known ones."""
    if name not in _TABLE:
        raise KeyError(f"no library pattern {name!r}; known: {', '.join(_TABLE)}")
    return _TABLE[name]


def library_call(function: str, args: Sequence[graph.Expr], out: types.Type) -> graph.Call:
    """`R.call_dps_packed(function, args, out)`."""
    packed = graph.Tuple(tuple(args))
    callee = graph.ExternFunc(function)
    return graph.Call(graph.Op("call_dps_packed"), (callee, packed), ty_args=(out,))
