"""Replays of traces: the steps of a schedule made again, on the function or on one like it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

from relaxlab.analysis.index_map import IndexMap
from relaxlab.ir.arguments import names_arguments
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.substitute import symbols_in
from relaxlab.schedule.primitive import PRIMITIVES
from relaxlab.schedule.schedule import Schedule
from relaxlab.schedule.state import BlockRV, LoopRV
from relaxlab.schedule.trace import Instruction, Ref, Steps, Value, from_json, in_terms_of


@names_arguments
def apply_trace(func: PrimFunc, trace: Sequence[Instruction] | str) -> Schedule:
    """Replay a trace (or its JSON text) on a function.

    Raises ScheduleError where a step is refused, ValueError where the trace is malformed.
    """
    if isinstance(trace, str):
        trace = from_json(trace)
    return replay(func, trace, _unseen)


def apply_steps(sch: Schedule, trace: Sequence[Instruction]) -> None:
    """Make the steps of a trace on a schedule. Raises what `apply_trace` raises."""
    _replay(sch, trace, _unseen)


Visit = Callable[[Schedule, Instruction | None], None]
"""Is given a schedule, which may be nested in another, and the step that was made last, None before
the first."""


def _unseen(*_: object) -> None:
    """Look at no step."""


def replay(func: PrimFunc, trace: Sequence[Instruction], visit: Visit) -> Schedule:
    """Replay a trace and return the schedule; call `visit` before the first step and after each,
    those of nested schedules among them, which come before the step that holds them.

    Raises what `apply_trace` raises.
    """
    sch = Schedule(func)
    _replay(sch, trace, visit)
    return sch


def _replay(sch: Schedule, trace: Sequence[Instruction], visit: Visit) -> None:
    known: dict[str, BlockRV | LoopRV] = {}
    symbols = {v.name: v for v in symbols_in(tuple(b.shape for b in sch.func.buffers))}
    symbols |= {p.name: p for p in sch.func.params if isinstance(p, Var)}

    def value(v: Value) -> Any:
        match v:
            case Ref(name):
                if name not in known:
                    raise ValueError(f"no earlier step of the trace returned {name!r}")
                return known[name]
            case tuple():
                return [value(x) for x in v]  # type: ignore[reportUnknownVariableType]
            case PrimExpr() | IndexMap():
                return in_terms_of(v, symbols)
            case _:
                return v

    visit(sch, None)
    for number, step in enumerate(trace):
        if step.name not in PRIMITIVES:
            raise ValueError(f"step {number}: {step.name!r} is not a scheduling primitive")
        args = {k: value(v) for k, v in step.args}
        if PRIMITIVES[step.name].nests:
            args["schedule"] = _nested(step, visit)
        positional = args.pop("loops", ())
        try:
            result = getattr(sch, step.name)(*positional, **args)
        except (TypeError, AttributeError) as e:
            raise ValueError(f"step {number}: {step}: wrong arguments: {e}") from e
        results = cast("list[Any]", result if isinstance(result, list) else [result])
        known |= dict(zip(step.outputs, results, strict=False))
        if step.remark:
            sch.trace[-1] = replace(sch.trace[-1], remark=step.remark)
        visit(sch, step)


def _nested(step: Instruction, visit: Visit) -> Callable[..., Schedule | None]:
    """The argument `schedule` that makes the nested steps of a step again."""
    given = dict(step.args)
    steps: Steps | tuple[Steps, ...] = given.get("schedule", ())

    def schedule(sch: Schedule, bound: int | None = None) -> Schedule | None:
        versions = {s.bound: s for s in ((steps,) if isinstance(steps, Steps) else steps)}
        if bound not in versions:
            if bound is None:
                raise ValueError("the trace has no version for any size")
            return None
        _replay(sch, versions[bound].trace, visit)
        return sch

    return schedule
