"""Loop functions of products with quantised weights against what the formats' table says."""

from __future__ import annotations

import numpy as np
import pytest

from relaxlab.ir import expr
from relaxlab.ir.quant_formats import FORMAT_BY_NAME
from relaxlab.nn import quantized
from relaxlab.ops.block_formats import FORMATS
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func

ROWS, COLS = 3, 512


@pytest.fixture(params=FORMATS.values(), ids=lambda f: f.name)
def fmt(request):
    return request.param


def random_weights(fmt, rng, rows=ROWS, cols=COLS):
    """Random bits for the integers, scales near 0.02: (fields in the loop functions' order, the
    values that they stand for)."""
    storage = FORMAT_BY_NAME[fmt.name]
    fields = {}
    for name, dtype, tail in fmt.fields:
        shape = (rows, cols // fmt.block, *tail)
        if dtype == "float16":
            fields[name] = rng.normal(0, 0.02, shape).astype(np.float16)
        else:
            info = np.iinfo(dtype)
            fields[name] = rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    values = storage.dequantise(storage.join_fields(fields), (rows, cols))
    return list(fields.values()), values


def quantised(x, group, parts):
    """x through `quantize_activations`: integers, scales, scaled sums."""
    m, groups = len(x), x.shape[1] // group
    xq = np.empty((m, parts * groups, group), np.int8)
    xd, xs = np.empty((2, m, groups), np.float32)
    func = quantized.quantize_activations(expr.Var("m"), x.shape[1], group, parts)
    interpret_prim_func(func, [x, xq, xd, xs])
    return xq, xd, xs


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("m", [1, 4])
def test_the_integer_product_differs_by_the_rounding_of_the_activations_only(fmt, rng, m, parts):
    fields, values = random_weights(fmt, rng)
    x = rng.normal(size=(m, COLS)).astype(np.float32)
    xq, xd, xs = quantised(x, fmt.group, parts)
    pieces = xq.reshape(m, -1, parts, fmt.group).astype(np.int32)
    whole = pieces[:, :, 0] if parts == 1 else pieces[:, :, 0] * 128 + pieces[:, :, 1]
    rounded = (whole * xd[..., None]).reshape(m, COLS)
    assert np.abs(rounded - x).max() <= 0.51 * xd.max()
    y = np.empty((m, ROWS), np.float32)
    func = quantized.integer_product(fmt, expr.Var("m"), ROWS, COLS, parts)
    interpret_prim_func(func, [xq, xd, xs, *fields, y])
    np.testing.assert_allclose(y, rounded @ values.T, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("parts", [1, 2])
def test_zero_activations_quantise_to_zero(parts):
    for array in quantised(np.zeros((1, 64), np.float32), 32, parts):
        assert not array.any()


def test_columns_that_do_not_fill_blocks_are_refused():
    with pytest.raises(ValueError, match="100 columns"):
        quantized.quantize_activations(expr.Var("m"), 100, 32, 1)
