"""Drawings in SVG: boxes, cells, lines, arrows and texts, placed in pixels.

Text and lines have the colour of the page's text and fills are transparent, so that a drawing is
read on a light page and on a dark one without a script. As a file of its own it follows the theme
of whoever opens it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from math import hypot

from relaxlab.lab.view import View

HUES = {
    "blue": "#4a86d0", "green": "#3f9a5a", "amber": "#c98a1b", "red": "#d0554a",
    "violet": "#8e6bbf", "teal": "#2a9898", "grey": "#87909a",
}  # fmt: skip
"""Colours that are seen on white and on black."""
CYCLE = ("blue", "green", "amber", "violet", "teal", "red")
"""Hues of numbered items, in turn."""

MONO = "ui-monospace, Menlo, Consolas, monospace"
SANS = "system-ui, sans-serif"
LETTER = 0.61
"""Width of a letter of the fixed-width font, relative to its size."""

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class DrawnView(View):
    """A view that is complete without a script: a drawing, and what stands below it as HTML."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """The scripts that it needs: none."""
        return ()

    def html(self, *, addressed: bool = False, live: str = "") -> str:
        """The drawing and what is below it; nothing in it is chosen or recomputed."""
        return (
            '<div class="relaxlab-view" data-kind="drawing" data-started="true" data-ready="true" '
            f'role="region" aria-label="{escape(self.title)}" '
            'style="font:13px/1.45 system-ui,sans-serif;overflow-x:auto">'
            f"{self.state['drawing']}{self.state['below']}</div>"
        )


@dataclass(slots=True)
class Drawing:
    """A drawing in the making: `width` by `height` pixels. `title` is its name, `words` describe it
    in text, for screen readers."""

    title: str
    words: str
    width: float
    height: float
    parts: list[str] = field(default_factory=list[str])

    def box(
        self,
        at: Point,
        size: Point,
        text: str = "",
        hue: str | None = None,
        *,
        strong: bool = False,
        dashed: bool = False,
        mono: bool = True,
        fontsize: float = 12,
        round_: float = 3,
    ) -> None:
        """A rectangle with its left upper corner `at`, filled with a hue of `HUES` (None: empty),
        and lines of text in its middle. strong: darker, with a heavy frame."""
        (x, y), (w, h) = at, size
        colour = HUES[hue] if hue else "currentColor"
        fill = f'fill="{colour}" fill-opacity="{0.6 if strong else 0.25}"' if hue else 'fill="none"'
        faint = "" if hue else ' stroke-opacity="0.55"'
        self.parts.append(
            f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(w)}" height="{_n(h)}" rx="{_n(round_)}" '
            f'{fill} stroke="{colour}" stroke-width="{2 if strong else 1}"'
            f"{_dash(dashed)}{faint}/>"
        )
        lines = text.split("\n") if text else []
        top = y + h / 2 - (len(lines) - 1) * fontsize * 0.65 + fontsize * 0.36
        for i, line in enumerate(lines):
            place = (x + w / 2, top + i * fontsize * 1.3)
            self.text(place, line, anchor="middle", mono=mono, size=fontsize)

    def text(
        self,
        at: Point,
        text: str,
        *,
        anchor: str = "start",
        size: float = 12,
        mono: bool = False,
        muted: bool = False,
        bold: bool = False,
        hue: str | None = None,
    ) -> None:
        """A line of text on the base line `at`. anchor: start, middle or end."""
        more = f' font-family="{MONO}"' if mono else ""
        more += f' text-anchor="{anchor}"' if anchor != "start" else ""
        more += ' fill-opacity="0.72"' if muted else ""
        more += ' font-weight="600"' if bold else ""
        colour = HUES[hue] if hue else "currentColor"
        self.parts.append(
            f'<text x="{_n(at[0])}" y="{_n(at[1])}" font-size="{_n(size)}" fill="{colour}" '
            f'xml:space="preserve"{more}>{escape(text)}</text>'
        )

    def line(
        self,
        *points: Point,
        arrow: bool = False,
        dashed: bool = False,
        hue: str | None = None,
        width: float = 1.3,
    ) -> None:
        """Straight lines through the points, with a head at the last one for an arrow."""
        colour = HUES[hue] if hue else "currentColor"
        path = "M" + " L".join(f"{_n(x)},{_n(y)}" for x, y in points)
        faint = "" if hue else ' stroke-opacity="0.7"'
        self.parts.append(
            f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{_n(width)}"'
            f"{_dash(dashed)}{faint}/>"
        )
        if arrow:
            self._head(points[-2], points[-1], colour)

    def curve(self, points: Sequence[Point], *, hue: str | None = None) -> None:
        """Cubic Bézier curves: a start, then two control points and an end for each."""
        first, *rest = (f"{_n(x)},{_n(y)}" for x, y in points)
        colour = HUES[hue] if hue else "currentColor"
        self.parts.append(
            f'<path d="M{first} C{" ".join(rest)}" fill="none" stroke="{colour}" '
            'stroke-opacity="0.5"/>'
        )
        self._head(points[-2], points[-1], colour, 5)

    def circle(self, at: Point, radius: float, hue: str, tip: str = "") -> None:
        """A filled circle around `at`."""
        inside = f"<title>{escape(tip)}</title>" if tip else ""
        self.parts.append(
            f'<circle cx="{_n(at[0])}" cy="{_n(at[1])}" r="{_n(radius)}" fill="{HUES[hue]}" '
            f'fill-opacity="0.75">{inside}</circle>'
        )

    def row(
        self,
        at: Point,
        texts: Sequence[str],
        hues: Sequence[str | None] | str | None = None,
        *,
        cell: Point = (30, 24),
        strong: Sequence[int] = (),
    ) -> None:
        """Cells side by side from `at` on, each with a text and a hue (or one for all)."""
        for i, text in enumerate(texts):
            hue = hues if hues is None or isinstance(hues, str) else hues[i]
            self.box((at[0] + i * cell[0], at[1]), cell, text, hue, strong=i in strong, round_=0)

    def brace(self, start: Point, end: Point, text: str) -> None:
        """A bracket along a horizontal stretch, with a text at its middle."""
        (x0, y), (x1, _) = start, end
        self.line((x0, y), (x0, y + 6), (x1, y + 6), (x1, y))
        self.text(((x0 + x1) / 2, y + 19), text, anchor="middle", muted=True)

    def svg(self, *, alone: bool = False) -> str:
        """The drawing as an SVG element. alone: as a file, with colours of its own."""
        more = ""
        inside = "".join(self.parts)
        if alone:
            more = 'xmlns="http://www.w3.org/2000/svg" '
            inside = (
                "<style>svg{color:#1b1f24;background:#fff}@media (prefers-color-scheme:dark)"
                "{svg{color:#e3e6ea;background:#16191d}}</style>" + inside
            )
        return (
            f'<svg {more}viewBox="0 0 {_n(self.width)} {_n(self.height)}" '
            f'width="{_n(self.width)}" style="max-width:100%;height:auto" '
            f'font-family="{SANS}" font-size="12" role="img" '
            f'aria-label="{escape(self.title)}: {escape(self.words)}">{inside}</svg>'
        )

    def view(self, title: str = "", *, below: str = "") -> DrawnView:
        """The drawing as a view with its title, or another one. below: HTML that follows it."""
        state = {"drawing": self.svg(), "below": below}
        return DrawnView("drawing", title or self.title, state, self.words, drawing=lambda: self)

    def _head(self, before: Point, tip: Point, colour: str, size: float = 7) -> None:
        (x0, y0), (x, y) = before, tip
        length = hypot(x - x0, y - y0) or 1.0
        dx, dy = (x - x0) / length * size, (y - y0) / length * size
        corners = ((x, y), (x - dx - dy / 2, y - dy + dx / 2), (x - dx + dy / 2, y - dy - dx / 2))
        path = " ".join(f"{_n(a)},{_n(b)}" for a, b in corners)
        self.parts.append(f'<polygon points="{path}" fill="{colour}"/>')


def clipped(text: str, width: float, fontsize: float = 12) -> str:
    """Return a text cut to a width in pixels, in the fixed-width font."""
    most = int(width / (fontsize * LETTER))
    return text if len(text) <= most else f"{text[: max(1, most - 1)]}…"


def _n(value: float) -> str:
    """A coordinate with one decimal at most."""
    return f"{value:.1f}".removesuffix(".0")


def _dash(dashed: bool) -> str:
    return ' stroke-dasharray="5 4"' if dashed else ""
