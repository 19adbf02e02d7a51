"""Calls that have a type and cannot be computed: the type is deduced, and the call is refused."""

from __future__ import annotations

import re

import pytest

from relaxlab.analysis.annotate import annotate
from relaxlab.analysis.deduce import is_computable, type_of
from relaxlab.ir import graph
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.types import TensorType, TupleType, Type
from relaxlab.passes.fold_constant import fold_constant
from relaxlab.passes.legalize_ops import legalize_ops
from relaxlab.script import parse

CASES = """
R.abs(x) | x=3:b | 3:b | x must be a number
R.logical_not(x) | x=3:i32 | 3:i32 | x must be bool
R.bitwise_not(x) | x=3:f32 | 3:f32 | x must be integer or bool
R.isnan(x) | x=3:i32 | 3:b | x must be floating point
R.add(x, y) | x=3:b y=2,3:f32 | 2,3:b | have dtypes bool and float32
R.add(x, y) | x=3:f32 y=2,3:b | 2,3:f32 | have dtypes float32 and bool
R.power(x, y) | x=3:i32 y=3:i32 | 3:i32 | x1 must be floating point
R.less(x, y) | x=3:f32 y=3:i32 | 3:b | have dtypes float32 and int32
R.equal(x, y) | x=:b y=3:i8 | 3:b | have dtypes bool and int8
R.logical_and(x, y) | x=3:i32 y=3:b | 3:i32 | have dtypes int32 and bool
R.left_shift(x, y) | x=3:f32 y=3:f32 | 3:f32 | x1 must be integer
R.where(c, x, y) | c=3:b x=3:b y=3:i8 | 3:b | have dtypes bool and int8
R.clip(x, 0, 1) | x=3:b | 3:b | x must be a number
R.clip(x, min=T.float32("nan"), max=1) | x=3:i32 | 3:i32
    | min is NaN, which no int32 is above or below
R.masked_fill(x, y, 1) | x=3:f32 y=3:i8 | 3:f32 | mask must be bool
R.masked_fill(x, y, 300) | x=3:i8 y=3:b | 3:i8 | int8 cannot hold the value 300
R.ewise_fma(x, x, x) | x=3:b | 3:b | x1 must be a number
R.sum(x, axis=0) | x=2,3:b | 3:b | x must be a number
R.mean(x, axis=0) | x=2,3:i32 | 3:i32 | x must be floating point
R.cumsum(x, axis=0) | x=2,3:b | 2,3:b | data must be a number
R.cumsum(x, axis=2) | x=2,3:f32 | 2,3:f32 | axis 2 is out of range
R.cumlogsumexp(x, axis=0) | x=2,3:i32 | 2,3:i32 | data must be floating point
R.sort(x, axis=2) | x=2,3:f32 | 2,3:f32 | axis 2 is out of range
R.argsort(x, axis=-1) | x=:f32 | :i32 | axis -1 is out of range for a tensor with 0 dimensions
R.median(x, axis=0) | x=2,3:b | 3:b + 3:i64 | x must be a number
R.bucketize(x, y) | x=2,3:i32 y=4:f32 | 2,3:i64 | have dtypes int32 and float32
R.bucketize(x, x) | x=2:b | 2:i64 | input_tensor must be a number
R.nn.relu(x) | x=3:b | 3:b | data must be a number
R.nn.dropout(x) | x=3:i32 | 3:i32 + 3:i32 | data must be floating point
R.nn.prelu(x, y) | x=2,3:f32 y=3:f16 | 2,3:f32 | have dtypes float32 and float16
R.nn.prelu(x, y) | x=2,3:f32 y=2,3:f32 | 2,3:f32 | alpha must have one dimension
R.nn.prelu(x, y) | x=2,3:f32 y=4:f32 | 2,3:f32 | 4 slopes do not fit 3 channels
R.nn.max_pool2d(x, (2, 2)) | x=2,3,4,4:b | 2,3,3,3:b | data must be a number
R.nn.avg_pool1d(x, 2) | x=2,3,4:b | 2,3,3:b | data must be a number
R.nn.adaptive_avg_pool2d(x, 2) | x=2,3,4,4:b | 2,3,2,2:b | data must be a number
R.grad.max_pool2d_backward(g, x, (2, 2), (2, 2)) | g=2,3,2,2:f16 x=2,3,4,4:f32 | 2,3,4,4:f32
    | have dtypes float16 and float32
R.grad.max_pool2d_backward(g, x, (2, 2), (2, 2)) | g=2,3,2,2:i32 x=2,3,4,4:i32 | 2,3,4,4:i32
    | data must be floating point
R.grad.avg_pool2d_backward(g, x, (2, 2), (2, 2)) | g=2,3,2,3:f32 x=2,3,4,4:f32 | 2,3,4,4:f32
    | output_grad
R.grad.avg_pool2d_backward(g, x, (2, 2), (2, 2)) | g=2,3:f32 x=2,3,4,4:f32 | 2,3,4,4:f32
    | output_grad
R.nn.nll_loss(x, y) | x=2,3:i8 y=2:i64 | :i8 | predictions must be floating point
R.nn.cross_entropy_with_logits(x, y) | x=2,3:b y=2,3:f32 | :b | have dtypes bool and float32
R.nn.cross_entropy_with_logits(x, y) | x=2,3:i32 y=2,3:i32 | :i32
    | predictions must be floating point
R.grad.nll_loss_backward(g, x, y) | g=:f16 x=2,3:f32 y=2:i64 | 2,3:f32
    | have dtypes float16 and float32
R.grad.nll_loss_backward(g, x, y) | g=2:f32 x=2,3:f32 y=2:i64 | 2,3:f32
    | output_grad must have 0 dimensions
R.grad.nll_loss_backward(g, x, y) | g=:f32 x=2,3:f32 y=2:f32 | 2,3:f32 | targets must be integer
R.grad.nll_loss_backward(g, x, y) | g=:i32 x=2,3:i32 y=2:i64 | 2,3:i32
    | predictions must be floating point
R.grad.nll_loss_backward(g, x, y, w) | g=:f32 x=2,3:f32 y=2:i64 w=4:f32 | 2,3:f32
    | there are 4 weights for 3 classes
R.nn.attention(q, k, k) | q=2,3,4,8:f16 k=2,5,4,8:f32 | 2,3,4,8:f16
    | have dtypes float16 and float32
R.nn.attention(q, q, q) | q=2,3,4,8:i8 | 2,3,4,8:i8 | query must be floating point
R.nn.attention_within(q, k, k, b, b) | q=2,3,4,8:f16 k=2,5,4,8:f32 b=3:i32 | 2,3,4,8:f16
    | have dtypes float16 and float32
R.nn.conv2d(x, w) | x=1,3,4,4:b w=2,3,3,3:f32 | 1,2,2,2:b | have dtypes bool and float32
R.nn.conv2d(x, w) | x=1,3,4,4:b w=2,3,3,3:b | 1,2,2,2:b | takes numbers, not bool
R.nn.conv2d(x, w, out_dtype="int32") | x=1,3,4,4:i8 w=2,3,3,3:f32 | 1,2,2,2:i32
    | have dtypes int8 and float32
R.nn.conv2d_transpose(x, w) | x=2,2,3,3:b w=2,2,2,2:f16 | 2,2,4,4:b | have dtypes bool and float16
R.matmul(x, y) | x=2,3:f32 y=3,4:b | 2,4:f32 | takes numbers, not bool
R.linear(x, w) | x=2,3:b w=4,3:b | 2,4:b | takes numbers, not bool
R.outer(x, y) | x=3:i32 y=5:f32 | 3,5:i32 | have dtypes int32 and float32
R.einsum((x, y), "ij,jk->ik") | x=2,3:b y=3,4:b | 2,4:b | takes numbers, not bool
R.squeeze(x, axis=[0, 2]) | x=1,3,2:f32 | 3,2:f32 | dimension 2 of (1, 3, 2) is 2, not 1
R.take(x, y, mode="nan") | x=5:i32 y=2:i64 | 2:i32 | x must be floating point for mode 'nan'
R.scatter_elements(x, y, z, axis=2) | x=3,4:f32 y=2,4:i64 z=2,4:f32 | 3,4:f32
    | axis 2 is out of range
R.scatter_elements(x, y, z) | x=3,4:f32 y=2,9:i64 z=2,9:f32 | 3,4:f32
    | indices (2, 9) reach outside data (3, 4) in dimension 1
R.index_put(x, (y, z), v) | x=3,4:f32 y=2:i64 z=3:i64 v=2:f32 | 3,4:f32
    | shapes (2,) and (3,) do not broadcast: 2 against 3
R.index_put(x, (y, y), v) | x=3,4:f32 y=2:i64 v=5:f32 | 3,4:f32
    | shapes (2,) and (5,) do not broadcast: 2 against 5
R.index_put(x, (y, y), v, accumulate=True) | x=3,4:b y=2:i64 v=2:b | 3,4:b | data must be a number
R.grad.take_backward(g, x, y, axis=0) | g=2,3:f16 x=4,3:f32 y=2:i64 | 4,3:f32
    | have dtypes float16 and float32
R.grad.take_backward(g, x, y, axis=0) | g=2,3:i32 x=4,3:i32 y=2:i64 | 4,3:i32
    | x must be floating point
R.grad.take_backward(g, x, y, axis=0) | g=2,3:f32 x=4,3:f32 y=2:f32 | 4,3:f32
    | indices must be integer
R.grad.take_backward(g, x, y, axis=0) | g=3:f32 x=4,3:f32 y=2:i64 | 4,3:f32
    | output_grad must have shape (2, 3)
R.reverse_sequence(x, y, seq_axis=0, batch_axis=-1) | x=5:f32 y=5:i32 | 5:f32
    | seq_axis and batch_axis are both 0
R.collapse_sum_to(x, (4,)) | x=5,4:b | 4:b | data must be a number
R.collapse_sum_like(x, y) | x=5,4:b y=4:f32 | 4:b | data must be a number
R.dequantize(x, y, z) | x=3,3:f16 y=3:f32 z=3:i8 | 3,3:f32 | data must be integer
R.image.resize2d(x, (7, 5)) | x=2,3,4,4:b | 2,3,7,5:b | data must be a number
R.image.grid_sample(x, y) | x=2,3,4,4:i32 y=2,2,5,5:i32 | 2,3,5,5:i32 | grid must be floating point
R.image.grid_sample(x, y) | x=2,3,4,4:f32 y=3,2,5,5:f32 | 2,3,5,5:f32
    | there are 3 grids for a batch of 2
R.image.grid_sample(x, y) | x=2,3,4,4:f32 y=2,3,5,5:f32 | 2,3,5,5:f32 | grid must have 2 coordinates
R.image.grid_sample(x, y) | x=2,3,4,4:f32 y=2,2,5,5,2:f32 | 2,3,5,5:f32
    | grid must have 4 dimensions
R.image.affine_grid(x, (3, 4)) | x=3,2,3:i32 | 3,2,3,4:i32 | data must be floating point
R.vision.roi_align(x, y, (2, 3), 0.5) | x=2,3,6,8:b y=4,5:f32 | 4,3,2,3:b | data must be a number
R.vision.roi_pool(x, y, (2, 3), 0.5) | x=2,3,6,8:f32 y=4,5:i32 | 4,3,2,3:f32
    | rois must be floating point
R.vision.multibox_transform_loc(x, y, z) | x=2,5,3:i32 y=2,12:i32 z=1,3,4:i32
    | 2,3,4:i32 + 2,5,3:i32 | cls_pred must be floating point
""".replace("\n   ", "").strip().splitlines()
"""A call, the types of its names, that of the result, and words of the message that refuses it; an
indented line goes on with the one before."""
DTYPES = {"f32": "float32", "f16": "float16", "i64": "int64", "i32": "int32", "i8": "int8",
          "b": "bool"}  # fmt: skip


def program(call: str, names: str) -> str:
    """A function that returns the call; names are as in `CASES`."""
    given: list[str] = []
    for part in names.split():
        name, dims, dtype = re.split("[=:]", part)
        given.append(f"{name}: R.Tensor(({dims}{',' if dims else ''}), {DTYPES[dtype]!r})")
    return f"@R.function\ndef main({', '.join(given)}):\n    y = {call}\n    return y\n"


def short(ty: Type) -> str:
    """A type as `CASES` has it."""
    if isinstance(ty, TupleType):
        return " + ".join(map(short, ty.fields))
    assert isinstance(ty, TensorType) and ty.shape is not None
    code = next(k for k, dtype in DTYPES.items() if dtype == ty.dtype)
    return f"{','.join(map(str, ty.shape))}:{code}"


@pytest.mark.parametrize("case", CASES)
def test_the_type_is_deduced_and_the_call_refused(case: str) -> None:
    call, names, ty, words = case.split(" | ")
    text = program(call, names)
    mod, wrong = annotate(parse(text, computable=False), computable=False)
    assert not wrong
    main = mod["main"]
    assert isinstance(main, graph.Function) and main.ret_ty is not None
    assert short(main.ret_ty) == ty
    with pytest.raises(DiagnosticError, match=re.escape(words)) as refused:
        parse(text)
    (found,) = refused.value.diagnostics
    assert found.code == "E0203" and found.span is not None and found.span.line == 3
    assert [d.message for d in annotate(mod)[1]] == [found.message]


@pytest.mark.parametrize(
    ("params", "call", "words"),
    [
        ("x: R.Tensor(dtype='float32'), g: R.Tensor((8, 2), 'float32')",
         "R.nn.rms_norm(x, g, axes=[-1])", r"one dimension per axis in (-1,), is R.Tensor((8, 2)"),
        ("x: R.Tensor(ndim=2, dtype='float32'), g: R.Tensor((3,), 'float32'), "
         "m: R.Tensor((4,), 'float32')", "R.nn.batch_norm(x, g, g, m, g, axis=1)",
         "argument 3 has 4 entries for 3 channels"),
        ("c: R.Tensor(('n',), 'bool'), x: R.Tensor((4,), 'float32'), y: R.Tensor((2,), 'float32')",
         "R.where(c, x, y)", "shapes (n,) and (4,) and (2,) do not broadcast: 4 against 2"),
        ("x: R.Tensor(dtype='int64')", "R.one_hot(x, T.int64(1), T.int64(0), -1)",
         "depth must be at least 0, is -1"),
        ("x: R.Tensor(dtype='float32'), i: R.Tensor((3, 4), 'int64'), "
         "u: R.Tensor((4, 4), 'float32')", "R.scatter_elements(x, i, u)", "must have one shape"),
    ],
)  # fmt: skip
def test_what_no_value_of_the_unknown_makes_right_has_no_type(
    params: str, call: str, words: str
) -> None:
    text = f"@R.function\ndef main({params}):\n    y = {call}\n    return y\n"
    with pytest.raises(DiagnosticError, match=re.escape(words)):
        parse(text, computable=False)


def test_values_inside_of_others_have_types_too() -> None:
    x = graph.Var("x", TensorType((), "bool"))
    one, both = (graph.Call(graph.Op("add"), (x, a)) for a in (x, graph.Var("y", x.ty)))
    branches = graph.If(x, graph.SeqExpr((), one), graph.SeqExpr((), both))
    for value in (branches, graph.TupleGetItem(graph.Tuple((one, both)), 1)):
        assert str(type_of(value, computable=False)) == "R.Tensor((), 'bool')"
        assert not is_computable(value)


def test_passes_that_compute_leave_or_refuse_the_call() -> None:
    text = program("R.add(R.const(True), R.const(True))", "")
    mod, _ = annotate(parse(text, computable=False), computable=False)
    assert fold_constant(mod) is mod
    with pytest.raises(DiagnosticError, match=r"R\.add: x1 must be a number, has dtype bool"):
        legalize_ops(mod)
