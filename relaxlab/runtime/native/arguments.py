"""Conversion between Python values and the words that compiled functions take and return.

A tensor is its address and its dimensions, a shape its dimensions, a scalar its bits. Nothing is
copied. Every error names the parameter, what was expected, what came, and what to do.
"""

from __future__ import annotations

import ctypes
import math
import struct
import sys
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from relaxlab.codegen.artifact import TypeTree
from relaxlab.ir.dtypes import bits_of, is_float, is_int, is_uint, numpy_dtype
from relaxlab.ir.errors import UserError, kind_of
from relaxlab.ir.names import among
from relaxlab.runtime.interchange import viewed

Words = Any  # a ctypes array of int64
ArgumentConverter = Callable[[Any, Words, list[Any]], None]
DataConverter = Callable[[TypeTree, str, int], ArgumentConverter]
"""Makes the converter of a value of a data type: its type, its name, and the position of its
word."""


class ArgumentError(UserError, TypeError, ValueError):
    """A call's arguments do not fit the function's signature."""


_PACK = {"float16": "e", "float32": "f", "float64": "d"}


def scalar_to_word(value: float, dtype: str) -> int:
    """The bits of a scalar as a 64-bit integer; floats are rounded to the dtype.

    Raises OverflowError for an integer that the dtype cannot hold.
    """
    if is_float(dtype):
        with np.errstate(over="ignore"):
            raw = np.asarray(value).astype(numpy_dtype(dtype)).tobytes()
        return int.from_bytes(raw, sys.byteorder)
    bits = 1 if dtype == "bool" else bits_of(dtype)
    low, high = (-(1 << bits - 1), 1 << bits - 1) if _is_signed(dtype) else (0, 1 << bits)
    if not low <= value < high:
        raise OverflowError(f"{value} is outside of the range of {dtype}")
    return int(value)


def word_to_scalar(word: int, dtype: str) -> int | float | bool:
    """The inverse of `scalar_to_word`."""
    if dtype in _PACK:
        raw = (word & (2**64 - 1)).to_bytes(8, "little")
        return struct.unpack_from("<" + _PACK[dtype], raw)[0]
    if dtype == "bfloat16":
        return word_to_scalar(word << 16, "float32")
    bits = 1 if dtype == "bool" else bits_of(dtype)
    word &= (1 << bits) - 1
    if _is_signed(dtype) and word >> (bits - 1):
        word -= 1 << bits
    return bool(word) if dtype == "bool" else word


def _is_signed(dtype: str) -> bool:
    return is_int(dtype) and not is_uint(dtype)


def argument_converter(
    name: str, describe: Callable[[str], str], tree: TypeTree, at: int, leaf: int,
    written: tuple[int, ...], of_data: DataConverter | None = None,
) -> ArgumentConverter:  # fmt: skip
    """Return a function that checks one value and writes its words from position `at` on. Messages
    name it by `describe(name)`, its field number 1 by `describe("name[1]")`.

    It appends the arrays it took to its third argument, which keeps them alive. `leaf` is the
    number of the value's first leaf, `written` those that must be writable. `of_data` converts
    values of data types.
    """
    where = describe(name)
    if tree.kind == "tensor":
        return _tensor_converter(where, tree, at, leaf in written)
    if tree.kind == "shape":
        return _shape_converter(where, tree, at)
    if tree.kind == "scalar":
        return _scalar_converter(where, tree, at)
    if tree.kind == "data":
        assert of_data is not None
        return of_data(tree, where, at)
    converters: list[ArgumentConverter] = []
    for i, field in enumerate(tree.fields):
        converters.append(argument_converter(
            f"{name}[{i}]", describe, field, at, leaf, written, of_data
        ))  # fmt: skip
        at += count_words(field)
        leaf += count_leaves(field)

    def convert(value: Any, words: Words, taken: list[Any]) -> None:
        if not isinstance(value, tuple | list) or len(value) != len(converters):  # type: ignore
            raise ArgumentError(
                f"{where} must be a tuple of {len(converters)} values, got {_describe(value)}"
            )
        for convert_field, v in zip(converters, value, strict=True):  # type: ignore[reportUnknownArgumentType]
            convert_field(v, words, taken)

    return convert


def count_words(tree: TypeTree) -> int:
    """Words that a value of this type takes."""
    if tree.kind == "tuple":
        return sum(count_words(f) for f in tree.fields)
    return {"tensor": 1 + tree.ndim, "shape": tree.ndim, "scalar": 1, "data": 1}[tree.kind]


def leaves_of(name: str, tree: TypeTree) -> Iterator[tuple[str, TypeTree]]:
    """The tensors, shapes and scalars of a value, with the names that messages give them."""
    if tree.kind != "tuple":
        yield name, tree
        return
    for i, part in enumerate(tree.fields):
        yield from leaves_of(f"{name}[{i}]", part)


def count_leaves(tree: TypeTree) -> int:
    """Tensors, shapes and scalars in a value of this type."""
    return sum(count_leaves(f) for f in tree.fields) if tree.kind == "tuple" else 1


def _tensor_converter(where: str, tree: TypeTree, at: int, written: bool) -> ArgumentConverter:
    dtype, ndim, dims = numpy_dtype(tree.dtype), tree.ndim, tree.dims
    fixed, size = [(i, d) for i, d in enumerate(dims) if d != -1], dtype.itemsize
    sizes = slice(at + 1, at + 1 + ndim)

    def convert(value: Any, words: Words, taken: list[Any]) -> None:
        if type(value) is not np.ndarray:
            value = as_array(value, where, tree, written)
        if value.dtype is not dtype and value.dtype != dtype:
            raise ArgumentError(
                f"{where} has dtype {value.dtype}, expected {tree.text}; "
                f"convert it with x.astype({tree.dtype!r})"
            )
        shape, flags = value.shape, value.flags
        if len(shape) != ndim:
            raise ArgumentError(
                f"{where} has {value.ndim} dimensions {shape}, expected {tree.text}"
            )
        if not flags.c_contiguous:
            # Results are stored into the copy.
            back = "; copy it back after the call" if written else ""
            raise ArgumentError(
                f"{where} is not contiguous (strides {value.strides} bytes for shape "
                f"{shape}); pass np.ascontiguousarray(x){back}"
            )
        address = _word_at(id(value) + _HEAD).value  # `address_of`, without the call
        if address % size:
            raise ArgumentError(
                f"{where} starts in the middle of an element (address {address:#x}, elements of "
                f"{size} bytes); pass x.copy()"
            )
        if written and not flags.writeable:
            raise ArgumentError(f"{where} is updated in place but is read-only; pass a copy")
        for axis, dim in fixed:
            if shape[axis] != dim:
                raise ArgumentError(f"{where} has shape {shape}, expected {tree.text}")
        words[at] = address
        words[sizes] = shape
        taken.append(value)

    return convert


_HEAD = object.__basicsize__
_word_at = ctypes.c_size_t.from_address


def address_of(array: np.ndarray[Any, Any]) -> int:
    """Return the address of an array's data. It is read right behind CPython's object header, where
    NumPy's C interface (`PyArrayObject`) has it; `__array_interface__` takes eight times as
    long."""
    return _word_at(id(array) + _HEAD).value


def as_array(value: Any, where: str, tree: TypeTree, written: bool = False) -> np.ndarray[Any, Any]:
    """Return a plain NumPy view of an array of a subclass or, through DLPack, of another library;
    without a copy. Numbers, and lists of them, become an array of the parameter's dtype unless it
    is `written` to."""
    if isinstance(value, np.ma.MaskedArray):
        raise ArgumentError(f"{where} has masked elements; pass x.filled(value)")
    if isinstance(value, np.ndarray):
        return np.asarray(value)  # what a subclass says of itself need not be so
    if getattr(value, "__dlpack__", None) is not None:
        try:
            return viewed(value)
        except Exception as e:  # whatever the other library raises
            raise ArgumentError(f"{where}: {_describe(value)} cannot be viewed: {e}") from e
    if isinstance(value, bool | int | float | np.generic | list | tuple) and not written:
        return _array_of_numbers(value, where, tree)
    raise ArgumentError(
        f"{where} must be an array of type {tree.text}, got {_describe(value)}; "
        "pass a NumPy array or one that speaks DLPack"
    )


def _array_of_numbers(value: Any, where: str, tree: TypeTree) -> np.ndarray[Any, Any]:
    """An array of the parameter's dtype, if no number changes its kind: bools and integers become
    floats, floats no integers."""
    try:
        found = np.asarray(value)
        if found.dtype.kind not in "biuf" or (found.size == 0 and found.ndim > 1):
            raise ValueError(f"it holds {found.dtype} elements")
        kinds = "b" if tree.dtype == "bool" else "bi" if is_int(tree.dtype) else "biuf"
        if found.size and found.dtype.kind not in kinds:
            raise ValueError(f"it holds {found.dtype} numbers")
        if "f" not in kinds:  # what does not fit is refused, not wrapped around
            return np.asarray(value, numpy_dtype(tree.dtype))
        return found.astype(numpy_dtype(tree.dtype))
    except (OverflowError, ValueError) as error:
        raise ArgumentError(
            f"{where}: {_describe(value)} is no array of type {tree.text}: {error}"
        ) from None


def _shape_converter(where: str, tree: TypeTree, at: int) -> ArgumentConverter:
    ndim = tree.ndim

    def convert(value: Any, words: Words, taken: list[Any]) -> None:
        if not isinstance(value, tuple | list) or len(value) != ndim:  # type: ignore
            raise ArgumentError(f"{where} must be a shape of {ndim} integers, got {value!r}")
        for i, d in enumerate(value):  # type: ignore[reportUnknownVariableType]
            if not isinstance(d, int | np.integer):
                raise ArgumentError(f"{where} must be a shape of integers, got {value!r}")
            if not 0 <= d < 1 << 63:
                raise ArgumentError(f"{where} must be a shape; {d} in {value!r} is no size")
            words[at + i] = int(d)

    return convert


def _scalar_converter(where: str, tree: TypeTree, at: int) -> ArgumentConverter:
    accepted: tuple[type[Any], ...] = (int, np.integer, np.bool_)
    kind = "an integer"
    if is_float(tree.dtype):
        own = numpy_dtype(tree.dtype).type  # bfloat16 is not among NumPy's floats
        accepted, kind = (int, float, np.integer, np.floating, own), "a number"

    def convert(value: Any, words: Words, taken: list[Any]) -> None:
        if not isinstance(value, accepted):
            raise ArgumentError(
                f"{where} must be {kind} ({tree.text}), got {_describe(value)}: {value!r}"
            )
        try:
            words[at] = scalar_to_word(value, tree.dtype)  # type: ignore[reportUnknownArgumentType]
        except OverflowError as e:
            raise ArgumentError(f"{where}: {e}") from e

    return convert


def _describe(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"{kind_of(value)} of {len(value)}"  # type: ignore[reportUnknownArgumentType]
    return kind_of(value)


def overlap(arrays: Sequence[np.ndarray[Any, Any]], written: Container[int]) -> tuple[int, int]:
    """Return the numbers of two arrays that share memory, one of them among the `written`; (-1, -1)
    if there are none."""
    starts = [(address_of(a), i) for i, a in enumerate(arrays) if a.nbytes]
    end_of_any = end_of_written = (0, -1)
    for start, i in sorted(starts):
        end = (start + arrays[i].nbytes, i)
        before = end_of_any if i in written else end_of_written
        if start < before[0]:
            return before[1], i
        end_of_any = max(end_of_any, end)
        if i in written:
            end_of_written = max(end_of_written, end)
    return -1, -1


def view_memory(
    address: int, dims: tuple[int, ...], kind: np.dtype[Any], owner: Any = None, start: int = 0
) -> np.ndarray[Any, Any]:
    """An array over existing memory. With an owner (an object whose buffer is the memory, the
    view's from byte `start` on) the view keeps it alive."""
    if 0 in dims:
        try:
            return np.empty(dims, kind)
        except ValueError:
            raise MemoryError(f"the empty result of shape {dims} is too large for NumPy") from None
    if owner is not None:
        return np.ndarray(dims, kind, owner, start)
    raw: Any = (ctypes.c_uint8 * (math.prod(dims) * kind.itemsize)).from_address(address)
    return np.ndarray(dims, kind, raw)


def in_order(
    function: str, names: Sequence[str], args: Sequence[Any], named: Mapping[str, Any]
) -> tuple[Any, ...]:
    """Return the arguments of a call by position. names: of the function's parameters.

    Raises ArgumentError naming the one that does not fit.
    """
    for name in named:
        if name not in names:
            raise ArgumentError(
                f"`{function}` has no parameter `{name}`; it has: {among(name, names)}"
            )
        if name in names[: len(args)]:
            raise ArgumentError(f"`{function}` got two values for `{name}`")
    given = names[len(args) :][: len(named)]
    for name in given:
        if name not in named:
            raise ArgumentError(f"`{function}` needs a value for `{name}`")
    return (*args, *(named[name] for name in given))
