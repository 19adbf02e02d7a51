"""Drawings of lesson 7: cache lines, vectors, threads."""

from __future__ import annotations

from collections.abc import Sequence

from relaxlab.lab.drawing import CYCLE, Drawing
from relaxlab.lab.view import View


def cache_lines(rows: int = 6, columns: int = 8, line: int = 4) -> View:
    """The same matrix read down a column and along a row, with the cache lines that are fetched."""
    cell = 26.0
    words = (
        f"Down a column every element lies in another cache line: {rows} elements, {rows} lines. "
        f"Along a row {line} elements share a line: {columns} elements, {columns // line} lines."
    )
    wide = columns * cell
    d = Drawing("Cache lines", words, 2 * wide + 90, 62 + rows * cell)
    for k, title in enumerate(("down a column", "along a row")):
        left = 10 + k * (wide + 60)
        d.text((left, 16), title, bold=True)
        for i in range(rows):
            for start in range(0, columns, line):
                fetched = start == 0 if k == 0 else i == 0
                hue = CYCLE[i % 6] if k == 0 else CYCLE[start // line % 6]
                d.row((left + start * cell, 26 + i * cell), [""] * line, hue if fetched else None,
                      cell=(cell, cell - 6))  # fmt: skip
                read = [start] if k == 0 and fetched else range(start, start + line)
                for j in read if fetched else ():
                    number = (i if k == 0 else j) + 1
                    x = left + (j + 0.5) * cell
                    d.text((x, 40 + i * cell), str(number), anchor="middle", size=11, bold=True)
        lines = rows if k == 0 else columns // line
        count = rows if k == 0 else columns
        d.text(
            (left, 46 + rows * cell), f"{count} reads fetch {lines} lines (coloured)", muted=True
        )
    return d.view()


def lanes(count: int = 8) -> View:
    """An addition of one number beside one of a vector."""
    cell = 34.0
    left = 150.0
    words = (
        f"A scalar instruction adds one number to one. A vector instruction adds {count} numbers "
        f"to {count} others that lie side by side in memory."
    )
    d = Drawing("Scalar and vector", words, left + 40 + count * (cell + 4), 170)
    d.text((10, 20), "one instruction", bold=True)
    d.row((10, 34), ["a"], "blue", cell=(cell, 26))
    d.text((50, 52), "+")
    d.row((64, 34), ["b"], "green", cell=(cell, 26))
    d.line((54, 66), (54, 96), arrow=True)
    d.row((37, 100), ["c"], "amber", cell=(cell, 26))
    d.text((left, 20), f"one instruction, {count} lanes", bold=True)
    d.row((left, 34), [f"a{i}" for i in range(count)], "blue", cell=(cell, 26))
    d.row((left, 66), [f"b{i}" for i in range(count)], "green", cell=(cell, 26))
    d.text((left + count * cell + 10, 70), "+")
    for i in range(count):
        d.line((left + (i + 0.5) * cell, 94), (left + (i + 0.5) * cell, 106), arrow=True)
    d.row((left, 110), [f"c{i}" for i in range(count)], "amber", cell=(cell, 26))
    d.brace((left, 142), (left + count * cell, 142), "neighbours in memory")
    return d.view()


def team(rows: int = 8, threads: int = 2, slow: Sequence[float] = (1.0, 0.9)) -> View:
    """The rows of a parallel loop over time, a lane for each thread, and the barrier at the end."""
    each = -(-rows // threads)
    wide, left = 440.0, 86.0
    words = (
        f"{threads} threads share {rows} rows. The loop ends when all threads have met at the "
        "barrier; who is early waits."
    )
    d = Drawing("A team of threads", words, left + wide + 120, 56 + threads * 40)
    for t in range(threads):
        y = 24 + t * 40
        d.text((10, y + 20), f"thread {t}", muted=True)
        step = wide / each * slow[t % len(slow)]
        for k in range(min(each, rows - t * each)):
            d.box((left + k * step, y), (step - 3, 30), f"row {t * each + k}", CYCLE[t % 6])
        done = left + each * step
        if done < left + wide - 4:
            d.box((done, y), (left + wide - done - 3, 30), "", None, dashed=True)
            d.text((left + wide + 14, y + 20), "waits", size=11, muted=True)
    x = left + wide
    d.line((x, 12), (x, 30 + threads * 40), hue="red", width=2)
    d.text((x + 6, 16), "barrier", size=11, hue="red")
    d.line((left, 40 + threads * 40), (x, 40 + threads * 40), arrow=True)
    d.text((x + 6, 44 + threads * 40), "time", size=11, muted=True)
    return d.view()
