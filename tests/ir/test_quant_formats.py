"""The table of formats against that of GGML's own Python package, and views of stored fields."""

import gguf
import numpy as np
import pytest

from relaxlab.ir.quant_formats import FORMAT_BY_NAME, FORMATS, QuantFormat

BLOCK_FORMATS = [f for f in FORMATS if f.block_size > 1]


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
def test_same_as_the_table_of_ggml(format):
    kind = gguf.GGMLQuantizationType(format.ggml_id)
    assert kind.name == format.name
    assert gguf.GGML_QUANT_SIZES[kind] == (format.block_size, format.block_bytes)


@pytest.mark.parametrize("format", ["F32", "F16", "BF16", "Q8_0"])
def test_quantised_values_are_near(format, rng):
    row, values = FORMAT_BY_NAME[format], rng.normal(size=(5, 64)).astype(np.float32)
    again = row.dequantise(row.quantise(values), values.shape)
    assert again.dtype == np.float32 and again.shape == values.shape
    np.testing.assert_allclose(again, values, atol=0.02, rtol=0.01)


@pytest.mark.parametrize("format", BLOCK_FORMATS, ids=lambda f: f.name)
def test_split_and_join_are_inverse(format, rng):
    fields = random_fields(format, 4, 3, rng)
    raw = format.join_fields(fields)
    again = format.split_fields(raw, (4, 3 * format.block_size))
    assert list(again) == [f.name for f in format.fields]
    for name, array in fields.items():
        assert again[name].flags.c_contiguous
        np.testing.assert_array_equal(again[name], array)


@pytest.mark.parametrize("format", FORMATS, ids=lambda f: f.name)
def test_no_rows_have_no_values(format):
    shape = 0, 2 * format.block_size
    values = format.dequantise(np.empty(0, np.uint8), shape)
    assert values.shape == shape and values.dtype == np.float32


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
