"""Scheduling of a kernel by the rules of its target, and the list of rules for CPUs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache, partial
from types import MappingProxyType

from relaxlab.ir.loops import Block, PrimFunc
from relaxlab.ir.node import replace, walk
from relaxlab.ir.substitute import substitute
from relaxlab.ir.target import target_kind
from relaxlab.schedule.decisions import Decider
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.replay import apply_trace
from relaxlab.schedule.rules.base import Rule, Space, facts_of, first_that_fits
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.rules.private_memory import problem_of_private_buffers
from relaxlab.tracing import may_apply, remark


def schedule_kernel(
    name: str, func: PrimFunc, context: Context, decider: Decider | None = None,
    spaces: Mapping[str, Space] = MappingProxyType({}),
) -> PrimFunc:  # fmt: skip
    """The kernel scheduled by the first rule of the target that fits, or by one of the spaces, if
    that is decided; a scheduled kernel stays as it is."""
    scheduled = schedule_by_rules(name, func, context, None, decider, spaces)
    if scheduled is not None:
        return scheduled
    # What no rule could schedule may have buffers of unknown size, for which stacks have no place.
    remark("schedule_kernels", name, "left as it is, with its private buffers in main memory")
    return _with_buffers_in_main_memory(func)


def schedule_by_rules(
    name: str, func: PrimFunc, context: Context, chosen: Collection[str] | None = None,
    decider: Decider | None = None, spaces: Mapping[str, Space] = MappingProxyType({}),
) -> PrimFunc | None:  # fmt: skip
    """The kernel scheduled by the first rule of the target that fits, of those of the names
    `chosen`, or of all. None where none does."""
    facts = context.target.facts

    def problem_of(func: PrimFunc) -> str | None:
        return problem_of_private_buffers(func, facts)

    known = target_kind(context.target.kind).rules()
    found = [(rule, apply) for rule, apply in known if chosen is None or rule in chosen]
    return first_that_fits(name, func, context, found, problem_of, decider, spaces)


def replay_kernel(name: str, func: PrimFunc, context: Context, trace: str) -> PrimFunc | None:
    """The kernel scheduled by the steps of a trace, as JSON, with the remark that a rule makes.
    None, and a remark on the reason, where they do not fit."""
    try:
        sch = apply_trace(context.with_facts(func), trace)
    except (ScheduleError, ValueError) as error:
        text = f"the trace does not fit: {error}"
        remark("schedule_kernels", name, text, applied=False)
        return None
    if may_apply("schedule_kernels", name, "scheduled by a trace", **facts_of(sch, context)):
        return sch.func
    return func


@cache
def rules() -> tuple[tuple[str, Rule], ...]:
    """(name, rule), in the order in which they are tried: the same objects each time, by which
    schedules made with them are known."""
    from relaxlab.schedule.rules import (
        attention,
        bfloat16_dot,
        columns,
        contraction,
        dot_product,
        elementwise,
        fallback,
        matmul,
        nested,
        parts,
        ragged,
        rows,
        small_matrices,
        tiles,
        transpose,
        windows,
    )

    whole: tuple[tuple[str, Rule], ...] = (
        # Special before general: `transpose` before `elementwise`, which takes every kernel
        # without reductions; products of bfloat16 before `matmul`, which would widen each
        # operand to float32.
        # Before all rules for loops of one length.
        ("ragged", ragged.apply),
        ("transpose", transpose.apply),
        ("elementwise", elementwise.apply),
        ("dot_product", dot_product.apply),
        ("tiles", tiles.apply),
        ("bfloat16_dot", bfloat16_dot.apply),
        # Before `rows`, which would keep all scores of a row.
        ("attention", attention.apply),
        ("nested", nested.apply),
        # Before `matmul`, whose columns are those of one row.
        ("small_matrices", small_matrices.apply),
        ("matmul", matmul.apply),
        ("contraction", contraction.apply),
        # Before `rows`, for which a window is a row of its own.
        ("windows", windows.apply),
        ("columns", columns.apply),
        ("rows", rows.apply),
    )
    # Last: it fits every kernel.
    any_kernel = ("fallback", fallback.apply)
    return (*whole, ("parts", partial(parts.apply, whole, any_kernel)), any_kernel)


def _with_buffers_in_main_memory(func: PrimFunc) -> PrimFunc:
    blocks = (n for n in walk(func.body) if isinstance(n, Block))
    moved = {b: replace(b, scope="global") for block in blocks for b in block.alloc_buffers}
    return replace(func, body=substitute(func.body, buffers=moved))
