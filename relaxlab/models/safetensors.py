"""Reader for safetensors files, single or sharded.

The file is mapped and tensors are read-only views of the mapping. As for GGUF, everything in the
header is checked before use and nothing that is read is executed.
"""

from __future__ import annotations

import json
import math
import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import ml_dtypes
import numpy as np

from relaxlab.ir.errors import UserError

Array = np.ndarray[Any, np.dtype[Any]]

MAX_HEADER_BYTES = 100_000_000  # the limit in the format's description

_DTYPES: Mapping[str, np.dtype[Any]] = {
    "BOOL": np.dtype("?"), "U8": np.dtype("u1"), "I8": np.dtype("i1"), "U16": np.dtype("<u2"),
    "I16": np.dtype("<i2"), "U32": np.dtype("<u4"), "I32": np.dtype("<i4"), "U64": np.dtype("<u8"),
    "I64": np.dtype("<i8"), "F16": np.dtype("<f2"), "F32": np.dtype("<f4"), "F64": np.dtype("<f8"),
    "BF16": np.dtype(ml_dtypes.bfloat16), "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
}  # fmt: skip


class SafetensorsError(UserError, ValueError):
    """The file is not a well-formed safetensors file; names the tensor and the byte offset."""


def read_safetensors(path: str | os.PathLike[str]) -> dict[str, Array]:
    """The tensors of a ``.safetensors`` file, or of all shards that a ``.index.json`` file names.

    Read-only arrays over the mapped file; bfloat16 and float8 have the dtypes of ``ml_dtypes``.
    SafetensorsError for malformed files, OSError for those that cannot be opened.
    """
    path = Path(path)
    return _read_sharded(path) if path.name.endswith(".index.json") else _read_file(path)


def _read_sharded(path: Path) -> dict[str, Array]:
    index = _parse_json(path, path.read_bytes(), "index")
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict):
        raise SafetensorsError(f"{path}: the index has no 'weight_map' object")
    shards: dict[str, dict[str, Array]] = {}
    tensors: dict[str, Array] = {}
    for name, file in weight_map.items():
        # Shards lie beside their index; anything else is an attempt to read other files.
        if not isinstance(file, str) or file in ("", ".", "..") or "/" in file or "\\" in file:
            raise SafetensorsError(f"{path}: tensor '{name}': {file!r} is not a file name")
        if file not in shards:
            shards[file] = _read_file(path.with_name(file))
        if name not in shards[file]:
            raise SafetensorsError(f"{path}: tensor '{name}' is not in {file}")
        tensors[name] = shards[file][name]
    return tensors


def _read_file(path: Path) -> dict[str, Array]:
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < 8:
            raise SafetensorsError(f"{path}: {size} bytes are too few for a header (at byte 0)")
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    length = int.from_bytes(data[:8], "little")
    if length > min(size - 8, MAX_HEADER_BYTES):
        raise SafetensorsError(
            f"{path}: a header of {length} bytes does not fit: the file has {size - 8} more, "
            f"{MAX_HEADER_BYTES} are allowed (at byte 0)"
        )
    header = _parse_json(path, bytes(data[8 : 8 + length]), "header")
    header.pop("__metadata__", None)
    body = data[8 + length :]
    places = {name: _place(path, name, entry, len(body)) for name, entry in header.items()}
    _check_apart(path, places, len(body))
    return {
        name: _view(body, *places[name], _DTYPES[entry["dtype"]], entry["shape"])
        for name, entry in header.items()
    }


def _parse_json(path: Path, content: bytes, what: str) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = dict(pairs)
        if len(keys) != len(pairs):
            raise ValueError("a key occurs twice")
        return keys

    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is not JSON")

    try:
        value = json.loads(content, object_pairs_hook=unique, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise SafetensorsError(f"{path}: the {what} is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise SafetensorsError(f"{path}: the {what} is not a JSON object")
    return value


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _place(path: Path, name: str, entry: Any, size: int) -> tuple[int, int]:
    """Begin and end of a tensor in the data, after checking its whole header entry."""
    where = f"{path}: tensor '{name[:80]}'"
    if not isinstance(entry, dict):
        raise SafetensorsError(f"{where}: its header entry is not an object")
    kind, shape, offsets = (entry.get(k) for k in ("dtype", "shape", "data_offsets"))
    if not isinstance(kind, str) or kind not in _DTYPES:
        raise SafetensorsError(f"{where}: unknown dtype {kind!r}; known are {', '.join(_DTYPES)}")
    if not isinstance(shape, list) or len(shape) > 32 or not all(map(_is_count, shape)):
        raise SafetensorsError(f"{where}: {str(shape)[:80]} is not a shape")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_count, offsets)):
        raise SafetensorsError(f"{where}: {str(offsets)[:80]} are not two data_offsets")
    begin, end = offsets
    if not begin <= end <= size:
        raise SafetensorsError(
            f"{where}: data_offsets {begin} to {end} lie outside the {size} bytes of data"
        )
    needed = math.prod(shape) * _DTYPES[kind].itemsize
    if end - begin != needed:
        raise SafetensorsError(
            f"{where}: {kind} of shape {shape} needs {needed} bytes, its data_offsets hold "
            f"{end - begin} (at byte {begin} of the data)"
        )
    return begin, end


def _check_apart(path: Path, places: Mapping[str, tuple[int, int]], size: int) -> None:
    """The format wants the tensors to fill the data without overlaps or holes."""
    at = 0
    for name, (begin, end) in sorted(places.items(), key=lambda item: item[1]):
        if begin != at:
            what = "overlaps the tensor before it" if begin < at else "leaves a hole before it"
            raise SafetensorsError(
                f"{path}: tensor '{name[:80]}' {what} (at byte {begin} of the data)"
            )
        at = end
    if at != size:
        raise SafetensorsError(f"{path}: {size - at} bytes after the last tensor (at byte {at})")


def _view(body: memoryview, begin: int, end: int, dtype: np.dtype[Any], shape: list[int]) -> Array:
    raw = np.frombuffer(body[begin:end], np.uint8)
    array = raw.view(dtype).reshape(shape)
    if array.flags.aligned:
        return array
    copy = array.copy()  # a header of odd length: machine code wants aligned data
    copy.flags.writeable = False
    return copy
