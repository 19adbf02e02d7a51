"""The context in which a kernel is scheduled: what rules may depend on beside its loops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from relaxlab.ir.equal import structural_key
from relaxlab.ir.loops import Buffer, PrimFunc
from relaxlab.ir.node import Attrs, replace
from relaxlab.ir.target import Target
from relaxlab.schedule.bounds import UPPER_BOUNDS
from relaxlab.schedule.order import KEEP_ORDER

FACTS = (UPPER_BOUNDS, KEEP_ORDER)
"""Attributes of a loop function in which primitives find what the context says of it: a trace is
replayed without the context, and its steps are proved anew."""


@dataclass(frozen=True, slots=True)
class Context:
    """target: the machine, and what may be done to floating-point arithmetic on it. weights: the
    numbers of the parameters that are weights at every call, constant once they are loaded. bounds:
    the largest values of symbols, by name. versions: True if a kernel may have versions for single
    values of its symbols, such as one row, beside the general one."""

    target: Target
    weights: frozenset[int] = frozenset()
    bounds: Mapping[str, int] = field(default_factory=dict[str, int])
    versions: bool = True

    def is_weight(self, func: PrimFunc, buffer: Buffer) -> bool:
        """True if a parameter of the function is a weight."""
        return any(func.params[i] is buffer for i in self.weights)

    def key_of(self, func: PrimFunc) -> str:
        """A digest of all that the schedule of a function follows from beside the target and the
        decisions: equal for equal functions, whatever their variables are called."""
        extent = f"weights {sorted(self.weights)}, versions {self.versions}"
        return structural_key((self.with_facts(func), extent))

    def with_facts(self, func: PrimFunc) -> PrimFunc:
        """The function with the attributes `FACTS`; bounds of its own win."""
        facts: dict[str, Any] = {}
        if not self.target.reassociate:
            facts[KEEP_ORDER] = True
        if self.bounds:
            facts[UPPER_BOUNDS] = Attrs({**self.bounds, **func.attrs.get(UPPER_BOUNDS, {})})
        return replace(func, attrs=func.attrs.with_(**facts)) if facts else func
