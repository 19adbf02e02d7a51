"""The drawing of lesson 14: sequences padded, and behind each other."""

from __future__ import annotations

from relaxlab.lab.drawing import Drawing
from relaxlab.lab.view import View

HUES = ("blue", "green", "amber", "blue")


def rows() -> View:
    """Four sequences as rows of a padded array, and behind each other with their starts."""
    words = "four sequences of 3, 6, 1 and 2 rows: padded they have 24 rows, behind each other 12"
    d = Drawing("Padded, and behind each other", words, 640, 246)
    lengths, cell = (3, 6, 1, 2), 30
    for i, n in enumerate(lengths):
        d.text((52, 38 + 26 * i), f"s[{i}] = {n}", anchor="end", size=11)
        for j in range(max(lengths)):
            hue = HUES[i] if j < n else "grey"
            d.box((60 + cell * j, 22 + 26 * i), (cell - 3, 22), "", hue, round_=0)
    start = 0
    for i, n in enumerate(lengths):
        for j in range(n):
            at = (60 + cell * (start + j), 156)
            d.box(at, (cell - 3, 26), str(start + j), HUES[i], round_=0)
        low = 200 if i % 2 == 0 else 214  # short sequences have long labels
        d.text((62 + cell * start, low), f"o[{i}] = {start}", size=11)
        start += n
    d.text((62 + cell * start, 200), f"o[4] = {start}", size=11)
    d.text((60, 238), "element j of sequence i is row o[i] + j", muted=True)
    return d.view()
