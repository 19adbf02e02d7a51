"""Python values to words and back: the boundary of compiled functions.

A tensor is its address and its dimensions, a shape its dimensions, a scalar its bits. Nothing is
copied. Every error names the parameter, what was expected, what came, and what to do.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from relaxlab.codegen.artifact import FunctionInfo, TypeTree
from relaxlab.ir.dtypes import numpy_dtype

Words = Any  # a ctypes array of int64
Filler = Callable[[Any, Words, list[Any]], None]


class ArgumentError(TypeError, ValueError):
    """A call's arguments do not fit the function's signature."""


_PACK = {"float16": "e", "float32": "f", "float64": "d"}


def scalar_to_word(value: float, dtype: str) -> int:
    """The bits of a scalar as a signed 64-bit integer."""
    if dtype in _PACK:
        raw = struct.pack("<" + _PACK[dtype], value)
        return int.from_bytes(raw, "little")
    return int(value)


def word_to_scalar(word: int, dtype: str) -> int | float | bool:
    """The inverse of `scalar_to_word`."""
    if dtype in _PACK:
        raw = (word & (2**64 - 1)).to_bytes(8, "little")
        return struct.unpack_from("<" + _PACK[dtype], raw)[0]
    return bool(word & 1) if dtype == "bool" else word


def make_filler(info: FunctionInfo, param: str, tree: TypeTree, at: int, leaf: int) -> Filler:
    """A function that checks one argument and writes its words from position `at` on.

    It appends the arrays it took to its third argument, which keeps them alive. `leaf` is the
    number of the parameter's first leaf.
    """
    where = f"argument `{param}` of `{info.name}`"
    if tree.kind == "tensor":
        return _tensor_filler(where, tree, at, leaf in info.written)
    if tree.kind == "shape":
        return _shape_filler(where, tree, at)
    if tree.kind == "scalar":
        return _scalar_filler(where, tree, at)
    fillers: list[Filler] = []
    for i, field in enumerate(tree.fields):
        fillers.append(make_filler(info, f"{param}[{i}]", field, at, leaf))
        at += count_words(field)
        leaf += count_leaves(field)

    def fill(value: Any, words: Words, kept: list[Any]) -> None:
        if not isinstance(value, tuple | list) or len(value) != len(fillers):  # type: ignore
            raise ArgumentError(
                f"{where} must be a tuple of {len(fillers)} values, got {_describe(value)}"
            )
        for f, v in zip(fillers, value, strict=True):  # type: ignore[reportUnknownArgumentType]
            f(v, words, kept)

    return fill


def count_words(tree: TypeTree) -> int:
    """Words that a value of this type takes."""
    if tree.kind == "tuple":
        return sum(count_words(f) for f in tree.fields)
    return {"tensor": 1 + tree.ndim, "shape": tree.ndim, "scalar": 1}[tree.kind]


def count_leaves(tree: TypeTree) -> int:
    """Tensors, shapes and scalars in a value of this type."""
    return sum(count_leaves(f) for f in tree.fields) if tree.kind == "tuple" else 1


def _tensor_filler(where: str, tree: TypeTree, at: int, written: bool) -> Filler:
    dtype, ndim, dims = numpy_dtype(tree.dtype), tree.ndim, tree.dims
    fixed = any(d != -1 for d in dims)

    def fill(value: Any, words: Words, kept: list[Any]) -> None:
        if type(value) is not np.ndarray:
            value = as_array(value, where, tree)
        if value.dtype != dtype:
            raise ArgumentError(
                f"{where} has dtype {value.dtype}, expected {tree.text}; "
                f"convert it with x.astype({tree.dtype!r})"
            )
        if value.ndim != ndim:
            raise ArgumentError(
                f"{where} has {value.ndim} dimensions {value.shape}, expected {tree.text}"
            )
        interface = value.__array_interface__
        if interface["strides"] is not None:
            raise ArgumentError(
                f"{where} is not contiguous (strides {value.strides} bytes for shape "
                f"{value.shape}); pass np.ascontiguousarray(x)"
            )
        address, read_only = interface["data"]
        if written and read_only:
            raise ArgumentError(f"{where} is updated in place but is read-only; pass a copy")
        words[at] = address
        position = at
        for d in value.shape:
            position += 1
            words[position] = d
        if fixed and any(w not in (-1, d) for w, d in zip(dims, value.shape, strict=True)):
            raise ArgumentError(f"{where} has shape {value.shape}, expected {tree.text}")
        kept.append(value)

    return fill


def as_array(value: Any, where: str, tree: TypeTree) -> np.ndarray[Any, Any]:
    """A NumPy view of an array of another library, through DLPack, without a copy."""
    if isinstance(value, np.ndarray):
        return value  # type: ignore[reportUnknownVariableType]
    if hasattr(value, "__dlpack__"):
        try:
            return np.from_dlpack(value)
        except (BufferError, RuntimeError, TypeError) as e:
            raise ArgumentError(f"{where}: {_describe(value)} cannot be viewed: {e}") from e
    raise ArgumentError(
        f"{where} must be an array of type {tree.text}, got {_describe(value)}; "
        "pass a NumPy array or one that speaks DLPack"
    )


def _shape_filler(where: str, tree: TypeTree, at: int) -> Filler:
    ndim = tree.ndim

    def fill(value: Any, words: Words, kept: list[Any]) -> None:
        if not isinstance(value, tuple | list) or len(value) != ndim:  # type: ignore
            raise ArgumentError(f"{where} must be a shape of {ndim} integers, got {value!r}")
        for i, d in enumerate(value):  # type: ignore[reportUnknownVariableType]
            if not isinstance(d, int | np.integer):
                raise ArgumentError(f"{where} must be a shape of integers, got {value!r}")
            words[at + i] = int(d)

    return fill


def _scalar_filler(where: str, tree: TypeTree, at: int) -> Filler:
    def fill(value: Any, words: Words, kept: list[Any]) -> None:
        if not isinstance(value, int | float | np.generic):
            raise ArgumentError(f"{where} must be a number ({tree.text}), got {_describe(value)}")
        words[at] = scalar_to_word(value, tree.dtype)  # type: ignore[arg-type]

    return fill


def _describe(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"  # type: ignore[reportUnknownArgumentType]
    return f"a {type(value).__name__}"


class OwnedBlock:
    """Memory allocated by a compiled function; freed with the last array that views it."""

    __slots__ = ("__array_interface__", "_block", "_free")

    def __init__(self, block: int, data: int, size: int, free: Callable[[int], None]) -> None:
        self._block, self._free = block, free
        self.__array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (data, False),
            "version": 3,
        }

    def __del__(self) -> None:
        self._free(self._block)


def view_memory(
    address: int, dims: tuple[int, ...], dtype: str, owner: Any = None
) -> np.ndarray[Any, Any]:
    """An array over existing memory. With an owner (an array of bytes that holds the memory) the
    view keeps it alive."""
    kind = numpy_dtype(dtype)
    count = math.prod(dims)
    if owner is not None:
        start = address - owner.__array_interface__["data"][0]
        return owner[start : start + count * kind.itemsize].view(kind).reshape(dims)
    if count == 0:
        return np.empty(dims, kind)
    raw = (ctypes.c_uint8 * (count * kind.itemsize)).from_address(address)
    return np.frombuffer(raw, kind).reshape(dims)
