"""Functions of `tvm.topi.nn` whose arguments are not those of an operator of the core."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr
from relaxlab.ops import te
from relaxlab.ops.te import Tensor
from relaxlab.tvm.topi.common import Ints, ints, op, transposed
from relaxlab.tvm.topi.images import resize2d

# --- Products -------------------------------------------------------------------------------------


def matmul(
    tensor_a: Tensor, tensor_b: Tensor, bias: Tensor | None = None, out_dtype: str | None = None,
    transpose_a: bool = False, transpose_b: bool = False, *_: Any, **__: Any,
) -> Any:  # fmt: skip
    """The product of matrices, transposed where that is asked for, and a bias."""
    a = transposed(tensor_a) if transpose_a else tensor_a
    b = transposed(tensor_b) if transpose_b else tensor_b
    product = op("matmul", a, b, out_dtype=out_dtype or None)
    return product if bias is None else op("add", product, bias)


def batch_matmul(
    tensor_a: Tensor, tensor_b: Tensor, oshape: Any = None, out_dtype: str | None = None,
    transpose_a: bool = False, transpose_b: bool = True, *_: Any, **__: Any,
) -> Any:  # fmt: skip
    """The products of matrices, the second transposed unless `transpose_b` is False."""
    return matmul(tensor_a, tensor_b, None, out_dtype, transpose_a, transpose_b)


def dense(
    data: Tensor, weight: Tensor, bias: Tensor | None = None, out_dtype: str | None = None,
    *_: Any, **__: Any,
) -> Any:  # fmt: skip
    """The product with transposed weights, and a bias."""
    return matmul(data, weight, bias, out_dtype, transpose_b=True)


# --- Convolutions ---------------------------------------------------------------------------------


def _padding(padding: Any, sizes: Sequence[PrimExpr], dilation: Sequence[int]) -> list[Any]:
    """The elements added before each axis, then those after it. "SAME" keeps the size where the
    step is 1, "VALID" adds none."""
    if isinstance(padding, str):
        if padding == "VALID":
            return [0] * (2 * len(sizes))
        extents = [getattr(s, "value", s) for s in sizes]
        total = [(s - 1) * d for s, d in zip(extents, dilation, strict=True)]
        return [*((t + 1) // 2 for t in total), *(t // 2 for t in total)]
    given = list(ints(padding, len(sizes)))
    return given if len(given) == 2 * len(sizes) else given * 2


_KERNELS = {"NCW": "OIW", "NWC": "WIO", "NCHW": "OIHW", "NHWC": "HWIO", "HWCN": "HWIO",
            "NCDHW": "OIDHW", "NDHWC": "DHWIO"}  # fmt: skip
"""The layout of the kernel that goes with that of the data."""


def _convolution(
    data: Tensor, kernel: Tensor, strides: Any, padding: Any, dilation: Any, layout: str,
    kernel_layout: str = "", out_dtype: str | None = None, groups: int = 1,
) -> Any:  # fmt: skip
    of_kernel = kernel_layout or _KERNELS[layout]
    dims = len(layout) - 2
    spatial = [kernel.shape[of_kernel.index(c)] for c in layout if c not in "NC"]
    steps = ints(dilation, dims)
    return op(
        f"nn.conv{dims}d", data, kernel, strides=list(ints(strides, dims)),
        padding=_padding(padding, spatial, steps), dilation=list(steps), groups=groups,
        data_layout=layout, kernel_layout=of_kernel, out_dtype=out_dtype,
    )  # fmt: skip


def _named(layout: str) -> Any:
    """The convolution of one layout, whose name says it."""

    def convolution(
        data: Tensor, kernel: Tensor, stride: Any = 1, padding: Any = "VALID", dilation: Any = 1,
        out_dtype: str | None = None, *_: Any, **__: Any,
    ) -> Any:  # fmt: skip
        return _convolution(data, kernel, stride, padding, dilation, layout, "", out_dtype)

    convolution.__name__ = f"conv{len(layout) - 2}d_{layout.lower()}"
    return convolution


def _grouped(layout: str) -> Any:
    def convolution(
        data: Tensor, kernel: Tensor, stride: Any = 1, padding: Any = "VALID", dilation: Any = 1,
        groups: int = 1, out_dtype: str | None = None, *_: Any, **__: Any,
    ) -> Any:  # fmt: skip
        return _convolution(data, kernel, stride, padding, dilation, layout, "", out_dtype, groups)

    convolution.__name__ = f"group_conv{len(layout) - 2}d_{layout.lower()}"
    return convolution


conv1d_ncw, conv1d_nwc = _named("NCW"), _named("NWC")
conv2d_nchw, conv2d_nhwc, conv2d_hwcn = _named("NCHW"), _named("NHWC"), _named("HWCN")
conv3d_ncdhw, conv3d_ndhwc = _grouped("NCDHW"), _grouped("NDHWC")
group_conv1d_ncw, group_conv1d_nwc = _grouped("NCW"), _grouped("NWC")
group_conv2d_nchw, group_conv2d_nhwc = _grouped("NCHW"), _grouped("NHWC")


def conv1d(
    data: Tensor, kernel: Tensor, strides: Any = 1, padding: Any = "VALID", dilation: Any = 1,
    groups: int = 1, data_layout: str = "NCW", kernel_layout: str = "",
    out_dtype: str | None = None,
) -> Any:  # fmt: skip
    """A convolution along one axis."""
    return _convolution(
        data, kernel, strides, padding, dilation, data_layout, kernel_layout, out_dtype, groups
    )


def conv2d(
    input: Tensor, filter: Tensor, strides: Any, padding: Any, dilation: Any,  # noqa: A002
    data_layout: str = "NCHW", kernel_layout: str = "", out_dtype: str | None = None,
) -> Any:  # fmt: skip
    """A convolution along two axes."""
    return _convolution(
        input, filter, strides, padding, dilation, data_layout, kernel_layout, out_dtype
    )


def depthwise_conv2d_nchw(
    data: Tensor, kernel: Tensor, stride: Any, padding: Any, dilation: Any,
    out_dtype: str | None = None,
) -> Any:  # fmt: skip
    """Each channel with kernels of its own: a kernel has the axes channel, multiple, y and x."""
    channels, multiple, *spatial = kernel.shape
    weight = op("reshape", kernel, shape=(channels * multiple, 1, *spatial))
    groups = int(getattr(channels, "value", 0))
    return _convolution(data, weight, stride, padding, dilation, "NCHW", "", out_dtype, groups)


def depthwise_conv2d_nhwc(
    data: Tensor, kernel: Tensor, stride: Any, padding: Any, dilation: Any,
    kernel_layout: str = "HWOI", out_dtype: str | None = None,
) -> Any:  # fmt: skip
    """Each channel with kernels of its own: a kernel has the axes y, x, channel and multiple."""
    *spatial, channels, multiple = kernel.shape
    weight = op("reshape", kernel, shape=(*spatial, 1, channels * multiple))
    groups = int(getattr(channels, "value", 0))
    return _convolution(data, weight, stride, padding, dilation, "NHWC", "", out_dtype, groups)


def _transposed(layout: str) -> Any:
    dims = len(layout) - 2

    def convolution(
        data: Tensor, kernel: Tensor, strides: Any, padding: Any, out_dtype: str | None,
        output_padding: Any, groups: int = 1,
    ) -> Any:  # fmt: skip
        spatial = kernel.shape[2:]
        return op(
            f"nn.conv{dims}d_transpose", data, kernel, strides=list(ints(strides, dims)),
            padding=_padding(padding, spatial, (1,) * dims),
            output_padding=list(ints(output_padding, dims)), groups=groups, data_layout=layout,
            kernel_layout=f"IO{layout[2:]}", out_dtype=out_dtype,
        )  # fmt: skip

    convolution.__name__ = f"conv{dims}d_transpose_{layout.lower()}"
    return convolution


conv1d_transpose_ncw = group_conv1d_transpose_ncw = _transposed("NCW")
conv2d_transpose_nchw = group_conv2d_transpose_nchw = _transposed("NCHW")
conv3d_transpose_ncdhw = group_conv3d_transpose_ncdhw = _transposed("NCDHW")


# --- Pooling --------------------------------------------------------------------------------------


def _pooling(dims: int) -> Any:
    layout_of = {1: "NCW", 2: "NCHW", 3: "NCDHW"}[dims]

    def pool(
        data: Tensor, kernel: Any, stride: Any, dilation: Any, padding: Any, pool_type: str,
        ceil_mode: bool = False, layout: str = layout_of, count_include_pad: bool = True,
    ) -> Any:  # fmt: skip
        return op(
            f"nn.{pool_type}_pool{dims}d", data, pool_size=list(ints(kernel, dims)),
            strides=list(ints(stride, dims)), padding=list(ints(padding, 2 * dims)),
            dilation=list(ints(dilation, dims)), ceil_mode=ceil_mode,
            count_include_pad=count_include_pad, layout=layout,
        )  # fmt: skip

    pool.__name__ = f"pool{dims}d"
    return pool


pool1d, pool2d, pool3d = map(_pooling, (1, 2, 3))


def _adaptive(dims: int) -> Any:
    layout_of = {1: "NCW", 2: "NCHW", 3: "NCDHW"}[dims]

    def pool(data: Tensor, output_size: Any, pool_type: str, layout: str = layout_of) -> Any:
        sizes = ints(output_size, dims)
        if pool_type == "avg":
            size = list(sizes)
            return op(f"nn.adaptive_avg_pool{dims}d", data, output_size=size, layout=layout)
        extents = [data.shape[i] for i, c in enumerate(layout) if c not in "NC"]
        given = [getattr(e, "value", None) for e in extents]
        if any(g is None or g % s for g, s in zip(given, sizes, strict=True)):
            raise NotImplementedError(
                f"adaptive max pooling of an image of {given} to {sizes}: each extent has to be a "
                "constant, and a multiple of the result's"
            )
        window = [g // s for g, s in zip(given, sizes, strict=True)]  # type: ignore[operator]
        return op(f"nn.max_pool{dims}d", data, pool_size=window, strides=window, layout=layout)

    pool.__name__ = "adaptive_pool" if dims == 2 else f"adaptive_pool{dims}d"
    return pool


adaptive_pool1d, adaptive_pool, adaptive_pool3d = map(_adaptive, (1, 2, 3))


def global_pool(data: Tensor, pool_type: str, layout: str = "NCHW") -> Any:
    """The mean or the largest element of each channel."""
    axes = [i for i, c in enumerate(layout) if c not in "NC"]
    return op("mean" if pool_type == "avg" else "max", data, axis=axes, keepdims=True)


# --- Padding --------------------------------------------------------------------------------------


def _widths(pad_before: Ints, pad_after: Ints | None) -> list[Any]:
    before = ints(pad_before)
    after = before if pad_after is None else ints(pad_after)
    return [w for pair in zip(before, after, strict=True) for w in pair]


def pad(
    data: Tensor, pad_before: Any, pad_after: Any = None, pad_value: Any = 0.0,
    name: str = "PadInput", attrs: Any = None,
) -> Any:  # fmt: skip
    """A value before and after the elements of each axis."""
    value = getattr(pad_value, "value", pad_value)
    return op("nn.pad", data, _widths(pad_before, pad_after), "constant", value)


def reflect_pad(data: Tensor, pad_before: Any, pad_after: Any = None, name: str = "") -> Any:
    """The elements of each axis in reverse before and after it, the border once."""
    return op("nn.pad", data, _widths(pad_before, pad_after), "reflect")


def replicate_pad(data: Tensor, pad_before: Any, pad_after: Any = None, name: str = "") -> Any:
    """The elements on the border before and after each axis."""
    return op("nn.pad", data, _widths(pad_before, pad_after), "replicate")


def circular_pad(data: Tensor, pad_before: Any, pad_after: Any = None, name: str = "") -> Any:
    """The elements of the other end before and after each axis."""
    return op("nn.pad", data, _widths(pad_before, pad_after), "circular")


def mirror_pad(
    data: Tensor, pad_before: Any, pad_after: Any = None, mode: str = "SYMMETRIC", name: str = ""
) -> Any:
    """The elements of each axis in reverse before and after it; the border twice if SYMMETRIC."""
    if mode == "REFLECT":
        return reflect_pad(data, pad_before, pad_after)
    before = ints(pad_before)
    after = before if pad_after is None else ints(pad_after)
    shape = tuple(s + b + a for s, b, a in zip(data.shape, before, after, strict=True))

    def place(i: PrimExpr, size: PrimExpr, first: int) -> PrimExpr:
        at = i - first
        folded = expr.Select(expr.LT(at, expr.const(0)), -1 - at, at)
        return expr.Select(expr.GE(folded, size), 2 * size - 1 - folded, folded)

    return te.compute(
        shape,
        lambda *i: data[tuple(map(place, i, data.shape, before))],
        "mirror_pad",
    )


def dilate(data: Tensor, strides: Ints, dilation_value: float = 0.0, name: str = "") -> Any:
    """The elements a stride apart, with a value between them."""
    steps = ints(strides)
    shape = tuple((d - 1) * s + 1 for d, s in zip(data.shape, steps, strict=True))
    fill = expr.const(dilation_value, data.dtype)

    def element(*i: PrimExpr) -> PrimExpr:
        on = [expr.EQ(v % s, expr.const(0)) for v, s in zip(i, steps, strict=True) if s != 1]
        value = data[tuple(v // s for v, s in zip(i, steps, strict=True))]
        if not on:
            return value
        return expr.Call(data.dtype, "if_then_else", (expr.all_of(tuple(on)), value, fill))

    return te.compute(shape, element, "dilate")


# --- Norms ----------------------------------------------------------------------------------------


def layer_norm(data: Tensor, gamma: Tensor, beta: Tensor, axis: Any, epsilon: float = 1e-5) -> Any:
    """Each row less its mean, by its deviation, scaled and shifted."""
    return op("nn.layer_norm", data, gamma, beta, axes=list(ints(axis)), epsilon=epsilon)


def instance_norm(
    data: Tensor, gamma: Tensor, beta: Tensor, channel_axis: int, axis: Any, epsilon: float = 1e-5
) -> Any:
    """Each image's channel less its mean, by its deviation, scaled and shifted."""
    axes = list(ints(axis))
    return op("nn.instance_norm", data, gamma, beta, channel_axis, axes, epsilon)


def rms_norm(data: Tensor, weight: Tensor, axis: Any, epsilon: float = 1e-5) -> Any:
    """Each row by the root of its mean square, scaled."""
    return op("nn.rms_norm", data, weight, axes=list(ints(axis)), epsilon=epsilon)


def batch_norm(
    data: Tensor, gamma: Tensor, beta: Tensor, moving_mean: Tensor, moving_var: Tensor,
    axis: int | None = None, epsilon: float | None = None, center: bool | None = None,
    scale: bool | None = None, training: bool | None = None, momentum: float | None = None,
) -> Any:  # fmt: skip
    """Each channel less its mean, by its deviation; and the moving mean and variance."""
    given = {"axis": axis, "epsilon": epsilon, "center": center, "scale": scale,
             "momentum": momentum}  # fmt: skip
    options = {"axis": 1, "training": bool(training)}
    options |= {k: v for k, v in given.items() if v is not None}  # type: ignore[assignment]
    return op("nn.batch_norm", data, gamma, beta, moving_mean, moving_var, **options)


def scale_shift_nchw(data: Tensor, scale: Tensor, shift: Tensor) -> Any:
    """Each channel scaled and shifted."""
    return te.compute(
        data.shape, lambda *i: data[i] * scale[(i[1],)] + shift[(i[1],)], "scale_shift"
    )


def scale_shift_nhwc(data: Tensor, scale: Tensor, shift: Tensor) -> Any:
    """Each channel scaled and shifted, channels last."""
    return te.compute(
        data.shape, lambda *i: data[i] * scale[(i[3],)] + shift[(i[3],)], "scale_shift"
    )


def lrn(
    data: Tensor, size: int, axis: int = 1, alpha: float = 1e-4, beta: float = 0.75,
    bias: float = 2,
) -> Any:  # fmt: skip
    """Each element by a power of the squares of `size` neighbours along an axis."""
    squares = op("multiply", data, data)
    zeros = [size // 2 if d == axis else 0 for d in range(len(data.shape))]
    padded = pad(squares, zeros)
    k = te.reduce_axis(size, "k")

    def element(*i: PrimExpr) -> te.Reduce:
        return te.te_sum(padded[(*i[:axis], i[axis] + k.var, *i[axis + 1 :])], k)

    sums = te.compute(data.shape, element, "sums")
    of_dtype = lambda v: expr.const(v, data.dtype)  # noqa: E731

    def scaled(*i: PrimExpr) -> PrimExpr:
        base = of_dtype(bias) + of_dtype(alpha / size) * sums[i]
        return data[i] / expr.Call(data.dtype, "pow", (base, of_dtype(beta)))

    return te.compute(data.shape, scaled, "lrn")


# --- Blocks of space ------------------------------------------------------------------------------


def depth_to_space(data: Tensor, block_size: int, layout: str = "NCHW", mode: str = "DCR") -> Any:
    """Channels as blocks of space: the block outside of the remaining channels if DCR, inside of
    them if CRD."""
    if layout == "NHWC":
        moved = depth_to_space(
            op("permute_dims", data, axes=[0, 3, 1, 2]), block_size, "NCHW", mode
        )
        return op("permute_dims", moved, axes=[0, 2, 3, 1])
    n, c, h, w = data.shape
    b = block_size
    rest = c // (b * b)
    inner = (n, b, b, rest, h, w) if mode == "DCR" else (n, rest, b, b, h, w)
    order = [0, 3, 4, 1, 5, 2] if mode == "DCR" else [0, 1, 4, 2, 5, 3]
    split = op("permute_dims", op("reshape", data, shape=inner), axes=order)
    return op("reshape", split, shape=(n, rest, h * b, w * b))


def space_to_depth(data: Tensor, block_size: int, layout: str = "NCHW") -> Any:
    """Blocks of space as channels."""
    if layout == "NHWC":
        moved = space_to_depth(op("permute_dims", data, axes=[0, 3, 1, 2]), block_size)
        return op("permute_dims", moved, axes=[0, 2, 3, 1])
    n, c, h, w = data.shape
    b = block_size
    split = op("reshape", data, shape=(n, c, h // b, b, w // b, b))
    moved = op("permute_dims", split, axes=[0, 3, 5, 1, 2, 4])
    return op("reshape", moved, shape=(n, c * (b * b), h // b, w // b))


def space_to_batch_nd(
    data: Tensor, block_shape: Ints, pad_before: Ints, pad_after: Ints, pad_value: float = 0.0
) -> Any:
    """Blocks of space, after padding, as images of their own."""
    blocks = ints(block_shape)
    rest = (0,) * (len(data.shape) - 1 - len(blocks))
    padded = pad(data, (0, *ints(pad_before), *rest), (0, *ints(pad_after), *rest), pad_value)
    n, *spatial = padded.shape
    dims = len(blocks)
    pairs = [x for s, b in zip(spatial, blocks, strict=False) for x in (s // b, b)]
    split = op("reshape", padded, shape=(n, *pairs, *spatial[dims:]))
    inner = [2 + 2 * d for d in range(dims)]
    outer = [1 + 2 * d for d in range(dims)]
    others = range(1 + 2 * dims, 1 + 2 * dims + len(rest))
    moved = op("permute_dims", split, axes=[*inner, 0, *outer, *others])
    count = n
    for b in blocks:
        count = count * b
    sizes = [s // b for s, b in zip(spatial, blocks, strict=False)]
    return op("reshape", moved, shape=(count, *sizes, *spatial[dims:]))


def upsampling(
    data: Tensor, scale_h: Any, scale_w: Any, layout: str = "NCHW",
    method: str = "nearest_neighbor", align_corners: bool = False, output_shape: Any = None,
) -> Any:  # fmt: skip
    """The images in another size."""
    h, w = (data.shape[layout.index(c)] for c in "HW")
    size = [getattr(s, "value", s) for s in (h * scale_h, w * scale_w)]
    nearest = method == "nearest_neighbor"
    mode = "asymmetric" if nearest else "align_corners" if align_corners else "half_pixel"
    return resize2d(
        data, (0.0,) * 4, size, layout, "linear" if method == "bilinear" else method, mode
    )
