"""Kernels of several loop nests: each nest, or a few together, as the rules schedule it alone.

No rule fits all nests of such a kernel. A sum of products is scheduled as a product, with the
elementwise nests behind it; of the other nests as many as a rule takes together: the maximum, the
sum and the quotients of a softmax between two products become one loop over rows. Where nests run
again and again in serial loops, as the steps of a stencil do, these loops stay around them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import takewhile

from relaxlab.ir.loops import Block, BufferLoad
from relaxlab.ir.node import walk
from relaxlab.schedule.apart import nests_of
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.rules.base import (
    Rule,
    attempted,
    blocks_of,
    constant,
    inline_producers,
    is_spatial,
    output_dtype,
    sum_of_products,
)
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.rules.elementwise import is_costly
from relaxlab.schedule.rules.private_memory import problem_of_private_buffers
from relaxlab.schedule.rules.rows import read_more_than_once
from relaxlab.schedule.schedule import Schedule
from relaxlab.schedule.tree import realizes_under

MOST_TOGETHER = 6
"""Nests that are tried together: a try that no rule fits takes 7 to 8 ms on an EPYC."""

Named = tuple[str, Rule]


def apply(
    rules: Sequence[Named], otherwise: Named, sch: Schedule, context: Context
) -> Schedule | str:
    """Fits several loop nests, or nests in serial loops. `otherwise` is the rule for nests that
    none of the `rules` fits."""
    _inline_elementwise(sch)
    found = nests_of(sch.func)
    nests = [[r.block for r in realizes_under(s)] for s in found.stmts]
    if len(nests) < 2 and not found.loops:
        return "it is one loop nest"
    if len(nests) < 2 and any(_is_short(b, context) for b in nests[0]):
        return "its steps are shorter than a vector"
    context = dataclasses.replace(context, weights=frozenset(), versions=False)
    anything = (*rules, ("parts", partial(apply, rules, otherwise)), otherwise)
    while nests:
        taken = 1
        for count in range(_most_together(nests), 0, -1):
            blocks = [b.name for nest in nests[:count] for b in nest]
            made = _together(sch, blocks, anything if count == 1 else rules, context)
            if made is not None:
                sch, taken = made, count
                break
        nests = nests[taken:]
    return sch


def _is_short(block: Block, context: Context) -> bool:
    """True if a block has fewer places in a step than a vector has lanes: updates of 3 x 3 places
    for each pixel took 8.3 us as gathers, 3.6 in plain loops."""
    sizes = [constant(it.dom.extent) for it in block.iter_vars if it.kind == "spatial"]
    return None not in sizes and math.prod(filter(None, sizes)) < context.target.lanes(
        output_dtype(block)
    )


def _most_together(nests: Sequence[Sequence[Block]]) -> int:
    """Return how many of the nests, at least the first one, a rule may take together."""
    first, *others = nests
    if _has_product(first):
        following = takewhile(lambda nest: all(map(is_spatial, nest)), others)
    else:
        following = takewhile(lambda nest: not _has_product(nest), others)
    return min(1 + sum(1 for _ in following), MOST_TOGETHER)


def _together(
    sch: Schedule, blocks: Sequence[str], rules: Sequence[Named], context: Context
) -> Schedule | None:
    """The schedule with some nests scheduled by the first rule that fits; None where none does."""
    facts = context.target.facts
    tried: list[str] = []

    def schedule(part: Schedule) -> Schedule:
        for name, rule in rules[len(tried) :]:
            tried.append(name)
            made = attempted(rule, part, context)
            if made is not None and problem_of_private_buffers(made.func, facts) is None:
                return made
        raise ScheduleError("schedule", f"blocks {', '.join(blocks)}", "a rule fits them together")

    while blocks:
        together = sch.copy()
        with suppress(ScheduleError):  # what a rule made may not fit in their place
            together.schedule_apart([together.get_block(name) for name in blocks], schedule)
            last = together.trace[-1]
            together.trace[-1] = dataclasses.replace(last, remark=f"by the rule {tried[-1]}")
            return together
        if not 0 < len(tried) < len(rules):
            break
    return None


def _has_product(nest: Sequence[Block]) -> bool:
    return any(sum_of_products(b) is not None for b in nest)


def _inline_elementwise(sch: Schedule) -> None:
    """Inline elementwise producers, but for operands of products, which would be computed again for
    each term, and functions that several blocks read. To subtract a value again, as the variance of
    1,048,576 numbers does, took 140 us, their way through memory 300."""
    blocks = blocks_of(sch.func)
    products = [b for b in blocks if sum_of_products(b) is not None]
    operands = {n.buffer for b in products for n in walk(b.body) if isinstance(n, BufferLoad)}
    again = read_more_than_once(sch.func)
    kept = (
        b.name
        for b in blocks
        if b.writes[0].buffer in operands or (b.name in again and is_costly(b))
    )
    inline_producers(sch, keep=tuple(kept))
