"""How a notebook asks a value for what it shows: IPython's `_repr_mimebundle_`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Displayed:
    """Base of the values that notebooks show richly."""

    __slots__ = ()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return _display(self)


def _plain(value: Any) -> dict[str, str]:
    return {"text/plain": repr(value)}


_display: Callable[[Any], dict[str, str]] = _plain


def register_display(display: Callable[[Any], dict[str, str]]) -> None:
    """Called once by the package, as the room that knows HTML may not be imported from here."""
    global _display
    _display = display
