"""Bisection of a pass that changes the results of a program: the one rewrite that does, and its
step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from relaxlab.ir.module import Module
from relaxlab.passes.base import Pass
from relaxlab.tracing import Remark, first_rewrites
from relaxlab.tracing.limit import first_steps

Wrong = Callable[[Callable[[], Module]], bool]
"""True if a module, made by the call, is wrong; also when making or running it fails."""


@dataclass(frozen=True, slots=True)
class FaultyRewrite:
    """A rewrite of a pass, its number among the `total`, and for a schedule the step within it."""

    rewrite: Remark
    number: int
    total: int
    step: str | None = None

    def __str__(self) -> str:
        text = f"{self.rewrite.subject}: {self.rewrite.reason} ({self.number} of {self.total})"
        return text if self.step is None else f"{text}\n            step {self.step}"


def find_faulty_rewrite(one: Pass, before: Module, wrong: Wrong) -> FaultyRewrite | None:
    """The first rewrite of `one` with which its result is wrong; None where no single one is.

    A pass that does not ask before its rewrites (`relaxlab.tracing.may_apply`) is taken apart by
    functions: the first changed function with which the module is wrong.
    """
    with first_rewrites(None) as all_:
        _ignoring(lambda: one(before))
    total = len(all_.made)

    def limited(count: int) -> bool:
        def make() -> Module:
            with first_rewrites(count):
                return one(before)

        return wrong(make)

    if not total or limited(0):
        return _by_functions(one, before, wrong)
    number = first_true(limited, total)
    if number is None:
        return None
    return FaultyRewrite(all_.made[number - 1], number, total, _step(one, before, number, wrong))


def first_true(test: Callable[[int], bool], most: int) -> int | None:
    """The smallest number in 1 ... `most` at which `test` turns true, given that it is false at 0;
    None where it is false at `most`."""
    if not test(most):
        return None
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if test(middle) else (middle, high)
    return high


def _step(one: Pass, before: Module, number: int, wrong: Wrong) -> str | None:
    """The schedule's step with which rewrite `number` goes wrong."""
    with first_rewrites(number), first_steps(None) as steps:
        _ignoring(lambda: one(before))
    made = steps.made

    def limited(count: int) -> bool:
        def make() -> Module:
            with first_rewrites(number), first_steps(count):
                return one(before)

        return wrong(make)

    # One by one: a state between two steps may be right by chance after one that is wrong.
    wrong_at = (k for k in range(len(made) + 1) if limited(k))
    at = next(wrong_at, None)
    return f"{at} of {len(made)}: {made[at - 1]}" if at else None


def _ignoring(make: Callable[[], object]) -> None:
    """Run a pass for its remarks, ignoring errors: that it may fail is known already."""
    try:
        make()
    except Exception:  # noqa: BLE001  reported by whoever looks for the faulty rewrite
        return


def _by_functions(one: Pass, before: Module, wrong: Wrong) -> FaultyRewrite | None:
    try:
        after = one(before)
    except Exception:  # noqa: BLE001  a pass that fails as a whole has no functions to compare
        return None
    changed = [n for n, f in after.items() if n in before and before[n] is not f]
    added = {n: f for n, f in after.items() if n not in before}

    def limited(count: int) -> bool:
        chosen = {n: after[n] for n in changed[:count]}
        return wrong(lambda: before.with_functions({**chosen, **added}))

    if len(changed) < 2 or limited(0):
        return None
    at = first_true(limited, len(changed))
    if at is None:
        return None
    name = changed[at - 1]
    return FaultyRewrite(Remark(one.name, name, "the function as a whole"), at, len(changed))
