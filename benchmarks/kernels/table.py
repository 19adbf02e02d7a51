"""Results of kernels as text: ratios first, then shares of what the machine can do."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from benchmarks.report import Spread, heading, table

Result = Mapping[str, Any]
OURS = "relaxlab"
Aim = tuple[str, str, bool]
"""The aim, the figure measured, and whether that is enough."""


def speeds(case: Result, name: str) -> list[float]:
    """Work per second, one value per round; empty for who did not take part."""
    found = case["peers"].get(name)
    return [] if found is None else [case["work"] / s for s in found["seconds"]]


def others_of(result: Result, case: Result) -> list[str]:
    """Return the names of the others that have finished this case."""
    return [n for n in case["peers"] if n not in result["ours"] and speeds(case, n)]


def ratio(
    result: Result, case: Result, name: str, peer: str | None = None
) -> Spread | None:
    """Return the ratio to the best peer of the same round, or to the one that is named; None
    without peers."""
    others = [p for p in others_of(result, case) if peer in (None, p)]
    mine, peers = speeds(case, name), [speeds(case, p) for p in others]
    rounds = list(zip(mine, *peers, strict=False))
    if not peers or not rounds:
        return None
    return Spread.of([own / max(of_peers) for own, *of_peers in rounds])


def best_peer(result: Result, case: Result) -> str:
    """Return the name of the peer with the highest median."""
    return max(others_of(result, case), key=lambda n: statistics.median(speeds(case, n)))


def limits_of(case: Result) -> list[float]:
    """Return the machine's limit in each round. Neighbours move the bandwidth of a memory from
    minute to minute; from multiply-adds in registers they only take, so the peak of all rounds is
    that of each."""
    found: list[float] = case["limits"]
    return [max(found)] * len(found) if found and case["limit"] == "fma" else found


def share(case: Result, name: str) -> float | None:
    """Return the share of the machine's limit: the median over the rounds."""
    values = [v / most for v, most in zip(speeds(case, name), limits_of(case), strict=False)]
    return statistics.median(values) if values else None


def race_heading(result: Result) -> str:
    """The heading of measurements that take turns (`race`): with the versions of the peers."""
    s = result["settings"]
    versions = ", ".join(
        f"{name} {about.get('version', 'FAILED')}" for name, about in result["peers"].items()
    )
    measured = f"{s['threads']} threads; {s['rounds']} rounds of {s['seconds']} s; {versions}"
    return heading(result, measured, result["busy_cores"], s["seconds_in_all"])


def render(result: Result, aims: Iterable[Aim] = ()) -> str:
    """The whole report: one row per case."""
    parts = [race_heading(result)]
    for limit, unit, what in (
        ("fma", "GFLOP/s", "measured multiply-add peak"),
        ("copy", "GB/s", "measured bandwidth of copying"),
        ("read", "GB/s", "measured bandwidth of reading"),
    ):
        cases = [c for c in result["cases"] if c["limit"] == limit]
        if cases:
            parts.append(_cases(result, cases, unit, what))
    parts += [aims_text(aims), failures(result)]
    return "\n\n".join(part for part in parts if part)


def _cases(result: Result, cases: Sequence[Result], unit: str, what: str) -> str:
    names = list(dict.fromkeys(n for c in cases for n in c["peers"]))
    title = ["relaxlab", "to best peer", "best", "of limit", "limit", *names, "compile s"]
    rows = [_row(result, case, name, names) for case in cases for name in result["ours"] or [OURS]]
    return f"{unit}, medians over the rounds; limit: {what}\n{table(title, rows)}"


def _row(result: Result, case: Result, ours: str, names: Sequence[str]) -> list[str]:
    found = ratio(result, case, ours)
    part = share(case, ours)
    own = case["peers"].get(ours)
    return [
        case["name"],
        "–" if found is None else f"{found.text(2)}x",
        "–" if found is None else best_peer(result, case),
        "–" if part is None else f"{part:.0%}",
        f"{statistics.median(limits_of(case)) / 1e9:.1f}" if case["limits"] else "–",
        *(
            f"{statistics.median(found) / 1e9:.1f}" if (found := speeds(case, n)) else "–"
            for n in names
        ),
        "–" if own is None else f"{own['compile_s']:.1f}",
    ]


def aims_text(aims: Iterable[Aim]) -> str:
    lines = [f"  {'met   ' if met else 'MISSED'}  {text}: {value}" for text, value, met in aims]
    return "\n".join(["aims", *lines]) if lines else ""


def failures(result: Result) -> str:
    failed = {n: about["error"] for n, about in result["peers"].items() if "error" in about}
    return "\n".join(f"{name} FAILED: {error.splitlines()[0]}" for name, error in failed.items())


def aim_of_ratio(
    result: Result, text: str, at_least: float, wanted: Callable[[Result], bool],
    peer: str | None = None,
) -> Iterable[Aim]:  # fmt: skip
    """Yield the aim that the median ratio of every case of `wanted`, to the best peer or to the one
    that is named, is at least `at_least`; it names the worst."""
    for name in result["ours"]:
        found = [
            (spread.median, case["name"])
            for case in result["cases"]
            if wanted(case) and (spread := ratio(result, case, name, peer)) is not None
        ]
        if found:
            worst, case = min(found)
            yield f"{text}: {at_least}x", f"{worst:.2f}x at {case}", worst >= at_least


def aim_of_share(
    result: Result, text: str, at_least: float, wanted: Callable[[Result], bool]
) -> Iterable[Aim]:
    """Yield the aim that every case of `wanted` reaches this share of the limit; it names the
    worst."""
    for name in result["ours"]:
        found = [
            (part, case["name"])
            for case in result["cases"]
            if wanted(case) and (part := share(case, name)) is not None
        ]
        if found:
            worst, case = min(found)
            yield f"{text}: {at_least:.0%}", f"{worst:.0%} at {case}", worst >= at_least
