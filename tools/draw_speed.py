"""Draw the chart of the README, docs/images/speed.svg, from a result of `make bench BENCH=llm`.

    python tools/draw_speed.py
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

from benchmarks.report import speeds

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "benchmarks/results/smollm2-135m-2-core-epyc.json"
TARGET = ROOT / "docs/images/speed.svg"
SHOWN = ("relaxlab q8", "relaxlab float32", "llama.cpp, tuned", "OpenVINO GenAI")
"""Peers that run the same file of 4-bit weights, best first."""
COLOURS = ("#d2691e", "#e8b07a", "#7a8a99", "#a9b4be")
GREY = "#808080"
"""Readable on light and on dark pages, as the background is transparent."""


def draw() -> None:
    """Write the chart: tokens per second, decoding and prefill, medians of the rounds."""
    result = json.loads(RESULT.read_text())
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "speed", "font.size": 11})
    figure, axes = plt.subplots(1, 2, figsize=(9, 2.4))
    for axis, kind, title in zip(
        axes, ("decode_tok_s", "prefill_tok_s"), ("decode", "read a prompt of 128"), strict=True
    ):
        values = [median(speeds(result, name, kind)) for name in SHOWN]
        bars = axis.barh(SHOWN, values, color=COLOURS)
        axis.bar_label(bars, fmt="%.0f", padding=4, color=GREY)
        axis.set_title(f"{title}, tokens/s", color=GREY, fontsize=11)
        axis.invert_yaxis()
        axis.margins(x=0.15)
        axis.xaxis.set_visible(False)
        axis.tick_params(colors=GREY, length=0)
        for side in axis.spines.values():
            side.set_visible(False)
    axes[1].set_yticklabels([])
    figure.tight_layout()
    figure.savefig(TARGET, transparent=True, metadata={"Date": None})


if __name__ == "__main__":
    draw()
