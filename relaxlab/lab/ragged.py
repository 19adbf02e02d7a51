"""The ragged explorer: loops over sequences of different lengths, step by step: rows, storage,
the arrays that a prelude makes, and the work of each thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from relaxlab.ir.errors import UserError, counted
from relaxlab.lab.view import View
from relaxlab.runtime.ragged import Ragged

MOST_SEQUENCES = 64
"""Sequences that are drawn."""
MOST_NUMBERS = 24
"""Elements of a prelude's array that are shown."""

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """A way to run the loops. primitive: the step of a schedule that leads here. runs: iterations
    of each sequence; holds: its rows in memory. whole: of the iterations, those in whole tiles,
    where they are apart. threads: the work of each thread. order: the sequences as they are run.
    prelude: the arrays that are made of the lengths."""

    name: str
    primitive: str
    says: str
    runs: Array
    holds: Array
    threads: Array
    order: Array
    prelude: dict[str, Array]
    whole: Array | None = None


def ragged(
    lengths: Ragged | Sequence[int] | Array,
    *,
    multiple: int = 8,
    threads: int = 2,
    row_bytes: int = 4,
    quadratic: bool = False,
) -> View:
    """The loops over a batch of sequences: padded, as long as they are, rounded up to `multiple`,
    in whole tiles and a rest, fused, dealt out longest first, and in parts of equal work.

    lengths: of the sequences, or a batch that `rl.ragged` made. threads: that share the work.
    row_bytes: of a row in memory. quadratic: a row is as much work as its sequence is long, as in
    attention; else all rows are the same work. Raises UserError for no lengths, a negative length,
    and sizes that are not positive.
    """
    given = lengths.lengths if isinstance(lengths, Ragged) else np.asarray(lengths)
    if given.ndim != 1 or not len(given) or given.dtype.kind not in "iu":
        raise UserError("lengths are a list of whole numbers, at least one")
    for at in np.flatnonzero(given < 0)[:1]:
        raise UserError(f"lengths[{at}] is {given[at]}; a length is not negative")
    for name, size in (("multiple", multiple), ("threads", threads), ("row_bytes", row_bytes)):
        if size < 1:
            raise UserError(f"{name} is {size}; it is positive")
    s = given.astype(np.int64)
    steps = _steps(s, multiple, threads, quadratic)
    state = {
        "lengths": s[:MOST_SEQUENCES].tolist(),
        "threads": threads,
        "work": "squares of lengths" if quadratic else "rows",
        "steps": [_shown(step, s, row_bytes, quadratic) for step in steps],
        "notes": [] if len(s) <= MOST_SEQUENCES else [
            f"There are {len(s)} sequences; the first {MOST_SEQUENCES} are drawn."
        ],
    }  # fmt: skip
    return View("ragged", "Sequences of different lengths", state, _text(state, s))


def _steps(s: Array, multiple: int, threads: int, quadratic: bool) -> list[Step]:
    """The steps, from one to the next."""
    n, total = len(s), int(s.sum())
    longest = np.full(n, s.max())
    rounded = -(-s // multiple) * multiple
    given, falling = np.arange(n), np.argsort(-s, kind="stable")
    starts = np.concatenate([[0], np.cumsum(s)])
    wide = np.concatenate([[0], np.cumsum(rounded)])
    ids = np.repeat(given, s)
    # A fused loop is cut at equal counts of rows, wherever sequences begin.
    per_row = s[ids] if quadratic else np.ones(total, np.int64)
    equal = np.array([part.sum() for part in np.array_split(per_row, threads)])
    dealt = np.array([_work(s[falling[t::threads]], quadratic) for t in range(threads)])
    inverse = np.argsort(falling)
    # A row is the thread's in whose part of all work it begins.
    begins = np.cumsum(per_row) - per_row
    part = begins * threads // max(int(per_row.sum()), 1)
    balanced = np.bincount(part, per_row, minlength=threads).astype(np.int64)

    def cut(runs: Array) -> Array:
        """The work of threads that have equally many sequences, those behind each other."""
        return np.array([_work(part, quadratic) for part in np.array_split(runs, threads)])

    offsets, orders = {"starts": starts}, {"order": falling, "inverse": inverse}
    return [
        Step("padded", "", "Every sequence is as long as the longest one, in memory as well.",
             longest, longest, cut(longest), given, {}),
        Step("ragged", "T.index_function", "Loops and rows in memory are as long as the "
             "sequences.",
             s, s, cut(s), given, offsets),
        Step("loop padded", f"pad_loop(j, {multiple})", "The loop runs in whole tiles; what it "
             "adds is guarded, without rows in memory.", rounded, s, cut(rounded), given, offsets),
        Step("storage padded", f"T.prefix_sums of lengths rounded up to {multiple}", "Rows in "
             "memory are rounded up, too: no guard is needed.", rounded, rounded, cut(rounded),
             given, {"starts": wide}),
        Step("partitioned", f"partition(j, {multiple})", "Whole tiles without guards, and a loop "
             "over the rest.", s, s, cut(s), given, offsets, s // multiple * multiple),
        Step("fused", "fuse(i, j)", "One loop over all rows: threads get equally many of them.",
             s, s, equal, given, {**offsets, "segment ids": ids}),
        Step("longest first", 'remap(i, "order")', "Sequences are run longest first, and dealt out "
             "to the threads in turn.", s, s, dealt, falling, {**offsets, **orders}),
        Step("balanced", "balance(i, j)", "Each thread has an equal part of the work, and begins "
             "and ends within sequences. So are loops that are scheduled without search.",
             s, s, balanced, given, offsets),
    ]  # fmt: skip


def _work(lengths: Array, quadratic: bool) -> int:
    """The work of sequences; where it is quadratic, padded rows see padded ones."""
    return int((lengths * lengths if quadratic else lengths).sum())


def _shown(step: Step, s: Array, row_bytes: int, quadratic: bool) -> dict[str, Any]:
    """A step as the page shows it."""
    done, needed, held = _work(step.runs, quadratic), _work(s, quadratic), int(step.holds.sum())
    busiest = int(step.threads.max())
    drawn = step.order[step.order < MOST_SEQUENCES]
    return {
        "name": step.name, "primitive": step.primitive, "says": step.says,
        "runs": step.runs[:MOST_SEQUENCES].tolist(), "holds": step.holds[:MOST_SEQUENCES].tolist(),
        "whole": None if step.whole is None else step.whole[:MOST_SEQUENCES].tolist(),
        "order": drawn.tolist(), "loads": step.threads.tolist(), "done": done, "needed": needed,
        "bytes": held * row_bytes, "needed_bytes": int(s.sum()) * row_bytes,
        "balance": int(step.threads.sum()) / (busiest * len(step.threads)) if busiest else 1.0,
        "prelude": [
            {"name": name, "count": len(a), "bytes": 4 * len(a), "first": a[:MOST_NUMBERS].tolist()}
            for name, a in step.prelude.items()
        ],
    }  # fmt: skip


def _text(state: dict[str, Any], s: Array) -> str:
    """The steps as a table."""
    lines = [f"{counted(len(s), 'sequence')}, {s.sum()} rows, the longest has {s.max()}"]
    for step in state["steps"]:
        wasted = step["done"] - step["needed"]
        lines.append(
            f"{step['name']:14}  {step['done']} of work, {wasted} wasted; {step['bytes']} bytes, "
            f"{step['bytes'] - step['needed_bytes']} wasted; threads {step['loads']}"
        )
    return "\n".join(lines)
