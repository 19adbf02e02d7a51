"""Events of type deduction, recorded on request so that views can explain it.

The prover is called thousands of times, so callers build an event only if `is_recording()`. Events
are in order; a `Deduced` ends those of its binding.
"""

from __future__ import annotations

import contextvars
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, TypeAlias

from relaxlab.ir import expr, graph
from relaxlab.ir.types import Type
from relaxlab.tracing.record import current


@dataclass(frozen=True, slots=True)
class Asked:
    """A query of the prover: the condition holds always, never, or it is unknown (None)."""

    condition: expr.PrimExpr
    answer: bool | None


@dataclass(frozen=True, slots=True)
class Unified:
    """A symbol of a called function's signature has a value here, found at `place`."""

    symbol: expr.Var
    value: expr.PrimExpr
    place: str


@dataclass(frozen=True, slots=True)
class Matched:
    """A declared dimension beside the actual one (None: unknown): equal, never equal, or not known
    before run time. `expected` is the declared one with its symbols replaced (None: not bound)."""

    declared: expr.PrimExpr
    expected: expr.PrimExpr | None
    actual: expr.PrimExpr | None
    place: str
    answer: bool | None


@dataclass(frozen=True, slots=True)
class Checked:
    """A claim that is not proved from what is known: checked at run time."""

    claim: str
    known: str


@dataclass(frozen=True, slots=True)
class Lost:
    """A shape that is unknown although the shapes it depends on are known; `remedy` is a line of
    the program that restores it."""

    source: str
    reason: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Deduced:
    """The type of a binding's variable; of the result of `function` where `var` is None."""

    function: str
    var: graph.Var | None
    value: graph.Expr
    ty: Type | None
    kind: Literal["binding", "match_cast", "parameter", "result"] = "binding"


DeductionEvent: TypeAlias = Asked | Unified | Matched | Checked | Lost | Deduced

_EVENTS: contextvars.ContextVar[list[DeductionEvent] | None] = contextvars.ContextVar(
    "relaxlab_deduction", default=None
)


def deduction_events() -> AbstractContextManager[list[DeductionEvent]]:
    """Collect the events of deductions made inside the block."""
    return current(_EVENTS, list[DeductionEvent]())


def is_recording() -> bool:
    """True inside a `deduction_events` block."""
    return _EVENTS.get() is not None


def emit(event: DeductionEvent) -> None:
    """Append an event to the list that `deduction_events` gave, if there is one."""
    found = _EVENTS.get()
    if found is not None:
        found.append(event)
