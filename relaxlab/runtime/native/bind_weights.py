"""Weights of native functions, packed once and bound to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from relaxlab.ir.module import Module
from relaxlab.runtime.native import weights
from relaxlab.runtime.native.function import NativeFunction
from relaxlab.runtime.native.weights import Transform, Weights


def find_weights(
    functions: Mapping[str, NativeFunction], mod: Module, transforms_by: Mapping[str, str]
) -> dict[str, Weights]:
    """The weights of each of the functions, which were compiled from this module. transforms_by: by
    the name of a function, that of the one which transforms its weights. The latter's calls go
    through its `Transform` from now on."""
    transforms: dict[str, Transform] = {}
    for by in {by for name, by in transforms_by.items() if name in functions}:
        function = functions[by]
        transforms[by] = Transform(by, len(function.info.result.fields), function.__call__)
        function.__call__ = transforms[by]
    counts = {name: len(function.info.params) for name, function in functions.items()}
    return weights.find_weights(mod, transforms, transforms_by, counts)


def bind_together(bound: Sequence[tuple[NativeFunction, Sequence[Any]]]) -> None:
    """Bind the last parameters of functions of one executable: of all of them, or of none.

    Raises ArgumentError for values that do not fit.
    """
    if bound:
        with bound[0][0]._exe._lock:
            for take in [function.prepared(*values) for function, values in bound]:
                take()
