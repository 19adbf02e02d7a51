"""Functions that a pass adds to a module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

from relaxlab.ir import graph, loops
from relaxlab.ir.equal import structural_key
from relaxlab.ir.module import Module

F = TypeVar("F", bound=graph.Function | loops.PrimFunc)


class NewFunctions(Generic[F]):
    """The functions that a pass adds to a module. Structurally equal ones are one function, which
    is scheduled and compiled once."""

    def __init__(self, mod: Module) -> None:
        self._taken = dict(mod.functions)
        self._made: dict[str, F] = {}
        self._names: dict[str, str] = {}

    @property
    def made(self) -> Mapping[str, F]:
        """All of them, by name."""
        return self._made

    def name_of(self, func: F, hint: str) -> str:
        """The name of a function, which is added unless an equal one was: the hint, or one that
        begins with it if that is taken."""
        key = structural_key(func)
        if key not in self._names:
            name = Module.of({**self._taken, **self._made}).fresh_name(hint)
            self._names[key], self._made[name] = name, func
        return self._names[key]
