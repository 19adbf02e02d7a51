"""Products of weights in blocks and activations quantised at run time: types, the rounding of the
activations, and what becomes of a product that several formats share."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab import ops
from relaxlab.analysis.pattern_kind import PatternKind, pattern_kind_of
from relaxlab.ir import expr, graph, loops
from relaxlab.ir.op_table import TypeDeductionError, find_op
from relaxlab.ir.quant_formats import FORMAT_BY_NAME
from relaxlab.ir.types import TensorType, TupleType
from relaxlab.ops.block_formats import FORMATS
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T
from tests.ops.test_deduction import M, N, coarse, infer, tensor

ROWS, COLS = 3, 512


def integers(*dims):
    return tensor(*dims, dtype="int8")


def weight(rows, blocks):
    return (tensor(rows, blocks, dtype="float16"), tensor(rows, blocks, 16, dtype="uint8"))


def test_types() -> None:
    got = infer(ops.dynamic_quantize(tensor(M, 96), group=32, parts=2))
    real = "R.Tensor((m, 3), 'float32')"
    assert str(got) == f"R.Tuple(R.Tensor((m, 6, 32), 'int8'), {real}, {real})"
    product = ops.quantized_linear(
        integers(M, 6, 32), tensor(M, 3), tensor(M, 3), weight(N, 3), format="Q4_0", parts=2
    )
    assert str(infer(product)) == "R.Tensor((m, n), 'float32')"
    unknown = ops.quantized_linear(
        coarse(3, "int8"), coarse(2), coarse(2), weight(N, 3), format="Q4_0"
    )
    assert str(infer(unknown)) == str(TensorType(None, "float32", 2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ops.dynamic_quantize(tensor(M, 100), group=32), "100 columns do not fill groups"),
        (lambda: ops.dynamic_quantize(tensor(M, 64), group=0), "group must be a positive int"),
        (lambda: ops.dynamic_quantize(tensor(M, 64), group=32, parts=3), "parts must be 1 or 2"),
        (lambda: ops.dynamic_quantize(tensor(M, 2, 64), group=32), "data must be a matrix"),
        (lambda: ops.dynamic_quantize(tensor(M, 64, dtype="float16"), group=32), "float32"),
        (lambda: ops.quantized_linear(integers(M, 3, 32), tensor(M, 2), tensor(M, 3),
                                      weight(N, 3), format="Q4_0"), r"scale must be \(m, 3\)"),
        (lambda: ops.quantized_linear(integers(M, 3, 32), tensor(M, 3), tensor(M, 3),
                                      weight(N, 3), format="Q4_0", parts=2),
         r"data must be \(m, 6, 32\)"),
        (lambda: ops.quantized_linear(tensor(M, 3, 32), tensor(M, 3), tensor(M, 3),
                                      weight(N, 3), format="Q4_0"), "data must be int8"),
        (lambda: ops.quantized_linear(integers(M, 3, 32), tensor(M, 3), tensor(M, 3),
                                      (tensor(N, 3, 18, dtype="uint8"),), format="Q4_0"),
         "not whole blocks"),
    ],
)  # fmt: skip
def test_refused(call, message: str) -> None:
    with pytest.raises(TypeDeductionError, match=message):
        infer(call())


def lowered(call: graph.Call) -> loops.PrimFunc:
    """The loop function of a call on parameters, its symbols unbounded."""
    assert isinstance(call.op, graph.Op)
    row = find_op(call.op.name)
    assert row is not None and row.lower is not None
    tys = tuple(
        TupleType(tuple(f.ty for f in a.fields)) if isinstance(a, graph.Tuple) else a.ty
        for a in call.args
    )
    return row.lower(call, tys, infer(call))


def product(fmt, m: expr.ExprLike, rows: int, cols: int, parts: int = 1) -> loops.PrimFunc:
    """The loop function of the product of `rows` weights."""
    groups = cols // fmt.group
    fields = tuple(
        tensor(rows, cols // fmt.block, *tail, dtype=dtype) for _, dtype, tail in fmt.fields
    )
    real = tensor(m, groups)
    call = ops.quantized_linear(
        integers(m, groups * parts, fmt.group), real, tensor(m, groups), fields,
        format=fmt.name, parts=parts,
    )  # fmt: skip
    return lowered(call)


@pytest.fixture(params=FORMATS.values(), ids=lambda f: f.name)
def fmt(request):
    return request.param


def random_weights(fmt, rng):
    """Random bits for the integers, scales near 0.02: the fields in the loop function's order, and
    the values that they stand for."""
    storage = FORMAT_BY_NAME[fmt.name]
    fields = {}
    for name, dtype, tail in fmt.fields:
        shape = (ROWS, COLS // fmt.block, *tail)
        if dtype == "float16":
            fields[name] = rng.normal(0, 0.02, shape).astype(np.float16)
        else:
            info = np.iinfo(dtype)
            fields[name] = rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    values = storage.dequantise(storage.join_fields(fields), (ROWS, COLS))
    return list(fields.values()), values


def quantised(x, group, parts):
    """x through `dynamic_quantize`: integers, scales, scaled sums."""
    m, groups = len(x), x.shape[1] // group
    xq = np.empty((m, parts * groups, group), np.int8)
    xd, xs = np.empty((2, m, groups), np.float32)
    call = ops.dynamic_quantize(tensor(M, x.shape[1]), group=group, parts=parts)
    interpret_prim_func(lowered(call), [x, xq, xd, xs])
    return xq, xd, xs


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("m", [1, 4])
def test_it_differs_by_the_rounding_of_the_activations_only(fmt, rng, m, parts):
    fields, values = random_weights(fmt, rng)
    x = rng.normal(size=(m, COLS)).astype(np.float32)
    xq, xd, xs = quantised(x, fmt.group, parts)
    pieces = xq.reshape(m, -1, parts, fmt.group).astype(np.int32)
    whole = pieces[:, :, 0] if parts == 1 else pieces[:, :, 0] * 128 + pieces[:, :, 1]
    rounded = (whole * xd[..., None]).reshape(m, COLS)
    assert np.abs(rounded - x).max() <= 0.51 * xd.max()
    y = np.empty((m, ROWS), np.float32)
    interpret_prim_func(product(fmt, M, ROWS, COLS, parts), [xq, xd, xs, *fields, y])
    np.testing.assert_allclose(y, rounded @ values.T, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("parts", [1, 2])
def test_zero_activations_quantise_to_zero(parts):
    for array in quantised(np.zeros((1, 64), np.float32), 32, parts):
        assert not array.any()


def test_other_work_may_follow_in_its_kernel(fmt) -> None:
    assert pattern_kind_of(product(fmt, M, ROWS, COLS, 2)) is PatternKind.OUT_EWISE_FUSIBLE


@I.ir_module
class Residual:
    @R.function
    def main(
        x: R.Tensor(("n", 64), "float32"),
        residual: R.Tensor(("n", 16), "float32"),
        d: R.Tensor((16, 2), "float16"),
        qs: R.Tensor((16, 2, 16), "uint8"),
    ):
        n = T.int64()
        R.func_attr({"num_input": 2})
        with R.dataflow():
            q, scale, total = R.dynamic_quantize(x, group=32)
            y = R.quantized_linear(q, scale, total, (d, qs), format="Q4_0")
            z = residual + y
            R.output(z)
        return z


def test_a_residual_is_added_where_the_product_is_stored() -> None:
    kernels = rl.trace(Residual).result.loop_functions()
    assert any("quantized_linear_add" in name for name in kernels)
