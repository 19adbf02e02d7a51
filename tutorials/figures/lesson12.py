"""Drawings of lesson 12: an interval, luck, two searches, winners by size."""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import comb
from statistics import median

from relaxlab.lab.drawing import Drawing
from relaxlab.lab.view import View


def interval(ratios: Sequence[float]) -> View:
    """Ratios on a line, in order, with the median and the interval between two of them."""
    ordered, count = sorted(ratios), len(ratios)
    outside, cut = 1, 0
    while 2 * (outside + comb(count, cut + 1)) <= 0.05 * 2**count:
        cut += 1
        outside += comb(count, cut)
    low, high = ordered[cut], ordered[-1 - cut]
    words = f"median {median(ordered):.3f}, interval from {low:.3f} to {high:.3f}"
    d = Drawing("Ratios and the interval of their median", words, 640, 132)
    span = (ordered[-1] - ordered[0]) or 1.0

    def x(ratio: float) -> float:
        return 40 + 560 * (ratio - ordered[0]) / span

    d.line((30, 60), (610, 60), hue="grey")
    for i, ratio in enumerate(ordered):
        inside = cut <= i <= count - 1 - cut
        d.circle((x(ratio), 60), 5, "green" if inside else "grey", f"{ratio:.3f}")
    d.line((x(median(ordered)), 40), (x(median(ordered)), 80), width=2)
    d.text((x(median(ordered)), 32), f"median {median(ordered):.3f}", anchor="middle")
    d.brace((x(low), 84), (x(high), 84), f"95 %: {low:.3f} to {high:.3f}")
    return d.view()


def luck(programs: int, noise: float) -> View:
    """Programs that are equally fast: the ratio at which each was measured, and the best of them
    measured once more."""
    draw = random.Random(3)
    found = [draw.gauss(1.0, noise) for _ in range(programs)]
    again = draw.gauss(1.0, noise / 4)
    words = f"the best of {programs} looks {max(found):.2f} times as fast; again it is {again:.2f}"
    d = Drawing("The best of many equal programs", words, 640, 190)

    def y(ratio: float) -> float:
        return 92 - 420 * (ratio - 1)

    best = found.index(max(found))
    d.line((40, y(1)), (600, y(1)), hue="grey", dashed=True)
    d.text((34, y(1) + 4), "1×", anchor="end")
    for i, ratio in enumerate(found):
        at = (50 + i * 480 / programs, y(ratio))
        d.circle(at, 5 if i == best else 3, "amber" if i == best else "grey", f"{ratio:.3f}")
    start = (50 + best * 480 / programs, y(found[best]))
    d.text((start[0], start[1] - 10), f"looks {found[best]:.2f}×", anchor="middle")
    d.circle((575, y(again)), 5, "green", f"{again:.3f}")
    d.text((575, y(again) - 12), f"again {again:.2f}×", anchor="middle")
    d.text((290, 184), f"{programs} programs, all equally fast", anchor="middle", muted=True)
    return d.view()


def searches() -> View:
    """Two decisions as a grid: points that random search draws, and the path of coordinate
    descent."""
    words = (
        "random search draws points anywhere; coordinate descent goes from a point to neighbours"
    )
    d = Drawing("Random search and coordinate descent", words, 640, 236)
    draw = random.Random(5)
    for side, title in ((0, "random search"), (1, "coordinate descent")):
        left = 40 + side * 310
        d.text((left + 120, 16), title, anchor="middle", bold=True)
        for i in range(7):
            for j in range(5):
                d.circle((left + i * 40, 40 + j * 40), 3, "grey")
        d.text((left + 120, 230), "one decision", anchor="middle", size=11, muted=True)
        d.circle((left + 200, 80), 9, "green", "the fastest")
        if side == 0:
            for _ in range(9):
                d.circle((left + draw.randrange(7) * 40, 40 + draw.randrange(5) * 40), 6, "blue")
            continue
        path = [(0, 4), (1, 4), (2, 4), (3, 4), (3, 3), (3, 2), (4, 2), (4, 1), (5, 1)]
        places = [(left + i * 40, 40 + j * 40) for i, j in path]
        for start, end in zip(places, places[1:], strict=False):
            dx, dy = (end[0] - start[0]) / 40, (end[1] - start[1]) / 40
            d.line((start[0] + 7 * dx, start[1] + 7 * dy), (end[0] - 7 * dx, end[1] - 7 * dy),
                   arrow=True, width=1.5)  # fmt: skip
        d.circle(places[0], 6, "blue", "the rule's choice")
    return d.view()


def sizes() -> View:
    """Three programs at four sizes, and which one each size gets from versions."""
    table = {
        "default": (1.0, 1.0, 1.0, 1.0), "A": (1.5, 1.4, 0.8, 0.7), "B": (0.9, 1.0, 1.2, 1.3),
    }  # fmt: skip
    words = "A is best for n = 1 and 4, B for 64 and 256: each alone is slower somewhere"
    d = Drawing("Winners by size", words, 620, 176)
    for s, n in enumerate((1, 4, 64, 256)):
        d.text((170 + s * 120, 18), f"n = {n}", anchor="middle", mono=True)
        winner = max(table, key=lambda name: table[name][s])
        for p, (name, ratios) in enumerate(table.items()):
            ratio = ratios[s]
            hue = "red" if ratio < 1 else "green" if name == winner else "grey"
            d.box((118 + s * 120, 28 + p * 40), (104, 32), f"{ratio:.1f}×", hue)
    for p, name in enumerate(table):
        d.text((104, 49 + p * 40), name, anchor="end")
    d.text((290, 166), "two versions: A up to some n, B above", anchor="middle")
    return d.view()
