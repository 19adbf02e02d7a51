"""The table of scheduling primitives: the methods of `Schedule` that are one, and their traits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar, cast

from relaxlab.ir.plain import plain

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Primitive:
    """A scheduling primitive. looks: it leaves the function as it is; by_axes: it copies what a
    block touches, or computes it elsewhere, in terms of the axes of the block; nests: its argument
    `schedule` holds the steps of other schedules; lists: it returns a list."""

    name: str
    looks: bool
    by_axes: bool
    nests: bool
    lists: bool


PRIMITIVES: dict[str, Primitive] = {}


def leaves_unchanged(name: str) -> bool:
    """True if the primitive of that name leaves the function as it is."""
    return PRIMITIVES[name].looks


def primitive(
    *, looks: bool = False, by_axes: bool = False
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Enter a method into the table; it records itself, by `ScheduleState._step`. NumPy's numbers
    and arrays come to it as Python's numbers and lists."""

    def enter(fn: Callable[P, R]) -> Callable[P, R]:
        PRIMITIVES[fn.__name__] = Primitive(
            fn.__name__, looks, by_axes, "schedule" in signature(fn).parameters,
            fn.__annotations__["return"].startswith("list["),
        )  # fmt: skip

        @wraps(fn)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            return fn(*map(plain, args), **{k: plain(v) for k, v in kwargs.items()})  # type: ignore

        return call

    return enter


def step(
    *, looks: bool = False, by_axes: bool = False, unless_default: tuple[str, ...] = ()
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Enter a method into the table, and make each call of it a step of the schedule with the
    arguments of the call. Those named in `unless_default` are recorded if they are true."""

    def enter(fn: Callable[P, R]) -> Callable[P, R]:
        parameters = signature(fn)

        @wraps(fn)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            def run() -> R:
                return fn(*args, **kwargs)

            try:
                bound = parameters.bind(*args, **kwargs)
            except TypeError:
                return run()  # whose own error names the method
            bound.apply_defaults()
            _, *given = bound.arguments.items()
            recorded = {name: value for name, value in given if value or name not in unless_default}
            return cast("Any", args[0])._step(fn.__name__, recorded, run)

        return primitive(looks=looks, by_axes=by_axes)(call)

    return enter
