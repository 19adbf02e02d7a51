"""Record the moving picture of the README, docs/images/explore.gif, in the system's Chromium.

    python tools/record_views.py
"""

from __future__ import annotations

import io
import re
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

import relaxlab as rl
from tests.browser import CHROMIUM

TARGET = Path(__file__).resolve().parents[1] / "docs/images/explore.gif"
SIZE = {"width": 1000, "height": 560}
SECONDS = 1.6
"""Seconds for which a frame stays."""
COLOURS = 64
"""Views have few; more make the file larger and not better."""

PROGRAM = """
@I.ir_module
class Block:
    @R.function
    def main(
        x: R.Tensor(("n", 64), "float32"),
        w: R.Tensor((64, 64), "float32"),
        g: R.Tensor((64,), "float32"),
    ):
        with R.dataflow():
            h = R.nn.rms_norm(x, g, axes=[-1])
            y = R.matmul(h, w)
            z = R.nn.gelu(y)
            r = R.add(x, z)
            R.output(r)
        return r
"""
FRAMES = (
    ("Pipeline", 0), ("Dataflow", 0), ("Fusion", 0), ("Fusion", 1), ("Fusion", 1), ("Loops", 0),
    ("Loops", 4), ("Code", 0),
)  # fmt: skip
"""Tabs, and how many steps to go in each."""


def shot(page: Page, tab: str, steps: int) -> Image.Image:
    """The window with a tab after some steps."""
    page.get_by_role("tab", name=re.compile(f"^{tab}")).click()
    page.wait_for_timeout(1500)
    for _ in range(steps):
        page.locator("button[title='Next step']:visible").first.click()
        page.wait_for_timeout(200)
    page.wait_for_timeout(500)
    return Image.open(io.BytesIO(page.screenshot())).convert("RGB")


def record() -> None:
    """Take the pictures and write the file."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as p:
        saved = Path(folder) / "page.html"
        rl.explore(rl.parse(PROGRAM)).save(saved)
        browser = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport=SIZE)
        page.goto(saved.as_uri())
        page.get_by_role("tab").first.wait_for()
        frames = [shot(page, tab, steps) for tab, steps in FRAMES]
        browser.close()
    first, *others = [f.quantize(COLOURS, dither=Image.Dither.NONE) for f in frames]
    first.save(
        TARGET, save_all=True, append_images=others, duration=int(SECONDS * 1000), loop=0,
        optimize=True,
    )  # fmt: skip


if __name__ == "__main__":
    record()
