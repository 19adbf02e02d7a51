"""Independence found by analysis: which steps of a recording are noted side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from relaxlab.ir import expr
from relaxlab.ir import recording as rec
from relaxlab.ir.node import walk


def order_steps(steps: Sequence[rec.Step]) -> tuple[rec.Step, ...]:
    """Return the steps of a straight-line region by levels: a step that notes blocks is a level
    behind those whose results it reads, and the steps of one level are `Together`. None crosses the
    beginning of a phase.

    So two calls of which none reads what the other returns start at the same depth, without a word
    of the program's author. Steps have no effects on each other but through their results.
    """
    ends = [i for i, step in enumerate(steps) if isinstance(step, rec.Phase)]
    if ends:
        at = ends[0]
        return (*order_steps(steps[:at]), steps[at], *order_steps(steps[at + 1 :]))
    level: dict[expr.Var, int] = {}
    levels: dict[int, list[rec.Step]] = {}
    """The steps that note blocks (odd numbers), and those in front of them that do not (even)."""
    for step in steps:
        behind = max((level.get(v, 0) for v in reads(step)), default=0)
        place = behind + 1 if notes_blocks(step) else behind
        # Even and odd: 2 k is what stands in front of the blocks of level 2 k + 1.
        place = place + 1 - place % 2 if notes_blocks(step) else place + place % 2
        level.update(dict.fromkeys(results(step), place))
        levels.setdefault(place, []).append(step)
    _join_calls(levels)
    ordered: list[rec.Step] = []
    for number in sorted(levels):
        waits = [m for m in levels[number] if isinstance(m, rec.ReadTensor)]
        members = [m for m in levels[number] if m not in waits]
        together = number % 2 == 1 and len(members) > 1
        ordered += [rec.Together(tuple(members))] if together else members
        ordered += waits  # when all is noted that needs no waiting
    return tuple(ordered)


def _join_calls(levels: dict[int, list[rec.Step]]) -> None:
    """Let a call that stands alone at its level wait for one at a later level, if nothing reads its
    result before.

    One of two independent calls may have an operand that takes a block of its own. At the first
    level that it can, the other would begin, and end, before that one: in a recursion, the same at
    every step of it.
    """
    for number in sorted(levels, reverse=True):
        calls = [m for m in levels[number] if isinstance(m, rec.Call)]
        if len(calls) != 1:
            continue
        (call,) = calls
        made = set(results(call))
        for later in sorted(n for n in levels if n >= number):
            members = [m for m in levels[later] if m is not call]
            if any(not made.isdisjoint(reads(m)) for m in members):
                break
            if any(isinstance(m, rec.Call) for m in members):
                levels[number].remove(call)
                levels[later].append(call)
                break
            if any(isinstance(m, rec.ReadTensor) for m in members):
                break  # what the call notes would miss the flush


def notes_blocks(step: rec.Step) -> bool:
    """True for a step that may note blocks at the depth that is counted, or begins another
    count."""
    if isinstance(step, rec.Record):
        return step.static_depth is None
    return isinstance(step, rec.Call | rec.Branch | rec.Together | rec.ReadTensor)


def results(step: rec.Step) -> tuple[expr.Var, ...]:
    """The variables that a step defines for those after it."""
    match step:
        case rec.Compute(var) | rec.Construct(var) | rec.ReadWord(var) | rec.ReadTensor(var):
            return (var,)
        case rec.WholeInput(slot) | rec.InputRow(slot) | rec.SharedRow(slot):
            return (slot,)
        case rec.Record():
            return step.outputs
        case rec.Call() | rec.Branch():
            return step.results
        case rec.Together(members):
            return tuple(v for m in members for v in results(m))
        case rec.Require() | rec.Skip() | rec.Phase():
            return ()


def reads(step: rec.Step) -> Iterator[expr.Var]:
    """The variables that a step reads, those that its branches define among them."""
    for e in _expressions(step):
        for n in walk(e):
            if isinstance(n, expr.Var):
                yield n
    match step:
        case rec.Branch():
            for inner in (*step.then_steps, *step.else_steps):
                yield from reads(inner)
        case rec.Together(members):
            for inner in members:
                yield from reads(inner)
        case rec.WholeInput(_, array) | rec.InputRow(_, array):
            yield array.record
        case _:
            pass


def _expressions(step: rec.Step) -> tuple[expr.PrimExpr, ...]:
    match step:
        case rec.Compute(_, value):
            return (value,)
        case rec.Require(condition):
            return (condition,)
        case rec.InputRow(_, _, index) | rec.SharedRow(_, _, index):
            return (index,)
        case rec.Construct(_, _, fields):
            return fields
        case rec.ReadWord(_, value) | rec.ReadTensor(_, value):
            return (value,)
        case rec.Record():
            return (*step.inputs, *step.scalars)
        case rec.Call():
            return step.args
        case rec.Branch():
            return (step.condition, *step.then_values, *step.else_values)
        case _:
            return ()
