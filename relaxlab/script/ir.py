"""The namespace `I` of the script: modules."""

from __future__ import annotations

from relaxlab.script.decorators import Inert, ir_module

__all__ = ["ir_module"]


def __getattr__(name: str) -> Inert:
    if name.startswith("_"):
        raise AttributeError(name)
    return Inert(f"I.{name}")
