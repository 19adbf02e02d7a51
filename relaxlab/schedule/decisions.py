"""Decisions of a schedule: choices with a name, candidates and a default.

Whoever schedules by a program over `Schedule` (a rule, or a user) asks for decisions and is given
plain values, on which the program may branch. A *decider* says which: none takes each default, one
of values takes what is asked for, one of a seed draws. Another decision means to run the program
again; replaying the trace of a schedule repeats the decisions that it holds and the steps after
them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import prod
from typing import TypeAlias, TypeVar

from relaxlab.ir.errors import UserError
from relaxlab.ir.expr import PrimExpr
from relaxlab.schedule.trace import Instruction, Steps

Value: TypeAlias = int | str | tuple[int, ...]
"""The value of a decision: a number, True or False, a string, or the factors of a tile."""
Chosen = TypeVar("Chosen", bound=int | str)


Made: TypeAlias = Mapping[str, "Value"] | str
"""The schedule of a kernel: values of its rule's decisions by key, or its trace as JSON text."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A choice that a schedule made. key: the names of the versions that it stands in, outermost
    first, and its own; a schedule has one decision of a key."""

    key: str
    candidates: tuple[Value, ...]
    default: Value
    value: Value

    @property
    def name(self) -> str:
        """Its name without the versions."""
        return self.key.rpartition(SEPARATOR)[2]


Decider: TypeAlias = Callable[[str, Sequence[Value]], Value | None]
"""Is given the key of a decision and its candidates, and returns one of these; None for the
default. Equal keys must get equal answers: programs try steps on copies of a schedule."""

SEPARATOR = " / "
"""Between the versions in the key of a decision, and before its name."""


class DecisionError(UserError, ValueError):
    """A value for a decision is not among its candidates, or no program makes that decision."""


@dataclass(frozen=True, slots=True)
class Decided:
    """The decider that takes given values, by key, and leaves other decisions to `others`, or to
    their defaults."""

    values: Mapping[str, Value]
    others: Decider | None = None

    def __call__(self, key: str, candidates: Sequence[Value]) -> Value | None:
        if key in self.values or self.others is None:
            return self.values.get(key)
        return self.others(key, candidates)


@dataclass(frozen=True, slots=True)
class Sampled:
    """The decider that draws each decision from its candidates, all equally likely; `seed` and the
    key say which one."""

    seed: int | str

    def __call__(self, key: str, candidates: Sequence[Value]) -> Value | None:
        return random.Random(f"{self.seed}{SEPARATOR}{key}").choice(candidates)


def key_of(within: Iterable[str], name: str) -> str:
    """The key of the decision `name` in versions of these names, outermost first."""
    return SEPARATOR.join((*within, name))


def enclosing(within: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the versions that hold a place: those it stands in, then each time one less."""
    return (within[:depth] for depth in range(len(within), -1, -1))


def version_name(size: PrimExpr, bound: int | None) -> str:
    """The name of a version of a function, by the sizes that it is for."""
    if bound is None:
        return f"any {size}"
    return f"{size} = 1" if bound == 1 else f"{size} ≤ {bound}"


def is_in_space(point: Mapping[str, Value]) -> bool:
    """True if values of decisions say that a space schedules a function, or a version of it."""
    return any(key.rpartition(SEPARATOR)[2] == SPACE and v != RULES for key, v in point.items())


def versions_key(symbol: str) -> str:
    """The key under which a decider is asked for the bounds of versions by a symbol's value, which
    no rule makes: () for none. The trace has them as the bounds of `guarded_versions`."""
    return f"versions({symbol})"


SPACE = "space"
"""The decision on who schedules a function: `RULES`, or a space of a tuner, by its name. It is made
where there are such spaces."""
RULES = "rules"

JOINED = "joined axes"
"""The name of the form of a function that `join_axes` schedules."""


def require_candidate(
    key: str, value: object, candidates: Sequence[Value], what: str = "value"
) -> None:
    """Raise DecisionError unless the value is among the candidates of a decision."""
    if not any(value == c and type(value) is type(c) for c in candidates):
        listed = ", ".join(map(str, candidates[:MOST_LISTED]))
        more = f" and {len(candidates) - MOST_LISTED} more" if len(candidates) > MOST_LISTED else ""
        raise DecisionError(
            f"the {what} {value!r} of the decision `{key}` is no candidate; these are: "
            f"{listed or 'none'}{more}"
        )


MOST_LISTED = 24
"""Candidates that a message lists."""


def values_in(trace: Iterable[Instruction], within: tuple[str, ...] = ()) -> dict[str, Value]:
    """The values of the decisions that a trace holds, by key, those of nested schedules among
    them."""
    found: dict[str, Value] = {}
    for step in trace:
        args = dict(step.args)
        if "decision" in args:
            found[key_of(within, args["name"])] = args["decision"]
        for name, steps in _nested(step):
            found |= values_in(steps.trace, (*within, name))
    return found


def versions_in(trace: Iterable[Instruction], within: tuple[str, ...] = ()) -> set[str]:
    """The keys of `versions_key` under which a trace has versions."""
    found: set[str] = set()
    for step in trace:
        if step.name == "guarded_versions":
            found.add(key_of(within, versions_key(str(dict(step.args)["size"]))))
        for name, steps in _nested(step):
            found |= versions_in(steps.trace, (*within, name))
    return found


def _nested(step: Instruction) -> Iterator[tuple[str, Steps]]:
    """Yield the schedules that a step holds, with the names of the versions or forms."""
    args = dict(step.args)
    nested: Steps | tuple[Steps, ...] = args.get("schedule", ())
    for steps in (nested,) if isinstance(nested, Steps) else nested:
        yield version_name(args["size"], steps.bound) if "size" in args else JOINED, steps


def other_choices(decisions: Sequence[Decision]) -> Iterator[tuple[Decision, Value]]:
    """Yield changes of one decision: first one of each, the nearest among its candidates, then a
    second of each, and so on."""
    by_decision: list[list[tuple[Decision, Value]]] = []
    for d in decisions:
        at = d.candidates.index(d.value)
        near = sorted(range(len(d.candidates)), key=lambda i, at=at: (abs(i - at), i))
        by_decision.append([(d, d.candidates[i]) for i in near if i != at])
    for turn in zip_longest(*by_decision):
        yield from (one for one in turn if one is not None)


def perfect_tiles(extent: int, n: int, most_inside: int) -> tuple[tuple[int, ...], ...]:
    """All ways to write an extent as a product of `n` factors, the last at most `most_inside`."""
    if n == 1:
        return ((extent,),) if extent <= most_inside else ()
    divisors = [d for d in range(1, min(extent, most_inside) + 1) if extent % d == 0]
    found = ((rest, d) for d in divisors for rest in perfect_tiles(extent // d, n - 1, extent))
    return tuple(sorted((*rest, inside) for rest, inside in found))


def partitioned_tiles(
    extent: int, n: int, position: int, inner: int
) -> tuple[tuple[int, ...], ...]:
    """All ways to write an extent as a product of `n` factors, those from `position` on a multiple
    of `inner` together."""
    tiles = perfect_tiles(extent, n, extent)
    return tuple(t for t in tiles if prod(t[position:]) % inner == 0)
