"""Values of registers of the virtual machine, as data that a reader can look at."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from relaxlab.ir import host
from relaxlab.ir.errors import counted, tuple_text
from relaxlab.ops.calls import BoundFunction
from relaxlab.runtime.arrays import Array, dtype_name

MAX_LISTED = 64
"""Elements of an array whose values are listed."""
SAMPLE = 1 << 17
"""Most elements that statistics are taken from; larger arrays are sampled at a constant stride."""
BINS = 16
"""Bars of the histogram of an array's values."""


def value_state(value: Any) -> dict[str, Any]:
    """A value as JSON has it, by `kind`: tensor, shape, scalar, tuple, function or object."""
    if isinstance(value, np.ndarray):
        return tensor_state(cast(Array, value))
    if isinstance(value, tuple):
        fields = cast("tuple[Any, ...]", value)
        if all(isinstance(v, int) for v in fields):
            return {"kind": "shape", "text": tuple_text(fields)}
        return {"kind": "tuple", "text": f"a tuple of {counted(len(fields), 'value')}"}
    if isinstance(value, host.HostFunction):
        return {"kind": "function", "text": f"function {value.name}"}
    if isinstance(value, BoundFunction):
        return {"kind": "function", "text": f"function with {len(value.args)} arguments given"}
    if isinstance(value, bool | int | float | np.generic):
        return {"kind": "scalar", "text": number_text(value)}
    return {"kind": "object", "text": type(value).__name__}


def tensor_state(array: Array) -> dict[str, Any]:
    """Return shape, dtype, bytes; statistics and a histogram of the finite elements; the values of
    a small array. Uninitialised arrays (all ones, or 0x5A) are `fresh`."""
    state: dict[str, Any] = {
        "kind": "tensor", "shape": list(array.shape), "dtype": dtype_name(array),
        "bytes": array.nbytes, "fresh": _is_fresh(array),
    }  # fmt: skip
    if state["fresh"] or not array.size:
        return state
    with np.errstate(all="ignore"):  # signalling NaN, squares beyond float64
        return state | _statistics(array.reshape(-1))


def _statistics(flat: Array) -> dict[str, Any]:
    """Return the part of `tensor_state` about the elements."""
    state: dict[str, Any] = {}
    step = -(-flat.size // SAMPLE)
    sample = flat[::step].astype(np.float64)
    finite = sample[np.isfinite(sample)]
    if step > 1:
        state["sampled"] = len(sample)
    state["nan"] = int(np.isnan(sample).sum())
    state["infinite"] = int(np.isinf(sample).sum())
    if finite.size:
        low, high = float(finite.min()), float(finite.max())
        state |= {
            "min": number_text(low), "max": number_text(high),
            "mean": number_text(finite.mean()), "std": number_text(finite.std()),
        }  # fmt: skip
        if high > low and np.isfinite(high - low):
            state["histogram"] = [int(n) for n in np.histogram(finite, BINS, (low, high))[0]]
    if flat.size <= MAX_LISTED:
        state["values"] = [number_text(v) for v in flat]
    return state


def _is_fresh(array: Array) -> bool:
    """True if every byte is the fill value of uninitialised memory."""
    data = array.reshape(-1)[: SAMPLE // 8]
    if not data.size:
        return False
    if np.issubdtype(data.dtype, np.floating):
        return bool(np.isnan(data).all())
    raw = data.view(np.uint8)
    return bool((raw == 0xFF).all() or (raw == 0x5A).all())


def number_text(value: Any) -> str:
    """A number with four significant digits; integers whole."""
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, int | np.integer):
        return str(int(value))
    return f"{float(value):.4g}"
