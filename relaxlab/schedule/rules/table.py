"""Scheduling of a kernel by the rules of its target, and the list of rules for CPUs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping
from types import MappingProxyType

from relaxlab.analysis.private_buffers import shared_private_buffer
from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.facts import Facts
from relaxlab.ir.loops import Block, Buffer, For, IfThenElse, PrimFunc, Stmt
from relaxlab.ir.node import Node, children, replace, walk
from relaxlab.ir.substitute import substitute
from relaxlab.ir.target import target_kind
from relaxlab.schedule.decisions import Decider
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.ranges import constant
from relaxlab.schedule.replay import apply_trace
from relaxlab.schedule.rules.base import Rule, Space, facts_of, first_that_fits
from relaxlab.schedule.rules.context import Context
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
        return _problem_of_private_buffers(func, facts)

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


def rules() -> tuple[tuple[str, Rule], ...]:
    """(name, rule), in the order in which they are tried."""
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
        ragged,
        rows,
        tiles,
        transpose,
        windows,
    )

    return (
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
        ("matmul", matmul.apply),
        ("contraction", contraction.apply),
        # Before `rows`, for which a window is a row of its own.
        ("windows", windows.apply),
        ("columns", columns.apply),
        ("rows", rows.apply),
        # Last: it fits every kernel.
        ("fallback", fallback.apply),
    )


def _with_buffers_in_main_memory(func: PrimFunc) -> PrimFunc:
    blocks = (n for n in walk(func.body) if isinstance(n, Block))
    moved = {b: replace(b, scope="global") for block in blocks for b in block.alloc_buffers}
    return replace(func, body=substitute(func.body, buffers=moved))


def _problem_of_private_buffers(func: PrimFunc, facts: Facts) -> str | None:
    """Return the reason why private buffers do not fit their memories; None if they do."""
    padding = _padding(func)
    sizes: dict[Buffer, int] = {}
    for buffer in (b for n in walk(func.body) if isinstance(n, Block) for b in n.alloc_buffers):
        if buffer.scope == "global":
            continue
        shape = [constant(d) for d in buffer.shape]
        if any(size is None for size in shape):
            return f"the size of {buffer.name} is not constant"
        for axis, more in padding.get(buffer, ()):
            shape[axis] = (shape[axis] or 0) + more
        sizes[buffer] = bytes_of(buffer.dtype) * math.prod(size or 0 for size in shape)
    totals = _totals(func.body, sizes)
    for scope, total in totals.items():
        room = facts.room(scope)
        if room is not None and total > room:
            return f"its buffers in the memory `{scope}` would take {total} bytes, of {room}"
    shared = shared_private_buffer(func.body)
    return None if shared is None else f"{shared.name} would be used by more than one thread"


def _totals(n: Node, sizes: Mapping[Buffer, int], in_loop: bool = False) -> Counter[str]:
    """The bytes of the buffers that are allocated inside, by scope."""
    found: Counter[str] = Counter()
    if isinstance(n, Block):
        for b in n.alloc_buffers:
            found[b.scope] += sizes.get(b, 0)
    in_loop = in_loop or isinstance(n, For)
    inside = [_totals(c, sizes, in_loop) for c in children(n) if isinstance(c, Stmt | Block)]
    for more in inside:
        # Added up: nothing tells LLVM that two buffers are never in use at once.
        found.update(more)
    if isinstance(n, IfThenElse) and not in_loop:  # versions for a GPU are kernels of their own
        found["shared"] = max(more["shared"] for more in inside)
    return found


def _padding(func: PrimFunc) -> dict[Buffer, list[tuple[int, int]]]:
    """The axes of buffers that `storage_align` makes longer, and by how much at most."""
    found: dict[Buffer, list[tuple[int, int]]] = {}
    for block in (n for n in walk(func.body) if isinstance(n, Block)):
        asked: tuple[tuple[int, int, int, int], ...] = block.annotations.get("buffer_dim_align", ())
        for number, axis, factor, _ in asked:
            found.setdefault(block.writes[number].buffer, []).append((axis + 1, factor - 1))
    return found
