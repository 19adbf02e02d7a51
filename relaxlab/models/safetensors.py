"""Reader for safetensors files, single or sharded.

The file is mapped and tensors are read-only views of the mapping, since the package `safetensors`
would copy them and has no bfloat16 for NumPy. It checks the header before anything is used; nothing
that is read is executed.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open

from relaxlab.ir.errors import UserError

Array = np.ndarray[Any, np.dtype[Any]]

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
        try:
            # Checks the whole header: dtypes, shapes, and that the tensors fill the data without
            # overlaps or holes.
            with safe_open(path, framework="np"):
                pass
        except SafetensorError as error:
            raise SafetensorsError(f"{path}: {error}") from None
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    start = 8 + int.from_bytes(data[:8], "little")
    header = _parse_json(path, bytes(data[8:start]), "header")
    header.pop("__metadata__", None)
    return {name: _view(path, name, data[start:], entry) for name, entry in header.items()}


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


def _view(path: Path, name: str, body: memoryview, entry: dict[str, Any]) -> Array:
    dtype = _DTYPES.get(entry["dtype"])
    if dtype is None:
        raise SafetensorsError(f"{path}: tensor '{name}': dtype {entry['dtype']} is not supported")
    begin, end = entry["data_offsets"]
    array = np.frombuffer(body[begin:end], np.uint8).view(dtype).reshape(entry["shape"])
    if array.flags.aligned:
        return array
    copy = array.copy()  # a header of odd length: machine code wants aligned data
    copy.flags.writeable = False
    return copy
