"""JAX's functions for operators, by name: called with arrays, and the attributes as keywords.

Operators that JAX has no function of the same meaning for have no entry.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax, nn
from jax import numpy as jnp
from jax.scipy import special

SAME = (
    "exp sin cos tan sinh cosh tanh log log2 log10 log1p sqrt floor ceil trunc round abs negative "
    "square sign isnan isinf isfinite logical_not logical_and logical_or logical_xor bitwise_not "
    "bitwise_and bitwise_or bitwise_xor maximum minimum outer where floor_divide add subtract "
    "multiply divide power equal not_equal less less_equal greater greater_equal left_shift "
    "right_shift tril triu matmul max min mean std repeat flip"
).split()
OTHER_NAMES = {
    "acos": "arccos", "asin": "arcsin", "atan": "arctan", "acosh": "arccosh", "asinh": "arcsinh",
    "atanh": "arctanh", "atan2": "arctan2", "mod": "fmod", "floor_mod": "mod", "variance": "var",
    "log_add_exp": "logaddexp", "concat": "concatenate", "stack": "stack",
}  # fmt: skip
ACTIVATIONS = {"nn.relu": nn.relu, "nn.relu6": nn.relu6, "nn.silu": nn.silu, "nn.selu": nn.selu}
SPATIAL = {1: "W", 2: "HW", 3: "DHW"}
Pairs = Sequence[tuple[int, int]]


def table() -> dict[str, Callable[..., Any]]:
    """All functions."""
    found: dict[str, Callable[..., Any]] = {name: getattr(jnp, name) for name in SAME}
    found |= {name: getattr(jnp, theirs) for name, theirs in OTHER_NAMES.items()}
    return found | ACTIVATIONS | _elementwise() | _moves() | _networks() | _windows()


def _elementwise() -> dict[str, Callable[..., Any]]:
    return {
        "rsqrt": lax.rsqrt,
        "sigmoid": nn.sigmoid,
        "erf": special.erf,
        "nn.gelu": lambda x: nn.gelu(x, approximate=False),
        "nn.gelu_tanh": nn.gelu,
        "nn.leakyrelu": lambda x, alpha=0.01: nn.leaky_relu(x, alpha),
        "nn.softplus": nn.softplus,
        "clip": lambda x, min, max: jnp.clip(x, min, max),
        "astype": lambda x, dtype: x.astype(dtype),
        "masked_fill": lambda x, m, value: jnp.where(m, jnp.asarray(value, x.dtype), x),
        "ewise_fma": lambda a, b, c: a * b + c,
        "nn.prelu": lambda x, a, axis: jnp.where(x > 0, x, x * _along(a, axis, x.ndim)),
    }


def _along(x: Any, axis: int, dims: int) -> Any:
    """A vector as the extent of one axis of so many."""
    return x.reshape([-1 if d == axis % dims else 1 for d in range(dims)])


def _moves() -> dict[str, Callable[..., Any]]:
    # In the dtype of the operand, which JAX would widen.
    same = ("sum", "prod", "cumsum", "cumprod")
    return {
        **{name: _kept(getattr(jnp, name)) for name in same},
        "argmax": lambda x, axis=None: jnp.argmax(x, axis),
        "argmin": lambda x, axis=None: jnp.argmin(x, axis),
        "permute_dims": lambda x, axes=None: jnp.transpose(x, axes),
        "tile": lambda x, repeats: jnp.tile(x, repeats),
        "sort": lambda x, axis=-1: jnp.sort(x, axis),
        "argsort": lambda x, axis=-1: jnp.argsort(x, axis),
        "topk": lambda x, k: lax.top_k(x, k),
        "median": lambda x, axis: jnp.median(x, axis),
        "bucketize": lambda x, e: jnp.searchsorted(e, x),
        "split": lambda x, indices_or_sections, axis: jnp.split(x, indices_or_sections, axis),
        "take": lambda x, at, axis: jnp.take(x, at, axis, mode="clip"),
        "gather_elements": lambda x, at, axis: jnp.take_along_axis(x, at, axis),
        "gather_nd": lambda x, at: x[at[:, 0]],
        "index_tensor": lambda x, at: x[tuple(at)],
        "scatter_nd": lambda x, at, new, reduction: x.at[at[:, 0]].add(new),
        "index_put": lambda x, at, new, accumulate: x.at[tuple(at)].add(new),
        "nn.pad": _pad,
        "one_hot": lambda at, one, zero, depth: nn.one_hot(at, depth),
        "strided_slice": lambda x, axes, begin, end, strides: lax.slice_in_dim(
            x, begin[0], end[0], strides[0], axes[0]
        ),
    }


def _kept(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, axis: fn(x, axis, dtype=x.dtype)


def _pad(x: Any, pad_width: Any, pad_mode: str = "constant") -> Any:
    pairs = [pad_width[2 * d : 2 * d + 2] for d in range(x.ndim)]
    return jnp.pad(x, pairs, mode=pad_mode)


def _networks() -> dict[str, Callable[..., Any]]:
    return {
        "linear": lambda a, w: a @ w.T,
        "einsum": lambda xs, subscripts: jnp.einsum(subscripts, *xs),
        "nn.softmax": lambda x, axis=-1: nn.softmax(x, axis),
        "nn.log_softmax": lambda x, axis=-1: nn.log_softmax(x, axis),
        "softmax_with_temperature": lambda x, t: nn.softmax(x / t, -1),
        "nn.layer_norm": lambda x, g, b, axes: _normed(x, axes) * g + b,
        "nn.rms_norm": _rms_norm,
        "nn.group_norm": _group_norm,
        "nn.instance_norm": lambda x, g, b, channel_axis, axes: (
            _normed(x, axes) * _along(g, channel_axis, x.ndim) + _along(b, channel_axis, x.ndim)
        ),
        "nn.attention": nn.dot_product_attention,
        "nn.attention_bias": lambda q, k, v, bias: nn.dot_product_attention(q, k, v, bias),
    }


def _normed(x: Any, axes: Sequence[int]) -> Any:
    mean = x.mean(tuple(axes), keepdims=True)
    centred = x - mean
    return centred * lax.rsqrt((centred * centred).mean(tuple(axes), keepdims=True) + 1e-5)


def _rms_norm(x: Any, g: Any, axes: Sequence[int]) -> Any:
    return x * lax.rsqrt((x * x).mean(tuple(axes), keepdims=True) + 1e-5) * g


def _group_norm(x: Any, g: Any, b: Any, num_groups: int, channel_axis: int, axes: Any) -> Any:
    del axes  # all those behind the channels
    parts = x.reshape(x.shape[0], num_groups, -1)
    normed = _normed(parts, (2,)).reshape(x.shape)
    return normed * _along(g, channel_axis, x.ndim) + _along(b, channel_axis, x.ndim)


def _each(value: Any, dims: int) -> tuple[int, ...]:
    return (value,) * dims if isinstance(value, int) else tuple(value)


def _pairs(padding: Any, dims: int) -> Pairs:
    pads = _each(padding, dims)
    return [*zip(pads, pads, strict=True)] if len(pads) == dims else [
        *zip(pads[:dims], pads[dims:], strict=True)]  # fmt: skip


def _windows() -> dict[str, Callable[..., Any]]:
    found: dict[str, Callable[..., Any]] = {}
    for dims, letters in SPATIAL.items():
        layout = ("NC" + letters, "OI" + letters, "NC" + letters)

        def conv(x: Any, w: Any, strides: Any = 1, padding: Any = 0, dilation: Any = 1,
                 groups: int = 1, dims: int = dims, layout: Any = layout) -> Any:  # fmt: skip
            return lax.conv_general_dilated(
                x, w, _each(strides, dims), _pairs(padding, dims),
                rhs_dilation=_each(dilation, dims), dimension_numbers=layout,
                feature_group_count=groups)  # fmt: skip

        def pool(x: Any, pool_size: Any = 1, strides: Any = 1, padding: Any = 0,
                 kind: str = "max", dims: int = dims) -> Any:  # fmt: skip
            window = (1, 1, *_each(pool_size, dims))
            pads = [(0, 0), (0, 0), *_pairs(padding, dims)]
            steps = (1, 1, *_each(strides, dims))

            def reduced(y: Any, unit: Any, fn: Any) -> Any:
                return lax.reduce_window(y, jnp.asarray(unit, y.dtype), fn, window, steps, pads)

            if kind == "max":
                floating = jnp.issubdtype(x.dtype, jnp.floating)
                return reduced(x, -jnp.inf if floating else jnp.iinfo(x.dtype).min, lax.max)
            count = math.prod(window)
            if any(map(any, pads)):
                count = reduced(jnp.ones(x.shape[2:], x.dtype)[None, None], 0, lax.add)
            return reduced(x, 0, lax.add) / count

        found[f"nn.conv{dims}d"] = conv
        found[f"nn.max_pool{dims}d"] = pool
        found[f"nn.avg_pool{dims}d"] = lambda x, fn=pool, **k: fn(x, kind="avg", **k)
    return found


def compiled(fn: Callable[..., Any], attrs: dict[str, Any]) -> Callable[..., Any]:
    """The function for its attributes, compiled for each shape that it is called with."""
    return jax.jit(lambda *args: fn(*args, **attrs))
