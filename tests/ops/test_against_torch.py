"""The NumPy references against PyTorch, on random and odd sizes and several dtypes.

PyTorch lives in an environment of its own (`make reference-env`); the tests are skipped only when
that environment is missing. RELAXLAB_SEED draws other sizes and values.
"""

from __future__ import annotations

import json
import os
import pathlib
import random
import subprocess
from typing import Any

import numpy as np
import pytest

import relaxlab.ops  # noqa: F401  the operators' rows
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.testing.op_check import Env, OpCase, Shape, T, compare, concrete_call

ROOT = pathlib.Path(__file__).parents[2]
PYTHON = ROOT / ".venv-reference/bin/python"
SEED = random.Random(os.environ["RELAXLAB_SEED"]).getrandbits(64)  # one run asks PyTorch once
SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 17)
ALL = ("float32", "float64", "float16", "bfloat16")
FLOAT = ("float32", "float64")

Row = tuple[str, tuple[Any, ...], dict[str, Any], str]


def index(*shape: Any, high: int, low: int = 0) -> T:
    return T(*shape, dtype="int64", low=low, high=high)


NHWC = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
CONVOLUTIONS: list[Row] = [
    ("nn.conv1d", (T("n", 4, 9), T(6, 2, 3)), {"groups": 2, "padding": 2, "strides": 2},
     "F.conv1d(a, b, groups=2, padding=2, stride=2)"),
    ("nn.conv2d", (T("n", 3, 9, 8), T("m", 3, 3, 2)),
     {"strides": (2, 1), "padding": (1, 0), "dilation": (2, 3)},
     "F.conv2d(a, b, stride=(2, 1), padding=(1, 0), dilation=(2, 3))"),
    ("nn.conv2d", (T("n", 6, 7, 4), T(3, 3, 4, "m")), {**NHWC, "padding": (1, 2, 0, 1)},
     "F.conv2d(F.pad(a.permute(0, 3, 1, 2), (2, 1, 1, 0)), b.permute(3, 2, 0, 1))"
     ".permute(0, 2, 3, 1)"),
    ("nn.conv2d", (T("n", 2, 7, 6, 4), T(3, 2, 3, 2, 4, 2)),
     {"data_layout": "NCHW4c", "kernel_layout": "OIHW4i2o", "out_layout": "NHWC", "padding": 1},
     "F.conv2d(a.permute(0, 1, 4, 2, 3).flatten(1, 2), "
     "b.permute(0, 5, 1, 4, 2, 3).flatten(0, 1).flatten(1, 2), padding=1).permute(0, 2, 3, 1)"),
    ("nn.conv3d", (T("n", 4, 5, 4, 6), T("n", 4, 2, 3, 1)), {"padding": 1, "strides": (1, 2, 3)},
     "F.conv3d(a, b, padding=1, stride=(1, 2, 3))"),
    ("nn.conv1d_transpose", (T("n", 4, "m"), T(4, 3, 5)),
     {"strides": 3, "output_padding": 2, "dilation": 2, "groups": 2},
     "F.conv_transpose1d(a, b, stride=3, output_padding=2, dilation=2, groups=2)"),
    ("nn.conv2d_transpose", (T("n", 4, "m", 5), T(4, 3, 3, 2)),
     {"strides": (2, 1), "padding": (1, 0), "groups": 2},
     "F.conv_transpose2d(a, b, stride=(2, 1), padding=(1, 0), groups=2)"),
    ("nn.conv3d_transpose", (T("n", 2, 3, 2, "m"), T(2, 2, 2, 3, 2)), {"strides": 2},
     "F.conv_transpose3d(a, b, stride=2)"),
]  # fmt: skip
POOLING: list[Row] = [
    ("nn.max_pool1d", (T("n", 3, 9),), {"pool_size": 3, "strides": 2, "padding": 1},
     "F.max_pool1d(a, 3, 2, 1)"),
    ("nn.max_pool2d", (T("n", 3, 9, 8),),
     {"pool_size": (3, 2), "strides": (2, 3), "dilation": (2, 1), "ceil_mode": True},
     "F.max_pool2d(a, (3, 2), (2, 3), dilation=(2, 1), ceil_mode=True)"),
    ("nn.avg_pool2d", (T("n", 3, 6, 9, 2),), {"pool_size": 3, "strides": 2, "layout": "NCHW2c"},
     "F.avg_pool2d(a.permute(0, 1, 4, 2, 3).flatten(1, 2), 3, 2)"
     ".unflatten(1, (3, 2)).permute(0, 1, 3, 4, 2)"),
    ("nn.max_pool1d", (T("n", 2, 7),), {"pool_size": 2, "strides": 3, "padding": 1,
     "ceil_mode": True}, "F.max_pool1d(a, 2, 3, 1, ceil_mode=True)"),
    ("nn.avg_pool1d", (T("n", 2, 9),), {"pool_size": 2, "strides": 3, "padding": 1,
     "ceil_mode": True}, "F.avg_pool1d(a, 2, 3, 1, ceil_mode=True)"),
    ("nn.max_pool3d", (T("n", 1, 4, 5, 6),), {"pool_size": 2, "strides": 2},
     "F.max_pool3d(a, 2, 2)"),
    ("nn.avg_pool1d", (T("n", 3, 9),), {"pool_size": 3, "strides": 2, "padding": 1},
     "F.avg_pool1d(a, 3, 2, 1)"),
    ("nn.avg_pool2d", (T("n", 3, 9, 8),), {"pool_size": (3, 2), "strides": 2, "padding": (1, 0)},
     "F.avg_pool2d(a, (3, 2), 2, (1, 0), count_include_pad=False)"),
    ("nn.avg_pool2d", (T("n", 2, 6, 9),),
     {"pool_size": 3, "strides": 2, "padding": 1, "ceil_mode": True, "count_include_pad": True},
     "F.avg_pool2d(a, 3, 2, 1, ceil_mode=True)"),
    ("nn.avg_pool3d", (T("n", 1, 4, 5, 6),), {"pool_size": 2, "padding": 1, "strides": 2},
     "F.avg_pool3d(a, 2, 2, 1)"),
    ("nn.adaptive_avg_pool1d", (T("n", 2, "m"),), {"output_size": 4},
     "F.adaptive_avg_pool1d(a, 4)"),
    ("nn.adaptive_avg_pool2d", (T("n", 2, "m", 7),), {"output_size": (3, 5)},
     "F.adaptive_avg_pool2d(a, (3, 5))"),
    ("nn.adaptive_avg_pool3d", (T("n", 1, 3, "m", 5),), {"output_size": 2},
     "F.adaptive_avg_pool3d(a, 2)"),
]  # fmt: skip
GRADIENTS: list[Row] = [
    ("grad.max_pool2d_backward", (T("n", 2, 4, 3), T("n", 2, 8, 7)),
     {"pool_size": 2, "strides": 2},
     "torch.autograd.grad(F.max_pool2d(b.requires_grad_(), 2, 2), b, a)[0]"),
    ("grad.avg_pool2d_backward", (T("n", 2, 4, 4), T("n", 2, 8, 7)),
     {"pool_size": 3, "strides": 2, "padding": 1},
     "torch.autograd.grad(F.avg_pool2d(b.requires_grad_(), 3, 2, 1, count_include_pad=False),"
     " b, a)[0]"),
    ("grad.take_backward", (T(3, "n"), T(3, 6), index("n", high=5)), {"axis": 1},
     "torch.autograd.grad(b.requires_grad_()[:, c], b, a)[0]"),
    ("grad.nll_loss_backward", (T(), T("n", 5), index("n", high=4), T(5, low=0.5)), {},
     "torch.autograd.grad(F.nll_loss(b.requires_grad_(), c, d), b, a)[0]"),
]  # fmt: skip
NN: list[Row] = [
    ("nn.selu", (T("n", 7, low=-5, high=5),), {}, "F.selu(a)"),
    ("nn.prelu", (T("n", 5, 3), T(5)), {}, "F.prelu(a, b)"),
    ("nn.pixel_shuffle", (T("n", 12, 3, "m"),), {"upscale_factor": 2}, "F.pixel_shuffle(a, 2)"),
    ("nn.pad", (T(2, "n", 9),), {"pad_width": (0, 0, 0, 0, 3, 8), "pad_mode": "reflect"},
     "F.pad(a, (3, 8), 'reflect')"),
    ("nn.pad", (T(2, "n", "m"),), {"pad_width": (0, 0, 0, 0, 3, 5), "pad_mode": "replicate"},
     "F.pad(a, (3, 5), 'replicate')"),
    ("nn.pad", (T(2, "n", 4),), {"pad_width": (0, 0, 0, 0, 3, 4), "pad_mode": "circular"},
     "F.pad(a, (3, 4), 'circular')"),
    ("nn.group_norm", (T("n", 6, "m", 3), T(6), T(6)),
     {"num_groups": 3, "channel_axis": 1, "axes": (2, 3)}, "F.group_norm(a, 3, b, c)"),
    ("nn.instance_norm", (T("n", 4, "m", 5), T(4), T(4)), {"channel_axis": 1, "axes": (2, 3)},
     "F.instance_norm(a, weight=b, bias=c)"),
    ("nn.batch_norm", (T("n", 4, 5), T(4), T(4), T(4), T(4, low=0.5)),
     {"axis": 1, "training": False},
     "(F.batch_norm(a, d, e, b, c), d, e)"),
    ("nn.batch_norm", (T("n", 4, 5), T(4), T(4), T(4), T(4, low=0.5)),
     {"axis": 1, "momentum": 0.2},
     "(F.batch_norm(a, d.clone(), e.clone(), b, c, True), 0.8 * d + 0.2 * a.mean((0, 2)),"
     " 0.8 * e + 0.2 * a.var((0, 2), correction=0))"),
    ("nn.cross_entropy_with_logits", (T("n", 5), T("n", 5, low=0, high=1)), {},
     "-(a * b).sum() / a.shape[0]"),
    *(("nn.nll_loss", (T("n", 5, 3), index("n", 3, high=4), T(5, low=0.5)),
       {"reduction": r, "ignore_index": 2}, f"F.nll_loss(a, b, c, reduction='{r}', ignore_index=2)")
      for r in ("mean", "sum", "none")),
    ("nn.attention_bias", (T(2, "n", 3, 4), T(2, "m", 3, 4), T(2, "m", 3, 6), T(2, 3, "n", "m")),
     {}, "F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (a, b, c)), d)"
     ".transpose(1, 2)"),
    *(("nn.attention_var_len", (T(1, 9, 4, 20), T(1, 11, 2, 20), T(1, 11, 2, 18),
       T(4, dtype="int32", values=(0, 3, 4, 9)), T(dtype="int32", low=5, high=5),
       T(4, dtype="int32", values=(0, 2, 3, 11)), T(dtype="int32", low=8, high=8)),
       {"causal_mask": "TopLeft" if causal else None},
       "torch.cat([F.scaled_dot_product_attention(a[:, p:q].transpose(1, 2), "
       "*(t[:, r:s].transpose(1, 2).repeat_interleave(2, 1) for t in (b, c)), "
       f"is_causal={causal}).transpose(1, 2) "
       "for p, q, r, s in ((0, 3, 0, 2), (3, 4, 2, 3), (4, 9, 3, 11))], 1)")
      for causal in (False, True)),
]  # fmt: skip
INDEXING: list[Row] = [
    ("gather_nd", (T(5, 4, "n"), index("m", 2, high=3)), {}, "a[b[:, 0], b[:, 1]]"),
    ("gather_elements", (T(4, "n"), index(7, "n", high=3)), {}, "torch.gather(a, 0, b)"),
    ("index_tensor", (T(4, 5, "n"), (index("m", 1, high=3), index(3, high=4))), {}, "a[b, c]"),
    ("scatter_elements", (T(6, "n"), index(3, "n", high=5), T(3, "n")), {"reduction": "add"},
     "a.scatter_add(0, b, c)"),
    *(("scatter_elements", (T("n", 6), index("n", 9, high=5), T("n", 9)),
       {"reduction": r, "axis": 1}, f"a.scatter_reduce(1, b, c, '{t}')")
      for r, t in {"mul": "prod", "max": "amax", "min": "amin", "mean": "mean"}.items()),
    ("scatter_nd", (T(5, "n"), index(8, 1, high=4), T(8, "n")), {"reduction": "add"},
     "a.index_add(0, b[:, 0], c)"),
    ("index_put", (T(5, 4, "n"), (index(7, high=4), index(7, high=3)), T("n")),
     {"accumulate": True}, "a.index_put((b, c), d, accumulate=True)"),
    ("slice_scatter", (T("n", 9), T("n", 3)), {"start": 2, "end": -1, "step": 2, "axis": 1},
     "a.slice_scatter(b, 1, 2, -1, 2)"),
    ("meshgrid", ((T("n"), T("m"), T(2)),), {"indexing": "xy"},
     "torch.meshgrid(a, b, c, indexing='xy')"),
    ("collapse_sum_to", (T(3, "n", 4), Shape("n", 1)), {}, "a.sum_to_size(a.shape[1], 1)"),
]  # fmt: skip
GRID = T("n", 2, 4, 5, low=-1.3, high=1.3)
IMAGES: list[Row] = [
    ("image.resize2d", (T("n", 3, 5, 4), Shape(7, 3)), {},
     "F.interpolate(a, (7, 3), mode='bilinear')"),
    ("image.resize2d", (T("n", 5, 4, 3), Shape(3, 9)),
     {"layout": "NHWC", "coordinate_transformation_mode": "align_corners"},
     "F.interpolate(a.permute(0, 3, 1, 2), (3, 9), mode='bilinear', align_corners=True)"
     ".permute(0, 2, 3, 1)"),
    ("image.resize2d", (T("n", 2, 6, 5), Shape(4, 9)), {"method": "cubic"},
     "F.interpolate(a, (4, 9), mode='bicubic')"),
    ("image.resize2d", (T("n", 2, 8, 4), Shape(4, 16)),
     {"method": "nearest_neighbor", "coordinate_transformation_mode": "asymmetric",
      "rounding_method": "floor"}, "F.interpolate(a, (4, 16))"),
    ("image.resize3d", (T("n", 2, 3, 2, 4), Shape(5, 3, 2)), {},
     "F.interpolate(a, (5, 3, 2), mode='trilinear')"),
    ("image.grid_sample", (T("n", 3, 5, 6), GRID), {},
     "F.grid_sample(a, b.permute(0, 2, 3, 1), align_corners=False)"),
    ("image.grid_sample", (T("n", 3, 5, 6), GRID),
     {"padding_mode": "reflection", "method": "bicubic"},
     "F.grid_sample(a, b.permute(0, 2, 3, 1), 'bicubic', 'reflection', False)"),
    ("image.grid_sample", (T("n", 3, 5, 6), GRID),
     {"padding_mode": "border", "method": "nearest", "align_corners": True},
     "F.grid_sample(a, b.permute(0, 2, 3, 1), 'nearest', 'border', True)"),
    ("image.grid_sample", (T("n", 2, 3, 4, 5), T("n", 3, 2, 3, 4, low=-1, high=1)),
     {"layout": "NCDHW", "align_corners": True},
     "F.grid_sample(a, b.permute(0, 2, 3, 4, 1), align_corners=True)"),
    ("image.affine_grid", (T("n", 2, 3), Shape(5, 4)), {},
     "F.affine_grid(a, (len(a), 1, 5, 4), True).permute(0, 3, 1, 2)"),
    ("image.affine_grid", (T("n", 3, 4), Shape(2, 5, 4)), {"align_corners": False},
     "F.affine_grid(a, (len(a), 1, 2, 5, 4), False).permute(0, 4, 1, 2, 3)"),
]  # fmt: skip
OTHERS: list[Row] = [
    ("log_add_exp", (T("n", 5, low=-30, high=30), T(5)), {}, "torch.logaddexp(a, b)"),
    ("ewise_fma", (T("n", "m"), T("n", "m"), T("n", "m")), {}, "torch.addcmul(c, a, b)"),
    ("masked_fill", (T("n", "m"), T("n", "m", dtype="bool")), {"value": -3.0},
     "a.masked_fill(b, -3.0)"),
    ("bucketize", (T("n", "m"), T(4, values=(-1.0, 0.0, 0.25, 1.5))), {"right": True},
     "torch.bucketize(a, b, right=True)"),
    ("median", (T("n", "m"),), {}, "a.median()"),
    ("cumsum", (T("n", "m"),), {"axis": 1}, "a.cumsum(1)"),
    ("cumprod", (T("n", "m"),), {"axis": 0}, "a.cumprod(0)"),
    ("sort", (T("n", "m"),), {"descending": True}, "a.sort(descending=True)[0]"),
    ("einsum", ((T("n", 3, "m"), T("n", "m", 4)),), {"subscripts": "bij,bjk->bik"}, "a @ b"),
    ("std", (T("n", 5),), {"axis": 1}, "a.std(1, correction=0)"),
    ("softmax_with_temperature", (T("n", 9), T("n", 1, low=0.5)), {}, "F.softmax(a / b, 1)"),
]  # fmt: skip
FAMILIES = {
    "convolutions": (CONVOLUTIONS, ALL), "pooling": (POOLING, ALL), "gradients": (GRADIENTS, FLOAT),
    "nn": (NN, ALL), "indexing": (INDEXING, ALL), "others": (OTHERS, ALL),
    "images": (IMAGES, FLOAT),
}  # fmt: skip


def as_dtype(arg: Any, dtype: str) -> Any:
    """An argument with its float32 tensors in another dtype."""
    if isinstance(arg, tuple):
        return tuple(as_dtype(a, dtype) for a in arg)  # type: ignore[reportUnknownVariableType]
    if not isinstance(arg, T) or arg.dtype != "float32":
        return arg
    return T(*arg.shape, dtype=dtype, low=arg.low, high=arg.high, values=arg.values)


def drawn(family: str) -> list[tuple[OpCase, Env, str]]:
    """The family's cases in each of its dtypes, at random sizes."""
    rng = np.random.default_rng(SEED)
    rows, dtypes = FAMILIES[family]
    result: list[tuple[OpCase, Env, str]] = []
    for op, args, attrs, text in rows:
        for dtype in dtypes:
            env = {name: int(rng.choice(SIZES)) for name in ("n", "m")}
            result.append((OpCase(op, as_dtype(args, dtype), attrs, (env,)), env, text))
    return result


def ask_torch(
    folder: pathlib.Path, inputs: list[list[np.ndarray[Any, Any]]], texts: list[str]
) -> dict[str, np.ndarray[Any, Any]]:
    half = {"float16", "bfloat16"}
    arrays = {
        f"{i}.{k}": a.astype(np.float32) if a.dtype.name in half else a
        for i, row in enumerate(inputs)
        for k, a in enumerate(row)
    }
    rows = [
        {"text": text, "dtypes": [a.dtype.name for a in row]}
        for text, row in zip(texts, inputs, strict=True)
    ]
    source, cases, target = (folder / n for n in ("inputs.npz", "cases.json", "results.npz"))
    np.savez(source, **arrays)  # type: ignore[arg-type]
    cases.write_text(json.dumps(rows))
    program = pathlib.Path(__file__).with_name("torch_answers.py")
    command = [PYTHON, program, source, cases, target]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return dict(np.load(target))


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray[Any, Any]]:
    """PyTorch's results of all cases, from one process."""
    if not PYTHON.exists():
        pytest.skip(f"{PYTHON} does not exist; `make reference-env` makes it")
    cases = [case for family in FAMILIES for case in drawn(family)]
    inputs = [concrete_call(case, env, SEED)[0] for case, env, _ in cases]
    folder = tmp_path_factory.mktemp("torch")
    return ask_torch(folder, inputs, [text for _, _, text in cases])


@pytest.mark.parametrize("family", FAMILIES)
def test_references(family: str, answers: dict[str, np.ndarray[Any, Any]]) -> None:
    names = list(FAMILIES)
    first = sum(len(drawn(f)) for f in names[: names.index(family)])
    for i, (case, env, _) in enumerate(drawn(family), first):
        where = f"{case} with {env}, seed={SEED}"
        for k, result in enumerate(concrete_call(case, env, SEED)[1]):
            theirs = answers[f"{i}.{k}"]
            assert theirs.shape == result.shape, where
            compare(theirs.astype(numpy_dtype(result.dtype.name)), result, where)
