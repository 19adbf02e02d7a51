"""Functions registered by name, for `call_packed` and its kin to call out to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

PackedFunc = Callable[..., Any]

_FUNCS: dict[str, PackedFunc] = {}


def register_func(name: str, fn: PackedFunc, *, override: bool = False) -> PackedFunc:
    """Make `fn` callable from programs as `name`. Arrays arrive as NumPy arrays (for
    destination-passing calls the outputs come last and are written in place), shapes as tuples.

    Raises ValueError when the name is taken and `override` is not set.
    """
    if name in _FUNCS and not override:
        raise ValueError(f"a function named {name!r} is already registered; pass override=True")
    _FUNCS[name] = fn
    return fn


def get_func(name: str) -> PackedFunc:
    """The function of that name. Raises KeyError saying how to register it."""
    if name not in _FUNCS:
        raise KeyError(
            f"no function named {name!r} is registered; "
            "call relaxlab.runtime.packed.register_func(name, fn) first"
        )
    return _FUNCS[name]
