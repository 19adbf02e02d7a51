"""Texts of drawings, in Chromium: none is cut off by its drawing, and none lies on another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab import dynamic
from relaxlab.lab.view import View

FAULTS = """(root) => [...root.querySelectorAll("svg")].filter((d) => d.checkVisibility()).flatMap((drawing) => {
  const frame = drawing.getBoundingClientRect();
  const texts = [...drawing.querySelectorAll("text")].map((t) => [t.textContent, t.getBoundingClientRect()]);
  const cut = texts.filter(([, b]) => b.left < frame.left - 1 || b.right > frame.right + 1).map(([t]) => `${t} is cut off`);
  const met = texts.flatMap(([t, a], i) => texts.slice(i + 1)
    .filter(([, b]) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 4 && b.top < a.bottom - 4)
    .map(([other]) => `${t} lies on ${other}`));
  return [...cut, ...met];
})"""  # noqa: E501


def batches() -> View:
    mod = dynamic.tree_gru(4, 20)
    exe = rl.compile(mod, pipeline=rl.batched_pipeline())
    rng = np.random.default_rng(0)
    exe["main"].bind(*dynamic.random_weights(mod, rng))
    trees = [dynamic.tree_value(mod, dynamic.parse_tree(rng, 2, 20)) for _ in range(101)]
    return rl.explore.batching(exe, "main", trees)


def reuse() -> View:
    mod = rl.parse("""
@I.ir_module
class M:
    @T.prim_func
    def twice(A: T.Buffer((700,), "float32"), B: T.Buffer((1,), "float32")):
        for i, j in T.grid(2, 700):
            with T.sblock("B"):
                vi, vj = T.axis.remap("RR", [i, j])
                with T.init():
                    B[0] = T.float32(0)
                B[0] = B[0] + A[vj]
""")
    return rl.explore.loops(mod["twice"])


def blocks() -> View:
    gates = [rl.BlockKernel(f"{g}_sum", "product", (None, None), (64, 64, 64)) for g in "ifuo"]
    rest = [rl.BlockKernel(g, "sigmoid", (i,), (64, 64)) for i, g in ((0, "i"), (1, "f"), (3, "o"))]
    return rl.explore.layout(gates + rest)


def sequences() -> View:
    return rl.explore.ragged(np.arange(400, 0, -7), threads=8)


@pytest.mark.parametrize(
    ("make", "tab"), [(batches, ""), (reuse, "Reuse"), (blocks, ""), (sequences, "")]
)
def test_texts_fit(open_view: Any, make: Callable[[], View], tab: str) -> None:
    page = open_view(make())
    if tab:
        page.get_by_role("tab", name=tab).click()
    assert page.locator("svg text").count() > 3
    assert page.locator(".root").first.evaluate(FAULTS) == []
