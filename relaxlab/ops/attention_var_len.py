"""Attention of rows that see a range of keys each, and of sequences behind each other
(`R.nn.attention_within`, `R.nn.key_ranges`, `R.nn.attention_var_len`, `R.nn.ragged_attention`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from relaxlab.ir import expr, graph, loops
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.types import TensorType, TupleType, Type
from relaxlab.ops import scalar, te
from relaxlab.ops.attention import (
    NEEDS,
    attend,
    attention_infer,
    attention_reference,
    require_known_mask,
)
from relaxlab.ops.define import TypesOf, attr, define, fail, params, require_dtype, tensor_arg
from relaxlab.ops.manipulate import shape_arg
from relaxlab.ops.shapes import ONE, differ, impossible

Array = np.ndarray[Any, Any]
"""The dtypes of index functions."""


# --- ranges of keys -----------------------------------------------------------------------------


def _within_infer(call: graph.Call, tys: TypesOf) -> Type:
    result = attention_infer(call, tys[:3])
    q = tensor_arg(call, tys, 0)
    for i, name in ((3, "before"), (4, "last")):
        t = tensor_arg(call, tys, i)
        require_dtype(call, t, "int32 or int64", i)
        if t.ndim not in (-1, 1):
            raise fail(call, f"{name} must have one integer per query, is {t}")
        if t.shape and q.shape and differ(call, t.shape[0], q.shape[1], f"{name} and queries"):
            raise fail(call, f"{name} has {t.shape[0]} integers for {q.shape[1]} queries")
    _require_starts(call, tys, 5)
    return result


def _within_emit(
    call: graph.Call,
    out: TensorType,
    q: te.Tensor,
    k: te.Tensor,
    v: te.Tensor,
    before: te.Tensor,
    last: te.Tensor,
    starts: te.Tensor | None = None,
) -> te.Tensor:
    # As neither falls from row to row, a tile of rows sees from the first key of its first row to
    # the last key of its last, and leaves out all others: see schedule/visible_terms.py.
    inside = loops.Within(expr.const(-1), k.shape[1])
    facts: dict[te.Tensor, tuple[loops.Fact, ...]] = dict.fromkeys(
        (before, last), (inside, loops.Nondecreasing())
    )
    if starts is not None:  # read by no block: schedules cut the rows into tiles there
        facts[starts] = (loops.Nondecreasing(te.ZERO, q.shape[1]),)

    def sees(i: PrimExpr, j: PrimExpr) -> PrimExpr:
        most, least = (scalar.cast(t[i], "int64") for t in (last, before))
        return expr.And(expr.LE(j, most), expr.LT(least, j))

    return attend(call, q, k, v, sees, facts=facts)


def _within(
    queries: Array, keys: Array, values: Array, before: Array, last: Array,
    starts: Array | None = None, scale: float | None = None,
) -> Array:  # fmt: skip
    result = np.zeros((*queries.shape[:3], values.shape[3]), queries.dtype)
    ranges, of_row = np.unique(np.stack([before, last], 1), axis=0, return_inverse=True)
    for number, (low, high) in enumerate(ranges):
        rows, seen = of_row.ravel() == number, slice(max(low + 1, 0), max(high + 1, 0))
        result[:, rows] = attention_reference(
            queries[:, rows], keys[:, seen], values[:, seen], scale=scale
        )
    return result


define(
    "nn.attention_within",
    params("queries keys values before last starts?", scale=None),
    _within_infer,
    needs=NEEDS,
    emit=_within_emit,
    reference=_within,
)


# --- the ranges of sequences behind each other --------------------------------------------------


def _require_starts(call: graph.Call, tys: TypesOf, first: int) -> None:
    """Require one or two tensors of positions at which sequences start and end."""
    starts = [tensor_arg(call, tys, i) for i in range(first, len(tys))]
    for i, t in enumerate(starts, first):
        require_dtype(call, t, "int32 or int64", i)
        if t.ndim not in (-1, 1):
            raise fail(call, f"argument {i} must have 1 dimensions, is {t}")
    if len(starts) > 1 and starts[0].shape and starts[1].shape:
        counts = (starts[0].shape[0], starts[1].shape[0])
        if differ(call, *counts, "the numbers of sequences of queries and keys"):
            raise fail(call, f"seqstart_q has {counts[0]} entries, seqstart_k {counts[1]}")
    if starts and starts[0].shape is not None:
        claim = "seqstart_q must have the start of a sequence and its end"
        if impossible(call, expr.GE(starts[0].shape[0], expr.const(2)), claim):
            raise fail(call, claim)


def _ranges_infer(call: graph.Call, tys: TypesOf) -> Type:
    counts = shape_arg(call, tys, 0)
    if counts.ndim not in (-1, 2):
        raise fail(call, f"the shape must be the numbers of queries and of keys, is {counts}")
    require_known_mask(call)
    _require_starts(call, tys, 1)
    rows = None if counts.values is None else counts.values[:1]
    return TupleType((TensorType(rows, "int64", 1), TensorType(rows, "int64", 1)))


def _ranges_emit(
    call: graph.Call,
    out: Type,
    counts: tuple[PrimExpr, ...],
    starts_q: te.Tensor,
    starts_k: te.Tensor | None = None,
) -> tuple[te.Tensor, ...]:
    """Find the sequence of each query by a binary search. A query of none sees no key."""
    rows, keys = counts
    starts_k = starts_q if starts_k is None else starts_k
    mask, window = attr(call, "causal_mask"), attr(call, "window_size")

    def body(point: tuple[expr.Var, ...], b: dict[te.Tensor, loops.Buffer]) -> loops.Stmt:
        (i,) = point
        low, high = loops.BufferLoad(b[before], point), loops.BufferLoad(b[last], point)
        middle, owner = expr.Var("middle"), expr.Var("owner")

        def put(t: te.Tensor, value: PrimExpr) -> loops.Stmt:
            return loops.BufferStore(b[t], value, point)

        def start(t: te.Tensor, sequence: PrimExpr) -> PrimExpr:
            return scalar.cast(loops.BufferLoad(b[t], (sequence,)), "int64")

        ended = expr.LE(start(starts_q, middle + 1), i)
        halve = loops.IfThenElse(ended, put(before, middle + 1), put(last, middle))
        names = [expr.Var(n) for n in ("first_q", "end_q", "first_k", "end_k")]
        first_q, end_q, first_k, end_k = names
        shift = (end_k - first_k) - (end_q - first_q) if mask == "BottomRight" else te.ZERO
        at = i - first_q + shift + first_k  # the key at the position of the query
        none = expr.Select(expr.LT(i, first_q), first_k, end_k) - 1
        most = end_k - 1 if mask is None else scalar.clamp(at, first_k - 1, end_k - 1)
        least = first_k - 1
        if window is not None:
            least = scalar.clamp(at - window, first_k - 1, end_k - 1)
        inside = expr.And(expr.GE(i, first_q), expr.LT(i, end_q))
        result = loops.seq(
            put(before, expr.Select(inside, least, none)),
            put(last, expr.Select(inside, most, none)),
        )
        values = [start(starts_q, owner), start(starts_q, owner + 1)]
        # Sequences may begin or end past the last key.
        values += [scalar.clamp(start(starts_k, owner + n), 0, keys) for n in (0, 1)]
        for name, value in reversed(list(zip(names, values, strict=True))):
            result = loops.LetStmt(name, value, result)
        return loops.seq(
            put(before, te.ZERO),
            put(last, starts_q.shape[0] - 2),  # the last sequence also has what is in none
            loops.While(expr.LT(low, high), loops.LetStmt(middle, (low + high) // 2, halve)),
            loops.LetStmt(owner, low, result),
        )

    inputs = [*dict.fromkeys((starts_q, starts_k))]
    outputs = [(f"T_{name}_key", (rows,), "int64") for name in ("before", "last")]
    whole = loops.Nondecreasing(te.ZERO, rows) if attr(call, "whole") else loops.Nondecreasing()
    facts = {starts: (whole if starts is starts_q else loops.Nondecreasing(),) for starts in inputs}
    before, last = te.compute_rows((rows,), outputs, inputs, body, "T_key_ranges", facts)
    return before, last


def _ranges(
    shape: tuple[int, ...], seqstart_q: Array, seqstart_k: Array | None = None,
    causal_mask: str | None = None, window_size: int | None = None, whole: bool = False,
) -> tuple[Array, Array]:  # fmt: skip
    rows, keys = shape
    starts_q = seqstart_q.astype("int64")
    starts_k = np.clip(starts_q if seqstart_k is None else seqstart_k.astype("int64"), 0, keys)
    i = np.arange(rows)
    owner = np.clip(np.searchsorted(starts_q[1:], i, "right"), 0, len(starts_q) - 2)
    first_q, end_q, first_k, end_k = (
        s[owner + n] for s in (starts_q, starts_k) for n in (0, 1)
    )
    shift = (end_k - first_k) - (end_q - first_q) if causal_mask == "BottomRight" else 0
    at = i - first_q + shift + first_k
    none = np.where(i < first_q, first_k, end_k) - 1
    last = end_k - 1 if causal_mask is None else np.clip(at, first_k - 1, end_k - 1)
    before = first_k - 1
    if window_size is not None:
        before = np.clip(at - window_size, first_k - 1, end_k - 1)
    inside = (i >= first_q) & (i < end_q)
    return np.where(inside, before, none), np.where(inside, last, none)


define(
    "nn.key_ranges",
    params("shape seqstart_q seqstart_k?", causal_mask=None, window_size=None, whole=False),
    _ranges_infer,
    emit=_ranges_emit,
    reference=_ranges,
)


# --- sequences behind each other ----------------------------------------------------------------


def _var_len_infer(call: graph.Call, tys: TypesOf) -> Type:
    """The sequences are concatenated: the batch size of the tensors is 1."""
    longest = [tensor_arg(call, tys, i) for i in range(4, len(tys), 2)]
    for i, t in zip(range(4, len(tys), 2), longest, strict=True):
        require_dtype(call, t, "integer", i)
        if t.ndim not in (-1, 0):
            raise fail(call, f"argument {i} must have 0 dimensions, is {t}")
    require_known_mask(call)
    _require_starts(call, (*tys[:3], *tys[3::2]), 3)
    result = attention_infer(call, tys[:3])
    q = tensor_arg(call, tys, 0)
    if q.shape is not None and differ(call, q.shape[0], ONE, "the batch size and 1"):
        raise fail(call, f"queries must be (1, total length, heads, head_dim), is {q}")
    return result


def _var_len(
    queries: Array,
    keys: Array,
    values: Array,
    seqstart_q: Array,
    max_seqlen_q: Array,
    seqstart_k: Array | None = None,
    max_seqlen_k: Array | None = None,
    scale: float | None = None,
    causal_mask: str | None = None,
    window_size: int | None = None,
) -> Array:
    starts = seqstart_q, seqstart_q if seqstart_k is None else seqstart_k
    result = np.zeros((*queries.shape[:3], values.shape[3]), queries.dtype)
    bounds = [list(zip(s[:-1], s[1:], strict=True)) for s in starts]
    for (a, b), (c, d) in zip(*bounds, strict=True):
        # Masked keys are left out: infinity times a weight of zero would be no number.
        for rows, low, high in _visible(b - a, d - c, causal_mask, window_size):
            seen = slice(c + low, c + high)
            result[:, a:b][:, rows] = attention_reference(
                queries[:, a:b][:, rows], keys[:, seen], values[:, seen], scale=scale
            )
    return result


def _visible(
    rows: int, keys: int, causal_mask: str | None, window_size: int | None
) -> Iterator[tuple[slice, int, int]]:
    """Rows of a sequence with the first of its keys that they see and the one after the last."""
    if causal_mask is None and window_size is None:
        yield slice(0, rows), 0, keys
        return
    for i in range(rows):
        at = i + (keys - rows if causal_mask == "BottomRight" else 0)
        high = keys if causal_mask is None else min(max(at + 1, 0), keys)
        low = 0 if window_size is None else min(max(at - window_size + 1, 0), high)
        yield slice(i, i + 1), low, high


# queries: (1, total length, heads, head_dim); sequence s has the positions from seqstart[s] to
# seqstart[s + 1]. The longest lengths are not needed here. `flatten_ragged` expresses this and the
# next operator by those above.
define(
    "nn.attention_var_len",
    params(
        "queries keys values seqstart_q max_seqlen_q seqstart_k? max_seqlen_k?",
        scale=None,
        causal_mask=None,
        window_size=None,
    ),
    _var_len_infer,
    needs=NEEDS,
    reference=_var_len,
)


def _ragged_infer(call: graph.Call, tys: TypesOf) -> Type:
    q, k, v = (tensor_arg(call, tys, i) for i in range(3))
    lengths = tensor_arg(call, tys, 3)
    require_dtype(call, lengths, "int32 or int64", 3)
    if lengths.ndim not in (-1, 1):
        raise fail(call, f"lengths must be (sequences,), is {lengths}")
    for name, t in (("queries", q), ("keys", k), ("values", v)):
        if t.ndim not in (-1, 3):
            raise fail(call, f"{name} must be (rows, heads, head_dim), is {t}")
    require_known_mask(call)
    batched = tuple(
        t if t.shape is None else TensorType((ONE, *t.shape), t.dtype) for t in (q, k, v)
    )
    ty = attention_infer(call, batched)
    assert isinstance(ty, TensorType)
    return TensorType(ty.shape and ty.shape[1:], ty.dtype, 3)


def _ragged(
    queries: Array, keys: Array, values: Array, lengths: Array, **attrs: Any
) -> Array:
    starts = np.concatenate([[0], np.cumsum(lengths)])
    q, k, v = (x[None] for x in (queries, keys, values))
    return _var_len(q, k, v, starts, lengths.max(initial=0), **attrs)[0]


define(
    "nn.ragged_attention",
    params("queries keys values lengths", scale=None, causal_mask=None, window_size=None),
    _ragged_infer,
    needs=NEEDS,
    reference=_ragged,
)
