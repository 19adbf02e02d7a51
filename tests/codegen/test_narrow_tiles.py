"""Last tiles of columns, in the vectors that these columns fill."""

from __future__ import annotations

import numpy as np
import pytest

from relaxlab.codegen.hoist_guards import hoist_guards
from relaxlab.codegen.lower_blocks import lower_blocks
from relaxlab.codegen.narrow_tiles import narrow_tiles
from relaxlab.ir.loops import BufferStore, For
from relaxlab.ir.module import Module
from relaxlab.ir.node import walk
from tests.codegen.kernels import Kernels, parse_kernels

TILES = """
def kernel(A: T.Buffer((7, "n"), "float32"), C: T.Buffer(("n",), "float32")):
    with T.sblock("root"):
        D = T.alloc_buffer((64,), "float32", scope="local")
        for i in T.parallel((n + 63) // 64):
            {body}
"""
SUM = """
            for v in T.vectorized(64):
                D[v] = T.float32(0)
            for r in range(7):
                for v in T.vectorized(64):
                    D[v] = D[v] + T.if_then_else(i * 64 + v < n, A[r, i * 64 + v], T.float32(0))
            for o in range(2):
                for v in T.vectorized(32):
                    if i * 64 + o * 32 + v < n:
                        C[i * 64 + o * 32 + v] = D[{lane}]
"""


def tiles(body: str = SUM, lane: str = "o * 32 + v") -> Module:
    text = TILES.format(body=body.strip().format(lane=lane))
    return parse_kernels(text)


def widths(mod: Module) -> list[list[int]]:
    """The lanes of the vectors of each loop that sums."""
    func = mod["kernel"]
    lowered = narrow_tiles(hoist_guards(lower_blocks(func.body)[0]))
    sums = [n for n in walk(lowered) if isinstance(n, For) and n.loop_var.name == "r"]
    return [[v.extent.value for v in walk(n.body) if isinstance(v, For)] for n in sums]  # type: ignore[union-attr]


def test_narrower_tiles_for_the_last_columns(rng: np.random.Generator) -> None:
    mod = tiles()
    assert widths(mod) == [[64], [8], [8, 8], [16, 8], [24, 8], [32, 16], [48, 16]]
    kernels = Kernels(mod)
    for n in (0, 1, 8, 9, 16, 17, 25, 33, 41, 49, 57, 63, 64, 65, 80, 81, 97, 127, 128, 129):
        x = rng.standard_normal((7, n), np.float32)
        kernels.agree("kernel", [x, np.zeros(n, "float32")], n=n)


VERSION = """
def kernel(A: T.Buffer(("m", "n"), "float32"), C: T.Buffer(("(m + 7) // 8", "n"), "float32")):
    with T.sblock("root"):
        D = T.alloc_buffer((64,), "float32", scope="local")
        if {least} <= n:
            for i in T.parallel((m + 7) // 8):
                for v in T.vectorized(64):
                    D[v] = T.float32(0)
                for r in range(8):
                    if i * 8 + r < m:
                        for v in T.vectorized(64):
                            D[v] = D[v] + T.if_then_else(v < n, A[i * 8 + r, v], T.float32(0))
                for o in range(2):
                    for v in T.vectorized(32):
                        if o * 32 + v < n:
                            C[i, o * 32 + v] = D[o * 32 + v]
"""


@pytest.mark.parametrize(("least", "copies"), [(0, 6), (8, 6), (9, 5), (25, 3), (49, 1)])
def test_copies_that_a_version_rules_out(
    least: int, copies: int, rng: np.random.Generator
) -> None:  # fmt: skip
    mod = parse_kernels(VERSION.format(least=least))
    whole, *last = widths(mod)
    assert (whole, len(last)) == ([64], copies)
    kernels = Kernels(mod)
    for n in range(least, 65, 3):
        x = rng.standard_normal((11, n), np.float32)
        kernels.agree("kernel", [x, np.zeros((2, n), "float32")], m=11, n=n)


def test_copies_share_no_private_memory() -> None:
    func = tiles()["kernel"]
    lowered = narrow_tiles(hoist_guards(lower_blocks(func.body)[0]))
    stores = [n for n in walk(lowered) if isinstance(n, BufferStore) and n.buffer.name == "D"]
    # Whole tiles and six copies of the last one.
    assert len({n.buffer for n in stores}) == 7


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"lane": "63 - o * 32 - v"}, "results depend on lanes past the end"),
        ({"lane": "o"}, "lanes are read by others"),
        ({"body": SUM.replace("if i * 64 + o * 32 + v < n", "if i * 64 + v < n")}, "other columns"),
        ({"body": SUM.replace("< n", "< 100")}, "a constant number of columns"),
    ],
)
def test_tiles_that_stay_whole(changes: dict[str, str], reason: str) -> None:
    assert widths(tiles(**changes)) in ([[64]], [[64], [64]]), reason
