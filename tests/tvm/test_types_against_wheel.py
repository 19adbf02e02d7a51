"""Calls of operators have the types that TVM deduces, and are refused where it refuses them."""

from __future__ import annotations

import json
import os
import random

import pytest

from tests.tvm.wheel import needs_wheel, results

pytestmark = needs_wheel

CALLS = """
R.add(x, y) | x=2,3,4 y=3,4
R.maximum(x, y) | x=2,1,4 y=1,3,1
R.greater(x, y) | x=2,3 y=2,3
R.exp(x) | x=2,3
R.sum(x, axis=[0, -1], keepdims=True) | x=2,3,4
R.mean(x) | x=2,3,4
R.argmax(x, axis=1) | x=2,3,4
R.permute_dims(x, [1, 2, 0]) | x=2,3,4
R.reshape(x, (4, 6)) | x=2,3,4
R.squeeze(x, 0) | x=1,3
R.expand_dims(x, [0, -1]) | x=2,3
R.concat([x, y], axis=1) | x=2,3 y=2,4
R.split(x, 2, axis=1) | x=2,4
R.strided_slice(x, [1], [1], [3], [2]) | x=2,6
R.matmul(x, y) | x=2,3,4 y=4,5
R.flip(x, 0) | x=2,3
R.repeat(x, 2, 1) | x=2,3
R.tile(x, (2, 1)) | x=2,3
R.nn.conv2d(x, y, strides=2, padding=1) | x=2,3,9,8 y=4,3,3,3
R.nn.conv1d_transpose(x, y, strides=3, output_padding=1) | x=2,3,9 y=3,4,3
R.nn.max_pool2d(x, (2, 2), (2, 2)) | x=2,3,9,8
R.nn.adaptive_avg_pool2d(x, 4) | x=2,3,9,8
R.nn.softmax(x, axis=-1) | x=2,3
R.nn.layer_norm(x, y, z, axes=-1) | x=2,3 y=3 z=3
R.image.resize2d(x, (4, 6), layout="NHWC") | x=2,9,8,3
R.image.resize3d(x, 4, method="cubic") | x=2,3,4,5,6
R.image.grid_sample(x, y) | x=2,3,9,8 y=2,2,4,5
R.image.affine_grid(x, (4, 5)) | x=2,2,3
R.vision.roi_align(x, y, (3, 2), 0.5) | x=2,3,9,8 y=4,5
R.vision.roi_pool(x, y, 3, 0.5) | x=2,3,9,8 y=4,5
R.vision.multibox_transform_loc(x, y, z) | x=2,5,3 y=2,12 z=1,3,4
R.vision.get_valid_counts(x, 0.5) | x=2,6,6
R.ccl.allreduce(x, "avg") | x=2,3
R.ccl.allgather(x, 2) | x=2,3
R.where(R.const(True), x, y) | x=2,3 y=2,3
R.clip(x, 0, 1) | x=2,3
R.astype(x, "int32") | x=2,3
R.full_like(x, R.const(1.0, "float32")) | x=2,3
R.ones_like(x, "int32") | x=2,3
R.broadcast_to(x, (4, 2, 3)) | x=1,3
R.tril(x, 1) | x=2,3
R.cumsum(x, axis=1) | x=2,3
R.cumprod(x, 0) | x=2,3
R.variance(x, axis=[1]) | x=2,3
R.stack([x, y], axis=1) | x=2,3 y=2,3
R.flatten(x) | x=2,3
R.sort(x, 0) | x=2,3
R.argsort(x, 1) | x=2,3
R.topk(x, 1, 1) | x=2,3
R.topk(x, 7, 1) | x=2,3
relax.op.memory.view(x, dtype="int8") | x=2,3
R.split(x, [1, 2], axis=1) | x=2,4
R.matmul(x, y, out_dtype="float32") | x=3,4 y=4,5
R.einsum((x, y), "ij,jk->ik") | x=2,3 y=3,4
R.collapse_sum_to(x, (3, 1)) | x=2,3,4
R.collapse_sum_like(x, y) | x=2,3,4 y=3,1
R.nn.prelu(x, y, 1) | x=2,3,4 y=3
R.nn.dropout(x) | x=2,3
R.nn.batch_norm(x, y, z, y, z, axis=1) | x=2,3,4 y=3 z=3
R.nn.group_norm(x, y, z, 2, 1, [2]) | x=2,4,3 y=4 z=4
R.nn.instance_norm(x, y, z, 1, [2]) | x=2,4,3 y=4 z=4
R.nn.rms_norm(x, y, axes=[-1]) | x=2,3 y=3
R.nn.conv1d(x, y, padding=1) | x=2,3,9 y=4,3,3
R.nn.conv2d(x, y, dilation=2, out_layout="NHWC") | x=2,3,9,8 y=4,3,3,3
R.nn.conv2d_transpose(x, y, strides=2) | x=2,3,9,8 y=3,4,3,3
R.nn.conv3d(x, y) | x=2,3,5,6,7 y=4,3,3,3,3
R.nn.avg_pool2d(x, (3, 2), 2, 1, ceil_mode=True) | x=2,3,9,8
R.nn.cross_entropy_with_logits(x, y) | x=2,3 y=2,3
R.nn.batch_flatten(x) | x=2,3,4
R.log_add_exp(x, y) | x=2,3 y=3
R.isfinite(x) | x=2,3
R.atan2(x, y) | x=2,3 y=2,3
R.nn.avg_pool1d(x, 3, 2, 1) | x=2,3,9
R.nn.max_pool2d(x, 3, 2, (1, 2, 3, 4)) | x=2,3,9,8
R.nn.conv2d(x, y, groups=2) | x=2,4,9,8 y=6,2,3,3
R.argmin(x, -1, True) | x=2,3,4
R.nn.log_softmax(x, -2) | x=2,3
R.expand_dims(x, [0, 2]) | x=2,3
R.nn.batch_norm(x, y, z, y, z, axis=-1) | x=2,3,4 y=4 z=4
R.call_pure_packed("f", x, ty_args=R.Tensor((2,), "float32")) | x=2,3
R.call_dps_packed("f", (x,), R.Tensor((2,), "float32")) | x=2,3
R.median(x, axis=[0], keepdims=True) | x=2,3
R.stack([x, y], axis=-1) | x=2,3 y=2,3
R.tile(x, (2, 3, 4)) | x=2,3
R.nn.max_pool3d(x, 3, 2) | x=2,3,9,8,7
R.nn.conv3d_transpose(x, y, 2, 1, 1) | x=2,3,9,8,7 y=3,4,3,3,3
R.nn.adaptive_avg_pool3d(x, 2) | x=2,3,9,8,7
R.memory.ensure_zero_offset(x) | x=2,3
R.squeeze(x, [0, -1]) | x=1,3,1
R.strided_slice(x, [0], [3], [0], [-1]) | x=4,5
R.layout_transform(x, lambda i, j: (j, i)) | x=4,5
""".strip().splitlines()
DRAWS = 150


def drawn(rng: random.Random) -> tuple[str, str]:
    """The types of variables, and a call on them: shapes known, symbolic or of a wrong rank, or
    ranks alone; one dtype and device for all, or none; another dtype for x at times."""
    expression, _, variables = rng.choice(CALLS).partition(" | ")
    kind = rng.choice(("known", "known", "rank", "wrong rank"))
    common = rng.choice(("float32", "float16", "float64", ""))
    unlike = rng.choice(("bool", "int32", common, common))
    if expression.startswith("R.einsum"):  # whose dtypes TVM compares where all shapes are known
        unlike = common
    device = rng.choice(("", "", ", vdevice=device"))
    symbol = rng.choice("mnk")
    types: dict[str, str] = {}
    for part in variables.split():
        name, _, dims = part.partition("=")
        shape = dims.split(",")
        dtype = unlike if name == "x" else common
        if kind == "rank":
            types[name] = f"R.Tensor(ndim={len(shape)}, dtype={dtype!r}{device})"
            continue
        if kind == "wrong rank" and name == "x":
            shape.append("3")
        elif not expression.startswith("R.reshape"):  # to extents that are stated
            batch = all(p.partition("=")[2].startswith("2,") for p in variables.split())
            shape[0] = symbol if batch and shape[0] == "2" else shape[0]
        types[name] = f"R.Tensor(({', '.join(shape)},), {dtype!r}{device})"
    return json.dumps(types), expression


def test_types_of_drawn_calls() -> None:
    seed = int(os.environ.get("RELAXLAB_SEED", random.getrandbits(32)))
    print(f"seed {seed}")
    rng = random.Random(seed)
    cases = tuple(drawn(rng) for _ in range(DRAWS))
    theirs, ours = (results(which, "type", cases) for which in ("tvm", "relaxlab"))
    for case, a, b in zip(cases, theirs, ours, strict=True):
        assert a.get("type") == b.get("type"), f"{case}\nTVM: {a}\nrelaxlab: {b}"
    assert sum("type" in a for a in theirs) > DRAWS // 2


HELD = "R.Tensor(relax.Var('s', R.Shape((2, 3))), 'float32')"
"""The type of a tensor whose shape is a variable, of which the dimensions are known."""
CALLED = (
    *(({"x": HELD, "y": "R.Tensor((3,), 'float32')"}, call) for call in (
        "R.add(x, y)", "R.less(y, x)", "R.power(x, x)", "R.reshape(x, (3, -1))",
        "R.strided_slice(x, [1], [1], [3])", "R.where(R.const(True), x, y)", "R.matmul(x, y)",
        "R.sum(x, axis=1)", "R.permute_dims(x)", "R.concat([x, x])",
        "R.layout_transform(x, index_map=lambda i, j: (j, i))")),
    ({"x": "R.Tensor((2, 3), 'float32')"}, "R.topk(x, 0, 1)"),
    ({"x": "R.Tensor(dtype='float32')"}, "R.concat([x, x], axis=None)"),
    ({"x": "R.Tensor((2, 3, 4), 'float32')", "y": "R.Tensor((5, m), 'int64')"},
     "R.gather_nd(x, y)"),
    ({"x": "R.Tensor((4,), 'float32')", "y": "R.Tensor((2,), 'int64')",
      "z": "R.Tensor((2,), 'float32')"}, "relax.op.index_put(x, y, z)"),
    ({"x": "R.Tensor((2, 3), 'int64')"}, "relax.op.one_hot(x, 1.0, 0.0, 5, -1)"),
    ({"x": "R.Tensor((2, 4), 'float32')", "y": "R.Tensor((2,), 'float32')",
      "z": "R.Tensor((2,), 'float16')"},
     "relax.op.quantize(x, y, z, axis=0, out_dtype='float8_e4m3fn')"),
    ({"x": "R.Tensor((2, 3), 'float32')"}, "relax.op.hint_on_device(x, __import__('tvm').cuda(1))"),
    ({"x": "R.Tensor((2,), 'float32')"},
     "relax.op.call_inplace_packed('f', x, inplace_indices=0, ty_args=R.Tensor((2,), 'float32'))"),
)


@pytest.mark.parametrize("number", range(len(CALLED)))
def test_types_of_calls(number: int) -> None:
    cases = tuple((json.dumps(types), call) for types, call in CALLED)
    theirs, ours = (results(which, "type", cases)[number] for which in ("tvm", "relaxlab"))
    assert "type" in theirs and ours == theirs


@pytest.mark.parametrize(
    ("types", "call"),
    [({"x": "R.Tensor((2, 3), 'float32')"},
      "relax.op.call_inplace_packed('f', x, inplace_indices=0, ty_args=R.Tensor((3,), 'float32'))"),
     ({"x": "R.Tensor(dtype='float32', ndim=2)"}, "R.strided_slice(x, [0], [0, 1], [1, 2])"),
     ({"x": "R.Tensor(dtype='float32', ndim=2)"}, "R.broadcast_to(x, R.shape([3]))"),
     ({"x": "R.Tensor((4, 5), 'float32')", "y": "relax.PrimType('float32')"}, "R.take(x, y, 1)"),
     ({"x": "R.Tensor((2, 3), 'float32', relax.VDevice('llvm'))",
       "y": "R.Tensor((2, 3), 'float32', relax.VDevice('cuda'))"}, "R.add(x, y)"),
     ({"x": "R.Tensor((1, 3, 9, 8), 'float32')", "y": "R.Shape((4, 6, 2))"},
      "R.image.resize2d(x, y)"),
     ({"x": "R.Tensor((2, 3), 'float32')"}, "R.ccl.scatter_from_worker0(x, 2, 1)"),
     ({"x": HELD, "y": "R.Tensor((2,), 'float32')"}, "R.add(x, y)")],
)  # fmt: skip
def test_calls_that_both_refuse(types: dict[str, str], call: str) -> None:
    case = ((json.dumps(types), call),)
    assert all("refused" in results(w, "type", case)[0] for w in ("tvm", "relaxlab"))
