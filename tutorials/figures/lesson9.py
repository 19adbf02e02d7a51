"""Drawings of lesson 9: the forms of a program, what surrounds its kernels, guarded versions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from relaxlab.ir.loops import Block, IfThenElse, PrimFunc, Stmt
from relaxlab.ir.node import walk
from relaxlab.lab.drawing import Drawing, clipped
from relaxlab.lab.view import View


def forms(texts: Sequence[tuple[str, str]]) -> View:
    """The forms of one statement, each with its name, from the script down to the processor."""
    wide = 620.0
    words = "\n".join(f"{name}: {text}" for name, text in texts)
    d = Drawing("One statement in all its forms", words, wide, 8 + 66 * len(texts))
    hues = ("grey", "blue", "green", "amber", "violet")
    for i, (name, text) in enumerate(texts):
        y = 6 + i * 66
        d.box((10, y), (130, 40), name, hues[i % len(hues)], mono=False)
        d.text((156, y + 25), clipped(text, wide - 160), mono=True)
        if i + 1 < len(texts):
            d.line((75, y + 42), (75, y + 63), arrow=True)
    return d.view()


def host_program() -> View:
    """The host program between its caller, its memory and its kernels."""
    words = (
        "The host program checks the arguments and binds n, gets one piece of memory, calls the "
        "kernels in order with pointers and sizes, and returns the result."
    )
    d = Drawing("Around the kernels", words, 700, 176)
    steps = (
        ("MatchShape", "bind n, check"), ("AllocStorage", "one arena"), ("View", "places in it"),
        ("Alloc", "the result"), ("CallKernel", "matmul"), ("CallKernel", "sum"),
    )  # fmt: skip
    d.text((10, 16), "the host program", bold=True)
    for i, (name, what) in enumerate(steps):
        x = 10 + i * 114
        hue = "green" if name == "CallKernel" else "blue"
        d.box((x, 26), (104, 34), name, hue)
        d.text((x + 52, 74), what, anchor="middle", size=11, muted=True)
        if i:
            d.line((x - 9, 43), (x - 1, 43), arrow=True)
    d.box((124, 122), (218, 32), "memory: the arena", "grey", mono=False)
    d.box((352, 122), (104, 32), "the result", "grey", mono=False)
    d.box((466, 122), (218, 32), "kernels: loops", "green", mono=False)
    for x in (176, 290, 404):
        d.line((x, 80), (x, 119), arrow=True)
    for x in (518, 632):
        d.line((x, 80), (x, 119), arrow=True)
    d.line((464, 138), (458, 138), arrow=True)
    return d.view()


def guarded(func: PrimFunc) -> View:
    """The versions of a kernel with the conditions under which each runs."""
    versions = list(_versions(func.body))
    words = "; ".join(f"{guard or 'otherwise'}: {what}" for guard, what in versions)
    high = 46
    d = Drawing("Versions and their conditions", words, 620, 10 + high * len(versions))
    for i, (guard, what) in enumerate(versions):
        y = 10 + i * high
        d.box((10, y), (200, 30), guard or "otherwise", "amber" if guard else "grey")
        d.line((212, y + 15), (290, y + 15), arrow=True)
        d.text((250, y + 10), "yes" if guard else "", anchor="middle", size=11)
        d.box((294, y), (316, 30), what, "green", mono=False)
        if i + 1 < len(versions):
            d.line((110, y + 31), (110, y + high - 2), arrow=True)
            d.text((118, y + 42), "no", size=11)
    return d.view()


def _versions(stmt: Stmt) -> Iterator[tuple[str, str]]:
    """The conditions of a chain of `if`, each with the tile whose sums its loops keep."""
    branch = next((n for n in walk(stmt) if isinstance(n, IfThenElse)), None)
    if branch is None or branch.else_case is None:
        yield "", _tile(stmt)
        return
    yield str(branch.condition), _tile(branch.then_case)
    yield from _versions(branch.else_case)


def _tile(stmt: Stmt) -> str:
    blocks = (n for n in walk(stmt) if isinstance(n, Block))
    local = [b for block in blocks for b in block.alloc_buffers if b.scope == "local"]
    if not local:
        return "loops without a tile"
    return f"tiles of {' x '.join(map(str, local[0].shape))} sums in registers"
