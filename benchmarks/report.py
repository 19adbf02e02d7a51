"""The results as text: ratios first, then every peer, then the aims."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.limits import best_bandwidth
from benchmarks.rows import GROUPS

Result = Mapping[str, Any]
HEADLINE = "relaxlab q8"
EXACT = "relaxlab float32"
QUIET = 0.1
"""Busy cores during the pauses above which the machine counts as noisy."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and quartiles."""

    median: float
    low: float
    high: float

    @staticmethod
    def of(values: Sequence[float]) -> Spread:
        low, median, high = np.percentile(values, (25, 50, 75))
        return Spread(float(median), float(low), float(high))

    def text(self, digits: int = 0) -> str:
        return f"{self.median:.{digits}f} ({self.low:.{digits}f}–{self.high:.{digits}f})"


def speeds(result: Result, name: str, what: str) -> list[float]:
    """Tokens per second, one value per round (the median of a round's reads); empty for a
    peer that did not finish."""
    found = result["peers"][name]
    if "error" in found:
        return []
    turns = [turn[what] for turn in found.get("turns", ())]
    return [statistics.median(t) if isinstance(t, list) else t for t in turns]


def members(result: Result, group: str, ours: bool) -> list[str]:
    rows = result["rows"].items()
    return [name for name, r in rows if r["group"] == group and r["ours"] == ours]


def ratio(result: Result, name: str, what: str) -> Spread | None:
    """Return the ratio to the best peer of the same group in the same round; None if either is
    missing."""
    group = result["rows"][name]["group"]
    mine = speeds(result, name, what)
    peers = [s for p in members(result, group, False) if (s := speeds(result, p, what))]
    if not mine or not peers:
        return None
    return Spread.of([a / max(b) for a, b in zip(mine, zip(*peers, strict=True), strict=True)])


def bandwidth(result: Result) -> float:
    """Bytes/s: the median over the rounds of the best way of reading."""
    return statistics.median(best_bandwidth(r) for r in result["limits"]["rounds"])


def share_of_bandwidth(result: Result, name: str) -> float | None:
    """Decoded tokens/s relative to reading the weights once per token and nothing else."""
    mine = speeds(result, name, "decode_tok_s")
    if not mine:
        return None
    return statistics.median(mine) * result["work"]["bytes_per_token"][name] / bandwidth(result)


def share_of_products(result: Result, name: str) -> float | None:
    """Prefill relative to int8 dot products alone; None where they were not measured."""
    mine = speeds(result, name, "prefill_tok_s")
    peaks = [r["int8_dot"] for r in result["limits"]["rounds"] if "int8_dot" in r]
    if not mine or not peaks:
        return None
    macs_per_token = result["work"]["prefill_macs"] / result["settings"]["prompt"]
    return statistics.median(mine) * macs_per_token / statistics.median(peaks)


# --- The parts of the report ------------------------------------------------------------------


def render(result: Result) -> str:
    """The whole report."""
    parts = (_heading, _ratios, _peers, _accuracy, _limits, _costs, _aims, _failures)
    return "\n\n".join(text for part in parts if (text := part(result)))


def heading(result: Result, measured: str, busy: Sequence[float], seconds: float) -> str:
    """The machine and its commit, what was `measured`, the cores that were `busy` during the pauses
    of a run, none where it made no pauses, and the seconds that it took."""
    m, cores = result["machine"], statistics.mean(busy or [0.0])
    noise = "quiet" if cores < QUIET else "NOISY: timings mean little"
    return (
        f"{m['cpu']}, {m['cores']} cores, {m['memory_gb']} GB, {m['system']}; {m['date']}\n"
        f"commit {m['commit']}; {measured}\n"
        f"cores busy with other things during pauses: {cores:.2f} ({noise}); "
        f"the run took {seconds:.0f} s"
    )


def _heading(result: Result) -> str:
    s = result["settings"]
    measured = (
        f"{s['file']}; {s['threads']} threads; {s['rounds']} rounds, each {s['reads']} prompts of "
        f"{s['prompt']} fresh tokens, {s['steps']} tokens decoded"
    )
    busy = [b for pauses in result["busy_cores"] for b in pauses or [0.0]]
    return heading(result, measured, busy, s["seconds"])


def table(title: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    columns = list(zip(title, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]

    def line(cells: Sequence[str]) -> str:
        first, *rest = (
            cell.ljust(w) if i == 0 else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(cells, widths, strict=True))
        )
        return "  ".join([first, *rest]).rstrip()

    return "\n".join([line(title), *map(line, rows)])


def _ratios(result: Result) -> str:
    rows: list[list[str]] = []
    for group in GROUPS:
        peers = ", ".join(members(result, group, False))
        for name in members(result, group, True):
            found = [ratio(result, name, w) for w in ("decode_tok_s", "prefill_tok_s")]
            if None not in found:
                cells = [f"{r.text(2)}x" for r in found if r is not None]
                rows.append([f"{name} / best of {peers}", *cells])
    if not rows:
        return ""
    return table(["ratio in the same round: median (quartiles)", "decode", "prefill"], rows)


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.0%}"


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _peers(result: Result) -> str:
    title = [
        "peer", "decode tok/s", "of bandwidth", "prefill tok/s", "of int8 dots",
        "load s", "compile s cold", "cached", "peak MB cold", "end",
    ]  # fmt: skip
    rows: list[list[str]] = []
    for group, weights in GROUPS.items():
        names = [n for ours in (True, False) for n in members(result, group, ours)]
        done = [n for n in names if speeds(result, n, "decode_tok_s")]
        if done:
            rows.append([f"[{weights}]", *[""] * (len(title) - 1)])
            rows += [_peer(result, name) for name in done]
    return table(title, rows)


def _peer(result: Result, name: str) -> list[str]:
    found = result["peers"][name]
    cold, warm = found["cold"], found.get("warm", {})
    return [
        name,
        Spread.of(speeds(result, name, "decode_tok_s")).text(),
        _percent(share_of_bandwidth(result, name)),
        Spread.of(speeds(result, name, "prefill_tok_s")).text(),
        _percent(share_of_products(result, name)),
        _number((warm or cold).get("load_s"), 1),
        _number(cold.get("compile_s"), 1),
        _number(warm.get("compile_s"), 2),
        _number(cold["peak_rss_mb"], 0),
        _number(found["peak_rss_mb"], 0),
    ]


def _accuracy(result: Result) -> str:
    title = [
        "against float32 in NumPy", "worst error", "median", "prompts", "divergence", "top-1",
        "where clear", "greedy", "where clear",
    ]  # fmt: skip
    rows: list[list[str]] = []
    for name, found in result["peers"].items():
        if "accuracy" in found:
            steps, prompts, greedy = (found["accuracy"][k] for k in ("steps", "prompts", "greedy"))
            rows.append([
                name, f"{steps['worst_error']:.1e}", f"{steps['median_error']:.1e}",
                f"{prompts['worst_error']:.1e}", f"{steps['mean_divergence']:.1e}",
                f"{steps['agreement']:.1%}", f"{steps['clear_agreement']:.1%}",
                f"{greedy['equal']}/{greedy['tokens']}",
                f"{greedy['clear_equal']}/{greedy['clear']}",
            ])  # fmt: skip
    if not rows:
        return ""
    positions = max(
        f["accuracy"]["steps"]["positions"]
        for f in result["peers"].values()
        if "accuracy" in f
    )
    return f"{table(title, rows)}\n({positions} positions of a text; clear: a lead over 0.3)"


def _limits(result: Result) -> str:
    rounds = result["limits"]["rounds"]
    lines = ["limits of the machine, median (quartiles) over the rounds"]
    for name in rounds[0]:
        spread = Spread.of([r[name] / 1e9 for r in rounds])
        unit = "G multiply-adds/s" if name == "int8_dot" else "GB/s"
        lines.append(f"  {name:28} {spread.text(1)} {unit}")
    size = result["work"]["bytes_per_token"].get(HEADLINE)
    if size is not None:
        most = bandwidth(result) / size
        lines.append(f"  {size:,} bytes of weights per token: at most {most:.0f} tok/s decoded")
    return "\n".join(lines)


def _costs(result: Result) -> str:
    o = result["overheads"]
    return (
        f"import relaxlab {o['import_s'] * 1e3:.0f} ms, with the text generator "
        f"{o['import_generate_s'] * 1e3:.0f} ms; a call of an empty function "
        f"{o['empty_call_us']:.1f} µs, of one that returns its array {o['array_call_us']:.1f} µs"
    )


def _failures(result: Result) -> str:
    failed = {n: f["error"] for n, f in result["peers"].items() if "error" in f}
    return "\n".join(f"{name} FAILED: {error.splitlines()[0]}" for name, error in failed.items())


# --- The aims ---------------------------------------------------------------------------------


def _aims(result: Result) -> str:
    lines = ["aims"]
    for text, value, met in aims(result):
        lines.append(f"  {'met   ' if met else 'MISSED'}  {text}: {value}")
    return "\n".join(lines) if len(lines) > 1 else ""


def aims(result: Result) -> Iterator[tuple[str, str, bool]]:
    """Yield each aim, the figure measured, and whether that is enough."""
    peers = result["peers"]
    for name in (n for n in (HEADLINE, EXACT) if n in peers):
        if "error" not in peers[name]:
            yield from _aims_of_start(name, peers[name])
    if speeds(result, HEADLINE, "decode_tok_s") if HEADLINE in peers else False:
        yield from _aims_of_speed(result)
    call = result["overheads"]["empty_call_us"]
    yield "an empty call takes at most 5 µs", f"{call:.1f} µs", call <= 5
    yield from _aims_of_accuracy(peers)


def _aims_of_speed(result: Result) -> Iterator[tuple[str, str, bool]]:
    decode = ratio(result, HEADLINE, "decode_tok_s")
    prefill = ratio(result, HEADLINE, "prefill_tok_s")
    if decode is not None and prefill is not None:
        yield "decode 2x the best peer", f"{decode.median:.2f}x", decode.median >= 2
        yield "prefill 1.1x the best peer", f"{prefill.median:.2f}x", prefill.median >= 1.1
    share = share_of_bandwidth(result, HEADLINE)
    assert share is not None
    yield "decode 70 % of bandwidth / bytes of weights", f"{share:.0%}", share >= 0.7


def _aims_of_start(name: str, found: Result) -> Iterator[tuple[str, str, bool]]:
    cold, warm = found["cold"], found["warm"]
    limits: tuple[tuple[str, float, float, Callable[[float], str]], ...] = (
        ("compile cold in 10 s", cold["compile_s"], 10, lambda v: f"{v:.1f} s"),
        ("compile from the cache in 1 s", warm["compile_s"], 1, lambda v: f"{v:.2f} s"),
        ("load in 3 s", max(cold["load_s"], warm["load_s"]), 3, lambda v: f"{v:.1f} s"),
        (
            "peak memory under 600 MB",
            max(cold["peak_rss_mb"], found["peak_rss_mb"]), 600, lambda v: f"{v:.0f} MB",
        ),
    )  # fmt: skip
    for text, value, most, show in limits:
        yield f"{name}: {text}", show(value), value <= most


def _aims_of_accuracy(peers: Result) -> Iterator[tuple[str, str, bool]]:
    exact = peers.get(EXACT, {}).get("accuracy")
    if exact is not None:
        worst = max(exact["steps"]["worst_error"], exact["prompts"]["worst_error"])
        yield f"{EXACT}: logits within 2e-3", f"{worst:.1e}", worst <= 2e-3
        greedy = exact["greedy"]
        value = f"{greedy['clear_equal']} of {greedy['clear']}"
        same = greedy["clear_equal"] == greedy["clear"]
        yield f"{EXACT}: greedy answers equal where the lead exceeds 0.3", value, same
    rounded = peers.get(HEADLINE, {}).get("accuracy")
    if rounded is not None:
        agreement = rounded["steps"]["agreement"]
        yield f"{HEADLINE}: top-1 agreement 97 %", f"{agreement:.1%}", agreement >= 0.97
