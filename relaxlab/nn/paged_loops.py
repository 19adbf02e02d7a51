"""Loop functions of attention over a paged KV cache, for batches of sequences of any lengths.

The new rows of all sequences lie below each other: `t` of them, row r at position `positions[r]`
of its sequence. Sequence s has the rows `row_ends[s] .. row_ends[s + 1]` and the pages
`pages[page_ends[s] .. page_ends[s + 1]]`, its positions in order, `PAGE` to a page. These arrays
are int32 and `*_ends` start with 0 (an indptr). Lengths are data: one loop function, compiled
once, serves every batch.

A pool of pages has keys (pages, kv_heads, head_dim, PAGE), positions last, and values (pages,
kv_heads, PAGE, head_dim): the order in which attention makes vectors of them. Sources: paged
memory is that of PagedAttention (Kwon et al., 2023), the running maximum that of online softmax
(Milakov and Gimelshein, 2018).
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from functools import cache

from relaxlab.ir import expr, loops
from relaxlab.nn.loop_functions import KEY_BLOCK, Scores, rotary_tensors
from relaxlab.ops import scalar, te
from relaxlab.script import parse

PAGE = KEY_BLOCK
"""Positions of a page."""

PAGES_PER_STEP = 4
"""Pages whose scores are made before the running maximum and the sums are rescaled: 64 positions,
whose scores of a tile of rows stay in registers and the first-level cache."""

LOWEST = -1e30
"""The running maximum before the first score: finite, so that a difference with it is."""


@dataclass(frozen=True, slots=True)
class PoolShape:
    """The shape of a pool of pages: heads, features per head, and the dtype of its elements."""

    kv_heads: int
    head_dim: int
    dtype: str = "float32"

    def of(self, pages: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The shapes of `pages` pages of keys, and of values."""
        heads, width = self.kv_heads, self.head_dim
        return (pages, heads, width, PAGE), (pages, heads, PAGE, width)


@cache
def paged_rotary(
    total: int, first: int, heads: int, head_dim: int, dims: int, interleaved: bool
) -> loops.PrimFunc:
    """(x (1, t, total, d), cos (c, dims/2), sin (c, dims/2), positions (t,)) -> (1, t, heads, d):
    as `loop_functions.rotary`, each row at a position of its own."""
    t = expr.Var("t")
    positions = te.placeholder((t,), "int32", "positions")
    shape = (expr.const(1), t, total, head_dim)
    *tensors, y = rotary_tensors(
        shape, first, heads, dims, interleaved, lambda i: scalar.cast(positions[i], "int64")
    )
    return te.create_prim_func([*tensors, positions, y])


@cache
def append_pages(
    total_k: int,
    first_k: int,
    total_v: int,
    first_v: int,
    shape: PoolShape,
    key_dtype: str = "float32",
) -> loops.PrimFunc:
    """(k (1, t, total_k, d) `key_dtype`, v (1, t, total_v, d), slots (t,), keys, values): writes
    the keys and values of each row into the pool, in place, where `slots` says: page * PAGE + place
    in it."""
    heads, d, dtype = shape.kv_heads, shape.head_dim, shape.dtype
    return _parsed(
        f"""
    @T.prim_func(s_tir=True)
    def f(k_: T.handle, v_: T.handle, slots_: T.handle, keys_: T.handle, values_: T.handle):
        T.func_attr({{"tir.noalias": True}})
        t, p = T.int64(), T.int64()
        k = T.match_buffer(k_, (1, t, {total_k}, {d}), "{key_dtype}")
        v = T.match_buffer(v_, (1, t, {total_v}, {d}), "float32")
        slots = T.match_buffer(slots_, (t,), "int32")
        keys = T.match_buffer(keys_, (p, {heads}, {d}, {PAGE}), "{dtype}")
        values = T.match_buffer(values_, (p, {heads}, {PAGE}, {d}), "{dtype}")
        for i, h, e in T.grid(t, {heads}, {d}):
            with T.sblock("append_keys"):
                vi, vh, ve = T.axis.remap("SSS", [i, h, e])
                T.reads(k[0, vi, {first_k} + vh, ve], slots[vi])
                T.writes(keys[0:p, vh, ve, 0:{PAGE}])
                T.sblock_attr({{"independent": True}})  # no two rows have one slot
                keys[slots[vi] // {PAGE}, vh, ve, slots[vi] % {PAGE}] = T.Cast(
                    "{dtype}", k[0, vi, {first_k} + vh, ve])
        for i, h, e in T.grid(t, {heads}, {d}):
            with T.sblock("append_values"):
                vi, vh, ve = T.axis.remap("SSS", [i, h, e])
                T.reads(v[0, vi, {first_v} + vh, ve], slots[vi])
                T.writes(values[0:p, vh, 0:{PAGE}, ve])
                T.sblock_attr({{"independent": True}})
                values[slots[vi] // {PAGE}, vh, slots[vi] % {PAGE}, ve] = T.Cast(
                    "{dtype}", v[0, vi, {first_v} + vh, ve])
    """
    )


@cache
def paged_attention(
    total: int,
    first: int,
    heads: int,
    shape: PoolShape,
    rows: int,
    scores: Scores,
    query_dtype: str = "float32",
) -> loops.PrimFunc:
    """(q (1, t, total, d) `query_dtype`, keys, values, tiles (w, 2), row_ends, page_ends, pages,
    positions) -> (1, t, heads, d): causal attention of each row over its sequence, in one pass over
    its pages.

    A tile is a sequence and its rows from the given one on, `rows` at most: the tiles hold every
    row. They are worked on independently, for each head of keys and values and for the heads of
    queries that share it. Sums and the running maximum are float32.
    """
    d, kv_heads = shape.head_dim, shape.kv_heads
    span, m = PAGES_PER_STEP * PAGE, rows * (heads // kv_heads)
    scale, score = scores.scale, "dot[vr, vx]"
    if scores.softcap is not None:
        scale /= scores.softcap
        score = f"T.tanh({score}) * T.float32({scores.softcap!r})"
    seen, start = f"vp * {span} + vx <= limit[vr]", "0"
    if scores.window is not None:
        seen = f"{seen} and limit[vr] - {scores.window} < vp * {span} + vx"
        start = f"T.max(limit[0] - {scores.window - 1}, 0) // {span}"
    return _parsed(
        _ATTENTION.format(
            total=total,
            first=first,
            heads=heads,
            kv_heads=kv_heads,
            group=heads // kv_heads,
            d=d,
            dtype=shape.dtype,
            query_dtype=query_dtype,
            m=m,
            last=m - 1,
            page=PAGE,
            pages_per_step=PAGES_PER_STEP,
            span=span,
            scale=scale,
            score=score,
            seen=seen,
            start=start,
            lowest=LOWEST,
        )  # fmt: skip
    )


@cache
def last_rows(width: int) -> loops.PrimFunc:
    """(x (t, width), row_ends (b + 1,)) -> (b, width): the last row of each sequence."""
    t, ends = expr.Var("t"), expr.Var("ends")
    x = te.placeholder((t, width), "float32", "x")
    row_ends = te.placeholder((ends,), "int32", "row_ends")
    y = te.compute(
        (ends - 1, width),
        lambda s, j: x[scalar.cast(row_ends[s + 1], "int64") - 1, j],
        "last_rows",
    )
    return te.create_prim_func([x, row_ends, y])


_ATTENTION = """
@T.prim_func(s_tir=True)
def f(q_: T.handle, keys_: T.handle, values_: T.handle, tiles_: T.handle, row_ends_: T.handle,
      page_ends_: T.handle, pages_: T.handle, positions_: T.handle, out_: T.handle):
    T.func_attr({{"tir.noalias": True}})
    t, w, c, b, n = T.int64(), T.int64(), T.int64(), T.int64(), T.int64()
    q = T.match_buffer(q_, (1, t, {total}, {d}), "{query_dtype}")
    keys = T.match_buffer(keys_, (c, {kv_heads}, {d}, {page}), "{dtype}")
    values = T.match_buffer(values_, (c, {kv_heads}, {page}, {d}), "{dtype}")
    tiles = T.match_buffer(tiles_, (w, 2), "int32")
    row_ends = T.match_buffer(row_ends_, (b,), "int32")
    page_ends = T.match_buffer(page_ends_, (b,), "int32")
    pages = T.match_buffer(pages_, (n,), "int32")
    positions = T.match_buffer(positions_, (t,), "int32")
    out = T.match_buffer(out_, (1, t, {heads}, {d}), "float32")
    for g, i in T.grid({kv_heads}, w):
        with T.sblock("tile"):
            vg, vi = T.axis.remap("SS", [g, i])
            T.reads(q[0, 0:t, 0:{total}, 0:{d}], keys[0:c, vg, 0:{d}, 0:{page}],
                    values[0:c, vg, 0:{page}, 0:{d}], tiles[vi, 0:2], row_ends[0:b],
                    page_ends[0:b], pages[0:n], positions[0:t])
            T.writes(out[0, 0:t, vg * {group}:vg * {group} + {group}, 0:{d}])
            T.sblock_attr({{"independent": True}})  # no two tiles have one row
            row = T.sblock_alloc_buffer(({m},), "int64", scope="local")
            limit = T.sblock_alloc_buffer(({m},), "int64", scope="local")
            query = T.sblock_alloc_buffer(({m}, {d}), "float32", scope="local")
            page = T.sblock_alloc_buffer(({pages_per_step},), "int64", scope="local")
            dot = T.sblock_alloc_buffer(({m}, {span}), "float32", scope="local")
            score = T.sblock_alloc_buffer(({m}, {span}), "float32", scope="local")
            weight = T.sblock_alloc_buffer(({m}, {span}), "float32", scope="local")
            new_top = T.sblock_alloc_buffer(({m},), "float32", scope="local")
            fade = T.sblock_alloc_buffer(({m},), "float32", scope="local")
            top = T.sblock_alloc_buffer(({m},), "float32", scope="local")
            new_total = T.sblock_alloc_buffer(({m},), "float32", scope="local")
            total = T.sblock_alloc_buffer(({m},), "float32", scope="local")
            new_mix = T.sblock_alloc_buffer(({m}, {d}), "float32", scope="local")
            mix = T.sblock_alloc_buffer(({m}, {d}), "float32", scope="local")
            for r in range({m}):
                with T.sblock("start"):
                    vr = T.axis.spatial({m}, r)
                    row[vr] = T.min(tiles[vi, 1] + T.Cast("int32", vr // {group}),
                                    row_ends[tiles[vi, 0] + 1] - 1)
                    limit[vr] = T.Cast("int64", positions[row[vr]])
                    top[vr] = T.float32({lowest})
                    total[vr] = T.float32(0)
            for r, e in T.grid({m}, {d}):
                with T.sblock("query"):
                    vr, ve = T.axis.remap("SS", [r, e])
                    query[vr, ve] = T.Cast("float32",
                        q[0, row[vr], {first} + vg * {group} + vr % {group}, ve]
                    ) * T.float32({scale})
            for r, e in T.grid({m}, {d}):
                with T.sblock("nothing"):
                    vr, ve = T.axis.remap("SS", [r, e])
                    mix[vr, ve] = T.float32(0)
            for p in range({start}, limit[{last}] // {span} + 1):
                with T.sblock("step"):
                    vp = T.axis.scan(({start}, limit[{last}] // {span} + 1), p)
                    for j in range({pages_per_step}):
                        with T.sblock("page"):
                            vj = T.axis.spatial({pages_per_step}, j)
                            page[vj] = T.Cast("int64", pages[T.min(
                                page_ends[tiles[vi, 0]]
                                + T.Cast("int32", vp * {pages_per_step} + vj),
                                page_ends[tiles[vi, 0] + 1] - 1)])
                    for r, x, e in T.grid({m}, {span}, {d}):
                        with T.sblock("dot"):
                            vr, vx, ve = T.axis.remap("SSR", [r, x, e])
                            with T.init():
                                dot[vr, vx] = T.float32(0)
                            dot[vr, vx] = dot[vr, vx] + query[vr, ve] * T.Cast("float32",
                                keys[page[vx // {page}], vg, ve, vx % {page}])
                    for r, x in T.grid({m}, {span}):
                        with T.sblock("score"):
                            vr, vx = T.axis.remap("SS", [r, x])
                            score[vr, vx] = T.Select({seen}, {score}, T.float32("-inf"))
                    for r, x in T.grid({m}, {span}):
                        with T.sblock("new_top"):
                            vr, vx = T.axis.remap("SR", [r, x])
                            with T.init():
                                new_top[vr] = T.float32("-inf")
                            new_top[vr] = T.max(new_top[vr], score[vr, vx])
                    for r in range({m}):
                        with T.sblock("top"):
                            vr = T.axis.spatial({m}, r)
                            fade[vr] = T.exp(top[vr] - T.max(top[vr], new_top[vr]))
                            top[vr] = T.max(top[vr], new_top[vr])
                    for r, x in T.grid({m}, {span}):
                        with T.sblock("weight"):
                            vr, vx = T.axis.remap("SS", [r, x])
                            weight[vr, vx] = T.exp(score[vr, vx] - top[vr])
                    for r, x in T.grid({m}, {span}):
                        with T.sblock("new_total"):
                            vr, vx = T.axis.remap("SR", [r, x])
                            with T.init():
                                new_total[vr] = T.float32(0)
                            new_total[vr] = new_total[vr] + weight[vr, vx]
                    for r in range({m}):
                        with T.sblock("total"):
                            vr = T.axis.spatial({m}, r)
                            total[vr] = total[vr] * fade[vr] + new_total[vr]
                    for r, e, x in T.grid({m}, {d}, {span}):
                        with T.sblock("new_mix"):
                            vr, ve, vx = T.axis.remap("SSR", [r, e, x])
                            with T.init():
                                new_mix[vr, ve] = T.float32(0)
                            new_mix[vr, ve] = new_mix[vr, ve] + weight[vr, vx] * T.Cast("float32",
                                values[page[vx // {page}], vg, vx % {page}, ve])
                    for r, e in T.grid({m}, {d}):
                        with T.sblock("mix"):
                            vr, ve = T.axis.remap("SS", [r, e])
                            mix[vr, ve] = mix[vr, ve] * fade[vr] + new_mix[vr, ve]
            for r, e in T.grid({m}, {d}):
                with T.sblock("attention"):
                    vr, ve = T.axis.remap("SS", [r, e])
                    T.sblock_attr({{"independent": True}})  # no two rows of a tile are one
                    if tiles[vi, 1] + T.Cast("int32", vr // {group}) == row[vr]:
                        out[0, row[vr], vg * {group} + vr % {group}, ve] = mix[vr, ve] / total[vr]
"""
"""The text of `paged_attention`. `new_…` are the sums of a step; `fade` is the factor that rescales
earlier sums to the new maximum."""


def _parsed(text: str) -> loops.PrimFunc:
    """The loop function that the text defines."""
    func = parse(textwrap.dedent(text))["f"]
    assert isinstance(func, loops.PrimFunc)
    return func
