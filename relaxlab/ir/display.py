"""Hooks through which nodes reach packages above theirs: how a notebook shows a value (IPython's
`_repr_mimebundle_`), and the script of a module."""

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
    """Set the function that shows values as HTML; `relaxlab/__init__.py` calls it once, as `lab`
    may not be imported from here."""
    global _display
    _display = display


def _no_printer(mod: Any, **options: Any) -> str:
    raise RuntimeError("the package `relaxlab` registers the printer when it is imported")


_printer: Callable[..., str] = _no_printer


def register_printer(printer: Callable[..., str]) -> None:
    """Set the function that prints scripts; `relaxlab/__init__.py` calls it once, as `script` may
    not be imported from here."""
    global _printer
    _printer = printer


def script_of(mod: Any, **options: Any) -> str:
    """The script of a module, by the registered printer."""
    return _printer(mod, **options)
