"""Timings as bars on a logarithmic scale, beside a table: HTML and SVG that need no script."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from math import floor, log10

from relaxlab.lab.view import View
from relaxlab.runtime.timing import Comparison, Timing, seconds_text

BAR, GAP, WIDTH, LEFT, RIGHT = 18, 8, 640, 150, 90
"""Pixels: the height of a bar and between bars; the width of all, and beside the bars for names
and times."""

BLUE, RED = "#4a86d0", "#d0554a"
"""Bars, and those of candidates with wrong results: to be seen on white and on black. All else
has the colour of the page's text."""


@dataclass(frozen=True, slots=True)
class TimingsView(View):
    """A drawing that is complete without a script."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """It needs no module."""
        return ()

    def html(self, *, addressed: bool = False, live: str = "") -> str:
        """The drawing and a table of the same numbers; nothing in it is chosen or recomputed."""
        return (
            f'<div class="relaxlab-view" data-kind="timings" role="region" '
            f'aria-label="{escape(self.title)}" style="font:13px/1.45 system-ui,sans-serif">'
            f"{self.state['drawing']}{self.state['table']}</div>"
        )


def timings(results: Comparison | Timing | Mapping[str, Timing | float]) -> View:
    """A view of a comparison, of one timing, or of timings or seconds by name.

    Raises ValueError for no timings, or times that are not positive.
    """
    if isinstance(results, Timing):
        results = Comparison((results,), {})
    elif not isinstance(results, Comparison):
        made = (
            Timing(name, t.samples, t.calls, t.flops, t.bytes)
            if isinstance(t, Timing) else Timing(name, (float(t),), 1)
            for name, t in results.items()
        )  # fmt: skip
        results = Comparison(tuple(made), {})
    if not results.timings:
        raise ValueError("there are no timings to draw")
    for t in results.timings:
        if not t.seconds > 0:
            raise ValueError(f"{t.name!r} took {t.seconds} seconds, which no logarithm has")
    state = {"drawing": _drawing(results), "table": _table(results)}
    return TimingsView("timings", "Timings", state, repr(results))


def _drawing(results: Comparison) -> str:
    low = floor(log10(min(t.best for t in results.timings)))
    high = max(low + 1, *(_above(max(t.samples)) for t in results.timings))
    height = len(results.timings) * (BAR + GAP) + 24

    def x(seconds: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (log10(seconds) - low) / (high - low)

    parts = [
        f'<line x1="{x(10.0**e):.1f}" x2="{x(10.0**e):.1f}" y1="0" y2="{height - 20}" '
        'stroke="currentColor" stroke-opacity="0.2"/>'
        f'<text x="{x(10.0**e):.1f}" y="{height - 6}" text-anchor="middle" '
        f'fill="currentColor">{seconds_text(10.0**e)}</text>'
        for e in range(low, high + 1)
    ]
    for i, t in enumerate(results.timings):
        y = i * (BAR + GAP) + GAP / 2
        middle, end = y + BAR / 2, x(t.seconds)
        wrong = t.name in results.differs
        name = t.name if len(t.name) <= 20 else f"{t.name[:19]}…"
        parts.append(
            f'<text x="{LEFT - 8}" y="{middle + 4}" text-anchor="end" fill="currentColor">'
            f"{escape(name)}</text>"
            f'<rect x="{LEFT}" y="{y}" width="{max(1.0, end - LEFT):.1f}" height="{BAR}" rx="2" '
            f'fill="{RED if wrong else BLUE}"/>'
            f'<line x1="{x(t.best):.1f}" x2="{x(max(t.samples)):.1f}" y1="{middle}" y2="{middle}" '
            'stroke="currentColor" stroke-width="1.5"/>'
            f'<text x="{x(max(t.samples)) + 6:.1f}" y="{middle + 4}" fill="currentColor">'
            f"{seconds_text(t.seconds)}</text>"
        )
    label = "Seconds per call on a logarithmic scale; the line is from the fastest sample to the "
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" style="max-width:100%;height:auto" '
        f'font-size="12" role="img" aria-label="{label}slowest">{"".join(parts)}</svg>'
    )


def _above(seconds: float) -> int:
    """The exponent of the next power of ten."""
    return floor(log10(seconds)) + 1


def _table(results: Comparison) -> str:
    fastest = min(t.seconds for t in results.timings)
    heads = ("", "median", "spread", "times the fastest", "GFLOP/s", "GB/s", "result")
    rows = [
        (
            t.name, seconds_text(t.seconds), seconds_text(t.spread), f"{t.seconds / fastest:.2f}",
            f"{t.flop_rate / 1e9:.3g}" if t.flop_rate else "",
            f"{t.bytes / t.seconds / 1e9:.3g}" if t.bytes else "",
            results.differs.get(t.name, "agrees" if len(results.timings) > 1 else ""),
        )
        for t in results.timings
    ]  # fmt: skip
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
