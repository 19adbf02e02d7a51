"""Statements that may run while a product of a warpgroup is under way.

Until it is waited for, a product of `wgmma` reads and writes registers that nothing else may touch.
The last product of an iteration is best under way during the first part of the next iteration:
attention then multiplies the weights of a chunk by its values while it makes the next chunk's
weights (FlashAttention-3, Shah et al., 2024).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relaxlab.ir.expr import StringImm
from relaxlab.ir.loops import Buffer, BufferLoad, BufferStore, Evaluate, Stmt
from relaxlab.ir.node import walk


@dataclass(frozen=True, slots=True)
class _Touched:
    read: frozenset[Buffer]
    written: frozenset[Buffer]

    @staticmethod
    def by(stmts: Sequence[Stmt]) -> _Touched:
        nodes = [n for s in stmts for n in walk(s)]
        return _Touched(
            frozenset(n.buffer for n in nodes if isinstance(n, BufferLoad)),
            frozenset(n.buffer for n in nodes if isinstance(n, BufferStore)),
        )

    @property
    def all(self) -> frozenset[Buffer]:
        return self.read | self.written

    def conflicts(self, other: _Touched) -> bool:
        """True if the order of the two matters."""
        return bool(self.written & other.all or other.written & self.read)


def beside(
    first: Sequence[Stmt], between: Sequence[Stmt], product: Sequence[Stmt], behind: Sequence[Stmt]
) -> tuple[list[Stmt], list[Stmt]] | None:
    """Return the statements of an iteration behind its first product, but for the second: those
    that may run while the previous iteration's second product is under way, and those that touch
    its registers, to run after them. `first` is the first product and what is before it, `between`
    is between the products, `behind` after the second. None where `first` or `behind` touches the
    registers."""
    # Products write through addresses, which count as loads.
    registers = frozenset(b for b in _Touched.by(product).all if b.scope == "local")
    if _Touched.by([*first, *behind]).all & registers:
        return None
    free, bound = list[Stmt](), list[Stmt]()
    for unit in _units([*between, *behind]):
        own = _Touched.by(unit)
        later = own.all & registers or own.conflicts(_Touched.by(bound))
        (bound if later else free).extend(unit)
    return free, bound


def _units(stmts: Sequence[Stmt]) -> list[list[Stmt]]:
    """The statements, each with the comments before it."""
    units: list[list[Stmt]] = [[]]
    for s in stmts:
        units[-1].append(s)
        if not (isinstance(s, Evaluate) and isinstance(s.value, StringImm)):
            units.append([])
    return [u for u in units if u]
