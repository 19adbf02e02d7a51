"""Safetensors files: read like the reference does, and refused when malformed."""

import json
import struct
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from relaxlab.models.safetensors import SafetensorsError, read_safetensors

NAMES = {
    np.dtype("f4"): "F32",
    np.dtype("f2"): "F16",
    np.dtype("i8"): "I64",
    np.dtype("?"): "BOOL",
    np.dtype(ml_dtypes.bfloat16): "BF16",
    np.dtype(ml_dtypes.float8_e4m3fn): "F8_E4M3",
}


def packed(header: bytes, data: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header)) + header + data


def file_of(arrays: dict[str, np.ndarray], pad: int = 8) -> bytes:
    entries: dict[str, dict[str, Any]] = {"__metadata__": {"format": "np"}}
    data = b""
    for name, array in arrays.items():
        end = len(data) + array.nbytes
        entries[name] = {
            "dtype": NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [len(data), end],
        }
        data += array.tobytes()
    header = json.dumps(entries).encode()
    return packed(header + b" " * (-len(header) % pad), data)


@pytest.fixture
def arrays(rng):
    values = rng.normal(size=(4, 6))
    made = {f"w{i}": values.astype(dtype) for i, dtype in enumerate(NAMES)}
    return made | {"scalar": np.array(3, np.float32), "none": np.zeros((0, 5), np.float32)}


@pytest.mark.parametrize("pad", [8, 7])
def test_read(arrays, pad, tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(file_of(arrays, pad))
    read = read_safetensors(path)
    assert list(read) == list(arrays)
    for name, array in arrays.items():
        assert (read[name].dtype, read[name].shape) == (array.dtype, array.shape)
        assert read[name].tobytes() == array.tobytes()
        assert read[name].flags.aligned and not read[name].flags.writeable


def test_same_as_reference_package(arrays, tmp_path):
    known = {k: v for k, v in arrays.items() if v.dtype.kind in "fib" and v.dtype.itemsize > 1}
    path = tmp_path / "a.safetensors"
    save_file(known, path)
    read = read_safetensors(path)
    assert read.keys() == known.keys()
    for name, array in known.items():
        assert read[name].dtype == array.dtype
        np.testing.assert_array_equal(read[name], array)


def test_shards(tmp_path):
    one, two = np.ones((2, 2), np.float32), np.arange(3)
    (tmp_path / "1.safetensors").write_bytes(file_of({"a": one, "unused": one}))
    (tmp_path / "2.safetensors").write_bytes(file_of({"b": two}))
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"b": "2.safetensors", "a": "1.safetensors"}}))
    read = read_safetensors(index)
    assert list(read) == ["b", "a"]
    np.testing.assert_array_equal(read["b"], two)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ("{}", "no 'weight_map'"),
        ("[1]", "not a JSON object"),
        ("{", "not valid JSON"),
        ('{"weight_map": {"a": "../x.safetensors"}}', "'../x.safetensors' is not a file name"),
        ('{"weight_map": {"a": 3}}', "tensor 'a': 3 is not a file name"),
        ('{"weight_map": {"q": "1.safetensors"}}', "tensor 'q' is not in 1.safetensors"),
    ],
)
def test_bad_index_is_refused(index, message, tmp_path):
    (tmp_path / "1.safetensors").write_bytes(file_of({"a": np.ones(2, np.float32)}))
    path = tmp_path / "x.index.json"
    path.write_text(index)
    with pytest.raises(SafetensorsError, match=message):
        read_safetensors(path)


def entry(dtype='"F32"', shape="[2]", offsets="[0, 8]") -> str:
    return f'{{"dtype": {dtype}, "shape": {shape}, "data_offsets": {offsets}}}'


DATA = bytes(8)
COMPLEX = '"C64"'
BAD_FILES = {
    "empty": (b"", "header too small"),
    "length": (struct.pack("<Q", 2**60) + b"{}", "header too large"),
    "json": (packed(b'{"a": '), "invalid JSON"),
    "utf-8": (packed(b'{"\xff": 1}'), "invalid UTF-8"),
    "deep": (packed(b"[" * 200_000), "invalid JSON"),
    "digits": (packed(b'{"a": ' + b"9" * 10_000 + b"}"), "invalid JSON"),
    "list": (packed(b"[]"), "invalid JSON"),
    "twice": (packed(f'{{"a": {entry()}, "a": {entry()}}}'.encode(), DATA), "occurs twice"),
    "entry": (packed(b'{"a": 1}'), "invalid type"),
    "dtype": (packed(f'{{"a": {entry(dtype="[]")}}}'.encode(), DATA), "invalid type"),
    "dtype of others": (packed(f'{{"a": {entry(COMPLEX, "[1]")}}}'.encode(), DATA),
                        "'a': dtype C64 is not supported"),
    "shape": (packed(f'{{"a": {entry(shape="[-2]")}}}'.encode(), DATA), "integer `-2`"),
    "bool": (packed(f'{{"a": {entry(shape="[true]")}}}'.encode(), DATA), "boolean `true`"),
    "offsets": (packed(f'{{"a": {entry(offsets="[0]")}}}'.encode(), DATA), "invalid length 1"),
    "beyond": (packed(f'{{"a": {entry(shape="[4]", offsets="[0, 16]")}}}'.encode(), DATA),
               "file not fully covered"),
    "size": (packed(f'{{"a": {entry(shape="[3]")}}}'.encode(), DATA),
             "invalid shape, data type, or offset"),
    "overlap": (packed(f'{{"a": {entry()}, "b": {entry(offsets="[0, 8]")}}}'.encode(), DATA),
                "invalid offset"),
    "hole": (packed(f'{{"a": {entry(offsets="[4, 12]")}}}'.encode(), bytes(12)), "invalid offset"),
    "rest": (packed(f'{{"a": {entry()}}}'.encode(), bytes(12)), "file not fully covered"),
}  # fmt: skip


@pytest.mark.parametrize(("content", "message"), BAD_FILES.values(), ids=BAD_FILES.keys())
def test_bad_file_is_refused(content, message, tmp_path):
    path = tmp_path / "bad.safetensors"
    path.write_bytes(content)
    with pytest.raises(SafetensorsError, match=message) as caught:
        read_safetensors(path)
    assert str(path) in str(caught.value)


def test_damaged_files_are_refused_or_read(arrays, tmp_path, rng):
    content = file_of(arrays)
    header = 8 + struct.unpack("<Q", content[:8])[0]
    path = tmp_path / "damaged.safetensors"
    refused = 0
    for _ in range(2000):
        damaged = bytearray(content)
        for _ in range(rng.integers(1, 4)):
            damaged[rng.integers(header)] ^= 1 << rng.integers(8)
        path.write_bytes(damaged[: rng.integers(len(damaged))] if rng.random() < 0.2 else damaged)
        try:
            for array in read_safetensors(path).values():
                assert len(array.tobytes()) == array.nbytes
        except SafetensorsError:
            refused += 1
    assert 200 < refused < 2000
