"""GGUF files: written files read back as they were, and malformed ones end in a GGUFError."""

import mmap
import struct

import gguf
import numpy as np
import pytest

from relaxlab.models.gguf import GGUF, GGUFError, GGUFTensor, read_gguf, write_gguf

METADATA = {
    "general.architecture": "llama",
    "a.bool": True,
    "a.uint": 7,
    "a.int": -7,
    "a.big": 2**40,
    "a.float": 0.5,
    "a.text": "naïve 你好",
    "a.words": ["one", "", "drei"],
    "a.ints": [1, 2, 3],
    "a.floats": np.array([0.25, -1.5], np.float64),
    "a.flags": np.array([True, False]),
    "a.nested": [["x"], ["y", "z"]],
}


def tensors(rng: np.random.Generator) -> list[GGUFTensor]:
    able = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1")
    made = [GGUFTensor.quantised(f"w.{f}", rng.normal(size=(3, 64)), f) for f in able]
    return [*made, GGUFTensor.quantised("bias", rng.normal(size=5).astype(np.float32), "F32")]


@pytest.fixture
def sample(tmp_path, rng):
    path = tmp_path / "sample.gguf"
    write_gguf(path, METADATA, tensors(rng))
    return path


def value_equal(a, b) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.array_equal(a, b)
    return type(a) is type(b) and a == b


def check_same(a: GGUF, b: GGUF) -> None:
    assert list(a.metadata) == list(b.metadata)
    assert all(value_equal(a.metadata[k], b.metadata[k]) for k in a.metadata)
    assert list(a.tensors) == list(b.tensors)
    for x, y in zip(a.tensors.values(), b.tensors.values(), strict=True):
        assert (x.shape, x.format) == (y.shape, y.format)
        np.testing.assert_array_equal(x.raw, y.raw)


def test_round_trip(sample, tmp_path, rng):
    read = read_gguf(sample)
    assert list(read.metadata) == list(METADATA)
    assert all(value_equal(read.metadata[k], v) for k, v in METADATA.items() if k != "a.ints")
    np.testing.assert_array_equal(read.metadata["a.ints"], [1, 2, 3])
    again = tmp_path / "again.gguf"
    write_gguf(again, read.metadata, read.tensors.values())
    check_same(read, read_gguf(again))
    assert again.read_bytes() == sample.read_bytes()


def test_tensors_are_read_only_views_of_the_mapping(sample):
    tensor = read_gguf(sample).tensor("w.F32")
    assert not tensor.raw.flags.writeable
    base = tensor.raw
    while isinstance(base, np.ndarray):
        base = base.base
    assert isinstance(base, memoryview) and isinstance(base.obj, mmap.mmap)
    assert np.shares_memory(tensor.fields()["data"], tensor.raw)
    assert sample.read_bytes()[tensor.offset :][: tensor.nbytes] == tensor.raw.tobytes()


def test_same_as_reference_package(sample):
    reference = gguf.GGUFReader(sample)
    ours = read_gguf(sample)
    assert [t.name for t in reference.tensors] == list(ours.tensors)
    for theirs in reference.tensors:
        mine = ours.tensor(theirs.name)
        assert tuple(int(n) for n in theirs.shape[::-1]) == mine.shape
        np.testing.assert_array_equal(theirs.data.reshape(-1).view(np.uint8), mine.raw)
    assert reference.fields["a.text"].contents() == METADATA["a.text"]
    assert reference.fields["a.words"].contents() == METADATA["a.words"]


def test_smollm2(smollm2):
    assert smollm2.metadata["llama.block_count"] == 30
    assert len(smollm2.tensors) == 2 + 30 * 9
    assert {t.format.name for t in smollm2.tensors.values()} == {"F32", "Q4_1", "Q8_0"}
    assert sum(t.nbytes for t in smollm2.tensors.values()) == 96_576_768
    norm = smollm2.tensor("output_norm.weight")
    assert norm.shape == (576,) and 1 < np.median(norm.dequantise()) < 3


def test_missing_tensor_is_named(sample):
    with pytest.raises(GGUFError, match="no tensor 'blk.0.x'"):
        read_gguf(sample).tensor("blk.0.x")


# Files built by hand, one thing wrong in each.


def text(s: str) -> bytes:
    return struct.pack("<Q", len(s.encode())) + s.encode()


def pair(key: str, type_id: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", type_id) + value


def info(name: str, dims: list[int], type_id: int, offset: int) -> bytes:
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, type_id, offset)


def file_of(pairs: list[bytes], infos: list[bytes], data: bytes = b"", version: int = 3) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", version, len(infos), len(pairs))
    head += b"".join(pairs) + b"".join(infos)
    return head + bytes(-len(head) % 32) + data


DATA = bytes(64)
HUGE = struct.pack("<Q", 2**63)
BAD_FILES = {
    "empty": (b"", "the file is empty"),
    "magic": (b"GGML" + bytes(40), "not a GGUF file: starts with b'GGML'"),
    "short": (b"GGUF\x03", r"header: the file ends here: 4 bytes needed, 1 left \(at byte 4\)"),
    "version": (file_of([], [], version=1), "version 1 is not supported"),
    "endian": (b"GGUF\0\0\0\x03" + bytes(16), "big-endian"),
    "n_tensors": (
        b"GGUF" + struct.pack("<IQQ", 3, 2**40, 0),
        r"1099511627776 tensors cannot fit in the rest of the file \(at byte 8\)",
    ),
    "n_keys": (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60), "metadata keys cannot fit"),
    "key length": (file_of([HUGE + b"ab"], []), "metadata key 0 of 1: 9223372036854775808 char"),
    "key utf-8": (
        file_of([struct.pack("<Q", 2) + b"a\xff" + bytes(9)], []),
        r"metadata key 0 of 1: not UTF-8 .* \(at byte 33\)",
    ),
    "key twice": (
        file_of([pair("k", 0, b"\1"), pair("k", 0, b"\2")], []),
        "metadata key 'k': the key occurs twice",
    ),
    "value type": (file_of([pair("k", 13, bytes(8))], []), "'k': unknown metadata type 13"),
    "value bool": (file_of([pair("k", 7, b"\2")], []), "'k': a boolean is neither 0 nor 1"),
    "array type": (
        file_of([pair("k", 9, struct.pack("<IQ", 99, 1))], []),
        "'k': unknown metadata type 99",
    ),
    "array count": (
        file_of([pair("k", 9, struct.pack("<I", 8) + HUGE)], []),
        "'k': 9223372036854775808 array elements cannot fit",
    ),
    "array depth": (
        file_of([pair("k", 9, struct.pack("<IQ", 9, 1) * 2000)], []),
        "'k': arrays nested more than 4 deep",
    ),
    "alignment": (
        file_of([pair("general.alignment", 4, struct.pack("<I", 24))], []),
        "general.alignment': must be a power of two, is 24",
    ),
    "n_dims": (file_of([], [info("t", [1] * 5, 0, 0)], DATA), "'t': has 5 dimensions"),
    "scalar": (file_of([], [info("t", [], 0, 0)], DATA), "'t': has 0 dimensions"),
    "empty shape": (file_of([], [info("t", [4, 0], 0, 0)], DATA), r"'t': has the empty shape"),
    "format": (
        file_of([], [info("t", [4], 77, 0)], DATA),
        "tensor 't': quantisation type 77 is not supported; supported are F32, F16, BF16, Q8_0",
    ),
    "format with a name": (
        file_of([], [info("t", [256], 21, 0)], DATA),
        "tensor 't': IQ3_S is not supported; supported are F32, F16, BF16, Q8_0",
    ),
    "blocks": (file_of([], [info("t", [33], 3, 0)], DATA), "'t': Q4_1 stores blocks of 32"),
    "beyond": (
        file_of([], [info("t", [17], 0, 0)], DATA),
        r"'t': data at bytes 64 to 132 \(F32\(17,\)\) lies beyond .* 128 bytes \(at byte 64\)",
    ),
    "absurd": (
        file_of([], [info("t", [2**63, 2**63], 0, 0)], DATA),
        "'t': data at bytes .* lies beyond the end",
    ),
    "offset": (file_of([], [info("t", [4], 0, 2**63)], DATA), "'t': data at .* lies beyond"),
    "unaligned": (file_of([], [info("t", [4], 0, 8)], DATA), "'t': data at .* not aligned to 32"),
    "overlap": (
        file_of([], [info("t", [16], 0, 0), info("u", [8], 0, 32)], DATA),
        "tensor 'u': data at .* overlaps",
    ),
    "name twice": (
        file_of([], [info("t", [8], 0, 0), info("t", [8], 0, 32)], DATA),
        "'t': the name occurs twice",
    ),
}


@pytest.mark.parametrize(("content", "message"), BAD_FILES.values(), ids=BAD_FILES.keys())
def test_bad_file_is_refused(content, message, tmp_path):
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    with pytest.raises(GGUFError, match=message) as caught:
        read_gguf(path)
    assert str(path) in str(caught.value)


def test_every_truncation_is_refused(sample, tmp_path):
    content = sample.read_bytes()
    last = max(read_gguf(sample).tensors.values(), key=lambda t: t.offset)
    path = tmp_path / "short.gguf"
    for size in range(last.offset + last.nbytes):
        path.write_bytes(content[:size])
        with pytest.raises(GGUFError):
            read_gguf(path)


def use(gguf: GGUF) -> None:
    for tensor in gguf.tensors.values():
        assert tensor.dequantise().shape == tensor.shape
        assert tensor.fields()


def test_damaged_files_are_refused_or_read(sample, tmp_path, rng):
    """Flipped bits and overwritten words: a GGUFError or a file that can be used."""
    content = sample.read_bytes()
    header = min(t.offset for t in read_gguf(sample).tensors.values())
    path = tmp_path / "damaged.gguf"
    refused = 0
    for _ in range(2000):
        damaged = bytearray(content)
        for _ in range(rng.integers(1, 4)):
            at = int(rng.integers(header))
            if rng.random() < 0.7:
                damaged[at] ^= 1 << rng.integers(8)
            else:
                damaged[at : at + 8] = rng.bytes(8)
        path.write_bytes(damaged[: rng.integers(len(damaged))] if rng.random() < 0.1 else damaged)
        try:
            with np.errstate(all="ignore"):
                use(read_gguf(path))
        except GGUFError:
            refused += 1
    assert 200 < refused < 2000


def test_random_bytes_are_refused(tmp_path, rng):
    path = tmp_path / "noise.gguf"
    for _ in range(300):
        path.write_bytes(b"GGUF\x03\0\0\0" + rng.bytes(int(rng.integers(400))))
        with pytest.raises(GGUFError):
            read_gguf(path)


@pytest.mark.parametrize(
    ("value", "message"),
    [(None, "None"), (2**70, "64 bits"), ([1, "a"], "store"), (np.zeros((2, 2)), "store")],
)
def test_writer_refuses_other_values(value, message, tmp_path):
    with pytest.raises(TypeError, match=f"'k'.*{message}"):
        write_gguf(tmp_path / "x.gguf", {"k": value}, [])
