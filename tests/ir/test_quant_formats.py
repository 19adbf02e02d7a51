"""Block formats: against GGML's own Python package where installed, and by round trips."""

import numpy as np
import pytest

from relaxlab.ir.quant_formats import FORMAT_BY_NAME, FORMATS, QuantFormat

BLOCK_FORMATS = [f for f in FORMATS if f.block_size > 1]
ENCODABLE = [f for f in BLOCK_FORMATS if f.encode]


def random_fields(format: QuantFormat, rows: int, blocks: int, rng: np.random.Generator):
    """Random bits for the integers, small finite scales for the floats."""
    fields = {}
    for f in format.fields:
        shape = (rows, blocks, f.count) if f.count else (rows, blocks)
        if f.dtype.kind == "f":
            fields[f.name] = rng.normal(size=shape).astype(f.dtype)
        else:
            limits = np.iinfo(f.dtype)
            fields[f.name] = rng.integers(limits.min, limits.max, shape, f.dtype, endpoint=True)
    return fields


@pytest.mark.parametrize("format", FORMATS, ids=lambda f: f.name)
def test_layout_has_no_gaps(format):
    end = 0
    for f in format.fields:
        assert f.offset == end
        end += f.dtype.itemsize * max(f.count, 1)
    assert end == format.block_bytes


@pytest.mark.parametrize("format", FORMATS, ids=lambda f: f.name)
def test_same_as_reference_package(format, rng):
    gguf = pytest.importorskip("gguf", reason="the 'gguf' package is a test-only cross-check")
    from gguf import quants

    kind = gguf.GGMLQuantizationType(format.ggml_id)
    assert kind.name == format.name
    assert gguf.GGML_QUANT_SIZES[kind] == (format.block_size, format.block_bytes)
    if format.block_size == 1:
        values = rng.normal(size=(5, 64)).astype(np.float32)
        raw = format.quantise(values)
    else:
        raw = format.join_fields(random_fields(format, 5, 3, rng))
    shape = (5, raw.size // 5 // format.block_bytes * format.block_size)
    expected = quants.dequantize(raw.reshape(5, -1), kind)
    np.testing.assert_array_equal(format.dequantise(raw, shape), expected)


@pytest.mark.parametrize("format", BLOCK_FORMATS, ids=lambda f: f.name)
def test_split_and_join_are_inverse(format, rng):
    fields = random_fields(format, 4, 3, rng)
    raw = format.join_fields(fields)
    again = format.split_fields(raw, (4, 3 * format.block_size))
    assert list(again) == [f.name for f in format.fields]
    for name, array in fields.items():
        assert again[name].flags.c_contiguous
        np.testing.assert_array_equal(again[name], array)


def decode_block_q4_1(block: bytes) -> list[float]:
    d, m = np.frombuffer(block, "<f2", 2).astype(np.float32)
    low = [np.float32(b & 15) * d + m for b in block[4:]]
    high = [np.float32(b >> 4) * d + m for b in block[4:]]
    return low + high


def decode_block_q4_k(block: bytes) -> list[float]:
    """The 6-bit scales read one by one, as the format's description has them."""
    d, dmin = np.frombuffer(block, "<f2", 2).astype(np.float32)
    s, qs = block[4:16], block[16:]
    out = []
    for j in range(8):
        if j < 4:
            scale, minimum = s[j] & 63, s[j + 4] & 63
        else:
            scale = (s[j + 4] & 15) | (s[j - 4] >> 6 << 4)
            minimum = (s[j + 4] >> 4) | (s[j] >> 6 << 4)
        for i in range(32):
            q = (qs[j // 2 * 32 + i] >> (4 * (j % 2))) & 15
            out.append(d * np.float32(scale) * np.float32(q) - dmin * np.float32(minimum))
    return out


def decode_block_q6_k(block: bytes) -> list[float]:
    ql, qh, scales = block[:128], block[128:192], np.frombuffer(block, np.int8, 16, 192)
    d = np.float32(np.frombuffer(block, "<f2", 1, 208)[0])
    out = []
    for i in range(256):
        half, run, at = i // 128, i % 128 // 32, i % 32
        low = ql[64 * half + 32 * (run % 2) + at] >> (4 * (run // 2)) & 15
        high = qh[32 * half + at] >> (2 * run) & 3
        out.append(d * np.float32(scales[i // 16]) * np.float32((low | high << 4) - 32))
    return out


@pytest.mark.parametrize(
    ("name", "decode"),
    [("Q4_1", decode_block_q4_1), ("Q4_K", decode_block_q4_k), ("Q6_K", decode_block_q6_k)],
)
def test_same_as_block_by_block(name, decode, rng):
    format = FORMAT_BY_NAME[name]
    raw = format.join_fields(random_fields(format, 1, 4, rng))
    blocks = raw.reshape(4, format.block_bytes)
    expected = np.array([decode(b.tobytes()) for b in blocks], np.float32)
    got = format.dequantise(raw, (4, format.block_size))
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("format", ENCODABLE, ids=lambda f: f.name)
def test_quantise_is_near(format, rng):
    values = rng.normal(size=(6, 96)).astype(np.float32)
    values[0, :32] = 0
    values[1, :32] = 1.5
    again = format.dequantise(format.quantise(values), values.shape)
    levels = {"Q8_0": 254, "Q5_0": 32, "Q5_1": 31, "Q4_0": 16, "Q4_1": 15}[format.name]
    blocks = values.reshape(6, 3, 32)
    signed = np.abs(blocks).max(-1) * 2
    # A signed format may clip the far end by one step; rounding of scales to float16 adds a little.
    step = signed / levels if format.name.endswith("_0") else np.ptp(blocks, axis=-1) / levels
    bound = step[..., None] * 1.05 + np.abs(blocks).max(-1)[..., None] * 2e-3
    assert (np.abs(again - values).reshape(6, 3, 32) <= bound).all()
    np.testing.assert_array_equal(again[0, :32], 0)


def test_plain_formats_are_views():
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    raw = values.reshape(-1).view(np.uint8)
    data = FORMAT_BY_NAME["F32"].split_fields(raw, (3, 4))["data"]
    assert np.shares_memory(data, values)
    np.testing.assert_array_equal(data, values)


def test_errors_name_the_trouble():
    q4 = FORMAT_BY_NAME["Q4_1"]
    with pytest.raises(ValueError, match=r"Q4_1 stores blocks of 32 .* \(4, 33\)"):
        q4.nbytes((4, 33))
    with pytest.raises(ValueError, match="needs 80 raw uint8 bytes, got 79"):
        q4.dequantise(np.zeros(79, np.uint8), (4, 32))
    with pytest.raises(ValueError, match="no encoder for Q6_K"):
        FORMAT_BY_NAME["Q6_K"].quantise(np.zeros((1, 256), np.float32))
    with pytest.raises(ValueError, match="has the fields d, m, qs; got d"):
        q4.join_fields({"d": np.zeros((1, 1), np.float16)})
