"""Drawings of lab 6: a machine with a matrix unit, and matrices cut into its tiles."""

from __future__ import annotations

from relaxlab.lab.drawing import Drawing
from relaxlab.lab.view import View


def machine(size: int = 8, pad: int = 512, acc: int = 256) -> View:
    """The memories of the machine, and the instructions that move data between them."""
    words = (
        f"Main memory on the left. load copies a tile of {size} by {size} numbers into the "
        f"scratchpad of {pad} bytes. multiply reads two tiles there and adds their product to a "
        f"tile of {acc} bytes of accumulators, which zero sets to 0. The processor reads the "
        "accumulators and writes main memory."
    )
    d = Drawing("A matrix unit", words, 660, 216)
    d.box((10, 20), (130, 180), "main memory", "grey", mono=False)
    d.box((250, 20), (130, 74), f"scratchpad\n{pad} bytes", "blue", mono=False)
    d.box((520, 20), (130, 74), f"matrix unit\n{size} x {size} x {size}", "green", mono=False)
    d.box((520, 126), (130, 74), f"accumulators\n{acc} bytes", "amber", mono=False)
    d.box((250, 126), (130, 74), "processor\nloops, the rest", None, mono=False)
    d.line((140, 57), (247, 57), arrow=True)
    d.text((194, 48), "load", anchor="middle", mono=True)
    d.line((380, 57), (517, 57), arrow=True)
    d.text((449, 48), "multiply", anchor="middle", mono=True)
    d.line((585, 94), (585, 123), arrow=True)
    d.text((594, 113), "+=", mono=True)
    d.line((520, 163), (383, 163), arrow=True)
    d.text((452, 154), "read", anchor="middle", muted=True)
    d.line((250, 163), (143, 163), arrow=True)
    d.text((196, 154), "write", anchor="middle", muted=True)
    return d.view()


def tiles(rows: int = 13, depth: int = 24, columns: int = 16, size: int = 8) -> View:
    """A product cut into tiles. The last rows of tiles have rows of zeros."""
    unit = 7.0
    padded = -(-rows // size) * size
    words = (
        f"{rows} rows become {padded // size} rows of tiles, the last of them with "
        f"{padded - rows} rows of zeros. A tile of the result is the sum of {depth // size} "
        "products of a tile of the left matrix, along its row, and one of the right, down its "
        "column."
    )
    height = max(padded, depth) * unit
    d = Drawing("A product in tiles", words, (depth + 2 * columns) * unit + 190, height + 40)

    def matrix(left: float, shape: tuple[int, int], name: str, hue: str, full: int) -> None:
        d.text((left, 16), name, mono=True)
        for i in range(0, shape[0], size):
            for j in range(0, shape[1], size):
                chosen = (name != "w" and i == size) or (name == "w" and j == 0)
                chosen = chosen and (name != "x @ w" or j == 0)
                at = (left + j * unit, 26 + i * unit)
                d.box(at, (size * unit, size * unit), "", hue if chosen else None, round_=0)
        if full < shape[0]:
            at = (left, 26 + full * unit)
            d.box(at, (shape[1] * unit, (shape[0] - full) * unit), "zeros", "grey", dashed=True,
                  mono=False, fontsize=11)  # fmt: skip

    matrix(10, (padded, depth), "x", "blue", rows)
    second = 10 + depth * unit + 60
    d.text((second - 30, 26 + height / 2), "@", anchor="middle", mono=True, size=15)
    matrix(second, (depth, columns), "w", "green", depth)
    third = second + columns * unit + 60
    d.text((third - 30, 26 + height / 2), "=", anchor="middle", mono=True, size=15)
    matrix(third, (padded, columns), "x @ w", "amber", rows)
    return d.view()
