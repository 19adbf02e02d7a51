"""Fresh names: a hint, numbered where it is taken."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def fresh_name(hint: str, is_taken: Callable[[str], bool], separator: str = "_") -> str:
    """Return `hint`, or the first of `hint_1`, `hint_2`, … that is not taken."""
    name, count = hint, 0
    while is_taken(name):
        count += 1
        name = f"{hint}{separator}{count}"
    return name


class UniqueNames:
    """A source of names, each different from all before and from those given as `taken`."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)

    def __call__(self, hint: str) -> str:
        name = fresh_name(hint, self._taken.__contains__)
        self._taken.add(name)
        return name
