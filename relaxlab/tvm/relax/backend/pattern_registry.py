"""Fusion patterns by their names, those registered last first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relaxlab.tvm.relax.fuse_by_pattern import FusionPattern

_REGISTERED: list[FusionPattern] = []


def register_patterns(patterns: Sequence[FusionPattern | tuple[Any, ...]]) -> None:
    """Register patterns, or the arguments of `FusionPattern` in tuples. Of those that match the
    same, the ones registered later are tried first."""
    for one in patterns:
        made = one if isinstance(one, FusionPattern) else FusionPattern(*one)
        _REGISTERED.append(made)


def get_patterns_with_prefix(prefix: str) -> list[FusionPattern]:
    """The patterns whose names begin with a text."""
    return [p for p in reversed(_REGISTERED) if p.name.startswith(prefix)]


def get_pattern(name: str) -> FusionPattern | None:
    """The pattern of a name; None if there is none."""
    return next((p for p in reversed(_REGISTERED) if p.name == name), None)
