"""Symbols of an imported program: its dimensions, and what is known about them."""

from __future__ import annotations

from collections.abc import Mapping

from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr


class Symbols:
    """The symbols of a program by the source's names, with the constraints on them.

    `upper` are the upper bounds by name, which the function is given (`tir_var_upper_bound`);
    `facts` the other constraints, which calls of the function check.
    """

    def __init__(self, names: Mapping[str, str] | None = None) -> None:
        """names: better ones for some of the source's names."""
        self._names = names or {}
        self._by_name: dict[str, expr.Var] = {}
        self.upper: dict[str, int] = {}
        self.facts: list[PrimExpr] = []

    @property
    def names(self) -> tuple[str, ...]:
        """The names so far."""
        return tuple(self._by_name)

    def __call__(self, name: str) -> expr.Var:
        """The symbol of that name."""
        name = self._names.get(name, name)
        return self._by_name.setdefault(name, expr.Var(name))

    def constrain(self, name: str, lower: int | None = None, upper: int | None = None) -> None:
        """Let calls of the program have values from `lower` to `upper`, both inclusive, alone."""
        symbol = self(name)
        if upper is not None:
            self.upper[symbol.name] = min(upper, self.upper.get(symbol.name, upper))
        if lower is not None and lower > 0:
            self.facts.append(expr.GE(symbol, expr.const(lower)))

    def require(self, condition: PrimExpr) -> None:
        """Let calls of the program stop where the condition on symbols does not hold."""
        self.facts.append(condition)
