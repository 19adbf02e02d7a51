"""Imported programs: a module, the arrays that belong to it, and its source's way of calling."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from relaxlab.ir.module import Module
from relaxlab.runtime.build import compile as compile_module


def _positional(args: Sequence[Any], named: Mapping[str, Any]) -> Sequence[Any]:
    if named:
        raise TypeError(f"the program takes no arguments by name: {', '.join(named)}")
    return args


def _as_they_are(results: Sequence[Any]) -> Any:
    return results[0] if len(results) == 1 else tuple(results)


def _in_rows(value: Any) -> Any:
    """An argument as kernels read it, row after row: a copy of an array or a tensor that is stored
    in another order, such as a transposed one, which the source takes as well."""
    if isinstance(value, np.ndarray):
        return value if value.flags.c_contiguous else value.copy()
    return value.contiguous() if hasattr(value, "is_contiguous") else value


@dataclass(frozen=True, slots=True)
class ImportedProgram:
    """A module made from a program of another framework, with its constants and parameters.

    `main` of the module takes the inputs, then the `params` by name, which are the source's own
    arrays. `flatten` makes the inputs of `main` from arguments in the source's form (nested, by
    name), `unflatten` a value in the source's form from the results. `updates` are the numbers of
    the inputs that a call changes, as it may a buffer: the first results are their new values.
    """

    module: Module
    params: Mapping[str, np.ndarray[Any, Any]] = field(repr=False)
    flatten: Callable[[Sequence[Any], Mapping[str, Any]], Sequence[Any]] = field(
        default=_positional, repr=False
    )
    unflatten: Callable[[Sequence[Any]], Any] = field(default=_as_they_are, repr=False)
    updates: tuple[int, ...] = ()

    def script(self, **options: Any) -> str:
        """The module as a runnable script."""
        return self.module.script(**options)

    def call(self, main: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """Return what the program returns when `main`, a function of inputs in rows, computes its
        results, and change what it changes."""
        inputs = self.flatten(args, named)
        given = list(map(_in_rows, inputs))
        for number in self.updates:  # what is returned as it came may not change with its input
            given[number] = deepcopy(given[number])
        found = main(*given)
        results = found if isinstance(found, tuple) else (found,)
        for number, value in zip(self.updates, results, strict=False):
            inputs[number][...] = value
        return self.unflatten(results)

    def compile(self, target: Any = "cpu", **options: Any) -> CompiledProgram:
        """The program compiled by `relaxlab.compile`, with its parameters bound."""
        exe = compile_module(self.module, target, **options)
        return CompiledProgram(self, exe.load(self.params) if self.params else exe)


@dataclass(frozen=True, slots=True)
class CompiledProgram:
    """A compiled program that is called as its source: same arguments, same form of the result.

    `exe` is the `Executable`.
    """

    program: ImportedProgram = field(repr=False)
    exe: Any

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Run the program. Raises what `Executable` raises, TypeError for another structure of
        arguments than the program was imported with."""
        return self.program.call(self.exe["main"], args, named)
