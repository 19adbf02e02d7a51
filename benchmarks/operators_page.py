"""Results of the benchmark of operators as one HTML page: tables that sort, with bars."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from benchmarks.report import Spread

Result = Mapping[str, Any]

STYLE = """
:root { color-scheme: light dark; --faint: #8886; --ours: #2f7fd6; --slow: #d1572f; }
body { font: 14px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 80rem; padding: 0 1rem }
table { border-collapse: collapse; width: 100%; margin: 1rem 0 3rem }
th { position: sticky; top: 0; background: Canvas; text-align: right; vertical-align: bottom }
th button { all: unset; cursor: pointer } th button:focus-visible { outline: 2px solid }
th[aria-sort=ascending] button::after { content: " \\25b2" }
th[aria-sort=descending] button::after { content: " \\25bc" }
td { border-top: 1px solid var(--faint); text-align: right; padding: .15rem .5rem;
     font-variant-numeric: tabular-nums }
td:first-child, th:first-child { text-align: left }
td:first-child { font-family: ui-monospace, monospace; font-size: 12px }
.bar { background: linear-gradient(var(--ours), var(--ours)) no-repeat left / var(--part) 70% }
.bar.slow { background-image: linear-gradient(var(--slow), var(--slow)) }
td.bar { min-width: 11rem; text-align: left }
"""

SCRIPT = """
for (const table of document.querySelectorAll("table")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, column) => head.firstChild.addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    heads.forEach(h => h.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down > 0 ? "ascending" : "descending");
    const key = row => row.cells[column].dataset.key ?? row.cells[column].textContent;
    const number = row => parseFloat(key(row));
    const rows = [...body.rows].sort((a, b) => {
      const [x, y] = [number(a), number(b)];
      if (Number.isNaN(x) && Number.isNaN(y)) return down * key(a).localeCompare(key(b));
      return Number.isNaN(x) ? 1 : Number.isNaN(y) ? -1 : down * (x - y);
    });
    body.append(...rows);
  }));
}
"""

Cell = tuple[str, str | None, str]
"""A cell's text, what it is sorted by if not its text, and its attributes."""


def write(
    result: Result,
    ratio: Callable[[Result], Spread | None],
    bound: Callable[[Result, float], tuple[float, str]],
    head: str,
    least: float,
    path: Path,
) -> None:
    """Write the page. ratio and bound: of a case, see `bench_operators`; head: a text above the
    tables; least: the ratio below which a bar is marked."""
    names = [name for name, about in result["peers"].items() if "error" not in about]
    fastest = max((r.median for c in result["cases"] if (r := ratio(c))), default=1.0)
    cases = [
        _case_row(case, ratio(case), bound(case, result["fma"]), names, least, fastest)
        for case in result["cases"]
    ]
    operators = _operators(result, ratio, bound, least, fastest)
    times = [*(f"{n} µs" for n in names), "bound µs"]
    title = ["call", "speed to best peer", *times, "of the bound", "bound by"]
    short = ["operator", "speed to best peer", "least", "most", "of the bound", "bound by"]
    parts = [
        f"<title>Operators and their peers</title><style>{STYLE}</style>",
        f"<h1>Operators and their peers</h1><pre>{escape(head)}</pre>",
        "<h2>By operator</h2>",
        _table(short, operators),
        "<h2>By call</h2>",
        _table(title, cases),
        f"<script>{SCRIPT}</script>",
    ]
    path.write_text("<!doctype html><meta charset=utf-8>" + "\n".join(parts), "utf-8")


def _case_row(
    case: Result,
    found: Spread | None,
    limit: tuple[float, str],
    names: Sequence[str],
    least: float,
    fastest: float,
) -> list[Cell]:
    medians = {name: statistics.median(times) for name, times in case["peers"].items()}
    seconds, by = limit
    return [
        (case["name"], None, ""),
        _bar(found, least, fastest),
        *((f"{medians[n] * 1e6:.1f}" if n in medians else "–", None, "") for n in names),
        (f"{seconds * 1e6:.1f}", None, ""),
        (f"{seconds / medians[names[0]]:.0%}", None, ""),
        (by, None, ""),
    ]


def _operators(
    result: Result,
    ratio: Callable[[Result], Spread | None],
    bound: Callable[[Result, float], tuple[float, str]],
    least: float,
    fastest: float,
) -> list[list[Cell]]:
    """A line for each operator: geometric mean, extremes, and the bound of its largest call."""
    by_op: dict[str, list[Result]] = defaultdict(list)
    for case in result["cases"]:
        by_op[case["op"]].append(case)
    rows: list[list[Cell]] = []
    for op, cases in by_op.items():
        ratios = [r.median for c in cases if (r := ratio(c)) is not None]
        largest = max(cases, key=lambda c: c["bytes"])
        own = next(iter(largest["peers"].values()))
        seconds, by = bound(largest, result["fma"])
        mean = statistics.geometric_mean(ratios) if ratios else None
        spread = None if mean is None else Spread(mean, min(ratios), max(ratios))
        ends = ("–", "–") if spread is None else (f"{spread.low:.2f}", f"{spread.high:.2f}")
        share = f"{seconds / statistics.median(own):.0%}"
        cells: list[Cell] = [(text, None, "") for text in (*ends, share, by)]
        rows.append([(op, None, ""), _bar(spread, least, fastest), *cells])
    return rows


def _bar(found: Spread | None, least: float, fastest: float) -> Cell:
    if found is None:
        return "–", "", ""
    # A bar's length goes with the square root: most ratios are small, some are a hundred.
    part = (found.median / fastest) ** 0.5
    slow = " slow" if found.median < least else ""
    return f"{found.median:.2f}", f"{found.median}", f' class="bar{slow}" style="--part:{part:.1%}"'


def _table(title: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    head = "".join(f"<th><button type=button>{escape(t)}</button></th>" for t in title)
    lines: list[str] = []
    for row in rows:
        cells = (
            f"<td{attrs}{'' if key is None else f' data-key={key!r}'}>{escape(text)}</td>"
            for text, key, attrs in row
        )
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
