"""Functions of C libraries: how they are registered, and called through ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from relaxlab.ir import types
from relaxlab.ir.arguments import names_arguments
from relaxlab.ir.c_functions import CFunction, add_c_function, arguments_of
from relaxlab.ir.c_libraries import CLibrary, libraries_of
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.runtime.arrays import ExecutionError, dtype_name
from relaxlab.runtime.c_libraries import load_library
from relaxlab.runtime.packed import register_func


@names_arguments
def register_c_function(
    name: str,
    symbol: str,
    takes: Mapping[str, str],
    passes: Sequence[str],
    library: Callable[[], Path],
    pattern: Sequence[Any] = (),
) -> CFunction:
    """Make a function `void symbol(...)` of a shared library callable from programs as `name`, by
    `R.call_dps_packed(name, args, out)`; native code calls it directly.

    takes: the arguments of the call by name, outputs last, as texts: `float32[m, n]` is a dense
    array whose dimensions have these names (arrays that share a name must agree), `float32` a
    scalar. passes: what the C function is given, in order: an array's address, a scalar, a
    dimension (int64_t), or `thread` and `threads` (int64_t), with which every thread of a call's
    team calls it, to compute its share. library: returns the path of the library, when the first
    program that calls it is loaded. pattern: a pattern of what the function computes, then the
    parts of it that are its inputs: `lower_to_libraries` takes it by `name`.

    Raises ValueError for a name or symbol that is taken, and for texts that mean nothing.
    """
    row = CFunction(name, symbol, arguments_of(takes), tuple(passes), tuple(pattern))
    add_c_function(row, CLibrary(library, _open, (symbol,)))
    register_func(name, python_function(row))
    return row


def _open(path: Path) -> ctypes.CDLL:
    return ctypes.CDLL(str(path))


def python_function(row: CFunction) -> Callable[..., None]:
    """A Python function that calls the C function on NumPy arrays and numbers, from one thread.
    It raises ExecutionError for arguments that do not fit."""

    def call(*args: Any) -> None:
        problem = row.mismatch([*map(_type_of, args)])
        if problem is not None:
            raise ExecutionError(problem)
        values: dict[str, Any] = {"thread": ctypes.c_int64(0), "threads": ctypes.c_int64(1)}
        dense: list[tuple[Any, Any]] = []
        for wanted, arg in zip(row.arguments, args, strict=True):
            if wanted.dims is None:
                values[wanted.name] = np.ctypeslib.as_ctypes_type(numpy_dtype(wanted.dtype))(arg)
                continue
            array = np.ascontiguousarray(arg)
            dense.append((arg, array))
            values[wanted.name] = ctypes.c_void_p(array.__array_interface__["data"][0])
            for dim, size in zip(wanted.dims, arg.shape, strict=True):
                if values.setdefault(dim, ctypes.c_int64(size)).value != size:
                    raise ExecutionError(row.size_message(dim, size, values[dim].value))
        (library,) = libraries_of((row.symbol,))
        getattr(load_library(library), row.symbol)(*(values[name] for name in row.passes))
        for arg, array in dense:
            if array is not arg and arg.flags.writeable:
                arg[...] = array

    return call


def _type_of(value: Any) -> types.Type | None:
    """The type of an array; None for a number, which has no dtype in Python."""
    if isinstance(value, np.ndarray):
        return types.TensorType(None, dtype_name(value.dtype), value.ndim)
    return None
