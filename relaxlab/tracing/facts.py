"""What type deduction finds out on its way, for whoever wants to explain it.

The prover is asked thousands of times, so nothing is kept, nor built, unless somebody records:
whoever states a fact asks `recording_facts` first. Facts come in order; a `Deduced` ends those of
its binding.
"""

from __future__ import annotations

import contextvars
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, TypeAlias

from relaxlab.ir import expr, graph
from relaxlab.ir.types import Type


@dataclass(frozen=True, slots=True)
class Asked:
    """The prover was asked whether a condition holds: always, never, or unknown (None)."""

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
    """A shape is not known although those are that it comes from; `remedy` is a line that brings
    it back."""

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


Fact: TypeAlias = Asked | Unified | Matched | Checked | Lost | Deduced

_FACTS: contextvars.ContextVar[list[Fact] | None] = contextvars.ContextVar(
    "relaxlab_facts", default=None
)


@contextmanager
def facts() -> Iterator[list[Fact]]:
    """Collect the facts stated inside the block."""
    found: list[Fact] = []
    token = _FACTS.set(found)
    try:
        yield found
    finally:
        _FACTS.reset(token)


def recording_facts() -> bool:
    """True if anybody wants facts."""
    return _FACTS.get() is not None


def state(fact: Fact) -> None:
    """Record a fact; does nothing when nobody records."""
    found = _FACTS.get()
    if found is not None:
        found.append(fact)
