"""`nn.spec`: what the methods of an exported module take."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Tensor:
    """A tensor; a dimension is an int, an expression, or the name of a symbol."""

    shape: Any
    dtype: str


@dataclass(frozen=True)
class Int:
    """An integer."""


@dataclass(frozen=True)
class Tuple:
    """A tuple of values."""

    elements: Any


def _read(given: Any) -> Any:
    if given is int or given == "int":
        return Int()
    return Tuple(tuple(map(_read, given))) if isinstance(given, list | tuple) else given


MODES = ("plain", "packed", "none")


class MethodSpec(dict[str, Any]):
    """The specification of each argument of a method, and how it takes weights and effects: each by
    itself, as one tuple, or not at all."""

    param_mode = effect_mode = "plain"


class ModuleSpec(dict[str, MethodSpec]):
    """The specification of each method of a module."""

    @staticmethod
    def from_raw(given: Mapping[str, Any], module: Any) -> ModuleSpec:
        """A specification from dictionaries. Raises TypeError for a method that takes others."""
        made = ModuleSpec()
        for name, arguments in given.items():
            method = getattr(module, name)
            wanted = list(inspect.signature(method).parameters)
            named = {k: v for k, v in arguments.items() if not k.startswith("$")}
            if not set(named) <= set(wanted):
                raise TypeError(f"{name} takes {wanted}; the specification has {list(named)}")
            made[name] = one = MethodSpec({n: _read(named[n]) for n in wanted if n in named})
            for key, mode in arguments.get("$", {}).items():
                if key not in ("param_mode", "effect_mode") or mode not in MODES:
                    raise ValueError(f"{name}: {key} is {mode!r}; a mode is one of {MODES}")
                setattr(one, key, mode)
        return made
