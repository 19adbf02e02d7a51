"""Timings as bars on a logarithmic scale, beside a table: HTML and SVG that need no script."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from math import ceil, floor, log10

from relaxlab.ir.errors import expect, expect_number
from relaxlab.lab.drawing import Drawing
from relaxlab.lab.view import View
from relaxlab.runtime.timing import Comparison, Timing, seconds_text

BAR, GAP, BARS, LETTER, RIGHT = 18, 8, 400, 7.1, 90
"""Pixels: the height of a bar and between bars; the widths of the bars, of a letter of the names
beside them, and of the times."""
LETTERS = 40
"""Letters of a name that are drawn; the table has all."""


def timings(results: Comparison | Timing | Mapping[str, Timing | float]) -> View:
    """A view of a comparison, of one timing, or of timings or seconds by name.

    Raises ValueError for no timings, or times that are not positive.
    """
    if isinstance(results, Timing):
        results = Comparison((results,), None)
    elif not isinstance(results, Comparison):
        expect(results, Mapping, "timings are a dictionary of names and seconds, or of rl.compare")
        for name, t in results.items():
            if not isinstance(t, Timing):
                expect_number(t, f"the time of {name!r} is a number of seconds")
        made = (
            Timing(name, t.samples, t.calls, t.flops, t.bytes)
            if isinstance(t, Timing) else Timing(name, (float(t),), 1)
            for name, t in results.items()
        )  # fmt: skip
        results = Comparison(tuple(made), None)
    if not results.timings:
        raise ValueError("there are no timings to draw")
    for t in results.timings:
        if not t.seconds > 0:
            raise ValueError(f"{t.name!r} took {t.seconds} seconds, which no logarithm has")
    return _drawing(results).view("Timings", below=_table(results))


def _drawing(results: Comparison) -> Drawing:
    low = floor(log10(min(t.best for t in results.timings)))
    high = max(low + 1, *(ceil(log10(max(t.samples))) for t in results.timings))
    whole = [t.name for t in results.timings]
    names = [n if len(n) <= LETTERS else f"{n[: LETTERS - 1]}…" for n in whole]
    left = 8 + LETTER * max(map(len, names))
    height = len(results.timings) * (BAR + GAP) + 24

    def x(seconds: float) -> float:
        return left + BARS * (log10(seconds) - low) / (high - low)

    words = "Seconds per call on a logarithmic scale"
    d = Drawing(words, repr(results), left + BARS + RIGHT, height)
    for e in range(low, high + 1):
        d.line((x(10.0**e), 0), (x(10.0**e), height - 20), hue="grey", width=0.5)
        d.text((x(10.0**e), height - 6), seconds_text(10.0**e), anchor="middle")
    for i, t in enumerate(results.timings):
        y = i * (BAR + GAP) + GAP / 2
        middle, slowest = y + BAR / 2, x(max(t.samples))
        d.text((left - 8, middle + 4), names[i], anchor="end")
        hue = "red" if t.name in (results.differs or ()) else "blue"
        d.box((left, y), (max(1.0, x(t.seconds) - left), BAR), "", hue, strong=True, round_=2)
        d.line((x(t.best), middle), (slowest, middle), width=1.5)
        d.text((slowest + 6, middle + 4), seconds_text(t.seconds))
    return d


def _verdicts(results: Comparison) -> list[str]:
    """Return the difference of each result from the first one's. Times that came without results
    have none."""
    if results.differs is None:
        return [""] * len(results.timings)
    return [results.differs.get(t.name, "agrees") for t in results.timings]


def _table(results: Comparison) -> str:
    timings = results.timings
    fastest = min(t.seconds for t in timings)
    columns = {
        "": [t.name for t in timings],
        "median": [seconds_text(t.seconds) for t in timings],
        "spread": [seconds_text(t.spread) if len(t.samples) > 1 else "" for t in timings],
        "times the fastest": [f"{t.seconds / fastest:.2f}" for t in timings],
        "GFLOP/s": [f"{t.flop_rate / 1e9:.3g}" if t.flop_rate else "" for t in timings],
        "GB/s": [f"{t.bytes / t.seconds / 1e9:.3g}" if t.bytes else "" for t in timings],
        "result": _verdicts(results),
    }
    filled = {head: column for head, column in columns.items() if any(column)}
    heads, rows = tuple(filled), list(zip(*filled.values(), strict=True))
    head = "".join(f'<th style="text-align:right;padding:2px 8px">{h}</th>' for h in heads)
    body = "".join(
        "<tr>"
        + "".join(f'<td style="text-align:right;padding:2px 8px">{escape(c)}</td>' for c in row)
        + "</tr>"
        for row in rows
    )
    return (
        '<div style="overflow-x:auto"><table style="border-collapse:collapse">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )
