"""Attention of sequences that are concatenated (`R.nn.attention_var_len`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from relaxlab.ir import expr, graph, loops
from relaxlab.ir.dtypes import is_int
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.types import TensorType, Type
from relaxlab.ops import scalar, te
from relaxlab.ops.attention import attention_infer, attention_reference, scale_of
from relaxlab.ops.define import TypesOf, attr, define, fail, params, require_dtype, tensor_arg
from relaxlab.ops.reduce import narrow
from relaxlab.ops.shapes import ONE, differ, divide_exactly, impossible

Array = np.ndarray[Any, Any]
Row = tuple[loops.Buffer, tuple[PrimExpr, ...]]
"""A row of a buffer: all indices but the last."""
LANES = 16
"""Features at a time: a vector of float32 of AVX-512, or several shorter ones."""


def _var_len_infer(call: graph.Call, tys: TypesOf) -> Type:
    """The sequences are concatenated: the batch size of the tensors is 1."""
    starts = [tensor_arg(call, tys, i) for i in range(3, len(tys))]
    for i, t in enumerate(starts, 3):
        require_dtype(call, t, is_int, "integer", i)
        wanted = 1 - (i % 2 == 0)  # seqstart, then max_seqlen
        if t.ndim not in (-1, wanted):
            raise fail(call, f"argument {i} must have {wanted} dimensions, is {t}")
    if len(starts) > 2 and starts[0].shape and starts[2].shape:
        counts = (starts[0].shape[0], starts[2].shape[0])
        if differ(call, *counts, "the numbers of sequences of queries and keys"):
            raise fail(call, f"seqstart_q has {counts[0]} entries, seqstart_k {counts[1]}")
    if starts[0].shape is not None:
        claim = "seqstart_q must have the start of a sequence and its end"
        if impossible(call, expr.GE(starts[0].shape[0], expr.const(2)), claim):
            raise fail(call, claim)
    result = attention_infer(call, tys[:3])
    q = tensor_arg(call, tys, 0)
    if q.shape is not None and differ(call, q.shape[0], ONE, "the batch size and 1"):
        raise fail(call, f"queries must be (1, total length, heads, head_dim), is {q}")
    return result


def _var_len_emit(
    call: graph.Call,
    out: TensorType,
    q: te.Tensor,
    k: te.Tensor,
    v: te.Tensor,
    seqstart_q: te.Tensor,
    max_seqlen_q: te.Tensor,
    seqstart_k: te.Tensor | None = None,
    max_seqlen_k: te.Tensor | None = None,
) -> te.Tensor:
    """Visit the keys of each query in order, with a running maximum (Milakov and Gimelshein 2018,
    "Online normalizer calculation for softmax"): the time grows with the sum of the squares of the
    lengths, and no scores are stored."""
    batch, rows, heads, depth = q.shape
    starts_k = seqstart_q if seqstart_k is None else seqstart_k
    first, end = _keys_of_queries(call, rows, k.shape[1], seqstart_q, starts_k)
    group = divide_exactly((heads,), k.shape[2:3])
    assert group is not None
    dtype = "float64" if q.dtype == "float64" else "float32"
    factor = scalar.cast(scale_of(call, depth), dtype)

    def body(point: tuple[expr.Var, ...], b: dict[te.Tensor, loops.Buffer]) -> loops.Stmt:
        at, h, i = point
        j, score = expr.Var("j"), expr.Var("score", dtype)
        zero, load, store = expr.const(0, dtype), loops.BufferLoad, loops.BufferStore

        def multiply(d: PrimExpr, lane: PrimExpr) -> loops.Stmt:
            key = scalar.wide(load(b[k], (at, j, h // group, d)))
            product = expr.Mul(scalar.wide(load(b[q], (at, i, h, d))), key)
            return store(b[dots], load(b[dots], (*point, lane)) + product, (*point, lane))

        lanes = [load(b[dots], (*point, expr.const(n))) for n in range(LANES)]
        mix = _mix_key(
            (b[mixed], (at, i, h)), (b[v], (at, j, h // group)), b[tops], b[totals], point, score
        )
        each = loops.seq(
            _in_vectors(expr.const(LANES), lambda _, n: store(b[dots], zero, (*point, n))),
            _in_vectors(depth, multiply),
            loops.LetStmt(score, expr.Mul(_pairwise_sum(lanes), factor), mix),
        )
        begin, stop, total = load(b[first], (i,)), load(b[end], (i,)), load(b[totals], point)
        divisor = expr.Select(expr.EQ(total, zero), expr.const(1, dtype), total)

        def normalise(d: PrimExpr, lane: PrimExpr) -> loops.Stmt:
            return store(b[mixed], expr.Div(load(b[mixed], (at, i, h, d)), divisor), (at, i, h, d))

        return loops.seq(
            store(b[tops], expr.lowest(dtype), point),
            store(b[totals], zero, point),
            _in_vectors(v.shape[3], lambda d, _: store(b[mixed], zero, (at, i, h, d))),
            loops.For(j, begin, stop - begin, "serial", each),
            _in_vectors(v.shape[3], normalise),
        )

    # The queries of a head come one after the other: its keys and values stay in the cache.
    points = (batch, heads, rows)
    outputs = [
        ("T_attention", (batch, rows, heads, v.shape[3]), dtype),
        ("T_attention_dot", (*points, expr.const(LANES)), dtype),
        ("T_attention_max", points, dtype),
        ("T_attention_expsum", points, dtype),
    ]
    inputs = [q, k, v, first, end]
    mixed, dots, tops, totals = te.compute_rows(points, outputs, inputs, body, "T_attention")
    return narrow(mixed, q.dtype)


def _mix_key(
    mixed: Row,
    values: Row,
    tops: loops.Buffer,
    totals: loops.Buffer,
    point: tuple[expr.Var, ...],
    score: expr.Var,
) -> loops.Stmt:
    """Add exp(score - max) times a row of values to the row `mixed`, which is scaled anew where the
    score raises the maximum; `tops` and `totals` have the maximum and the sum at `point`."""
    dtype = score.dtype
    top, total = loops.BufferLoad(tops, point), loops.BufferLoad(totals, point)
    weight, shrink = expr.Var("weight", dtype), expr.Var("shrink", dtype)

    def update(value: Callable[[PrimExpr, PrimExpr], PrimExpr]) -> loops.Stmt:
        """Return the update of each element of `mixed` by a function of itself and of the value
        beside it."""

        def one(d: PrimExpr, lane: PrimExpr) -> loops.Stmt:
            (into, row), (source, other) = mixed, values
            old = loops.BufferLoad(into, (*row, d))
            beside = scalar.wide(loops.BufferLoad(source, (*other, d)))
            return loops.BufferStore(into, value(old, beside), (*row, d))

        return _in_vectors(mixed[0].shape[-1], one)

    raised = loops.seq(
        update(lambda old, _: expr.Mul(old, shrink)),
        loops.BufferStore(totals, expr.Mul(total, shrink), point),
        loops.BufferStore(tops, score, point),
    )
    # exp(-inf) is 0 at the first key; a score of -inf has no weight, even if all are.
    raised = loops.LetStmt(shrink, scalar.call("exp", expr.Sub(top, score)), raised)
    gain = scalar.call("exp", expr.Sub(score, top))
    unseen = expr.EQ(score, expr.lowest(dtype))
    added = loops.seq(
        loops.BufferStore(totals, expr.Add(total, weight), point),
        update(lambda old, value: expr.Add(old, expr.Mul(weight, value))),
    )
    return loops.seq(
        loops.IfThenElse(expr.GT(score, top), raised),
        loops.LetStmt(weight, expr.Select(unseen, expr.const(0, dtype), gain), added),
    )


def _keys_of_queries(
    call: graph.Call, rows: PrimExpr, keys: PrimExpr, starts_q: te.Tensor, starts_k: te.Tensor
) -> tuple[te.Tensor, te.Tensor]:
    """The first key that each query sees and the one after the last, both int64 of shape (rows,).
    The sequence of a query is found by a binary search; a query of none sees no key."""
    mask, window = attr(call, "causal_mask"), attr(call, "window_size")

    def body(point: tuple[expr.Var, ...], b: dict[te.Tensor, loops.Buffer]) -> loops.Stmt:
        (i,) = point
        low, high = loops.BufferLoad(b[first], point), loops.BufferLoad(b[end], point)
        middle, owner = expr.Var("middle"), expr.Var("owner")

        def put(t: te.Tensor, value: PrimExpr) -> loops.Stmt:
            return loops.BufferStore(b[t], value, point)

        def start(t: te.Tensor, sequence: PrimExpr) -> PrimExpr:
            return scalar.cast(loops.BufferLoad(b[t], (sequence,)), "int64")

        ended = expr.LE(start(starts_q, middle + 1), i)
        halve = loops.IfThenElse(ended, put(first, middle + 1), put(end, middle))
        names = [expr.Var(n) for n in ("first_q", "end_q", "first_k", "end_k")]
        first_q, end_q, first_k, end_k = names
        shift = (end_k - first_k) - (end_q - first_q) if mask == "BottomRight" else te.ZERO
        at = i - first_q + shift + first_k  # the key at the position of the query
        seen = end_k if mask is None else expr.Min(end_k, at + 1)
        since = first_k if window is None else expr.Max(first_k, at - (window - 1))
        inside = expr.And(expr.GE(i, first_q), expr.LT(i, end_q))
        # Clamped to the tensor: where a sequence begins and ends is data, and may be anything.
        stop = expr.Max(scalar.clamp(seen, 0, keys), low)
        result = loops.seq(
            put(first, scalar.clamp(since, 0, keys)), put(end, expr.Select(inside, stop, low))
        )
        values = [start(t, owner + n) for t in (starts_q, starts_k) for n in (0, 1)]
        for name, value in reversed(list(zip(names, values, strict=True))):
            result = loops.LetStmt(name, value, result)
        return loops.seq(
            put(first, te.ZERO),
            put(end, starts_q.shape[0] - 2),  # the last sequence also has what is in none
            loops.While(expr.LT(low, high), loops.LetStmt(middle, (low + high) // 2, halve)),
            loops.LetStmt(owner, low, result),
        )

    outputs = [("T_first_key", (rows,), "int64"), ("T_end_key", (rows,), "int64")]
    inputs = [*dict.fromkeys((starts_q, starts_k))]
    first, end = te.compute_rows((rows,), outputs, inputs, body, "T_keys")
    return first, end


def _in_vectors(extent: PrimExpr, fn: Callable[[PrimExpr, PrimExpr], loops.Stmt]) -> loops.Stmt:
    """`fn(index, lane)` for each index below `extent`: vectors of LANES, the rest one by one."""
    part, lane, rest = expr.Var("part"), expr.Var("lane"), expr.Var("rest")
    parts, lanes = extent // LANES, expr.const(LANES)
    vector = loops.For(lane, te.ZERO, lanes, "vectorized", fn(part * LANES + lane, lane))
    whole = loops.For(part, te.ZERO, parts, "serial", vector)
    single = loops.For(rest, te.ZERO, extent % LANES, "serial", fn(parts * LANES + rest, rest))
    if not isinstance(extent, expr.IntImm):
        return loops.seq(whole, single)
    return loops.seq(*[whole][: extent.value // LANES], *[single][: extent.value % LANES])


def _pairwise_sum(terms: Sequence[PrimExpr]) -> PrimExpr:
    """The sum of a power of two of terms, halves added first."""
    while len(terms) > 1:
        half = len(terms) // 2
        terms = [a + b for a, b in zip(terms[:half], terms[half:], strict=True)]
    return terms[0]


def _var_len(
    queries: Array,
    keys: Array,
    values: Array,
    seqstart_q: Array,
    max_seqlen_q: Array,
    seqstart_k: Array | None = None,
    max_seqlen_k: Array | None = None,
    **attrs: Any,
) -> Array:
    starts = seqstart_q, seqstart_q if seqstart_k is None else seqstart_k
    result = np.zeros((*queries.shape[:3], values.shape[3]), queries.dtype)
    bounds = [list(zip(s[:-1], s[1:], strict=True)) for s in starts]
    for (a, b), (c, d) in zip(*bounds, strict=True):
        part = attention_reference(queries[:, a:b], keys[:, c:d], values[:, c:d], **attrs)
        result[:, a:b] = part
    return result


# queries: (1, total length, heads, head_dim); sequence s has the positions from seqstart[s] to
# seqstart[s + 1]. The longest lengths are not needed here.
define(
    "nn.attention_var_len",
    params(
        "queries keys values seqstart_q max_seqlen_q seqstart_k? max_seqlen_k?",
        scale=None,
        causal_mask=None,
        window_size=None,
    ),
    _var_len_infer,
    emit=_var_len_emit,
    reference=_var_len,
)
