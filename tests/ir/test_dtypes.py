"""Data types against NumPy's and ml_dtypes' own sizes and kinds."""

from __future__ import annotations

import numpy as np
import pytest

from relaxlab.ir import dtypes

SCALARS = (
    *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
    "float16", "float32", "float64", "bfloat16", "bool",
)  # fmt: skip


@pytest.mark.parametrize("dtype", SCALARS)
def test_scalars_are_those_of_numpy(dtype: str) -> None:
    theirs = dtypes.numpy_dtype(dtype)
    assert theirs.name == dtype and dtypes.is_dtype(dtype)
    assert dtypes.bytes_of(dtype) * 8 == dtypes.bits_of(dtype) == theirs.itemsize * 8
    assert dtypes.is_float(dtype) == (theirs.kind == "f" or dtype == "bfloat16")
    assert dtypes.is_uint(dtype) == (theirs.kind == "u")
    assert dtypes.is_int(dtype) == np.issubdtype(theirs, np.integer)


@pytest.mark.parametrize("dtype", SCALARS)
@pytest.mark.parametrize("lanes", [1, 2, 3, 64])
def test_vectors(dtype: str, lanes: int) -> None:
    vector = dtypes.with_lanes(dtype, lanes)
    assert dtypes.is_dtype(vector)
    assert (dtypes.element_of(vector), dtypes.lanes_of(vector)) == (dtype, lanes)
    assert dtypes.with_lanes(vector, 1) == dtype and dtypes.with_lanes(vector, 8) == f"{dtype}x8"
    assert dtypes.bytes_of(vector) == lanes * dtypes.bytes_of(dtype)
    assert dtypes.numpy_dtype(vector) == dtypes.numpy_dtype(dtype)


def test_parts_of_bytes() -> None:
    """Quantised weights are packed: an odd number of four-bit integers fills its last byte."""
    assert [dtypes.bytes_of(d) for d in ("int4", "int4x2", "uint4x3", "uint1x9")] == [1, 1, 2, 2]


@pytest.mark.parametrize("text", ["", "flot32", "float8", "int", "int128", "float32x", "x4", "F32"])
def test_what_names_no_type(text: str) -> None:
    assert not dtypes.is_dtype(text)
    with pytest.raises(ValueError, match="unknown dtype .*write for example 'float32'"):
        dtypes.lanes_of(text)
    with pytest.raises(ValueError, match="unknown dtype"):
        dtypes.bytes_of(text)
