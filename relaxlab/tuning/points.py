"""Points of a search: values of decisions by key, those of others being the rules' defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from relaxlab.schedule.decisions import SEPARATOR, SPACE, Decision, Value

Point: TypeAlias = dict[str, Value]
"""Values of decisions by key; those of others are the rules' defaults."""


def point_from_json(found: Mapping[str, Any]) -> Point:
    """The point that JSON made lists of: tiles and bounds are tuples."""
    return {key: tuple(v) if isinstance(v, list) else v for key, v in found.items()}  # type: ignore[reportUnknownArgumentType]


def frozen(point: Point) -> frozenset[tuple[str, str]]:
    """A point as a key: True and 1 are different values."""
    return frozenset((key, repr(value)) for key, value in point.items())


def changed(point: Point, key: str, value: Value, decisions: Sequence[Decision]) -> Point:
    """A point with another value for a decision; the rule's default needs no entry. Another space
    has other decisions."""
    within, _, name = key.rpartition(SEPARATOR)
    dropped = f"{within}{SEPARATOR}" if within else ""
    rest = {
        k: v for k, v in point.items()
        if k != key and not (name == SPACE and k.startswith(dropped))
    }  # fmt: skip
    default = next(d.default for d in decisions if d.key == key)
    return rest if repr(value) == repr(default) else {**rest, key: value}


def changed_keys(one: Point, other: Point) -> set[str]:
    """The decisions in which two points differ."""
    return {key for key, _ in frozen(one) ^ frozen(other)}
