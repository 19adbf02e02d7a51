"""Calls of each operator, in float32 and in a narrow dtype, on operands of three sizes.

Operators that take tensors of one shape alone are read off the operator table; the others are
written down here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from relaxlab.analysis.index_map import IndexMap
from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.errors import UserError
from relaxlab.ir.op_table import has_trait, op_names, op_row
from relaxlab.testing.op_check import CaseProgram, OpCase, Shape, T

SIZES = (16 << 10, 512 << 10, 32 << 20)
"""Bytes of the largest operand, which is the first with the extent `n`: for the first level of
cache, for the second, and for main memory."""
IMAGES = (1, 4)
"""Values of `n` for convolutions of networks, which take long."""
NARROW = ("int8", "float16", "bool")
"""Dtypes of the second call of an operator: the first that it takes."""
DOMAINS = {"acosh": (1.1, 4.0)}
"""Operands of operators that are not defined from 0.1 to 0.9."""
SAME_SHAPE = ("x", "x1", "x2", "x3", "data", "predictions", "labels")
"""Names of the parameters that elementwise operators have."""
NOTHING_TO_DO = (
    *(op for op in op_names() if has_trait(op, "view") and op_row(op).lower is not None), "size",
)  # fmt: skip
"""Operators that move no element."""


@dataclass(frozen=True, slots=True)
class Call:
    """An operator on operands with an extent `n`. torch: what PyTorch is asked for with the
    operands as a, b, …, if not what the tests compare results with."""

    op: str
    args: tuple[Any, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    torch: str = ""
    n: int | None = None

    @property
    def sizes(self) -> dict[str, int]:
        """The value of `n`; 1 where no operand has it."""
        return {"n": self.n or 1}

    @property
    def row_bytes(self) -> int:
        """Bytes of the first operand that has the extent `n` for each of it; 0 without one."""
        for a in tensors_of(self.args):
            if "n" in a.shape:
                return math.prod(d for d in a.shape if isinstance(d, int)) * bytes_of(a.dtype)
        return 0

    def sized(self) -> list[Call]:
        """The call for each of the sizes, which differ in `n`; itself where nothing has it."""
        row = self.row_bytes
        if self.n is not None or not row:
            return [self]
        return [replace(self, n=n) for n in dict.fromkeys(max(1, s // row) for s in SIZES)]

    @property
    def case(self) -> OpCase:
        return OpCase(self.op, self.args, self.attrs, (self.sizes,))

    @property
    def program(self) -> str:
        """The name of what is compiled once for all sizes."""
        return str(self.case)

    @property
    def name(self) -> str:
        return self.program + ("" if self.n is None else f", n = {self.n}")


def tensors_of(args: Any) -> Iterator[T]:
    """The tensors among arguments, those of tuples as well."""
    for a in args:
        if isinstance(a, T):
            yield a
        elif isinstance(a, tuple):
            yield from tensors_of(a)


def x(*shape: int | str, low: float = 0.1, high: float = 0.9) -> T:
    """A float32 operand."""
    return T(*shape, low=low, high=high)


def wide(*shape: int | str) -> T:
    """A float64 operand."""
    return T(*shape, dtype="float64", low=0.1, high=0.9)


def index(*shape: int | str, high: int) -> T:
    """An operand of places up to `high`."""
    return T(*shape, dtype="int64", low=0, high=high)


ROW, SHORT, VECTOR, FOUR = x("n", 1024), x("n", 64), x("n"), x("n", 8, 16, 8)
IMAGE = x("n", 32, 56, 56)
PLACES, SOME = index("n", high=1023), index(2048, high=1023)
ROWS = 2048
"""The value of `n` where places among so many rows are given."""
NEAR_ONE = {"low": 0.99, "high": 1.01}
"""Factors of which no product is as small as numbers that processors multiply slowly."""


def _reductions() -> Iterator[Call]:
    for op in ("sum", "prod", "max", "mean", "variance", "argmax"):
        bounds = NEAR_ONE if op == "prod" else {}
        for shape, axis in (
            (("n",), 0),
            (("n", 1024), 0),
            (("n", 1024), 1),
            (("n", 64), 1),
            (("n", 3), 1),
        ):
            operand = x(*shape, **bounds)
            text = f"torch.argmax(a, {axis})" if op == "argmax" else ""
            yield Call(op, (operand,), {"axis": axis}, text)
        if op != "argmax":
            for axes in ((0,), (1, 3)):
                yield Call(op, (x("n", 8, 16, 8, **bounds),), {"axis": axes})
    yield Call("min", (ROW,), {"axis": 1})
    yield Call("argmin", (ROW,), {"axis": 1}, "torch.argmin(a, 1)")
    yield Call("std", (ROW,), {"axis": 1})
    for op in ("cumsum", "cumprod"):
        for shape, axis in ((("n",), 0), (("n", 1024), 0), (("n", 1024), 1), (("n", 64), 1)):
            operand = x(*shape, **(NEAR_ONE if op == "cumprod" else {}))
            yield Call(op, (operand,), {"axis": axis})
    yield Call("cummax", (ROW,), {"axis": 1}, "torch.cummax(a, 1).values")
    yield Call("cummin", (ROW,), {"axis": 1}, "torch.cummin(a, 1).values")
    yield Call("cumlogsumexp", (ROW,), {"axis": 1}, "torch.logcumsumexp(a, 1)")
    window = {"window": (1, 4), "strides": (1, 4)}
    yield Call("reduce_window", (ROW, Shape(0, 0, 0, 0)), {**window, "reduction": "sum"})
    yield Call("grad.reduce_window_max_backward",
               (x("n", 256), ROW, Shape(0, 0, 0, 0)), window)  # fmt: skip
    yield Call("bitcast", (ROW,), {"dtype": "int32"}, "a.view(torch.int32)")


def _orders() -> Iterator[Call]:
    for operand, axis in ((ROW, 0), (ROW, 1), (SHORT, 1), (VECTOR, 0)):
        yield Call("sort", (operand,), {"axis": axis}, f"a.sort({axis})[0]")
    yield Call("argsort", (ROW,), {"axis": 1}, "a.argsort(dim=1, stable=True)")
    yield Call("topk", (ROW,), {"k": 10}, "a.topk(10)")
    yield Call("median", (ROW,), {"axis": 1}, "a.median(1)")
    yield Call("bucketize", (ROW, T(4, values=(0.1, 0.3, 0.5, 0.8))))


def _moves() -> Iterator[Call]:
    yield Call("permute_dims", (ROW,))
    yield Call("permute_dims", (FOUR,), {"axes": (0, 2, 1, 3)})
    yield Call("permute_dims", (FOUR,), {"axes": (3, 0, 2, 1)})
    yield Call("permute_dims", (x("n", 3),))
    for operand, axis in ((VECTOR, 0), (ROW, 1), (x("n", 3), 1), (x("n", 3), 0)):
        yield Call("flip", (operand,), {"axis": axis})
    for operand, axis in ((ROW, 0), (ROW, 1), (x("n", 1), 1), (x("n", 3), 1)):
        yield Call("concat", ((operand, operand),), {"axis": axis})
        yield Call("stack", ((operand, operand),), {"axis": axis})
    yield Call("split", (ROW,), {"indices_or_sections": 2, "axis": 1})
    yield Call("tile", (x("n", 64),), {"repeats": (1, 4)})
    yield Call("repeat", (x("n", 64),), {"repeats": 4, "axis": 1})
    yield Call("repeat", (x("n", 64),), {"repeats": 4, "axis": 0})
    yield Call(
        "strided_slice", (ROW,), {"axes": (1,), "begin": (1,), "end": (1023,), "strides": (2,)},
        "a[:, 1:1023:2]",
    )  # fmt: skip
    yield Call("slice_scatter", (ROW, x("n", 512)), {"start": 0, "end": 1024, "step": 2, "axis": 1})
    yield Call("nn.pad", (ROW,), {"pad_width": (0, 0, 1, 1)})
    yield Call("nn.pad", (SHORT,), {"pad_width": (0, 0, 1, 1)})
    yield Call("nn.pad", (ROW,), {"pad_width": (0, 0, 1, 1), "pad_mode": "reflect"},
               "torch.nn.functional.pad(a, (1, 1), 'reflect')")  # fmt: skip
    yield Call("nn.pixel_shuffle", (x("n", 4, 64, 64),), {"upscale_factor": 2})
    for op in ("tril", "triu"):
        yield Call(op, (ROW,))
    yield Call("take", (ROW, index(512, high=1023)), {"axis": 1}, "a.index_select(1, b)")
    yield Call("take", (x(1024, 1024), SOME), {"axis": 0}, "a.index_select(0, b)")
    yield Call("gather_elements", (ROW, index("n", 512, high=1023)), {"axis": 1},
               "a.gather(1, b)")  # fmt: skip
    yield Call("gather_nd", (x(1024, 1024), index(2048, 1, high=1023)), {}, "a[b[:, 0]]")
    yield Call("index_tensor", (x(1024, 1024), (SOME,)))
    yield Call("scatter_elements", (ROW, index("n", 512, high=1023), x("n", 512)),
               {"axis": 1, "reduction": "add"}, "a.scatter_add(1, b, c)")  # fmt: skip
    yield Call("scatter_nd", (ROW, index(512, 1, high=1023), x(512, 1024)), {"reduction": "add"},
               "a.index_add(0, b[:, 0], c)", ROWS)  # fmt: skip
    yield Call("index_put", (ROW, (index(512, high=1023),), x(512, 1024)), {"accumulate": True},
               n=ROWS)  # fmt: skip
    yield Call("grad.take_backward", (x(512, 1024), ROW, index(512, high=1023)), {"axis": 0},
               "torch.zeros_like(b).index_add(0, c, a)", ROWS)  # fmt: skip
    yield Call("reverse_sequence", (ROW, index("n", high=1023)), {"seq_axis": 1, "batch_axis": 0})
    yield Call("layout_transform", (ROW,), {"index_map": IndexMap.of(_blocked)},
               "a.reshape(-1, 64, 16).transpose(0, 1)")  # fmt: skip
    yield Call("broadcast_to", (x(1024), Shape(2048, 1024)))
    yield Call("collapse_sum_to", (ROW, Shape(1, 1024)))
    yield Call("collapse_sum_like", (ROW, x(1, 1024)))
    yield Call("one_hot", (SOME, T(values=1.0), T(values=0.0)), {"depth": 1024},
               "torch.nn.functional.one_hot(a, 1024).float()")  # fmt: skip
    yield Call("meshgrid", ((VECTOR, x(2)),))
    yield Call("outer", (VECTOR, x(16)))


def _blocked(i: Any, j: Any) -> tuple[Any, ...]:
    """Columns in blocks of 16, one block of all rows after the other."""
    return j // 16, i, j % 16


def _networks() -> Iterator[Call]:
    f, scales = "torch.nn.functional", (x(1024), x(1024))
    for axis in (1, 0):
        yield Call("nn.softmax", (ROW,), {"axis": axis})
        yield Call("nn.log_softmax", (ROW,), {"axis": axis})
    yield Call("nn.softmax", (SHORT,))
    yield Call("softmax_with_temperature", (ROW, x("n", 1)), {}, "(a / b).softmax(-1)")
    yield Call("nn.layer_norm", (ROW, *scales), {"axes": (-1,)})
    yield Call("nn.rms_norm", (ROW, x(1024)), {"axes": (-1,)})
    yield Call("nn.group_norm", (IMAGE, x(32), x(32)),
               {"num_groups": 8, "channel_axis": 1, "axes": (2, 3)})  # fmt: skip
    yield Call("nn.instance_norm", (IMAGE, x(32), x(32)), {"channel_axis": 1, "axes": (2, 3)},
               f"{f}.instance_norm(a, weight=b, bias=c)")  # fmt: skip
    yield Call("nn.batch_norm", (IMAGE, x(32), x(32), x(32), x(32)),
               {"axis": 1, "training": False}, f"{f}.batch_norm(a, d, e, b, c)")  # fmt: skip
    yield Call("nn.prelu", (IMAGE, x(32)), {"axis": 1}, f"{f}.prelu(a, b)")
    yield Call("nn.leakyrelu", (ROW,))
    yield Call("nn.softplus", (ROW,))
    yield Call("clip", (ROW,), {"min": 1, "max": 5})
    yield Call("where", (T("n", 1024, dtype="bool"), ROW, ROW))
    yield Call("masked_fill", (ROW, T("n", 1024, dtype="bool")), {"value": 0.5})
    yield Call("nn.nll_loss", (ROW, PLACES))
    yield Call("grad.nll_loss_backward", (x(), ROW, PLACES), {}, "torch.ops.aten.nll_loss_backward("
               "a, b, c, None, 1, -100, torch.tensor(float(len(c))))")  # fmt: skip
    yield Call("nn.dropout", (ROW,), {}, "(a.clone(), torch.ones_like(a))")
    steps = T(1024, dtype="int8", low=-9, high=9)
    yield Call("quantize", (ROW, x(1024, low=0.01), steps), {}, "torch.quantize_per_channel("
               "a, b, c, 1, torch.qint8).int_repr()")  # fmt: skip
    yield Call("dequantize", (T("n", 1024, dtype="int8", low=-99, high=99), x(1024), steps), {},
               "(a.float() - c.float()) * b")  # fmt: skip
    yield Call("renormalize_top_p_top_k", (ROW, x("n", 1), T("n", 1, dtype="int32", high=9)))
    yield Call("multinomial_from_uniform", (ROW, x("n", 1), index("n", 1, high=9)))


def _windows() -> Iterator[Call]:
    f = "torch.nn.functional"
    for op in ("max", "avg"):
        yield Call(f"nn.{op}_pool2d", (IMAGE,), {"pool_size": 2, "strides": 2})
        yield Call(f"nn.{op}_pool2d", (IMAGE,), {"pool_size": 3, "strides": 1, "padding": 1})
    for op in ("max", "avg"):
        yield Call(f"nn.{op}_pool1d", (x("n", 64, 512),), {"pool_size": 3, "strides": 2})
        yield Call(f"nn.{op}_pool3d", (x("n", 8, 16, 32, 32),), {"pool_size": 2, "strides": 2})
    yield Call("nn.conv3d", (x("n", 8, 16, 32, 32), x(8, 8, 3, 3, 3)), {"padding": 1},
               f"{f}.conv3d(a, b, padding=1)")  # fmt: skip
    yield Call("nn.adaptive_avg_pool1d", (x("n", 64, 512),), {"output_size": 8},
               f"{f}.adaptive_avg_pool1d(a, 8)")  # fmt: skip
    yield Call("nn.adaptive_avg_pool3d", (x("n", 8, 16, 32, 32),), {"output_size": (4, 8, 8)},
               f"{f}.adaptive_avg_pool3d(a, (4, 8, 8))")  # fmt: skip
    window, halves = {"pool_size": (2, 2), "strides": (2, 2)}, x("n", 32, 28, 28)
    yield Call(
        "grad.avg_pool2d_backward",
        (halves, IMAGE),
        window,
        "torch.ops.aten.avg_pool2d_backward(a, b, 2, 2, 0, False, True, None)",
    )
    yield Call(
        "grad.max_pool2d_backward",
        (halves, IMAGE),
        window,
        "torch.ops.aten.max_pool2d_with_indices_backward(a, b, 2, 2, 0, 1, "
        f"False, {f}.max_pool2d(b, 2, return_indices=True)[1])",
    )
    yield Call("nn.adaptive_avg_pool2d", (IMAGE,), {"output_size": (1, 1)},
               f"{f}.adaptive_avg_pool2d(a, 1)")  # fmt: skip
    for channels, out, size in ((32, 64, 3), (3, 64, 1), (3, 32, 3), (64, 64, 1)):
        # With few channels an operand of the largest size would make a much larger result.
        image = x("n", channels, 56, 56) if channels > 3 else x(8, channels, 56, 56)
        yield Call("nn.conv2d", (image, x(out, channels, size, size)),
                   {"padding": size // 2}, f"{f}.conv2d(a, b, padding={size // 2})")  # fmt: skip
    yield Call("nn.conv2d", (IMAGE, x(32, 1, 3, 3)), {"padding": 1, "groups": 32},
               f"{f}.conv2d(a, b, padding=1, groups=32)")  # fmt: skip
    yield Call("nn.conv1d", (x("n", 64, 512), x(64, 64, 5)), {"padding": 2},
               f"{f}.conv1d(a, b, padding=2)")  # fmt: skip
    yield Call("nn.conv1d_transpose", (x("n", 64, 512), x(64, 32, 4)), {"strides": 2},
               f"{f}.conv_transpose1d(a, b, stride=2)")  # fmt: skip
    yield Call("nn.conv3d_transpose", (x("n", 8, 16, 32, 32), x(8, 4, 2, 2, 2)), {"strides": 2},
               f"{f}.conv_transpose3d(a, b, stride=2)")  # fmt: skip
    yield Call("nn.conv2d_transpose", (IMAGE, x(32, 16, 2, 2)), {"strides": 2},
               f"{f}.conv_transpose2d(a, b, stride=2)")  # fmt: skip


def _layers() -> Iterator[Call]:
    """Convolutions of ResNet-50, MobileNetV2 and ConvNeXt-T, and others with few relatives."""
    layers: tuple[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]], ...] = (
        ((3, 224, 224), (64, 3, 7, 7), {"strides": 2, "padding": 3}),
        ((64, 56, 56), (64, 64, 3, 3), {"padding": 1}),
        ((256, 56, 56), (64, 256, 1, 1), {}),
        ((256, 56, 56), (512, 256, 1, 1), {"strides": 2}),
        ((128, 28, 28), (128, 128, 3, 3), {"padding": 1}),
        ((256, 14, 14), (256, 256, 3, 3), {"padding": 1}),
        ((512, 7, 7), (2048, 512, 1, 1), {}),
        ((512, 7, 7), (512, 512, 3, 3), {"padding": 1}),
        ((96, 112, 112), (96, 1, 3, 3), {"strides": 2, "padding": 1, "groups": 96}),
        ((144, 56, 56), (144, 1, 3, 3), {"padding": 1, "groups": 144}),
        ((960, 7, 7), (960, 1, 3, 3), {"padding": 1, "groups": 960}),
        ((96, 56, 56), (96, 1, 7, 7), {"padding": 3, "groups": 96}),
        ((64, 28, 28), (64, 64, 3, 3), {"padding": 2, "dilation": 2}),
        ((128, 28, 28), (128, 4, 3, 3), {"padding": 1, "groups": 32}),
    )
    for image, kernel, attrs in layers:
        # PyTorch's names of the attributes.
        theirs = {"strides": "stride"}
        said = "".join(f", {theirs.get(k, k)}={v}" for k, v in attrs.items())
        torch = f"torch.nn.functional.conv2d(a, b{said})"
        call = Call("nn.conv2d", (x("n", *image), x(*kernel)), attrs, torch)
        yield from (replace(call, n=n) for n in IMAGES)
    yield Call("nn.conv2d_transpose", (x("n", 64, 28, 28), x(64, 32, 3, 3)),
               {"strides": 2, "padding": 1},
               "torch.nn.functional.conv_transpose2d(a, b, stride=2, padding=1)", 1)  # fmt: skip


def _products() -> Iterator[Call]:
    f = "torch.nn.functional"
    yield Call("matmul", (x("n", 512), x(512, 512)))
    yield Call("matmul", (x("n", 300), x(300, 257)))
    yield Call("matmul", (wide("n", 512), wide(512, 512)))
    yield Call("linear", (wide("n", 512), wide(512, 512)))
    yield Call("matmul", (ROW, x(1024, 3)))
    yield Call("matmul", (x("n", 64, 64), x("n", 64, 64)))
    yield Call("linear", (x("n", 512), x(512, 512)))
    yield Call("einsum", ((x("n", 512), x("n", 512)),), {"subscripts": "ki,kj->ij"})
    heads = x("n", 128, 8, 64)
    yield Call("nn.attention", (heads,) * 3)
    yield Call("nn.attention_bias", (*(heads,) * 3, x(1, 1, 128, 128)))
    starts = T(9, dtype="int32", values=tuple(range(0, 1025, 128)))
    yield Call("nn.attention_var_len",
               (*(x(1, 1024, 8, 64),) * 3, starts, T(dtype="int32", low=128, high=128)), {},
               f"{f}.scaled_dot_product_attention(*(t.view(8, 128, 8, 64).transpose(1, 2)"
               " for t in (a, b, c))).transpose(1, 2)")  # fmt: skip
    yield Call("nn.rope", (heads,))
    first = T(1024, dtype="int64", values=tuple(i // 128 * 128 - 1 for i in range(1024)))
    last = T(1024, dtype="int64", values=tuple(range(1024)))
    yield Call("nn.attention_within", (*(x(1, 1024, 8, 64),) * 3, first, last))
    yield Call("nn.key_ranges", (Shape(1024, 1024), starts))
    yield Call("nn.segment_reduce", (x(1024, 512), starts), {"mode": "sum"},
               "a.view(8, 128, 512).sum(1)")  # fmt: skip
    yield Call("nn.segment_softmax", (x(1024, 512), starts), {},
               "torch.softmax(a.view(8, 128, 512), 1).view(1024, 512)")  # fmt: skip


def _created() -> Iterator[Call]:
    shape = Shape(2048, 1024)
    for op in ("zeros", "ones"):
        yield Call(op, (shape,), {"dtype": "float32"})
        yield Call(f"{op}_like", (ROW,), {}, f"torch.{op}_like(a)")
    yield Call("full", (shape, x()), {}, "torch.full(a, b.item())")
    yield Call("full_like", (ROW, x()))
    yield Call("eye_like", (ROW,), {}, "torch.eye(*a.shape)")
    yield Call("hamming_window", (), {"window_size": 1 << 21}, "torch.hamming_window(1 << 21)")
    yield Call("eye", (), {"n": 1448}, "torch.eye(1448)")
    numbers = {"start": 0, "end": 1 << 21, "step": 1, "dtype": "float32"}
    yield Call("arange", (), numbers, "torch.arange(0, 2097152, dtype=torch.float32)")


def _dtypes() -> Iterator[Call]:
    for before, after in (
        ("float32", "float16"), ("float16", "float32"), ("float32", "int8"), ("int8", "float32"),
        ("bool", "float32"), ("int64", "int32"),
    ):  # fmt: skip
        operand = T("n", 1024, dtype=before, low=0, high=9)
        yield Call("astype", (operand,), {"dtype": after})
    scales = T("n", 32, dtype="float16", low=-0.1, high=0.1)
    fields = (scales, T("n", 32, 16, dtype="uint8", low=0, high=255))
    weights = "torch.cat([a[1] & 15, a[1] >> 4], -1).float() - 8"
    decoded = f"(({weights}) * a[0].float()[..., None]).flatten(1)"
    yield Call("decode_blocks", (fields,), {"format": "Q4_0"}, decoded)
    inverse = "127 / a.view(-1, 32, 32).abs().amax(-1, keepdim=True).clamp(min=1e-30)"
    integers = f"torch.round(a.view(-1, 32, 32) * ({inverse}))"
    sums = f"{integers}.sum(-1) / ({inverse}).squeeze(-1)"
    quantised = f"({integers}.char(), 1 / ({inverse}).squeeze(-1), {sums})"
    yield Call("dynamic_quantize", (x("n", 1024),), {"group": 32}, quantised)
    # The third operand has the sums of each group of the first, times the second.
    groups = np.random.default_rng(1).integers(-127, 128, (1, 32, 32), np.int8)
    sums = np.float32(0.5) * groups.sum(-1, dtype=np.float32)
    halves = np.full((1, 32), 0.5, np.float32)
    scaled = (T(1, 32, values=halves), T(1, 32, values=sums))
    rows = (T(1, 32, 32, dtype="int8", values=groups), *scaled)
    product = "(a.float() * b[..., None]).flatten(1) @ " + decoded.replace("a[", "d[") + ".T"
    yield Call("quantized_linear", (*rows, fields), {"format": "Q4_0"}, product)
    yield Call("wrap_param", (T("n", 1024, dtype="float16"),), {}, "a.float()")


def _elementwise(written: set[str]) -> Iterator[Call]:
    """Operators all of whose parameters are tensors of one shape."""
    for op in op_names():
        row = op_row(op)
        wanted = row.lower is not None and row.reference is not None
        names = [p.name for p in row.params]
        if not wanted or op in written or op in NOTHING_TO_DO or not set(names) <= {*SAME_SHAPE}:
            continue
        low, high = DOMAINS.get(op, (0.1, 0.9))
        call = Call(op, (x("n", 1024, low=low, high=high),) * len(names))
        yield next(c for d in ("float32", *NARROW, "int32") if (c := with_dtype(call, d)))


def with_dtype(call: Call, dtype: str) -> Call | None:
    """The call with its float32 operands in another dtype; None if the operator refuses it."""

    def changed(a: Any) -> Any:
        if isinstance(a, tuple):
            return tuple(map(changed, a))  # type: ignore[reportUnknownArgumentType]
        if not isinstance(a, T) or a.dtype != "float32":
            return a
        bounds = (1, 7) if "int" in dtype else (a.low, a.high)
        return T(*a.shape, dtype=dtype, low=bounds[0], high=bounds[1], values=a.values)

    found = replace(call, args=changed(call.args))
    try:
        CaseProgram(found.case, found.sizes, symbolic=True)
    except UserError:
        return None
    return found


def _images() -> Iterator[Call]:
    """Images of another size, read at places, and in windows."""
    f = "torch.nn.functional"
    image, grid = T("n", 16, 28, 28), T("n", 2, 28, 28, low=-1, high=1)
    rois = T("n", 5, low=0, high=9)
    yield Call("image.resize2d", (image, Shape(56, 56)), {}, f"{f}.interpolate(a, (56, 56))")
    yield Call("image.resize3d", (T("n", 4, 8, 14, 14), Shape(16, 28, 28)), {})
    yield Call("image.grid_sample", (image, grid), {})
    yield Call("image.affine_grid", (T("n", 2, 3), Shape(28, 28)), {})
    window = {"pooled_size": (7, 7), "spatial_scale": 1.0}
    yield Call("vision.roi_align", (T(1, 16, 28, 28), rois), window)
    yield Call("vision.roi_pool", (T(1, 16, 28, 28), rois), window)
    boxes = T("n", 3, 100), T("n", 400), T(1, 100, 4)
    yield Call("vision.multibox_transform_loc", boxes, {})


def _workers() -> Iterator[Call]:
    """Collectives among workers: with one worker they are copies."""
    x = T("n", 1024)
    yield Call("ccl.allreduce", (x,), {"op_type": "sum"})
    yield Call("ccl.allgather", (x,), {"num_workers": 1})
    yield Call("ccl.scatter_from_worker0", (x,), {"num_workers": 1, "axis": 0})
    yield Call("dist.redistribute_replica_to_shard", (x,), {"num_workers": 1, "axis": 0})


def all_calls() -> list[Call]:
    """All calls: of each operator those in float32 and in a narrow dtype, of each the sizes."""
    return [one for call in operator_calls() for one in call.sized()]


def operator_calls() -> list[Call]:
    """A call of each kind, followed by that in a narrow dtype; most without a value of `n`."""
    wide = [*_reductions(), *_orders(), *_moves(), *_networks(), *_windows(), *_layers(),
            *_products(), *_created(), *_dtypes(), *_images(), *_workers()]  # fmt: skip
    wide += _elementwise({c.op for c in wide})
    found: list[Call] = []
    for call in wide:
        narrow = (with_dtype(call, dtype) for dtype in NARROW)
        found += [call, *filter(None, [next(filter(None, narrow), None)])]
    return list({c.name: c for c in found}.values())
