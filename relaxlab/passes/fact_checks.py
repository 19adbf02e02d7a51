"""Calls that check what index functions state, before the kernels that count on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from relaxlab.analysis.facts_check import checked_buffers, facts_check, lengths_check
from relaxlab.ir import expr, host, loops, types
from relaxlab.passes.new_functions import NewFunctions

Check = tuple[str, tuple[int, ...], tuple[expr.PrimExpr, ...]]
"""A checking loop function, its registers and its scalars."""


@dataclass(slots=True)
class Checked:
    """The checks that were made in one host function, of registers whose elements did not change
    since. `same` has the register that another one is a view of."""

    checks: NewFunctions[loops.PrimFunc]
    done: set[Check] = field(default_factory=set[Check])
    same: dict[int, int] = field(default_factory=dict[int, int])

    def root(self, register: int) -> int:
        """The register that `register` is a view of, or itself."""
        while register in self.same:
            register = self.same[register]
        return register

    def before(
        self,
        name: str,
        func: loops.PrimFunc,
        registers: Iterable[int],
        symbols: Mapping[expr.Var, expr.PrimExpr],
    ) -> host.CallKernel | None:
        """The check to make before a call of the loop function `func`, called `name`, on the
        registers; None where it has no index functions, or they were checked before."""
        check = facts_check(func)
        if check is None:
            return None
        given = dict(zip(func.buffers, registers, strict=True))
        mine = tuple(given[b] for b in checked_buffers(func))
        scalars = tuple(symbols[s] for s in host.kernel_symbols(check))
        made = (self.checks.name_of(check, f"{name}_facts"), tuple(map(self.root, mine)), scalars)
        if made in self.done:
            return None
        self.done.add(made)
        return host.CallKernel(made[0], mine, scalars)

    def of_lengths(self, name: str, register: int, ty: types.LengthsType) -> host.CallKernel:
        """The check of a parameter that has lengths: none is below the least or above the most, and
        they add up to the number of rows."""
        check = lengths_check(name, ty)
        scalars = host.kernel_symbols(check)
        return host.CallKernel(self.checks.name_of(check, f"{name}_facts"), (register,), scalars)

    def forget(self, registers: Iterable[int]) -> None:
        """Take the elements of the registers to be others."""
        changed = {self.root(r) for r in registers}
        self.done = {c for c in self.done if changed.isdisjoint(c[1])}
