"""Drawings of lesson 6: when values live, and where."""

from __future__ import annotations

from relaxlab.analysis.evaluate import evaluate
from relaxlab.ir.substitute import symbols_in
from relaxlab.lab.drawing import CYCLE, Drawing
from relaxlab.lab.view import View
from relaxlab.passes.plan_memory import MemoryPlan


def liveness(names: str = "abcd") -> View:
    """Products in a row: from when to when each result is needed."""
    count, wide = len(names), 110.0
    words = "; ".join(
        f"{n} is written by product {i + 1} and last read by "
        + (f"product {i + 2}" if i + 1 < count else "the caller")
        for i, n in enumerate(names)
    )
    d = Drawing("From when to when", words, 60 + wide * (count + 1), 44 + 30 * count)
    for i in range(count + 1):
        title = f"product {i + 1}" if i < count else "the caller"
        d.text((50 + (i + 0.5) * wide, 16), title, anchor="middle", muted=True)
        d.line((50 + i * wide, 22), (50 + i * wide, 40 + 30 * count), dashed=True, width=0.7)
    for i, name in enumerate(names):
        y = 28 + 30 * i
        d.text((30, y + 17), name, mono=True, bold=True)
        d.box((50 + (i + 0.3) * wide, y), (1.4 * wide, 24), "", CYCLE[i % 2])
        d.text((50 + (i + 0.36) * wide, y + 16), "written", size=11)
        d.text((50 + (i + 1.64) * wide, y + 16), "read", size=11, anchor="end")
    return d.view()


def storage(plan: MemoryPlan, n: int = 4) -> View:
    """The first arena of a plan: time from left to right, memory from bottom to top, for a value
    `n` of all symbols."""
    arena = plan.arenas[0]
    values = dict.fromkeys(symbols_in((arena.size, *(p.size for p in arena.placements))), n)
    total = evaluate(arena.size, values)
    first = min(p.start for p in arena.placements)
    last = max(p.end for p in arena.placements)
    wide, high, left, top = 420.0, 150.0, 90.0, 30.0
    words = "; ".join(
        f"{p.var.name} has bytes {evaluate(p.offset, values)} to "
        f"{evaluate(p.offset, values) + evaluate(p.size, values)} from step {p.start} to {p.end}"
        for p in arena.placements
    )
    d = Drawing(f"The arena for n = {n}", words, left + wide + 150, top + high + 34)
    d.text((10, 16), f"the arena for n = {n}", bold=True)
    for i, p in enumerate(arena.placements):
        low, size = evaluate(p.offset, values), evaluate(p.size, values)
        x = left + (p.start - first) / (last + 1 - first) * wide
        end = left + (p.end + 1 - first) / (last + 1 - first) * wide
        y = top + high * (1 - (low + size) / total)
        d.box((x, y), (end - x, high * size / total), p.var.name, CYCLE[i % 6], round_=0)
    d.line((left, top + high), (left + wide + 12, top + high), arrow=True)
    d.line((left, top + high), (left, top - 8), arrow=True)
    d.text((left - 6, top + high + 4), "0", anchor="end", size=11, muted=True)
    d.text((left - 6, top + 5), f"{total} bytes", anchor="end", size=11, muted=True)
    d.text((left + wide, top + high + 18), "time", anchor="end", size=11, muted=True)
    for p in arena.placements:
        if p.reuses:
            y = top + high * (
                1 - (evaluate(p.offset, values) + evaluate(p.size, values) / 2) / total
            )
            text = f"{p.var.name} lies where {p.reuses[0]} lay"
            d.text((left + wide + 18, y + 4), text, size=11)
    return d.view()
