"""Readable names for variables, unique among those visible at the same place."""

from __future__ import annotations

import keyword
import re
from collections.abc import Generator
from contextlib import contextmanager

from relaxlab.ir.names import fresh_name
from relaxlab.ir.node import Atom

RESERVED = frozenset({"I", "R", "T", "cls", "Module", "range"})


def is_name(text: str) -> bool:
    """True if `text` can be written as a name of the script."""
    return text.isidentifier() and not keyword.iskeyword(text)


class Names:
    """A source of names; a name is free again when the scope that took it is left."""

    def __init__(self, taken: frozenset[str] = RESERVED) -> None:
        self._scopes: list[set[str]] = [set(taken)]
        self._of: dict[Atom, str] = {}

    @contextmanager
    def scope(self) -> Generator[None]:
        """Names declared inside the block are given up at its end."""
        self._scopes.append(set())
        try:
            yield
        finally:
            self._scopes.pop()

    def declare(
        self, atom: Atom, hint: str, *, same_as: str | None = None, everywhere: bool = False
    ) -> str:
        """Name `atom` after `hint`; `same_as` shares a name that is already taken; `everywhere`
        keeps the name taken when the scope is left."""
        name = same_as if same_as is not None else self.fresh(hint)
        if everywhere:
            self._scopes[0].add(name)
        self._of[atom] = name
        return name

    def fresh(self, hint: str) -> str:
        """A free name made from `hint`, now taken."""
        base = re.sub(r"\W", "_", hint) or "v"
        if base[0].isdigit() or not is_name(base):
            base = f"v_{base}"
        name = fresh_name(base, lambda name: any(name in scope for scope in self._scopes))
        self._scopes[-1].add(name)
        return name

    def __contains__(self, atom: Atom) -> bool:
        return atom in self._of

    def of(self, atom: Atom, hint: str) -> str:
        """The name of `atom`; one that was never declared is declared here."""
        return self._of.get(atom) or self.declare(atom, hint)
