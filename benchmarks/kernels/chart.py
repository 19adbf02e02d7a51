"""Charts of results, as SVG."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.kernels.table import speeds

Result = Mapping[str, Any]
Bar = tuple[float, float, float]
"""Lower quartile, median, upper quartile."""


def draw(result: Result, title: str, output: Path) -> Path | None:
    """A bar per case and peer, relative to relaxlab (to the first without it), quartiles as a
    line; in a file beside `output`. None where matplotlib is not installed."""
    cases = [c for c in result["cases"] if c["peers"]]
    base = next(iter([*result["ours"], *result["peers"]]))
    found: dict[str, dict[str, Bar]] = {}
    for case in cases:
        own = speeds(case, base)
        found[case["name"]] = {
            name: _quartiles(ratios)
            for name in case["peers"]
            if (ratios := [v / o for v, o in zip(speeds(case, name), own, strict=False)])
        }
    m = result["machine"]
    title = f"{title}\n{m['cpu']}, {result['settings']['threads']} threads"
    label = f"speed relative to {base} in the same round, median and quartiles"
    return bars(found, title, label, output, line=1)


def bars(
    found: Mapping[str, Mapping[str, Bar | float]],
    title: str,
    label: str,
    output: Path,
    line: float | None = None,
) -> Path | None:
    """Horizontal bars, grouped, of values or quartiles; in a file beside `output`. None where
    matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("svg")
    from matplotlib import pyplot

    names = list(dict.fromkeys(name for group in found.values() for name in group))
    figure, axes = pyplot.subplots(figsize=(8, 1.2 + 0.16 * len(found) * (len(names) + 1)))
    width = 1 / (len(names) + 1)
    for number, name in enumerate(names):
        has = [(at, group[name]) for at, group in enumerate(found.values()) if name in group]
        ends = [(v, v, v) if isinstance(v, int | float) else v for _, v in has]
        errors = [[m - low for low, m, _ in ends], [high - m for _, m, high in ends]]
        axes.barh(
            [at + number * width for at, _ in has], [m for _, m, _ in ends], width,
            label=name, xerr=errors, error_kw={"elinewidth": 0.7},
        )  # fmt: skip
    axes.set_yticks([at + width * (len(names) - 1) / 2 for at in range(len(found))])
    axes.set_yticklabels(list(found), fontsize=8)
    axes.invert_yaxis()
    if line is not None:
        axes.axvline(line, color="black", linewidth=0.7)
    axes.set_xlabel(label)
    axes.set_title(title, fontsize=10)
    if names:
        axes.legend(fontsize=8)
    file = output.with_suffix(".svg")
    figure.savefig(file, bbox_inches="tight", metadata={"Date": None})
    pyplot.close(figure)
    return file


def _quartiles(values: list[float]) -> Bar:
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high
