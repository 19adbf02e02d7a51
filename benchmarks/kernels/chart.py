"""The chart of a run, as SVG."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.kernels.table import speeds

Result = Mapping[str, Any]


def draw(result: Result, title: str, file: Path) -> bool:
    """Write a chart: a bar per case and contestant, relative to relaxlab, quartiles as a line.
    False where matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("svg")
    from matplotlib import pyplot

    cases = [c for c in result["cases"] if c["contestants"]]
    names = list(dict.fromkeys(n for c in cases for n in c["contestants"]))
    figure, axes = pyplot.subplots(figsize=(8, 1.2 + 0.16 * len(cases) * (len(names) + 1)))
    width = 1 / (len(names) + 1)
    for number, name in enumerate(names):
        places, lengths, errors = list[float](), list[float](), list[tuple[float, float]]()
        for at, case in enumerate(cases):
            own = speeds(case, result["ours"][0])
            values = [v / o for v, o in zip(speeds(case, name), own, strict=False)]
            if values:
                low, middle, high = _quartiles(values)
                places.append(at + number * width)
                lengths.append(middle)
                errors.append((middle - low, high - middle))
        bars = list(zip(*errors, strict=True)) if errors else None
        axes.barh(places, lengths, width, label=name, xerr=bars, error_kw={"elinewidth": 0.7})
    axes.set_yticks([at + width * (len(names) - 1) / 2 for at in range(len(cases))])
    axes.set_yticklabels([case["name"] for case in cases], fontsize=8)
    axes.invert_yaxis()
    axes.axvline(1, color="black", linewidth=0.7)
    axes.set_xlabel("speed relative to relaxlab in the same round, median and quartiles")
    m = result["machine"]
    axes.set_title(f"{title}\n{m['cpu']}, {result['settings']['threads']} threads", fontsize=10)
    axes.legend(fontsize=8)
    figure.savefig(file, bbox_inches="tight", metadata={"Date": None})
    pyplot.close(figure)
    return True


def _quartiles(values: list[float]) -> tuple[float, float, float]:
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high
