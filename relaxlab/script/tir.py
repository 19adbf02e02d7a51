"""The namespace `T` of the script: loop functions."""

from __future__ import annotations

from relaxlab.script.decorators import Inert, prim_func

__all__ = ["prim_func"]


def __getattr__(name: str) -> Inert:
    if name.startswith("_"):
        raise AttributeError(name)
    return Inert(f"T.{name}")
