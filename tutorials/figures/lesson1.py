"""Drawings of lesson 1: arrays in memory, loops and blocks, reductions."""

from __future__ import annotations

from relaxlab.lab.drawing import CYCLE, Drawing
from relaxlab.lab.view import View


def row_major(rows: int = 2, columns: int = 3, name: str = "A", itemsize: int = 4) -> View:
    """A matrix beside the memory it lies in, row after row."""
    cell, wide = 46.0, 40.0
    total = rows * columns
    words = (
        f"{name} has {rows} rows of {columns} elements. In memory they lie in one line, row after "
        f"row: the next column is {itemsize} bytes further, the next row {columns * itemsize}."
    )
    d = Drawing("A matrix and its memory", words, 30 + 2 * cell * columns + total * wide, 150)
    d.text((10, 16), f"{name}, shape ({rows}, {columns})", bold=True)
    left = 60 + columns * cell
    d.text((left, 16), "memory", bold=True)
    for i in range(rows):
        texts = [f"{i},{j}" for j in range(columns)]
        d.row((10, 28 + i * 30), texts, CYCLE[i], cell=(cell, 30))
    for k in range(total):
        i, j = divmod(k, columns)
        d.box((left + k * wide, 42), (wide, 30), f"{i},{j}", CYCLE[i], round_=0)
        d.text(
            (left + (k + 0.5) * wide, 36), str(k * itemsize), anchor="middle", size=10, muted=True
        )
    d.text((left - 4, 36), "byte", anchor="end", size=10, muted=True)
    d.brace((left, 78), (left + wide, 78), f"{itemsize} bytes")
    d.brace((left, 106), (left + columns * wide, 106), f"one row: {columns * itemsize} bytes")
    d.text((left + wide + 28, 97), "to the next column", muted=True)
    d.text((left + columns * wide + 8, 125), "to the next row", muted=True)
    return d.view()


def visiting_order(rows: int = 2, columns: int = 3) -> View:
    """The loops' order on the left, the block that computes one element on the right."""
    cell, high = 54.0, 40.0
    words = (
        f"The loops i and j visit the {rows * columns} elements row by row, numbered from 1. The "
        "block sees only its axes: vi and vj name the element that is computed."
    )
    d = Drawing("Loops and the block", words, 640, 150)
    d.text((10, 16), "the loops: in which order", bold=True)
    for i in range(rows):
        d.text((24, 30 + i * high + 25), f"i={i}", anchor="end", size=11, muted=True)
        for j in range(columns):
            number = i * columns + j + 1
            d.box((32 + j * cell, 30 + i * high), (cell, high), str(number), "blue", round_=0)
        y = 30 + (i + 0.82) * high
        d.line((40, y), (26 + columns * cell, y), arrow=True)
    for j in range(columns):
        d.text((32 + (j + 0.5) * cell, 44 + rows * high), f"j={j}", anchor="middle", size=11,
               muted=True)  # fmt: skip
    left = 60 + columns * cell
    d.line((left, 70), (left + 74, 70), arrow=True)
    d.text((left + 34, 62), "vi = i", anchor="middle", mono=True, size=11)
    d.text((left + 34, 86), "vj = j", anchor="middle", mono=True, size=11)
    right = left + 90
    d.text((right, 16), "the block: what one element is", bold=True)
    d.box((right, 30), (300, 2 * high), "", "green")
    d.text((right + 14, 62), "C[vi, vj] = A[vi, vj] + B[vi, vj]", mono=True)
    d.text((right + 14, 90), "knows no order", muted=True)
    return d.view()


def reduction(rows: int = 2, columns: int = 3) -> View:
    """A row of the input goes into one element of the result."""
    cell = 46.0
    words = (
        "The spatial axis vi names the element of B. The reduce axis vk runs over the elements of "
        "the row of A that are added into it, after B[vi] was set to 0."
    )
    d = Drawing("A spatial axis and a reduce axis", words, 560, 64 + rows * 40)
    d.text((56, 16), "A[vi, vk]", mono=True, bold=True)
    d.text((400, 16), "B[vi]", mono=True, bold=True)
    for i in range(rows):
        y = 26 + i * 40
        d.text((46, y + 20), f"vi={i}", anchor="end", size=11, muted=True)
        d.row((56, y), [f"{i},{k}" for k in range(columns)], CYCLE[i], cell=(cell, 30))
        start = 56 + columns * cell
        d.line((start + 6, y + 15), (396, y + 15), arrow=True)
        if i == 0:
            text = "start with 0, add one by one"
            d.text(((start + 396) / 2, y + 9), text, anchor="middle", size=11)
        d.box((400, y), (cell, 30), str(i), CYCLE[i], round_=0)
    low = 30 + rows * 40
    d.brace((56, low), (56 + columns * cell, low), "vk: all of them go into one element")
    d.text((400, low + 19), "S: one element each", muted=True)
    return d.view()
