"""Fresh names, numbered where a hint is taken, and messages about unknown ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches


def among(name: object, known: Iterable[str]) -> str:
    """Return the known names, for a message about one that is none of them, and the one that is
    spelled like it or begins so: "exp, log; did you mean 'exp'?", "none" where there are none."""
    names = list(dict.fromkeys(known))
    return (", ".join(names) or "none") + meant(name, names)


def meant(name: object, known: Sequence[str]) -> str:
    """Return the question for the known name that an unknown one is spelled like, or begins: "; did
    you mean 'exp'?"; "" where there is none."""
    begun = [n for n in known if name and n.startswith(str(name))]
    close = begun if len(begun) == 1 else get_close_matches(str(name), known, 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def fresh_name(hint: str, is_taken: Callable[[str], bool], separator: str = "_") -> str:
    """Return `hint`, or the first of `hint_1`, `hint_2`, … that is not taken."""
    name, count = hint, 0
    while is_taken(name):
        count += 1
        name = f"{hint}{separator}{count}"
    return name


def ascii_name(name: str) -> str:
    """A name for generated code, which takes letters and digits of ASCII only: others are "_"."""
    return "".join(c if c.isalnum() and c.isascii() else "_" for c in name)


class UniqueNames:
    """A source of names, each different from all before and from those given as `taken`."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)

    def __call__(self, hint: str) -> str:
        name = fresh_name(hint, self._taken.__contains__)
        self._taken.add(name)
        return name
