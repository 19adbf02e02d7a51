"""Drawings of lesson 5: traffic, pattern kinds, groups."""

from __future__ import annotations

from collections.abc import Sequence

from relaxlab.lab.drawing import Drawing
from relaxlab.lab.view import View


def traffic(names: Sequence[str] = ("* 3", "relu", "+ 1", "sqrt"), megabytes: int = 8) -> View:
    """Memory traffic of one kernel per operation, beside that of one fused kernel."""
    count = len(names)
    apart, together = 2 * count * megabytes, 2 * megabytes
    words = (
        f"{count} kernels read and write {megabytes} MB each: {apart} MB. One kernel "
        f"reads the input and writes the result: {together} MB."
    )
    d = Drawing("Traffic with and without fusion", words, 700, 214)
    for y, boxes, total in ((24, list(names), apart), (130, [", ".join(names)], together)):
        one = len(boxes) == 1
        d.text((10, y - 8), f"{'one kernel' if one else f'{count} kernels'}: {total} MB", bold=True)
        d.box((10, y + 48), (520, 18), "memory", "grey", mono=False, fontsize=11)
        step = 500 / len(boxes)
        for i, name in enumerate(boxes):
            x = 20 + i * step + (step - (220 if one else 84)) / 2
            wide = 220 if one else 84
            d.box((x, y), (wide, 28), name, "green" if one else "blue")
            d.line((x + 14, y + 47), (x + 14, y + 30), arrow=True)
            d.line((x + wide - 14, y + 30), (x + wide - 14, y + 47), arrow=True)
        d.box((550, y + 4), (total * 140 / apart, 20), "", "red", round_=0)
        d.text((550, y + 42), f"{total} MB", size=11)
    return d.view()


KINDS = (
    ("ELEMENTWISE", "the same place", ((1, 2),), (4, 4)),
    ("BROADCAST", "shared by a column", ((0, 2),), (1, 4)),
    ("INJECTIVE", "another place", ((2, 1),), (4, 4)),
    ("REDUCTION", "a whole row", ((1, 0), (1, 1), (1, 2), (1, 3)), (4, 4)),
)


def pattern_kinds() -> View:
    """Which elements of the input one element of the result is made of."""
    words = (
        "; ".join(f"{kind}: {what}" for kind, what, _, _ in KINDS) + "; product: a row, a column"
    )
    d = Drawing("Pattern kinds", words, 790, 186)
    cell = 13.0
    for k, (kind, what, read, (rows, columns)) in enumerate(KINDS):
        left = 10 + k * 146
        d.text((left, 16), kind, mono=True, size=11, bold=True)
        _grid(d, (left, 30 + (4 - rows) * cell / 2), rows, columns, read, "blue")
        d.line((left + 56, 56), (left + 74, 56), arrow=True)
        if kind == "REDUCTION":
            _grid(d, (left + 80, 30), 4, 1, ((1, 0),), "green")
        else:
            _grid(d, (left + 80, 30), 4, 4, ((1, 2),), "green")
        d.text((left, 102), what, size=11, muted=True)
    left = 10 + 4 * 146
    d.text((left, 16), "OUT_EWISE_FUSIBLE", mono=True, size=11, bold=True)
    _grid(d, (left, 30), 4, 4, tuple((1, j) for j in range(4)), "blue")
    _grid(d, (left + 62, 30), 4, 4, tuple((i, 2) for i in range(4)), "blue")
    d.line((left + 56, 88), (left + 56, 112), arrow=True)
    _grid(d, (left + 30, 118), 4, 4, ((1, 2),), "green")
    d.text((left + 90, 146), "a row, a column", size=11, muted=True)
    d.text((10, 146), "blue: what is read; green: the element of the result", muted=True)
    return d.view()


def _grid(
    d: Drawing, at: tuple[float, float], rows: int, columns: int,
    marked: Sequence[tuple[int, int]], hue: str,
) -> None:  # fmt: skip
    cell = 13.0
    for i in range(rows):
        for j in range(columns):
            on = (i, j) in marked
            place = (at[0] + j * cell, at[1] + i * cell)
            d.box(place, (cell, cell), "", hue if on else None, strong=on, round_=0)
