"""Exported libraries as a C program sees them, through ctypes: nothing of relaxlab is used."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

MAX_NDIM = 8
DTYPES = [
    np.dtype(t)
    for t in ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
              "float16", "float32", "float64", ml_dtypes.bfloat16)
]  # fmt: skip
STATUS = ("ok", "argument", "check", "memory", "file", "machine")


class Tensor(ctypes.Structure):
    """relaxlab_tensor"""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("shape", ctypes.c_int64 * MAX_NDIM),
    ]


class Failed(Exception):
    """A function returned something else than RELAXLAB_OK."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = STATUS[status], message


def tensor(value: Any) -> Tensor:
    """A view of a dense array; a number or a tuple of sizes as the small tensor it travels as."""
    array = np.array(value, "int64") if isinstance(value, tuple) else np.asarray(value)
    shape = (*array.shape, *(0,) * (MAX_NDIM - array.ndim))
    t = Tensor(array.ctypes.data, DTYPES.index(array.dtype), array.ndim, shape)
    t.keep = array  # type: ignore[attr-defined]
    return t


def array_of(t: Tensor) -> np.ndarray[Any, Any]:
    """A copy of a tensor."""
    shape, dtype = tuple(t.shape[: t.ndim]), DTYPES[t.dtype]
    size = int(np.prod(shape)) * dtype.itemsize
    data = bytearray(ctypes.string_at(t.data, size)) if size else b""
    return np.frombuffer(data, dtype).reshape(shape)


def leaves(value: Any) -> Iterator[Any]:
    """The parts of nested tuples of arrays; a tuple of integers is a shape, and one part."""
    if isinstance(value, tuple | list) and not (value and all(isinstance(v, int) for v in value)):
        for v in value:
            yield from leaves(v)
    else:
        yield value


class Library:
    """A library and a context of it."""

    def __init__(self, path: Path, params: Path | None = None, prefix: str = "") -> None:
        self.prefix = prefix or path.stem
        self.dll = ctypes.CDLL(str(path))
        self["error"].restype = ctypes.c_char_p
        self.context = ctypes.c_void_p()
        where = None if params is None else str(params).encode()
        self.check(self["open"](where, ctypes.byref(self.context)))

    def __getitem__(self, name: str) -> Any:
        return getattr(self.dll, f"{self.prefix}_{name}")

    def __enter__(self) -> Library:
        return self

    def __exit__(self, *_: object) -> None:
        self["close"](self.context)

    def check(self, status: int) -> None:
        if status:
            raise Failed(status, self["error"]().decode())

    def threads(self, count: int) -> None:
        self.check(self["set_threads"](self.context, count))

    def raw(self, name: str, args: list[Tensor], n_results: int) -> list[Tensor]:
        """Call a function; the results' memory belongs to the context."""
        given = (Tensor * max(1, len(args)))(*args)
        results = (Tensor * max(1, n_results))()
        self.check(self[name](self.context, given, len(args), results, n_results))
        return list(results[:n_results])

    def release(self, result: Tensor) -> None:
        self["release"](self.context, ctypes.byref(result))

    def call(self, name: str, n_results: int, *args: Any) -> list[np.ndarray[Any, Any]]:
        """Call a function on values; returns copies of its results, which are released."""
        tensors = [tensor(leaf) for arg in args for leaf in leaves(arg)]
        results = self.raw(name, tensors, n_results)
        copies = [array_of(r) for r in results]
        for r in results:
            self.release(r)
        return copies
