"""`IRBuilder`: the program that frames of `ir`, `relax` and `tir` build."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relaxlab.ir.module import BaseFunc, Module
from relaxlab.script.recording import Recorded, Recorder
from relaxlab.tvm.script.normal import from_source


class IRBuilder(Recorder):
    """A program that is being built, as a context."""

    @staticmethod
    def is_in_scope() -> bool:
        """True inside of a builder."""
        return bool(Recorder.open)

    def get(self) -> BaseFunc | Module:
        """The function or the module that was built. Raises DiagnosticError for what is wrong."""
        return from_source(self.text(), self.values)

    @staticmethod
    def name(name: str, value: Any) -> Any:
        """Give a value of the program a name; the value itself."""
        if isinstance(value, Recorded) and value.name_ is not None:
            value.name_.wanted = name
        return value

    @staticmethod
    def name_many(names: Sequence[str], values: Sequence[Any]) -> list[Any]:
        """Give several values their names."""
        return [IRBuilder.name(n, v) for n, v in zip(names, values, strict=True)]
