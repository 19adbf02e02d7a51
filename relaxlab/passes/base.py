"""What a pass is: a pure function Module -> Module under a name, and lists of them.

A pass returns the object it was given when it changes nothing, so "did it change?" is `is`.
Decisions are recorded with `relaxlab.tracing.note`.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.module import Module
from relaxlab.ir.node import Attrs
from relaxlab.tracing import PassRecord, Trace, recording


@dataclass(frozen=True, slots=True)
class NoOptions:
    """The options of a pass that has none."""


@dataclass(frozen=True, slots=True)
class Pass:
    """A named pass with its options (a frozen dataclass); call it on a module."""

    name: str
    function: Callable[[Module, Any], Module]
    options: Any

    def __call__(self, mod: Module) -> Module:
        return self.function(mod, self.options)

    def with_options(self, **changes: Any) -> Pass:
        """The same pass with some options changed. Raises TypeError for an unknown option."""
        known = [f.name for f in dataclasses.fields(self.options)]
        for name in changes:
            if name not in known:
                raise TypeError(
                    f"pass {self.name!r} has no option {name!r}; it has: "
                    f"{', '.join(known) or 'none'}"
                )
        return Pass(self.name, self.function, dataclasses.replace(self.options, **changes))


_REGISTRY: dict[str, Pass] = {}


def module_pass(
    name: str, options: type[Any] = NoOptions
) -> Callable[[Callable[[Module, Any], Module]], Pass]:
    """Register a function `(module, options) -> module` as the pass `name`.

    Raises ValueError when the name is taken by another file's pass.
    """

    def register(function: Callable[[Module, Any], Module]) -> Pass:
        known = _REGISTRY.get(name)
        if known is not None and known.function.__module__ != function.__module__:
            raise ValueError(f"pass {name!r} is registered twice")
        _REGISTRY[name] = Pass(name, function, options())
        return _REGISTRY[name]

    return register


def find_pass(name: str) -> Pass:
    """The registered pass of that name. Raises KeyError naming the known ones."""
    if name not in _REGISTRY:
        raise KeyError(f"unknown pass {name!r}; known: {', '.join(sorted(_REGISTRY))}")
    return _REGISTRY[name]


class PassFailed(Exception):
    """A pass raised, or left an ill-formed module; `trace` ends with the failing pass."""

    def __init__(self, name: str, reason: str, trace: Trace) -> None:
        super().__init__(f"pass {name!r} failed: {reason}")
        self.trace = trace


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Passes in order. `check` names what is verified after each pass that changed the module."""

    passes: tuple[Pass, ...]
    check: Callable[[Module], Iterable[Any]] | None = None

    def run(self, mod: Module) -> Trace:
        """Run all passes, recording before, after, decisions and time of each.

        Raises `PassFailed` (its `trace` holds what ran) when `check` finds something; a pass's own
        `DiagnosticError` about the user's program passes through unchanged.
        """
        records: list[PassRecord] = []
        current = mod
        for one in self.passes:
            current, record = self._run_one(one, current)
            records.append(record)
            if record.error is not None:
                raise PassFailed(one.name, record.error, Trace(mod, tuple(records)))
        return Trace(mod, tuple(records))

    def _run_one(self, one: Pass, mod: Module) -> tuple[Module, PassRecord]:
        error: str | None = None
        start = time.perf_counter()
        with recording() as notes:
            after = one(mod)
        seconds = time.perf_counter() - start
        if self.check is not None and after is not mod:
            found = list(self.check(after))
            if found:
                error = "the result is not well-formed:" + str(DiagnosticError(found))
        options = Attrs({f.name: getattr(one.options, f.name) for f in _fields(one.options)})
        return after, PassRecord(one.name, options, mod, after, seconds, tuple(notes), error)


def _fields(options: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(options)
