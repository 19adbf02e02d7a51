"""Drawings of lesson 8: the memories of a processor, tiles, a tile in registers."""

from __future__ import annotations

from relaxlab.lab.drawing import Drawing
from relaxlab.lab.view import View

MEMORIES = (
    ("registers", "1 KB", "at once", "green"),
    ("cache, level 1", "32 KB", "about 1 ns", "teal"),
    ("cache, level 2", "1 MB", "about 4 ns", "blue"),
    ("cache, level 3", "32 MB", "about 15 ns", "violet"),
    ("main memory", "many GB", "about 100 ns", "red"),
)
"""Orders of magnitude for a processor of today: name, size, time until a number arrives, hue."""


def memories() -> View:
    """The memories between arithmetic and main memory: the nearer, the smaller and the faster."""
    words = "; ".join(f"{name}: {size}, {time}" for name, size, time, _ in MEMORIES)
    d = Drawing("The memories of a processor", words, 620, 30 + 34 * len(MEMORIES))
    d.text((330, 14), "size", muted=True, anchor="middle")
    d.text((470, 14), "until a number is there", muted=True, anchor="middle")
    for i, (name, size, time, hue) in enumerate(MEMORIES):
        y, wide = 22 + i * 34, 110 + i * 38
        d.box((145 - wide / 2, y), (wide, 28), name, hue, mono=False)
        d.text((330, y + 19), size, anchor="middle")
        d.text((470, y + 19), time, anchor="middle")
    return d.view()


def tiles(count: int = 4, at: tuple[int, int] = (1, 2)) -> View:
    """A tile of a product, and what of the two matrices it reads."""
    cell = 28.0
    side = count * cell
    row, column = at
    words = (
        "A tile of C needs a band of rows of A and a band of columns of B. While its sums stay in "
        "registers, each number of the bands is used for a whole row or column of the tile."
    )
    d = Drawing("Tiles of a product", words, 3 * side + 260, side + 60)
    parts = (("A", 10.0, "blue"), ("B", side + 90, "green"), ("C", 2 * side + 170, "amber"))
    for name, left, hue in parts:
        d.text((left, 16), name, bold=True, mono=True)
        for i in range(count):
            for j in range(count):
                on = i == row if name == "A" else j == column if name == "B" else (i, j) == at
                d.box((left + j * cell, 24 + i * cell), (cell, cell), "", hue if on else None,
                      round_=0, strong=on and name == "C")  # fmt: skip
    middle = 24 + side / 2
    d.text((side + 50, middle + 5), "×", anchor="middle", size=18)
    d.text((2 * side + 130, middle + 5), "=", anchor="middle", size=18)
    d.line((16, 24 + (row + 0.5) * cell), (4 + side, 24 + (row + 0.5) * cell), arrow=True)
    x = side + 90 + (column + 0.5) * cell
    d.line((x, 30), (x, 18 + side), arrow=True)
    d.text((14, side + 44), "k runs along", size=11, muted=True)
    d.text((side + 94, side + 44), "k runs down", size=11, muted=True)
    d.text((2 * side + 174, side + 44), "its sums stay in registers", size=11, muted=True)
    return d.view()


def register_tile(rows: int = 8, vectors: int = 2, lanes: int = 16) -> View:
    """The innermost loops: numbers of A times vectors of B, added to vectors of sums."""
    wide, high = 130.0, 20.0
    total = rows * vectors
    words = (
        f"For one k: {rows} numbers of A and {vectors} vectors of {lanes} numbers of B are loaded. "
        f"They serve {total} vectors of sums, which stay in registers."
    )
    left = 120.0
    d = Drawing("A tile in registers", words, left + vectors * (wide + 8) + 190, 96 + rows * high)
    for v in range(vectors):
        x = left + v * (wide + 8)
        d.box((x, 26), (wide, 22), f"B[k, {v * lanes}:{(v + 1) * lanes}]", "green", fontsize=11)
    for r in range(rows):
        y = 62 + r * high
        d.box((24, y), (70, high - 3), f"A[{r}, k]", "blue", fontsize=11)
        for v in range(vectors):
            d.box((left + v * (wide + 8), y), (wide, high - 3), "+=", "amber", fontsize=11)
    d.text((24, 16), f"{rows} loads", size=11, muted=True)
    d.text((left, 16), f"{vectors} loads", size=11, muted=True)
    right = left + vectors * (wide + 8) + 6
    d.text((right, 62 + rows * high / 2), f"{total} multiply-adds", size=12)
    d.text((right, 80 + rows * high / 2), f"for {rows + vectors} loads", size=12)
    d.text((left, 82 + rows * high), "sums: in registers from the first k to the last", muted=True)
    return d.view()
