"""`nn.op`: operators on tensors of `nn`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from relaxlab.ir import expr, graph
from relaxlab.ir.node import Attrs
from relaxlab.tvm.relax.block_builder import BlockBuilder
from relaxlab.tvm.relax.frontend.nn.core import (
    Tensor,
    binary,
    call,
    get_default_dtype,
    unwrap,
    wrap_nested,
)
from relaxlab.tvm.relax.frontend.nn.effects import debug_func as debug_func
from relaxlab.tvm.relax.frontend.nn.effects import print_ as print_

UNARY = {
    **{n: n for n in "exp log sqrt square tanh sigmoid negative floor".split()},
    **{n: f"nn.{n}" for n in "relu relu6 silu".split()},
}
"""Operators of one tensor, and the operators of the table that they are."""
BINARY = (
    "add subtract multiply divide maximum minimum equal not_equal less less_equal greater "
    "greater_equal"
).split()
"""Operators of two tensors, one of which may be a number."""


def __getattr__(name: str) -> Any:
    if name in UNARY:
        return lambda x, name=name, _of=UNARY[name]: call(_of, x, hint=name)
    if name in BINARY:
        return lambda a, b, name=name, _of=name: binary(_of, a, b, hint=name)
    raise AttributeError(f"tvm.relax.frontend.nn.op.{name} is not among relaxlab's", name=name)


def __dir__() -> list[str]:
    return sorted({*globals(), *UNARY, *BINARY})


def _dims(shape: Sequence[Any]) -> graph.ShapeExpr:
    return graph.ShapeExpr(tuple(map(expr.as_expr, shape)))


def _axes(axis: Any) -> Any:
    return axis if axis is None or isinstance(axis, list | tuple) else [axis]


# --- Shapes ---------------------------------------------------------------------------------------


def reshape(x: Tensor, shape: Sequence[Any], name: str = "reshape") -> Tensor:
    return call("reshape", x, _dims(shape), hint=name)


def permute_dims(x: Tensor, axes: list[int] | None = None, name: str = "permute_dims") -> Tensor:
    return call("permute_dims", x, axes=axes, hint=name)


def permute(x: Tensor, axes: list[int] | None = None, name: str = "permute") -> Tensor:
    return permute_dims(x, axes, name)


def squeeze(x: Tensor, axis: int = -1, name: str = "squeeze") -> Tensor:
    return call("squeeze", x, axis=_axes(axis), hint=name)


def unsqueeze(x: Tensor, dim: int, name: str = "unsqueeze") -> Tensor:
    return call("expand_dims", x, axis=[dim], hint=name)


def broadcast_to(x: Tensor, shape: Sequence[Any], name: str = "broadcast_to") -> Tensor:
    return call("broadcast_to", x, _dims(shape), hint=name)


def repeat(x: Tensor, repeats: int, axis: int | None = None, name: str = "repeat") -> Tensor:
    return call("repeat", x, repeats=repeats, axis=axis, hint=name)


def concat(x: Sequence[Tensor], dim: int, name: str = "concat") -> Tensor:
    return call("concat", tuple(x), axis=dim, hint=name)


def split(
    ary: Tensor, indices_or_sections: Any, axis: int = 0, name: str = "split"
) -> tuple[Tensor, ...]:
    return call("split", ary, indices_or_sections, axis=axis, hint=name)


def chunk(x: Tensor, chunks: int, dim: int = 0, name: str = "chunk") -> tuple[Tensor, ...]:
    return split(x, chunks, dim, name)


def pad(
    x: Tensor, pad: list[int], mode: str = "constant", value: float = 0.0, name: str = "pad"
) -> Tensor:
    return call("nn.pad", x, pad, pad_mode=mode, pad_value=value, hint=name)


def astype(x: Tensor, dtype: str, name: str = "astype") -> Tensor:
    return x if x.dtype == dtype else call("astype", x, dtype=dtype, hint=name)


# --- Elements -------------------------------------------------------------------------------------


def take(x: Tensor, indices: Tensor, axis: int | None = None, name: str = "take") -> Tensor:
    return call("take", x, indices, axis=axis, hint=name)


def where(condition: Tensor, x1: Tensor, x2: Tensor, name: str = "where") -> Tensor:
    return call("where", astype(condition, "bool"), x1, x2, hint=name)


def triu(x: Tensor, diagonal: int = 0, name: str = "triu") -> Tensor:
    return call("triu", x, diagonal, hint=name)


def zeros(shape: Sequence[Any], dtype: str = "float32", name: str = "zeros") -> Tensor:
    return call("zeros", _dims(shape), dtype=dtype, hint=name)


def ones(shape: Sequence[Any], dtype: str = "float32", name: str = "ones") -> Tensor:
    return call("ones", _dims(shape), dtype=dtype, hint=name)


def full(
    shape: Sequence[Any], fill_value: Any, dtype: str = "float32", name: str = "full"
) -> Tensor:
    value = fill_value if isinstance(fill_value, Tensor) else Tensor.from_scalar(fill_value, dtype)
    return call("full", _dims(shape), value, dtype=dtype, hint=name)


def arange(
    start: Any, end: Any = None, step: Any = 1, dtype: str = "float32", name: str = "arange"
) -> Tensor:
    first, last = (0, start) if end is None else (start, end)
    values = (graph.PrimValue(expr.as_expr(v)) for v in (first, last, step))
    return call("arange", *values, dtype=dtype, hint=name)


def sort(x: Tensor, axis: int = -1, descending: bool = False, name: str = "sort") -> Tensor:
    return call("sort", x, axis=axis, descending=descending, hint=name)


def argsort(
    data: Tensor, axis: int = -1, descending: bool = False, dtype: str = "int32",
    name: str = "argsort",
) -> Tensor:  # fmt: skip
    return call("argsort", data, axis=axis, descending=descending, dtype=dtype, hint=name)


def topk(
    data: Tensor, k: int = 1, axis: int = -1, ret_type: str = "both", largest: bool = True,
    dtype: str = "int32", name: str = "topk",
) -> Any:  # fmt: skip
    return call(
        "topk", data, k=k, axis=axis, ret_type=ret_type, largest=largest, dtype=dtype, hint=name
    )


# --- Sums and products ----------------------------------------------------------------------------


def _reduction(name: str) -> Callable[..., Tensor]:
    def reduce(x: Tensor, axis: Any = None, keepdims: bool = False, name: str = name) -> Tensor:
        return call(of, x, axis=axis, keepdims=keepdims, hint=name)

    of = name
    return reduce


sum = _reduction("sum")
max = _reduction("max")
min = _reduction("min")


def cumsum(
    data: Tensor, axis: int | None = None, dtype: str | None = None,
    exclusive: bool | None = None, name: str = "cumsum",
) -> Tensor:  # fmt: skip
    return call("cumsum", data, axis=axis, dtype=dtype, exclusive=bool(exclusive), hint=name)


def matmul(a: Tensor, b: Tensor, out_dtype: str | None = None, name: str = "matmul") -> Tensor:
    return call("matmul", a, b, out_dtype=out_dtype, hint=name)


def softmax(x: Tensor, axis: int = -1, name: str = "softmax") -> Tensor:
    return call("nn.softmax", x, axis=axis, hint=name)


def gelu(x: Tensor, approximate: str | None = None, name: str = "gelu") -> Tensor:
    return call("nn.gelu_tanh" if approximate == "tanh" else "nn.gelu", x, hint=name)


def softplus(
    x: Tensor, beta: float = 1.0, threshold: float = 20.0, name: str = "softplus"
) -> Tensor:
    return call("nn.softplus", x, beta=beta, threshold=threshold, hint=name)


def prelu(x: Tensor, alpha: Tensor, name: str = "prelu") -> Tensor:
    return call("nn.prelu", x, alpha, hint=name)


def _or_constant(given: Tensor | None, value: float, shape: Sequence[Any], dtype: str) -> Tensor:
    if given is not None:
        return given
    return Tensor.from_const(np.full([int(d) for d in shape], value, dtype))


def layer_norm(
    x: Tensor, normalized_shape: Any, weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5, name: str = "layer_norm",
) -> Tensor:  # fmt: skip
    shape = _axes(normalized_shape)
    axes = list(range(-len(shape), 0))
    gamma = _or_constant(weight, 1, shape, x.dtype)
    beta = _or_constant(bias, 0, shape, x.dtype)
    return call("nn.layer_norm", x, gamma, beta, axes=axes, epsilon=eps, hint=name)


def rms_norm(
    x: Tensor, weight: Tensor, axes: Any, epsilon: float = 1e-5, name: str = "rms_norm"
) -> Tensor:
    return call("nn.rms_norm", x, weight, axes=_axes(axes), epsilon=epsilon, hint=name)


def group_norm(
    x: Tensor, num_groups: int, weight: Tensor | None, bias: Tensor | None, eps: float = 1e-5,
    channel_axis: int = 1, axes: list[int] | None = None, name: str = "group_norm",
) -> Tensor:  # fmt: skip
    shape = [x.shape[channel_axis]]
    gamma = _or_constant(weight, 1, shape, x.dtype)
    beta = _or_constant(bias, 0, shape, x.dtype)
    rest = list(range(2, x.ndim)) if axes is None else axes
    return call(
        "nn.group_norm", x, gamma, beta, num_groups=num_groups, channel_axis=channel_axis,
        axes=rest, epsilon=eps, hint=name,
    )  # fmt: skip


def _convolution(rank: int) -> Callable[..., Tensor]:
    def convolve(
        x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
        dilation: Any = 1, groups: int = 1, name: str = f"conv{rank}d",
    ) -> Tensor:  # fmt: skip
        out = call(
            f"nn.conv{rank}d", x, weight, strides=stride, padding=padding, dilation=dilation,
            groups=groups, hint=name,
        )  # fmt: skip
        return out if bias is None else out + reshape(bias, [1, -1, *[1] * rank])

    return convolve


conv1d, conv2d, conv3d = map(_convolution, (1, 2, 3))


def conv1d_transpose(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
    output_padding: Any = 0, dilation: Any = 1, groups: int = 1, name: str = "conv1d_transpose",
) -> Tensor:  # fmt: skip
    out = call(
        "nn.conv1d_transpose", x, weight, strides=stride, padding=padding,
        output_padding=output_padding, dilation=dilation, groups=groups, hint=name,
    )  # fmt: skip
    return out if bias is None else out + reshape(bias, [1, -1, 1])


def interpolate(
    x: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
    align_corners: bool | None = None, recompute_scale_factor: bool | None = None,
    antialias: bool | None = None, data_layout: str = "NCHW", name: str = "interpolate",
) -> Tensor:  # fmt: skip
    """An image of another size, given in pixels or by factors of height and width. Raises
    NotImplementedError for `recompute_scale_factor` and `antialias`, which TVM refuses, too."""
    if recompute_scale_factor or antialias:
        raise NotImplementedError(
            "interpolate computes neither recompute_scale_factor nor antialias; give the size in "
            "pixels instead, and leave out antialias"
        )
    if size is None:
        factors = scale_factor if isinstance(scale_factor, list | tuple) else [scale_factor] * 2
        extents = [x.shape[data_layout.index(axis)] for axis in "HW"]
        size = [
            int(e * f) if isinstance(e, int) else e * f
            for e, f in zip(extents, factors, strict=True)
        ]
    elif not isinstance(size, list | tuple):
        size = [size, size]
    nearest = mode.startswith("nearest")
    coordinates = "align_corners" if align_corners else "asymmetric" if nearest else "half_pixel"
    return call(
        "image.resize2d", x, _dims(size), layout=data_layout, method=_METHODS.get(mode, mode),
        coordinate_transformation_mode=coordinates, hint=name,
    )  # fmt: skip


_METHODS = {"nearest": "nearest_neighbor", "bilinear": "linear", "bicubic": "cubic"}
"""The methods of `image.resize2d` by PyTorch's names."""


def get_timestep_embedding(
    x: Tensor, embedding_dim: int, flip_sin_to_cos: bool = False,
    downscale_freq_shift: float = 1, scale: float = 1, max_period: int = 10000,
    name: str = "get_timestep_embedding",
) -> Tensor:  # fmt: skip
    """Sines and cosines of the steps (batch,) at falling frequencies: (batch, embedding_dim), as in
    "Denoising Diffusion Probabilistic Models"."""
    half = embedding_dim // 2
    exponent = arange(half) * -math.log(max_period) / (half - downscale_freq_shift)
    angles = unsqueeze(astype(x, "float32"), 1) * unsqueeze(call("exp", exponent), 0)
    if scale != 1:
        angles = angles * scale
    parts = [call("sin", angles), call("cos", angles)]
    joined = concat(parts[::-1] if flip_sin_to_cos else parts, -1)
    if embedding_dim % 2:
        joined = pad(joined, [0, 0, 0, 1])
    return astype(joined, get_default_dtype(), name)


def multinomial_from_uniform(
    prob: Tensor, uniform_sample: Tensor, sample_indices: Tensor | None = None,
    dtype: str = "int64", name: str = "multinomial_from_uniform",
) -> Tensor:  # fmt: skip
    """The places where the sums of the probabilities pass the samples (n, 1), each in the row that
    `sample_indices` (n, 1) says: its own by default."""
    if sample_indices is None:
        rows = np.arange(int(uniform_sample.shape[0]), dtype="int64")
        sample_indices = Tensor.from_const(rows[:, None])
    return call(
        "multinomial_from_uniform", prob, uniform_sample, sample_indices, dtype=dtype, hint=name
    )


def empty(shape: Sequence[Any], dtype: str = "float32", name: str = "empty") -> Tensor:
    """A tensor whose elements have no values yet."""
    return call("builtin.alloc_tensor", _dims(shape), dtype, 0, hint=name)


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    is_causal: bool = False, scale: float | None = None,
    name: str = "scaled_dot_product_attention",
) -> Tensor:  # fmt: skip
    """Attention of tensors (batch, sequence, heads, head size)."""
    mask = "TopLeft" if is_causal else None
    operands = (query, key, value) if attn_mask is None else (query, key, value, attn_mask)
    op = "nn.attention" if attn_mask is None else "nn.attention_bias"
    return call(op, *operands, scale=scale, causal_mask=mask, hint=name)


# --- Several workers ------------------------------------------------------------------------------


def ccl_allgather(x: Tensor, num_workers: int, name: str = "ccl_allgather") -> Tensor:
    return call("ccl.allgather", x, num_workers, hint=name)


def ccl_allreduce(
    x: Tensor, op_type: str = "sum", in_group: bool = True, name: str = "ccl_allreduce"
) -> Tensor:
    return call("ccl.allreduce", x, op_type, in_group, hint=name)


def ccl_broadcast_from_worker0(x: Tensor, name: str = "broadcast_from_worker") -> Tensor:
    return call("ccl.broadcast_from_worker0", x, hint=name)


# --- Functions of one's own -----------------------------------------------------------------------


def tensor_expr_op(
    tensor_expr_func: Callable[..., Any], name_hint: str, args: Sequence[Any], *,
    attrs: dict[str, Any] | None = None,
) -> Any:  # fmt: skip
    """The results of a function of tensor expressions."""
    block = BlockBuilder.current()
    assert block is not None
    made = block.call_te(
        tensor_expr_func, *map(unwrap, args), primfunc_name_hint=name_hint, primfunc_attrs=attrs
    )
    return wrap_nested(made, name_hint)


def tensor_ir_op(func: Any, name_hint: str, args: Any, out: Any) -> Any:
    """The results of a loop function; `out` are placeholders like them."""
    return _loop_call("call_tir", func, name_hint, args, out)


def tensor_ir_inplace_op(
    func: Any, name_hint: str, args: Any, inplace_indices: int | list[int], out: Any
) -> Any:
    """The results of a loop function that writes them over the arguments `inplace_indices`."""
    places = inplace_indices if isinstance(inplace_indices, list) else [inplace_indices]
    attrs = {"inplace_indices": tuple(places)}
    return _loop_call("call_tir_inplace", func, name_hint, args, out, attrs)


def _loop_call(
    name: str, func: Any, name_hint: str, args: Any, out: Any, attrs: dict[str, Any] | None = None
) -> Any:
    block = BlockBuilder.current()
    assert block is not None
    given = args if isinstance(args, list | tuple) else [args]
    tensors = tuple(unwrap(a) for a in given if isinstance(a, Tensor))
    scalars = tuple(expr.as_expr(a) for a in given if not isinstance(a, Tensor))
    callee = block.add_func(func, name_hint)
    outs = tuple(o.type for o in (out if isinstance(out, list | tuple) else [out]))
    operands = (callee, graph.Tuple(tensors))
    if scalars:
        operands = (*operands, graph.ShapeExpr(scalars))
    made = graph.Call(graph.Op(name), operands, attrs=Attrs(attrs or {}), ty_args=outs)
    return wrap_nested(made, name_hint)


def extern(name: str, args: Sequence[Any], out: Any) -> Any:
    """The result of a packed function, found by its name at run time; `out` is like the result."""
    operands = graph.Tuple(tuple(_operand(a) for a in args))
    outs = tuple(o.type for o in (out if isinstance(out, list | tuple) else [out]))
    made = graph.Call(graph.Op("call_dps_packed"), (graph.ExternFunc(name), operands), ty_args=outs)
    return wrap_nested(made, name.replace(".", "_"))


def _operand(value: Any) -> graph.Expr:
    if isinstance(value, Tensor):
        return value._expr
    if isinstance(value, str):
        return graph.StringImm(value)
    return graph.PrimValue(expr.as_expr(value))
