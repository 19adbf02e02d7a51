"""The table of JAX's primitives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from relaxlab.frontend.emitter import Emitter
from relaxlab.frontend.known import MOST_KNOWN, Folds, Known, wrapped
from relaxlab.frontend.table import Table
from relaxlab.ir.dtypes import is_float
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.types import TensorType

TABLE = Table("JAX")
"""A row for each primitive: `row(b, *operands, **parameters of the equation)`."""
row = TABLE.row


_TRAITS: dict[str, set[Any]] = {"known": set(), "jax": set(), "inlined": set()}


def takes_known(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Let a row have `Known` operands as they are."""
    _TRAITS["known"].add(fn)
    return fn


def takes_jax(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Let a row have JAX's own dimensions among its parameters, to trace further functions."""
    _TRAITS["jax"].add(fn)
    return fn


def inlined(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a row whose primitive contains others: it has `Known` operands and may return such
    values, in a sequence of all results."""
    _TRAITS["inlined"].add(fn)
    return fn


def takes(fn: Callable[..., Any], trait: str) -> bool:
    """True if a row is marked so."""
    return fn in _TRAITS[trait]


FOLDS = Folds()
"""A function for each primitive that is computed on `Known` integers: of their values, arrays of
objects, and the parameters."""
fold = FOLDS.fold


MOVES = ("convert_element_type", "broadcast_in_dim", "reshape", "squeeze", "copy")
"""Primitives that are followed for floats, too, such as the value that fills a margin."""


def folded(name: str, operands: list[Any], params: dict[str, Any], dtype: str) -> Known | None:
    """The result of a primitive whose operands are all `Known`; None where it is not known."""
    if name not in FOLDS or not all(isinstance(o, Known) for o in operands):
        return None
    if name not in MOVES and any(is_float(d) for d in (dtype, *(o.dtype for o in operands))):
        return None
    value = FOLDS[name](*(o.values for o in operands), dtype=dtype, **params)
    if value is None or np.size(value) > MOST_KNOWN:
        return None
    values = np.asarray(value, dtype=object)
    exact = np.array([wrapped(v, dtype) for v in values.reshape(-1)], dtype=object)
    return Known(exact.reshape(values.shape), dtype)


def results(b: Emitter) -> tuple[TensorType, ...]:
    """The types that JAX states for the results of the primitive whose row runs."""
    return tuple(t for t in b.out if t is not None)


def shape_of_out(b: Emitter) -> tuple[PrimExpr, ...]:
    """The dimensions that JAX states for the first result."""
    shape = results(b)[0].shape
    assert shape is not None
    return shape


def dtype_of_out(b: Emitter) -> str:
    """The dtype that JAX states for the first result."""
    dtype = results(b)[0].dtype
    assert dtype is not None
    return dtype
