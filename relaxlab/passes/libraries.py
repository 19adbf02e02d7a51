"""The table of (pattern, library function) pairs.

A pair says which calls of operators a library can take over and how it is called. The call is a
`call_dps_packed`: the library writes into memory that the program planned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from relaxlab.ir import graph, types
from relaxlab.ir.c_functions import CFunction, c_function
from relaxlab.ir.names import among
from relaxlab.passes.bindings import leaf_type
from relaxlab.passes.patterns import Match, Pattern
from relaxlab.passes.patterns.match import show

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
    """The pair of that name, or that of the C function of that name. Raises KeyError naming the
    known ones."""
    row = c_function(name)
    if row is not None and row.pattern:
        return _pair_of(row)
    if name not in _TABLE:
        raise KeyError(f"no library pattern {name!r}; known: {among(name, _TABLE)}")
    return _TABLE[name]


def _pair_of(row: CFunction) -> LibraryPattern:
    """The pattern of a C function, and its call with the parts that the row names."""
    pattern, *inputs = row.pattern

    def lower(call: graph.Call, match: Match) -> graph.Call | str:
        out = match.root.ty
        if match.leaking():
            return f"`{show(match.leaking()[0])}` is read elsewhere, too"
        args = [match[part] for part in inputs]
        assert out is not None
        return row.mismatch([*map(leaf_type, args), out]) or library_call(row.name, args, out)

    return LibraryPattern(row.name, pattern, lower)


def library_call(function: str, args: Sequence[graph.Expr], out: types.Type) -> graph.Call:
    """`R.call_dps_packed(function, args, out)`."""
    packed = graph.Tuple(tuple(args))
    callee = graph.ExternFunc(function)
    return graph.Call(graph.Op("call_dps_packed"), (callee, packed), ty_args=(out,))
