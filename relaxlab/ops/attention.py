"""Attention and rotary position embedding (`R.nn.attention`, `R.nn.rope`)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from relaxlab.ir import expr, graph
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.types import PrimType, TensorType, Type
from relaxlab.ops import scalar, te
from relaxlab.ops.define import (
    TypesOf,
    attr,
    define,
    fail,
    one_dtype,
    params,
    require_dtype,
    takes,
    tensor_arg,
)
from relaxlab.ops.shapes import (
    ONE,
    broadcast_index,
    differ,
    divide_exactly,
    impossible,
    require_elements,
    show,
)

Array = np.ndarray[Any, Any]
MASKS = (None, "TopLeft", "BottomRight")


# --- attention --------------------------------------------------------------------------------


def require_known_mask(call: graph.Call) -> None:
    """Raise TypeDeductionError for a `causal_mask` that there is not."""
    if attr(call, "causal_mask") not in MASKS:
        raise fail(
            call,
            f"causal_mask {attr(call, 'causal_mask')!r} is not known",
            'use "TopLeft", "BottomRight" or None',
        )


NEEDS = (one_dtype(0, 1, 2), takes("floating point"))
"""The needs of attention: queries, keys and values of one floating-point dtype."""


def _infer(call: graph.Call, tys: TypesOf) -> Type:
    require_known_mask(call)
    return attention_infer(call, tys)


def attention_infer(call: graph.Call, tys: TypesOf) -> Type:
    """The type of the result: (batch, query length, heads, head_dim of the values)."""
    q, k, v = (tensor_arg(call, tys, i) for i in range(3))
    dtype = q.dtype
    for name, t in (("query", q), ("key", k), ("value", v)):
        if t.ndim not in (-1, 4):
            raise fail(call, f"{name} must be (batch, length, heads, head_dim), is {t}")
    if q.shape is None or k.shape is None or v.shape is None:
        return TensorType(None, dtype, 4)
    pairs = (
        ("batch sizes of query and key", q.shape[0], k.shape[0]),
        ("batch sizes of key and value", k.shape[0], v.shape[0]),
        ("lengths of key and value", k.shape[1], v.shape[1]),
        ("heads of key and value", k.shape[2], v.shape[2]),
        ("head_dim of query and key", q.shape[3], k.shape[3]),
    )
    for what, a, b in pairs:
        if differ(call, a, b, f"the {what}"):
            raise fail(call, f"the {what} differ: {a} and {b}")
    _check_groups(call, q.shape[2], k.shape[2])
    _check_bias(call, tys, q, k)
    return TensorType((*q.shape[:3], v.shape[3]), dtype)


def _check_groups(call: graph.Call, heads: PrimExpr, key_heads: PrimExpr) -> None:
    """Require that the query heads are a multiple of the key heads."""
    claim = f"{heads} query heads cannot share {key_heads} key heads in equal groups"
    if divide_exactly((heads,), (key_heads,)) is None:
        raise fail(call, claim)
    if heads == key_heads:
        return
    require_elements(call, (key_heads,), ())
    divisor = expr.binary(expr.Max, key_heads, ONE)  # all conditions are evaluated
    if impossible(call, expr.EQ(heads % divisor, expr.const(0)), claim):
        raise fail(call, claim)


def _check_bias(call: graph.Call, tys: TypesOf, q: TensorType, k: TensorType) -> None:
    if len(tys) < 4:
        return
    bias = tensor_arg(call, tys, 3)
    assert q.shape is not None and k.shape is not None
    scores = (q.shape[0], q.shape[2], q.shape[1], k.shape[1])
    known = bias.shape if bias.ndim == 4 else None
    pairs = (
        [] if known is None else [(b, s) for b, s in zip(known, scores, strict=True) if b != ONE]
    )
    if bias.ndim not in (-1, 4) or any(differ(call, b, s, "bias and scores") for b, s in pairs):
        raise fail(
            call,
            f"bias must broadcast to (batch, heads, query length, key length) = {show(scores)}, "
            f"is {bias}",
        )


def scale_of(call: graph.Call, head_dim: PrimExpr) -> PrimExpr:
    """The factor of the scores, float32: the attribute `scale`, or 1 / sqrt(head_dim)."""
    scale = attr(call, "scale")
    if scale is not None:
        return expr.const(float(scale), "float32")
    if isinstance(head_dim, expr.IntImm):
        return expr.const(1 / math.sqrt(head_dim.value), "float32")
    return scalar.call("rsqrt", scalar.cast(head_dim, "float32"))


def visible(
    mask: str | None, window: int | None, i: PrimExpr, j: PrimExpr, shift: PrimExpr
) -> PrimExpr:
    """True if query position `i` sees key position `j`. "BottomRight" aligns the last query with
    the last key (`shift` = key length - query length), "TopLeft" the first with the first."""
    at = i + shift if mask == "BottomRight" else i
    seen: PrimExpr = expr.const(True)
    if mask is not None:
        seen = expr.LE(j, at)
    if window is not None:
        seen = scalar.both(seen, expr.LT(at - window, j))
    return seen


def _attention_emit(
    call: graph.Call,
    out: TensorType,
    q: te.Tensor,
    k: te.Tensor,
    v: te.Tensor,
    bias: te.Tensor | None = None,
) -> te.Tensor:
    """softmax(q k^T * scale + bias) v over the keys that a query sees."""
    mask, window = attr(call, "causal_mask"), attr(call, "window_size")
    shift = k.shape[1] - q.shape[1]
    return attend(call, q, k, v, lambda i, j: visible(mask, window, i, j, shift), bias)


def attend(
    call: graph.Call,
    q: te.Tensor,
    k: te.Tensor,
    v: te.Tensor,
    sees: Callable[[PrimExpr, PrimExpr], PrimExpr],
    bias: te.Tensor | None = None,
    facts: te.Facts = te.NO_FACTS,
) -> te.Tensor:
    """softmax(q k^T * scale + bias) v over the keys j with `sees(i, j)` for query row i, whose
    index functions have `facts`."""
    batch, rows, heads, depth = q.shape
    length = k.shape[1]
    group = divide_exactly((heads,), k.shape[2:3])
    assert group is not None
    shape = (batch, heads, rows, length)
    d, accumulator = te.reduce_axis(depth, "d"), "float64" if q.dtype == "float64" else "float32"
    factor = scalar.cast(scale_of(call, depth), accumulator)

    def dot(b: PrimExpr, h: PrimExpr, i: PrimExpr, j: PrimExpr) -> te.Reduce:
        product = expr.Mul(scalar.wide(q[b, i, h, d.var]), scalar.wide(k[b, j, h // group, d.var]))
        return te.te_sum(product, d)

    dots = te.compute(shape, dot, "T_attention_dot")

    def score(b: PrimExpr, h: PrimExpr, i: PrimExpr, j: PrimExpr) -> PrimExpr:
        value: PrimExpr = expr.Mul(dots[b, h, i, j], factor)
        if bias is not None:
            at = broadcast_index((b, h, i, j), bias.shape, shape)
            value = expr.Add(value, scalar.wide(bias[at]))
        seen = sees(i, j)
        if seen == te.TRUE:
            return value
        return expr.Select(seen, value, expr.lowest(accumulator))

    scores = te.compute(shape, score, "T_attention_score", facts)
    weights, total = _softmax_parts(scores, accumulator)
    j = te.reduce_axis(length, "j")

    def mix(b: PrimExpr, i: PrimExpr, h: PrimExpr, e: PrimExpr) -> te.Reduce:
        value, weight = scalar.wide(v[b, j.var, h // group, e]), weights[b, h, i, j.var]
        term: PrimExpr = expr.Mul(weight, value)
        if facts:
            unseen = expr.EQ(scores[b, h, i, j.var], expr.lowest(accumulator))
            term = expr.Select(unseen, expr.const(0, accumulator), term)
        return te.te_sum(term, j)

    mixed = te.compute((batch, rows, heads, v.shape[3]), mix, "T_attention_mix")

    def normalise(b: PrimExpr, i: PrimExpr, h: PrimExpr, e: PrimExpr) -> PrimExpr:
        nothing = expr.EQ(total[b, h, i], expr.const(0, accumulator))
        divisor = expr.Select(nothing, expr.const(1, accumulator), total[b, h, i])
        return scalar.cast(expr.Div(mixed[b, i, h, e], divisor), q.dtype)

    return te.compute((batch, rows, heads, v.shape[3]), normalise, "T_attention")


def _softmax_parts(scores: te.Tensor, dtype: str) -> tuple[te.Tensor, te.Tensor]:
    """exp(score - max) and its sums over the keys; a row that sees no key gets zeros."""
    batch, heads, rows, length = scores.shape
    r = te.reduce_axis(length, "j")
    top = te.compute(
        (batch, heads, rows),
        lambda b, h, i: te.te_max(scores[b, h, i, r.var], r),
        "T_attention_max",
    )

    def weight(b: PrimExpr, h: PrimExpr, i: PrimExpr, j: PrimExpr) -> PrimExpr:
        unseen = expr.EQ(scores[b, h, i, j], expr.lowest(dtype))
        exp = scalar.call("exp", expr.Sub(scores[b, h, i, j], top[b, h, i]))
        return expr.Select(unseen, expr.const(0, dtype), exp)

    weights = te.compute(scores.shape, weight, "T_attention_exp")
    s = te.reduce_axis(length, "j")
    total = te.compute(
        (batch, heads, rows),
        lambda b, h, i: te.te_sum(weights[b, h, i, s.var], s),
        "T_attention_expsum",
    )
    return weights, total


def attention_reference(
    query: Array,
    key: Array,
    value: Array,
    bias: Array | None = None,
    scale: float | None = None,
    causal_mask: str | None = None,
    window_size: int | None = None,
) -> Array:
    """Attention by NumPy, in the dtype of the queries; float32 within for half precision."""
    wide = np.float64 if query.dtype == np.float64 else np.float32
    q, k, v = (x.astype(wide).transpose(0, 2, 1, 3) for x in (query, key, value))
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    factor = wide(scale if scale is not None else 1 / math.sqrt(q.shape[-1]))
    scores = q @ k.transpose(0, 1, 3, 2) * factor
    if bias is not None:
        scores = scores + bias.astype(wide)
    rows, length = scores.shape[-2:]
    at = np.arange(rows)[:, None] + (length - rows if causal_mask == "BottomRight" else 0)
    j = np.arange(length)[None, :]
    if causal_mask is not None:
        scores = np.where(j <= at, scores, -np.inf)
    if window_size is not None:
        scores = np.where(at - j < window_size, scores, -np.inf)
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isneginf(top), 0, top))
    total = weights.sum(-1, keepdims=True)
    mixed = (weights @ v) / np.where(total == 0, 1, total)
    return mixed.transpose(0, 2, 1, 3).astype(query.dtype)


define(
    "nn.attention",
    params("query key value bias?", scale=None, causal_mask=None, window_size=None),
    _infer,
    needs=NEEDS,
    emit=_attention_emit,
    reference=attention_reference,
)
define(
    "nn.attention_bias",
    params("query key value bias", scale=None, causal_mask=None, window_size=None),
    _infer,
    needs=NEEDS,
    emit=_attention_emit,
    reference=attention_reference,
)


# --- rope -------------------------------------------------------------------------------------


def _rope_infer(call: graph.Call, tys: TypesOf) -> Type:
    x = tensor_arg(call, tys, 0)
    require_dtype(call, x, "floating point")
    if x.ndim not in (-1, 4):
        raise fail(call, f"x must be (batch, length, heads, head_dim), is {x}")
    _check_offset(call, tys, x)
    if attr(call, "style") not in ("neox", "gptj"):
        raise fail(call, f"style {attr(call, 'style')!r} is not known", 'use "neox" or "gptj"')
    dim = x.shape[3] if x.shape is not None else None
    rotated = attr(call, "rotary_dim")
    if isinstance(dim, expr.IntImm):
        rotated = dim.value if rotated is None else rotated
        if not isinstance(rotated, int) or rotated % 2 or not 0 <= rotated <= dim.value:
            raise fail(
                call, f"rotary_dim must be even and at most head_dim {dim.value}, is {rotated}"
            )
        _check_factors(call, tys, rotated // 2)
    elif x.shape is not None:
        raise fail(call, f"head_dim must be a constant, is {dim}")
    return x


def _check_offset(call: graph.Call, tys: TypesOf, x: TensorType) -> None:
    if len(tys) < 2 or (isinstance(tys[1], PrimType) and tys[1].dtype == "int64"):
        return
    offset = tys[1]
    if not isinstance(offset, TensorType) or offset.ndim not in (-1, 1):
        raise fail(
            call,
            f"offset must be an int64 scalar or an integer tensor (batch,), is {offset}",
            "use R.prim_value(n) for one position of all sequences",
        )
    require_dtype(call, offset, "integer", 1)
    if offset.shape and x.shape and differ(call, offset.shape[0], x.shape[0], "the batch sizes"):
        raise fail(call, f"offset has {offset.shape[0]} entries for a batch of {x.shape[0]}")


def _check_factors(call: graph.Call, tys: TypesOf, pairs: int) -> None:
    if len(tys) < 3:
        return
    factors = tensor_arg(call, tys, 2)
    require_dtype(call, factors, "floating point", 2)
    known = factors.shape[0] if factors.shape else expr.const(pairs)
    if factors.ndim not in (-1, 1) or differ(
        call, known, expr.const(pairs), "freq_factors and pairs"
    ):
        raise fail(call, f"freq_factors must have shape ({pairs},), one per pair, is {factors}")


def _rope_emit(
    call: graph.Call,
    out: TensorType,
    x: te.Tensor,
    offset: te.Tensor | PrimExpr | None = None,
    factors: te.Tensor | None = None,
) -> te.Tensor:
    """Two tables, cos and sin of each position and pair, then one rotation per element."""
    head_dim = x.shape[3]
    assert isinstance(head_dim, expr.IntImm)
    rotated = attr(call, "rotary_dim")
    rotated = head_dim.value if rotated is None else rotated
    if rotated == 0:
        return te.compute(x.shape, lambda *i: x[i], "T_rope")
    neox, half = attr(call, "style") == "neox", rotated // 2
    cos, sin = (_angle_table(call, name, x, half, offset, factors) for name in ("cos", "sin"))
    per_batch = isinstance(offset, te.Tensor)

    def element(b: PrimExpr, i: PrimExpr, h: PrimExpr, d: PrimExpr) -> PrimExpr:
        pair = d % half if neox else d // 2
        at = (b, i, pair) if per_batch else (i, pair)
        first = expr.LT(d, expr.const(half)) if neox else expr.EQ(d % 2, expr.const(0))
        step = half if neox else 1
        other = expr.if_then_else(
            first, scalar.negative(x[b, i, h, d + step]), x[b, i, h, d - step]
        )
        turned = expr.Add(
            expr.Mul(scalar.wide(x[b, i, h, d]), cos[at]),
            expr.Mul(scalar.wide(other), sin[at]),
        )
        value = scalar.cast(turned, x.dtype)
        if rotated == head_dim.value:
            return value
        return expr.if_then_else(expr.LT(d, expr.const(rotated)), value, x[b, i, h, d])

    return te.compute(x.shape, element, "T_rope")


def _angle_table(
    call: graph.Call,
    name: str,
    x: te.Tensor,
    half: int,
    offset: te.Tensor | PrimExpr | None,
    factors: te.Tensor | None,
) -> te.Tensor:
    """cos or sin of position / scaling * theta^(-p / half) / factor[p]: (length, half), or with
    an offset per sequence (batch, length, half)."""
    dtype = "float64" if x.dtype == "float64" else "float32"
    per_pair = expr.const(-math.log2(attr(call, "theta")) / half, dtype)
    inverse_scaling = expr.const(1 / attr(call, "scaling"), dtype)

    def angle(position: PrimExpr, p: PrimExpr) -> PrimExpr:
        frequency = scalar.call("exp2", scalar.cast(p, dtype) * per_pair)
        if factors is not None:
            frequency = expr.Div(frequency, scalar.cast(factors[p], dtype))
        return scalar.call(name, scalar.cast(position, dtype) * inverse_scaling * frequency)

    length, pairs = x.shape[1], expr.const(half)
    if isinstance(offset, te.Tensor):
        starts = offset
        return te.compute(
            (x.shape[0], length, pairs),
            lambda b, i, p: angle(i + scalar.cast(starts[b], "int64"), p),
            f"T_{name}",
        )
    start = expr.const(0) if offset is None else offset
    return te.compute((length, pairs), lambda i, p: angle(i + start, p), f"T_{name}")


def _rope(
    x: Array,
    offset: Any = 0,
    freq_factors: Array | None = None,
    theta: float = 10000.0,
    style: str = "neox",
    rotary_dim: int | None = None,
    scaling: float = 1.0,
) -> Array:
    rotated = x.shape[3] if rotary_dim is None else rotary_dim
    wide = np.float64 if x.dtype == np.float64 else np.float32
    frequencies = float(theta) ** (-np.arange(0, rotated, 2, dtype=np.float64) / max(rotated, 1))
    frequencies = frequencies if freq_factors is None else frequencies / freq_factors
    starts = np.asarray(offset, np.int64).reshape(-1, 1)
    positions = (np.arange(x.shape[1])[None, :] + starts) / scaling
    angles = (positions[..., None] * frequencies)[:, :, None, :]
    cos, sin = np.cos(angles).astype(wide), np.sin(angles).astype(wide)
    y = x.astype(wide)
    turned = y[..., :rotated]
    half = rotated // 2
    a, b = (
        (turned[..., :half], turned[..., half:])
        if style == "neox"
        else (turned[..., 0::2], turned[..., 1::2])
    )
    first, second = a * cos - b * sin, b * cos + a * sin
    if style == "neox":
        joined = np.concatenate([first, second], -1)
    else:
        joined = np.stack([first, second], -1).reshape(turned.shape)
    return np.concatenate([joined, y[..., rotated:]], -1).astype(x.dtype)


# x: (batch, length, heads, head_dim); position i of sequence b is i + offset (or offset[b]).
# Features rotate in pairs by position / scaling * theta^(-2 p / rotary_dim) / freq_factors[p]:
# "neox" pairs feature p with p + rotary_dim / 2, "gptj" (llama in ggml) pairs 2 p with 2 p + 1.
define(
    "nn.rope",
    params("x offset? freq_factors?", theta=10000.0, style="neox", rotary_dim=None, scaling=1.0),
    _rope_infer,
    emit=_rope_emit,
    reference=_rope,
)
