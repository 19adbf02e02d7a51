"""Drawings of lesson 3: shapes with symbols, claims, checks."""

from __future__ import annotations

from relaxlab.lab.drawing import CYCLE, Drawing
from relaxlab.lab.view import View


def shapes(sizes: tuple[int, ...] = (1, 2, 4)) -> View:
    """The values of `Reshaped` as rectangles, for some values of `n`."""
    steps = (
        ("x", "(n, 6)", lambda n: (n, 6)), ("a", "(n * 2, 3)", lambda n: (2 * n, 3)),
        ("b", "(3, n * 2)", lambda n: (3, 2 * n)), ("c", "(3, n * 4)", lambda n: (3, 4 * n)),
        ("d", "(n * 4,)", lambda n: (1, 4 * n)),
    )  # fmt: skip
    unit, left, wide = 7.0, 66.0, 128.0
    heights = [max(2 * n, 3) * unit + 22 for n in sizes]
    words = "The same five shapes for n = " + ", ".join(map(str, sizes)) + ": every one follows n."
    d = Drawing("One program, every n", words, left + wide * len(steps), 52 + sum(heights))
    for s, (name, text, _) in enumerate(steps):
        d.text((left + s * wide, 16), name, bold=True, mono=True)
        d.text((left + s * wide + 16, 16), text, mono=True)
    y = 34.0
    for n, high in zip(sizes, heights, strict=True):
        d.text((8, y + 14), f"n = {n}", mono=True)
        for s, (_, _, of) in enumerate(steps):
            rows, columns = of(n)
            d.box((left + s * wide, y), (columns * unit, rows * unit), "", CYCLE[s % 6], round_=0)
        y += high
    d.text((8, y + 8), "reshape, transpose, join, sum: the same program each time", muted=True)
    return d.view()


def claims() -> View:
    """The three things that can happen to a claim about shapes."""
    words = (
        "A claim about shapes goes to the prover. If it always holds, nothing is left to do. If it "
        "never holds, the program is refused. Otherwise it is checked when the program runs."
    )
    d = Drawing("What happens to a claim", words, 740, 172)
    d.box((10, 60), (130, 50), "a claim:\nA == B", "grey")
    d.line((142, 85), (196, 85), arrow=True)
    d.box((200, 60), (110, 50), "the prover,\nfor every n", "blue", mono=False)
    ends = (
        (10, "always", "green", "proved: costs nothing", "n*2 + n*2  and  n*4"),
        (66, "it depends on n", "amber", "a check at run time", "n // 3 * 3  and  n"),
        (122, "never", "red", "refused before it runs", "4  and  5"),
    )
    for y, when, hue, text, example in ends:
        d.line((312, 85), (440, y + 20), arrow=True, hue=hue)
        d.text((394, 36 if y == 10 else 81 if y == 66 else 142), when, anchor="middle", size=11)
        d.box((444, y), (150, 40), text, hue, mono=False)
        d.text((602, y + 24), example, mono=True, size=11, muted=True)
    return d.view()
