"""Shapes that convolutions, pooling, norms, losses and scatters refuse, and that they check
later."""

from __future__ import annotations

import pytest

from relaxlab import ops
from relaxlab.analysis.index_map import IndexMap
from relaxlab.ir import expr, graph
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.op_table import TypeDeductionError, infer_with_conditions, op_row
from relaxlab.passes.normalize import normalize
from relaxlab.script.parser import parse
from tests.ops.test_deduction import M, N, coarse, infer, tensor, type_of

INT = tensor(N, dtype="int64")
IMAGE, KERNEL = tensor(N, 4, 8, M), tensor(6, 4, 3, 3)


def _name(value: object) -> str:
    return str(getattr(value.op, "name", "")) if isinstance(value, graph.Call) else str(value)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (ops.nn.conv2d(IMAGE, KERNEL), "R.Tensor((n, 6, 6, m - 2), 'float32')"),
        (ops.nn.conv2d(IMAGE, KERNEL, strides=2, padding=1),
         "R.Tensor((n, 6, 4, (m + 1) // 2), 'float32')"),
        (ops.nn.conv2d(coarse(4), KERNEL), "R.Tensor(dtype='float32', ndim=4)"),
        (ops.nn.conv2d(coarse(), KERNEL), "R.Tensor(dtype='float32', ndim=4)"),
        (ops.nn.conv2d(IMAGE, tensor(M, 4, 3, N), out_layout="NHWC"),
         "R.Tensor((n, 6, m - n + 1, m), 'float32')"),
        (ops.nn.conv2d_transpose(IMAGE, tensor(4, 2, 3, 3), strides=2, groups=2),
         "R.Tensor((n, 4, 17, m * 2 + 1), 'float32')"),
        (ops.nn.max_pool2d(IMAGE, pool_size=3, strides=2, ceil_mode=True),
         "R.Tensor((n, 4, 4, m // 2), 'float32')"),
        (ops.nn.adaptive_avg_pool2d(IMAGE, output_size=7), "R.Tensor((n, 4, 7, 7), 'float32')"),
        (ops.nn.pixel_shuffle(IMAGE, upscale_factor=2), "R.Tensor((n, 1, 16, m * 2), 'float32')"),
        (ops.median(tensor(N, M), axis=0),
         "R.Tuple(R.Tensor((m,), 'float32'), R.Tensor((m,), 'int64'))"),
        (ops.gather_nd(tensor(N, M, 3), tensor(5, 2, dtype="int64")),
         "R.Tensor((5, 3), 'float32')"),
        (ops.dynamic_strided_slice(IMAGE, *[tensor(4, dtype="int64")] * 3),
         "R.Tensor(dtype='float32', ndim=4)"),
        (ops.size(coarse()), "R.Tensor((), 'int64')"),
        (ops.inspect.tensor_shape_i(IMAGE, expr.const(3)), "R.Prim(value=m)"),
        (ops.inspect.tensor_shape_i(coarse(2), expr.const(1)), "R.Prim('int64')"),
        (ops.memory.view(IMAGE, (N, 4)), "R.Tensor((n, 4), 'float32')"),
        (ops.nn.batch_norm(IMAGE, *[tensor(4)] * 4, axis=1),
         "R.Tuple(R.Tensor((n, 4, 8, m), 'float32'), R.Tensor((4,), 'float32'), "
         "R.Tensor((4,), 'float32'))"),
        (ops.nn.nll_loss(tensor(N, 3, M), tensor(N, M, dtype="int64"), reduction="none"),
         "R.Tensor((n, m), 'float32')"),
    ],
    ids=_name,
)  # fmt: skip
def test_type(call: graph.Call, text: str) -> None:
    assert str(infer(call)) == text


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (ops.nn.conv2d(IMAGE, tensor(6, 3, 3, 3)), "4 channels in 1 groups, weight takes 3 each"),
        (ops.nn.conv2d(IMAGE, KERNEL, groups=3), "4 channels do not divide into 3 groups"),
        (ops.nn.conv2d(IMAGE, tensor(6, 4, 9, 3)), "padded extent of 8 is smaller than .* 9"),
        (ops.nn.conv2d(IMAGE, KERNEL, data_layout="NCWX"), "'NCWX' must have each of the letters"),
        (ops.nn.conv2d(IMAGE, KERNEL, padding=(1, 2, 3)), "padding .* 1, 2 or 4 integers"),
        (ops.nn.conv2d(IMAGE, KERNEL, strides=0), "strides 0 must be 1 or 2 integers"),
        (ops.nn.conv2d(tensor(N, 4, 8), KERNEL), "data must have 4 dimensions"),
        (ops.nn.conv1d_transpose(tensor(N, 4, 8), tensor(4, 2, 3), output_padding=1),
         "output_padding 1 must be less than the stride"),
        (ops.nn.conv1d_transpose(tensor(N, 4, 8), tensor(3, 2, 3)), "weight takes 3"),
        (ops.nn.avg_pool2d(tensor(N, 4, 8, 8, dtype="bool")), "must be a number"),
        (ops.nn.max_pool2d(IMAGE, pool_size=9), "smaller than the window's 9"),
        (ops.nn.adaptive_avg_pool1d(tensor(N, 4, 0), output_size=2), "spatial dimension is 0"),
        (ops.grad.max_pool2d_backward(IMAGE, IMAGE, pool_size=2), "pooling gives"),
        (ops.grad.max_pool2d_backward(tensor(N, 4, 7), IMAGE, pool_size=2), "pooling gives"),
        (ops.nn.pad(tensor(N, 3), pad_width=(0, 0, 3, 0), pad_mode="reflect"),
         "3 elements are too few for reflect padding by 3"),
        (ops.nn.pad(tensor(N, 3), pad_width=(0, 0, 3, 0), pad_mode="mirror"), "'mirror' is not"),
        (ops.nn.prelu(tensor(N, 3), tensor(4)), "4 slopes do not fit 3 channels"),
        (ops.nn.dropout(tensor(N), rate=1.5), r"rate must be in \[0, 1\)"),
        (ops.nn.batch_norm(IMAGE, *[tensor(5)] * 4, axis=1), "5 entries for 4 channels"),
        (ops.nn.group_norm(IMAGE, *[tensor(4)] * 2, num_groups=3, channel_axis=1, axes=(2, 3)),
         "4 channels do not divide into 3 groups"),
        (ops.nn.instance_norm(IMAGE, *[tensor(4)] * 2, channel_axis=1, axes=(1, 2)),
         "hold the channel axis"),
        (ops.nn.nll_loss(tensor(N, 3), tensor(N)), "targets must be integer"),
        (ops.nn.nll_loss(tensor(N, 3), INT, reduction="max"), "reduction 'max' is not known"),
        (ops.nn.nll_loss(tensor(N, 3), INT, tensor(4)), "4 weights for 3 classes"),
        (ops.quantize(tensor(N, 3), tensor(2), tensor(3)), "scale has 2 entries for 3"),
        (ops.quantize(tensor(N), tensor(), tensor(), out_dtype="float16"), "must be an integer"),
        (ops.scatter_elements(tensor(N), INT, tensor(N), reduction="div"), "'div' is not known"),
        (ops.scatter_elements(tensor(N, 3), INT, tensor(N)), "must have one rank"),
        (ops.scatter_nd(tensor(N, 3), tensor(5, 1, dtype="int64"), tensor(5, 4)),
         r"updates must have shape \(5, 3\)"),
        (ops.gather_nd(tensor(N), tensor(5, 2, dtype="int64")), "do not fit"),
        (ops.gather_nd(tensor(N), tensor(5, M, dtype="int64")), "must be a constant, is m"),
        (ops.slice_scatter(tensor(5), tensor(3), start=1, end=3), r"src must have shape \(2,\)"),
        (ops.meshgrid((tensor(N), tensor(N, 2))), "at most one dimension"),
        (ops.collapse_sum_to(tensor(N, 3), (N, 2)), "cannot be summed"),
        (ops.layout_transform(tensor(N, 3), index_map=IndexMap.of(lambda i, j: (i,))),
         "a place of its own"),
        (ops.layout_transform(tensor(6), index_map=IndexMap.of(lambda i: (i // 4, i % 4))),
         "does not fill"),
        (ops.median(tensor(0)), "no median of 0 elements"),
        (ops.nn.pixel_shuffle(IMAGE, upscale_factor=3), "do not divide into squares of 9"),
        (ops.softmax_with_temperature(tensor(N, 4), tensor(N, 2)), r"shape \(rows, 1\)"),
        (ops.inspect.tensor_shape_i(IMAGE, expr.const(4)), "axis 4 is out of range"),
        (ops.memory.view(tensor(2), (3,)), "the view ends at byte 12, the tensor has 8"),
        (ops.make_closure(tensor(N), graph.Tuple(())), "func must be a function"),
        (ops.wrap_param(tensor(N), dtype="float"), "is not a data type"),
    ],
    ids=_name,
)  # fmt: skip
def test_refused(call: graph.Call, message: str) -> None:
    with pytest.raises(TypeDeductionError, match=message):
        infer(call)


@pytest.mark.parametrize(
    ("call", "condition"),
    [
        (ops.nn.conv1d(tensor(1, 2, N), tensor(3, 2, 4)), "n - 4 >= 0"),
        (ops.nn.conv1d(tensor(1, N, 9), tensor(4, M, 2), groups=2), "n // 2 == m"),
        (ops.nn.max_pool1d(tensor(1, 2, N), pool_size=3), "n - 3 >= 0"),
        (ops.nn.pad(tensor(N), pad_width=(2, 0), pad_mode="reflect"), "n >= 3"),
        (ops.nn.group_norm(tensor(1, N, 2), *[tensor(N)] * 2, num_groups=4, channel_axis=1,
                           axes=2), "n % 4 == 0"),
        (ops.nn.prelu(tensor(2, N), tensor(M)), "n == m"),
        (ops.collapse_sum_to(tensor(N), (M,)), "n == m or m == 1"),
        (ops.median(tensor(N)), "n > 0"),
        (ops.slice_scatter(tensor(N), tensor(2), start=0, end=N), "n == 2"),
    ],
    ids=_name,
)  # fmt: skip
def test_checked_at_run_time(call: graph.Call, condition: str) -> None:
    assert isinstance(call.op, graph.Op)
    types = tuple(map(type_of, call.args))
    _, conditions = infer_with_conditions(op_row(call.op.name), call, types, None)
    assert condition in [str(c) for c, _ in conditions]


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ("NCHW3c", "8 does not divide into blocks of 3"),
        ("NCHW4c4c", "may have a block of some"),
        ("NCHW4d", "may have a block of some"),
        ("NHW4c", "must have each of the letters 'NCHW' once"),
        ("NCHW0c", "may have a block of some"),
    ],
)
def test_blocked_layouts_that_do_not_fit(layout: str, message: str) -> None:
    text = f"""
@R.function
def main(x: R.Tensor((1, 8, 5, 5), "float32"), w: R.Tensor((8, 8, 3, 3), "float32")):
    return R.nn.conv2d(x, w, out_layout="{layout}")
"""
    with pytest.raises(DiagnosticError, match=message):
        normalize(parse(text, check=False))


def test_blocks_have_types() -> None:
    text = """
@R.function
def main(x: R.Tensor(("n", 2, "h", "w", 16), "float32"),
         w: R.Tensor((4, 2, 3, 3, 16, 8), "float32")):
    return R.nn.conv2d(x, w, data_layout="NCHW16c", kernel_layout="OIHW16i8o", padding=1)
"""
    fn = normalize(parse(text))["main"]
    assert str(fn.ret_ty) == "R.Tensor((n, 2, h, w, 16), 'float32')"  # type: ignore[union-attr]
