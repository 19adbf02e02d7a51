"""The namespace `R` of the script: graph functions."""

from __future__ import annotations

from relaxlab.script.decorators import Inert, function

__all__ = ["function"]


def __getattr__(name: str) -> Inert:
    if name.startswith("_"):
        raise AttributeError(name)
    return Inert(f"R.{name}")
