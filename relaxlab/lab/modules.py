"""Modules of a pipeline as data: functions as lines, functions that stay the same written once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from relaxlab.ir import graph, loops
from relaxlab.ir.brief import Brief
from relaxlab.ir.module import BaseFunc, Module
from relaxlab.lab.payload import Interner
from relaxlab.script.printer import print_module

MOST_PRINTED = 256
"""Functions whose scripts are kept: the views of a page print the same ones."""


class ModuleTable(Brief):
    """Distinct functions, and modules as lists of their numbers.

    A function is `[name, kind, line numbers]`, its kind `graph`, `loops` or `extern`. Numbers are
    written as differences, see `differences`.
    """

    def __init__(self, interner: Interner) -> None:
        self.interner = interner
        self.functions: list[list[Any]] = []
        self.modules: list[list[int]] = []
        self._by_text: dict[tuple[str, tuple[int, ...]], int] = {}
        self._by_node: dict[tuple[str, BaseFunc], int] = {}
        self._by_functions: dict[tuple[int, ...], int] = {}

    def add(self, mod: Module) -> int:
        """The number of a module; modules that read the same have the same one."""
        found = tuple(self._function(name, f) for name, f in mod.items())
        if found not in self._by_functions:
            self._by_functions[found] = len(self.modules)
            self.modules.append(list(found))
        return self._by_functions[found]

    def line_count(self, number: int) -> int:
        """Return the number of lines of a module."""
        return sum(len(self.functions[f][2]) for f in self.modules[number])

    def _function(self, name: str, f: BaseFunc) -> int:
        if (name, f) not in self._by_node:
            ids = self.interner.ids(function_lines(name, f))
            number = self._by_text.setdefault((name, tuple(ids)), len(self.functions))
            if number == len(self.functions):
                self.functions.append([name, kind_of(f), differences(ids)])
            self._by_node[name, f] = number
        return self._by_node[name, f]


def differences(numbers: Sequence[int]) -> list[int]:
    """The first number, then how much each is more than the one before: lines that were interned
    one after the other become runs of 1, which compress to half the size."""
    return [n - before for before, n in zip((0, *numbers), numbers, strict=False)]


def kind_of(f: BaseFunc) -> str:
    """Return the kind of a function, in a word."""
    match f:
        case graph.Function():
            return "graph"
        case loops.PrimFunc():
            return "loops"
        case _:
            return "extern"


@lru_cache(maxsize=MOST_PRINTED)
def function_lines(name: str, f: BaseFunc) -> tuple[str, ...]:
    """The script of a function as it stands in a module, without the indentation of the class."""
    try:
        text = print_module(Module.of({name: f}))
    except (TypeError, ValueError) as error:  # what a script cannot say, such as odd names
        return (f"# {name}: {error}",)
    _, lines = text.rstrip("\n").split("class Module:\n")
    return tuple(line.removeprefix("    ") for line in lines.split("\n"))
