"""Arrays in one file that is used by mapping it into memory (docs/export.md describes the format).

A header of 64 bytes, an entry of 224 bytes per array, then the arrays, each at a multiple of 64
bytes. All numbers are little-endian. Each entry has a CRC-32 of its array, the header one of all
entries, so the header's also stands for the whole content.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.errors import UserError

MAGIC = b"RLPARAMS"
VERSION = 1
"""Version of the format; a library refuses files of another one."""
ALIGN = 64
"""Bytes: every array starts with a cache line, so that programs take it from the mapped file."""
MAX_NDIM = 8
"""Most dimensions of an array, as records of the file have a fixed size that C can read."""

DTYPES: tuple[str, ...] = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "bfloat16",
)  # fmt: skip
"""A dtype's number is its position; the same numbers are in the C header. New ones are added at
the end."""

_HEADER = struct.Struct("<8sIIQI36x")  # magic, version, arrays, file size, CRC of the entries
_ENTRY = struct.Struct("<128sii8qQQII")  # name, dtype, ndim, shape, offset, bytes, CRC, 0

Array = np.ndarray[Any, Any]


class ParamsError(UserError, ValueError):
    """The file is damaged, or not the expected one."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a file: `offsets` of the arrays, all `entries`, the file's `size` and the
    checksum of the entries."""

    offsets: tuple[int, ...]
    entries: bytes
    size: int

    @property
    def crc(self) -> int:
        return zlib.crc32(self.entries)


def layout_of(arrays: Sequence[tuple[str, Array]]) -> Layout:
    """Place named dense arrays of at most `MAX_NDIM` dimensions. Names are cut after 127 bytes."""
    at = _aligned(_HEADER.size + len(arrays) * _ENTRY.size)
    offsets: list[int] = []
    entries: list[bytes] = []
    for name, array in arrays:
        shape = (*array.shape, *(0,) * (MAX_NDIM - array.ndim))
        dtype = DTYPES.index(array.dtype.name)
        crc, text = zlib.crc32(_bytes(array)), name.encode()[:127]
        entries.append(_ENTRY.pack(text, dtype, array.ndim, *shape, at, array.nbytes, crc, 0))
        offsets.append(at)
        at = _aligned(at + array.nbytes)
    return Layout(tuple(offsets), b"".join(entries), at)


def write_params(path: Path, arrays: Sequence[tuple[str, Array]]) -> Layout:
    """Write the file; raises OSError when it cannot be written."""
    layout = layout_of(arrays)
    with open(path, "wb") as f:
        f.write(_HEADER.pack(MAGIC, VERSION, len(arrays), layout.size, layout.crc))
        f.write(layout.entries)
        for offset, (_, array) in zip(layout.offsets, arrays, strict=True):
            f.write(b"\0" * (offset - f.tell()))
            f.write(_bytes(array))
        f.write(b"\0" * (layout.size - f.tell()))
    return layout


def read_params(path: Path, crc: int | None = None) -> list[tuple[str, Array]]:
    """The named arrays as read-only views of the mapped file.

    crc: what the checksum of the entries must be. Raises ParamsError for a file that is damaged or
    is another one, OSError when it cannot be read.
    """
    with open(path, "rb") as f:
        if f.seek(0, 2) < _HEADER.size:
            raise ParamsError(f"{path} is too short to be a parameter file")
        data = memoryview(mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ))
    magic, version, count, size, own_crc = _HEADER.unpack_from(data)
    if magic != MAGIC or version != VERSION:
        raise ParamsError(f"{path} is not a parameter file of version {VERSION}")
    end = _HEADER.size + count * _ENTRY.size
    if size != len(data) or end > size:
        raise ParamsError(f"{path} has {len(data)} bytes instead of {size}: it was cut off")
    if zlib.crc32(data[_HEADER.size : end]) != own_crc:
        raise ParamsError(f"{path} is damaged: the checksum of its entries does not match")
    if crc not in (None, own_crc):
        raise ParamsError(f"{path} does not belong to this library; copy the one exported with it")
    found: list[tuple[str, Array]] = []
    for i in range(count):
        fields = _ENTRY.unpack_from(data, _HEADER.size + i * _ENTRY.size)
        raw_name, dtype, ndim, *shape, offset, nbytes, array_crc, _ = fields
        name = raw_name.rstrip(b"\0").decode(errors="replace")
        raw = data[offset : offset + nbytes]
        if zlib.crc32(raw) != array_crc:
            raise ParamsError(f"{path} is damaged: the checksum of `{name}` does not match")
        array = np.frombuffer(raw, np.uint8).view(numpy_dtype(DTYPES[dtype]))
        found.append((name, array.reshape(shape[:ndim])))
    return found


def _bytes(array: Array) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _aligned(n: int) -> int:
    return -(-n // ALIGN) * ALIGN
