"""Loop functions of transformer layers: rotary embedding, the KV cache, attention.

Tensors of heads are (b, s, heads, head_dim): batch, new positions, heads. `past` positions came
before; it is a scalar parameter, so that one loop function serves every length. A merged
projection holds queries, keys and values side by side: the functions take the number of heads of
the tensor they get and the first one they use, and nothing need be cut out of it.

Each function is built once per set of arguments; its symbols are its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from relaxlab.ir import expr, loops
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.node import Attrs
from relaxlab.ops import scalar, te

HeadShape: TypeAlias = tuple[int, int]
"""The heads of a KV cache: their number, and features per head."""

KEY_BLOCK = 16
"""Positions of the key cache that lie side by side, feature by feature: the lanes of the widest
vectors, within one page of memory."""


@dataclass(frozen=True, slots=True)
class Scores:
    """The function from the product of a query and a key to a score of attention: multiplied by
    `scale`, squeezed into -softcap .. softcap by a tanh, and minus infinity unless the key is one
    of the last `window` up to the query's own position (None: all of them)."""

    scale: float
    softcap: float | None = None
    window: int | None = None

    def of(self, product: PrimExpr, query: PrimExpr, key: PrimExpr) -> PrimExpr:
        """The score of a product; `query` and `key` are their positions."""
        if self.softcap is None:
            score = product * self.scale
        else:
            # One factor inside of tanh: both constants are known here.
            score = scalar.call("tanh", product * (self.scale / self.softcap)) * self.softcap
        visible: PrimExpr = expr.LE(key, query)
        if self.window is not None:
            visible = expr.And(visible, expr.LT(query - self.window, key))
        # A choice without a branch, so that the rule `attention` can read the mask off it.
        return expr.Select(visible, score, expr.const(float("-inf"), "float32"))


@cache
def rotary(
    total: int, first: int, heads: int, head_dim: int, dims: int, interleaved: bool
) -> loops.PrimFunc:
    """(x (b, s, total, d), cos (c, dims/2), sin (c, dims/2); past) -> (b, s, heads, d): the heads
    from `first` on, each pair of their first `dims` features turned by the angle of its position
    and pair.

    Pairs are (2i, 2i + 1) when `interleaved`, else (i, i + dims/2).
    """
    b, s, past = (expr.Var(n) for n in ("b", "s", "past"))
    shape = (b, s, total, head_dim)
    tensors = rotary_tensors(shape, first, heads, dims, interleaved, lambda i: past + i)
    return te.create_prim_func(tensors)


def rotary_tensors(
    shape: tuple[PrimExpr, PrimExpr, int, int],
    first: int,
    heads: int,
    dims: int,
    interleaved: bool,
    position: Callable[[PrimExpr], PrimExpr],
) -> list[te.Tensor]:
    """x of `shape`, cos and sin, and the rotated heads; `position(i)` is the place of index i."""
    half, c = dims // 2, expr.Var("c")
    b, s, _, head_dim = shape
    x = te.placeholder(shape, "float32", "x")
    cos = te.placeholder((c, half), "float32", "cos")
    sin = te.placeholder((c, half), "float32", "sin")

    def turned(bi: PrimExpr, i: PrimExpr, h: PrimExpr, d: PrimExpr) -> PrimExpr:
        pair = d // 2 if interleaved else d % half
        is_second = expr.EQ(d % 2, te.ZERO + 1) if interleaved else expr.GE(d, expr.const(half))
        step = 1 if interleaved else half
        here = x[bi, i, first + h, d]
        # Only the side that is chosen is read: the other may lie outside of the head.
        partner = expr.if_then_else(
            is_second, x[bi, i, first + h, d - step], scalar.negative(x[bi, i, first + h, d + step])
        )
        at = position(i)
        rotated = here * cos[at, pair] + partner * sin[at, pair]
        if dims == head_dim:
            return rotated
        return expr.if_then_else(expr.LT(d, expr.const(dims)), rotated, here)

    return [x, cos, sin, te.compute((b, s, heads, head_dim), turned, "rotary")]


@cache
def append_kv(
    total_k: int,
    first_k: int,
    total_v: int,
    first_v: int,
    head_shape: HeadShape,
    dtype: str,
    key_dtype: str = "float32",
) -> loops.PrimFunc:
    """(k (b, s, total_k, d) `key_dtype`, v (b, s, total_v, d), keys (b, heads, n, d, 16), values
    (b, heads, c, d) `dtype`; past): writes the new positions into the caches, in place, at
    past .. past + s, which must lie within c and 16 n.

    Keys are kept with positions last, in blocks, and values with features last: the order in
    which attention makes vectors of them.
    """
    b, s, past = (expr.Var(n) for n in ("b", "s", "past"))
    heads, head_dim = head_shape
    k = loops.Buffer("k", (b, s, expr.const(total_k), expr.const(head_dim)), key_dtype)
    v = loops.Buffer("v", (b, s, expr.const(total_v), expr.const(head_dim)))
    h, d = expr.const(heads), expr.const(head_dim)
    keys, values = (
        loops.Buffer(name, shape, dtype)
        for name, shape in zip(("keys", "values"), _cache_dims(b, head_shape), strict=True)
    )
    names, extents = ("b", "i", "h", "d"), (b, s, h, d)
    axes = tuple(expr.Var(f"v{n}") for n in names)
    vb, vi, vh, vd = axes
    moves = (
        (k, (vb, vi, vh + first_k, vd), keys, (vb, vh, *_block(past + vi, vd))),
        (v, (vb, vi, vh + first_v, vd), values, (vb, vh, past + vi, vd)),
    )
    stores = [
        loops.BufferStore(kept, scalar.cast(loops.BufferLoad(new, at), dtype), place)
        for new, at, kept, place in moves
    ]
    block = loops.Block(
        "append_kv",
        tuple(
            loops.IterVar(a, loops.Range(te.ZERO, e), "spatial")
            for a, e in zip(axes, extents, strict=True)
        ),
        reads=tuple(_element(new, at) for new, at, _, _ in moves),
        writes=tuple(_element(kept, place) for _, _, kept, place in moves),
        body=loops.seq(*stores),
    )
    nest_vars = tuple(expr.Var(n) for n in names)
    nest: loops.Stmt = loops.BlockRealize(nest_vars, te.TRUE, block)
    for var, extent in reversed(list(zip(nest_vars, extents, strict=True))):
        nest = loops.For(var, te.ZERO, extent, "serial", nest)
    root = loops.Block("root", (), (), (), nest)
    body = loops.BlockRealize((), te.TRUE, root)
    return loops.PrimFunc((k, v, keys, values, past), body, Attrs({"tir.noalias": True}))


def cache_shapes(shape: HeadShape, positions: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shapes of one sequence's keys and values, with room for `positions`."""
    heads, head_dim = shape
    blocks = -(-positions // KEY_BLOCK)
    return (heads, blocks, head_dim, KEY_BLOCK), (heads, positions, head_dim)


def _cache_dims(
    batch: PrimExpr, shape: HeadShape
) -> tuple[tuple[PrimExpr, ...], tuple[PrimExpr, ...]]:
    """The shapes of the keys and values of a batch of sequences with any number of positions."""
    heads, head_dim = (expr.const(n) for n in shape)
    keys = batch, heads, expr.Var("n"), head_dim, expr.const(KEY_BLOCK)
    return keys, (batch, heads, expr.Var("c"), head_dim)


def _block(position: PrimExpr, feature: PrimExpr) -> tuple[PrimExpr, PrimExpr, PrimExpr]:
    """Return the indices of a feature of a position's key."""
    return position // KEY_BLOCK, feature, position % KEY_BLOCK


def _element(buffer: loops.Buffer, at: tuple[PrimExpr, ...]) -> loops.BufferRegion:
    return loops.BufferRegion(buffer, tuple(loops.Range(i, expr.const(1)) for i in at))


@cache
def cached_attention(
    total: int,
    first: int,
    heads: int,
    head_shape: HeadShape,
    dtype: str,
    scores: Scores,
    query_dtype: str = "float32",
) -> loops.PrimFunc:
    """(q (b, s, total, d) `query_dtype`, keys (b, kv_heads, n, d, 16), values (b, kv_heads, c, d)
    `dtype`; past) -> (b, s, heads, d): causal attention of the new positions over all past + s,
    which must be at most c and 16 n, reading the caches in place.

    Query head h uses the keys and values of head h // (heads / kv_heads). The softmax subtracts
    each row's largest score; everything is summed in float32.
    """
    b, s, past = (expr.Var(n) for n in ("b", "s", "past"))
    kv_heads, head_dim = head_shape
    group, length = heads // kv_heads, past + s
    q = te.placeholder((b, s, total, head_dim), query_dtype, "q")
    keys, values = (
        te.placeholder(shape, dtype, name)
        for name, shape in zip(("keys", "values"), _cache_dims(b, head_shape), strict=True)
    )
    d = te.reduce_axis(head_dim, "d")

    def product(bi: PrimExpr, h: PrimExpr, i: PrimExpr, t: PrimExpr) -> te.Reduce:
        # Products are summed in float32 whatever the cache holds: half precision only halves the
        # bytes read.
        key = scalar.cast(keys[bi, h // group, *_block(t, d.var)], "float32")
        return te.te_sum(scalar.cast(q[bi, i, first + h, d.var], "float32") * key, d)

    dot = te.compute((b, heads, s, length), product, "dot")
    score = te.compute(
        (b, heads, s, length),
        lambda bi, h, i, t: scores.of(dot[bi, h, i, t], past + i, t),
        "score",
    )

    def value(bi: PrimExpr, h: PrimExpr, t: PrimExpr, e: PrimExpr) -> PrimExpr:
        return scalar.cast(values[bi, h // group, t, e], "float32")

    return te.create_prim_func([q, keys, values, mixed_by_softmax(score, value, head_dim)])


def mixed_by_softmax(
    score: te.Tensor,
    value: Callable[[PrimExpr, PrimExpr, PrimExpr, PrimExpr], PrimExpr],
    head_dim: int,
) -> te.Tensor:
    """Return the values, mixed by the softmax of `score` (b, heads, s, t) over t: (b, s, heads, d).
    `value(b, h, t, e)` is an element. The blocks are those that the schedule rule `attention`
    looks for."""
    b, heads, s, length = score.shape
    t1, t2, t3 = (te.reduce_axis(length, "t") for _ in range(3))
    top = te.compute((b, heads, s), lambda bi, h, i: te.te_max(score[bi, h, i, t1.var], t1), "top")
    weight = te.compute(
        (b, heads, s, length),
        lambda bi, h, i, t: scalar.call("exp", score[bi, h, i, t] - top[bi, h, i]),
        "weight",
    )
    total = te.compute(
        (b, heads, s), lambda bi, h, i: te.te_sum(weight[bi, h, i, t2.var], t2), "total"
    )
    mix = te.compute(
        (b, s, heads, head_dim),
        lambda bi, i, h, e: te.te_sum(weight[bi, h, i, t3.var] * value(bi, h, t3.var, e), t3),
        "mix",
    )
    return te.compute(
        (b, s, heads, head_dim), lambda bi, i, h, e: mix[bi, i, h, e] / total[bi, h, i], "attention"
    )


@cache
def last_position(width: int) -> loops.PrimFunc:
    """x (b, s, width) -> (b, width): the last of the s positions; there must be one."""
    b, s = expr.Var("b"), expr.Var("s")
    x = te.placeholder((b, s, width), "float32", "x")
    y = te.compute((b, width), lambda i, j: x[i, s - 1, j], "last_position")
    return te.create_prim_func([x, y])
