"""A limit on the rewrites of a pass or the steps of a schedule, for bisection.

As with LLVM's `-opt-bisect-limit` and MLIR's debug counters, each rewrite is queried first
(`may_apply`), and the answers turn from yes to no at a number that can be set from outside.
"""

from __future__ import annotations

import contextvars
from collections.abc import Collection, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

from relaxlab.tracing.record import Remark, current, remark, repeat


@dataclass(slots=True)
class Rewrites:
    """The rewrites made so far, at most `most` (None: no limit)."""

    most: int | None = None
    made: list[Remark] = field(default_factory=list[Remark])

    @property
    def is_reached(self) -> bool:
        """True if no further rewrite may be made."""
        return self.most is not None and len(self.made) >= self.most

    @property
    def reason(self) -> str:
        """The reason for which a rewrite is left out."""
        return f"only the first {self.most} rewrites are made"


_REWRITES: contextvars.ContextVar[Rewrites | None] = contextvars.ContextVar(
    "relaxlab_rewrites", default=None
)


def first_rewrites(count: int | None) -> AbstractContextManager[Rewrites]:
    """Limit passes run inside the block to their first `count` rewrites (None: all). Yields the
    list of those made."""
    return current(_REWRITES, Rewrites(count))


def may_apply(rule: str, subject: str, reason: str, **about: Any) -> bool:
    """Return True if the running pass may make a rewrite, which it could leave out; record it as
    `remark` does.

    It is True unless `first_rewrites` allows no more. A pass calls it right before each rewrite
    that stands for itself: it must give a valid module whichever of them are left out.
    """
    limit = _REWRITES.get()
    if limit is not None:
        if limit.is_reached:
            remark(rule, subject, limit.reason, applied=False, **about)
            return False
        # Recorded before the rewrite is made, so that one that fails is the last in the list.
        limit.made.append(Remark(rule, subject, reason))
    remark(rule, subject, reason, **about)
    return True


def may_repeat(found: Iterable[Remark], asked: Collection[Remark]) -> bool:
    """Return True if the running pass may use work that was done inside `first_rewrites(None)`,
    whose remarks were `found` and whose rewrites were `asked`; record both again."""
    limit, allowed = _REWRITES.get(), True
    for one in found:
        rewrite = Remark(one.rule, one.subject, one.reason)
        if limit is not None and rewrite in asked:
            if limit.is_reached:
                one, allowed = replace(one, reason=limit.reason, applied=False), False
            else:
                limit.made.append(rewrite)
        repeat((one,))
    return allowed


class Stopped(Exception):  # noqa: N818  nothing went wrong
    """`first_steps` allows no more steps; `state` is the result of those before."""

    def __init__(self, state: Any) -> None:
        super().__init__("the limit on steps is reached")
        self.state = state


@dataclass(slots=True)
class Steps:
    """The steps made so far, at most `most`."""

    most: int | None = None
    made: list[str] = field(default_factory=list[str])


_STEPS: contextvars.ContextVar[Steps | None] = contextvars.ContextVar(
    "relaxlab_steps", default=None
)


def first_steps(count: int | None) -> AbstractContextManager[Steps]:
    """Limit schedules made inside the block to `count` steps in all (None: no limit); the state by
    then is their result. Yields the list of the steps."""
    return current(_STEPS, Steps(count))


def before_step(state: Any) -> None:
    """Called before each step with what there is now. Raises Stopped where it is one too many."""
    steps = _STEPS.get()
    if steps is not None and steps.most is not None and len(steps.made) >= steps.most:
        # The state goes with the exception, as the schedule that was being made is lost where it is
        # caught.
        raise Stopped(state)


def after_step(text: str) -> None:
    """Record a step that succeeded."""
    steps = _STEPS.get()
    if steps is not None:
        steps.made.append(text)


def limits_steps() -> bool:
    """True inside of `first_steps`, which counts in the order of the work."""
    return _STEPS.get() is not None
