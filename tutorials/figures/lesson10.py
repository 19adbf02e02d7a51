"""Drawings of lesson 10: blocks of threads, sectors of memory, shared memory."""

from __future__ import annotations

from relaxlab.lab.drawing import CYCLE, Drawing
from relaxlab.lab.view import View


def grid(blocks: int = 3, threads: int = 8) -> View:
    """A launch: blocks of threads, and the element of each thread."""
    cell = 26.0
    wide = threads * cell
    words = (
        f"{blocks} blocks of {threads} threads each. A thread has two numbers: its block and its "
        f"place in the block. Its element is blockIdx.x * {threads} + threadIdx.x."
    )
    d = Drawing("Blocks and threads", words, 20 + blocks * (wide + 14), 126)
    for b in range(blocks):
        left = 10 + b * (wide + 14)
        d.text((left, 16), f"blockIdx.x = {b}", mono=True, bold=True, size=11)
        d.row((left, 24), [str(t) for t in range(threads)], CYCLE[b % 6], cell=(cell, 24))
        d.row((left, 84), [str(b * threads + t) for t in range(threads)], None, cell=(cell, 24))
        for t in range(threads):
            x = left + (t + 0.5) * cell
            d.line((x, 50), (x, 81), arrow=True, width=0.8)
    d.text((10, 122), f"element = blockIdx.x * {threads} + threadIdx.x", mono=True, size=11)
    return d.view()


def sectors(threads: int = 8, per_sector: int = 4) -> View:
    """Neighbouring threads that read neighbours, and ones that read far apart."""
    cell = 26.0
    wide = threads * cell
    words = (
        f"{threads} threads that read neighbouring numbers need {threads // per_sector} sectors. "
        f"If each reads another row, they need {threads} sectors and use one number of each."
    )
    d = Drawing("Sectors", words, 2 * wide + 150, 188)
    d.text((10, 16), "threads read neighbours", bold=True)
    d.row((10, 26), [str(t) for t in range(threads)], "grey", cell=(cell, 22))
    d.row((10, 76), [""] * threads, [CYCLE[t // per_sector] for t in range(threads)],
          cell=(cell, 22))  # fmt: skip
    for t in range(threads):
        d.line((10 + (t + 0.5) * cell, 50), (10 + (t + 0.5) * cell, 74), arrow=True, width=0.8)
    for s in range(threads // per_sector):
        d.brace(
            (10 + s * per_sector * cell, 100), (10 + (s + 1) * per_sector * cell, 100), "sector"
        )
    left = wide + 80
    d.text((left, 16), "each thread reads another row", bold=True)
    d.row((left, 26), [str(t) for t in range(threads)], "grey", cell=(cell, 22))
    for t in range(threads):
        y = 62 + t * 15
        hues = [CYCLE[t % 6] if c < per_sector else None for c in range(threads)]
        d.row((left, y), ["" for _ in range(threads)], hues, cell=(cell, 13), strong=(0,))
    d.line((left + 4, 49), (left + 4, 60), arrow=True, width=0.8)
    d.text((left + wide + 6, 74), "row 0", size=10, muted=True)
    d.text((left + wide + 6, 74 + 15 * (threads - 1)), f"row {threads - 1}", size=10, muted=True)
    d.text((10, 146), f"{threads // per_sector} sectors, all of them used", muted=True)
    d.text((10, 166), f"right: {threads} sectors, one number of each used", muted=True)
    return d.view()


def memories() -> View:
    """Where the memories of a GPU are: threads, blocks, the device."""
    words = (
        "Each thread has registers. The threads of a block share memory of the block, which others "
        "do not see. All threads see main memory."
    )
    d = Drawing("The memories of a GPU", words, 660, 196)
    for b in range(2):
        left = 10 + b * 330
        d.box((left, 24), (310, 116), "", None, dashed=True)
        d.text((left + 6, 18), f"block {b}", bold=True)
        for t in range(4):
            x = left + 14 + t * 74
            d.box((x, 34), (62, 34), f"thread {t}\nregisters", "blue", mono=False, fontsize=10)
            d.line((x + 31, 70), (x + 31, 92), arrow=True, width=0.8)
        d.box((left + 14, 96), (284, 32), "shared memory of the block", "green", mono=False)
        d.line((left + 155, 130), (left + 155, 158), arrow=True)
    d.box((10, 160), (640, 30), "main memory, seen by all threads", "grey", mono=False)
    return d.view()
