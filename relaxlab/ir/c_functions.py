"""Functions of C libraries that programs call by name, one row each.

`R.call_dps_packed(name, args, out)` with the name of a row becomes a direct call in native code;
the interpreter and the virtual machine call the same function through ctypes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from relaxlab.ir import types
from relaxlab.ir.c_libraries import CLibrary, add_c_library

THREADS = ("thread", "threads")
"""Values that every function may be passed: the number of the calling thread, and how many call."""


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a call: an array of `dtype`, dense in row-major order, with a name for each
    dimension; or a scalar, without `dims`."""

    name: str
    dtype: str
    dims: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class CFunction:
    """A function `void symbol(...)` that programs call as `name`.

    arguments: those of the call in order, outputs last. passes: what the function is given: names
    of arguments (the address of an array, a scalar), of dimensions (int64_t), or of `THREADS`. A
    function that is given these is called by every thread of the team, any other by one. pattern: a
    pattern of what the function computes, then the parts of it that are the inputs; or ().
    """

    name: str
    symbol: str
    arguments: tuple[Argument, ...]
    passes: tuple[str, ...]
    pattern: tuple[Any, ...] = ()  # of passes.patterns, which packages below may not know

    @property
    def is_parallel(self) -> bool:
        """True if every thread of the team calls it."""
        return any(name in THREADS for name in self.passes)

    def mismatch(self, given: Sequence[types.Type | None]) -> str | None:
        """Return the reason why a call with arguments of these types is none of this function;
        None where it is one, as far as types tell. The type of a scalar may be None, unknown. Sizes
        are compared when it is called."""
        if len(given) != len(self.arguments):
            return f"`{self.name}` takes {len(self.arguments)} arguments, got {len(given)}"
        for wanted, ty in zip(self.arguments, given, strict=True):
            dims = None if wanted.dims is None else len(wanted.dims)
            match ty:
                case types.TensorType(_, wanted.dtype, ndim) if ndim == dims:
                    pass
                case types.PrimType(wanted.dtype) if dims is None:
                    pass
                case None if dims is None:
                    pass
                case _:
                    rank = "" if dims is None else f" with {dims} dimensions"
                    return f"`{wanted.name}` of `{self.name}` is {wanted.dtype}{rank}, got {ty}"
        return None

    def size_message(self, dim: str, got: object, expected: object) -> str:
        """The error text for arrays that differ in a dimension."""
        return f"the size {dim} of `{self.name}` is {expected} and {got}: the arrays do not fit"


_FUNCTIONS: dict[str, CFunction] = {}


def add_c_function(row: CFunction, library: CLibrary) -> CFunction:
    """Make a function of a library known. Raises ValueError for a name that is taken, or a name in
    `passes` that is neither an argument nor a dimension."""
    if row.name in _FUNCTIONS:
        raise ValueError(f"a C function named {row.name!r} is registered already")
    known = {*THREADS, *(a.name for a in row.arguments)}
    known.update(dim for a in row.arguments for dim in a.dims or ())
    unknown = [name for name in row.passes if name not in known]
    if unknown:
        names = ", ".join(sorted(known))
        raise ValueError(f"{row.name!r} passes {unknown[0]!r}; there are {names}")
    add_c_library(library)
    _FUNCTIONS[row.name] = row
    return row


def c_function(name: str) -> CFunction | None:
    """The function that programs call by this name; None where there is none."""
    return _FUNCTIONS.get(name)


def registered_functions() -> tuple[CFunction, ...]:
    """All functions, by name."""
    return tuple(_FUNCTIONS[name] for name in sorted(_FUNCTIONS))


def arguments_of(takes: Mapping[str, str]) -> tuple[Argument, ...]:
    """Return the arguments that texts describe: `float32[m, n]` an array, `float32` a scalar.
    Raises ValueError for another text."""
    found: list[Argument] = []
    for name, text in takes.items():
        match = re.fullmatch(r"\s*(\w+)\s*(?:\[([\w\s,]*)\])?\s*", text)
        if match is None:
            raise ValueError(f"{name!r} is {text!r}; write float32[m, n], or float32 for a scalar")
        dims = None if match[2] is None else tuple(re.findall(r"\w+", match[2]))
        found.append(Argument(name, match[1], dims))
    return tuple(found)
