"""Checks of lesson 14, sequences of different lengths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from relaxlab.lab.verdict import Hint, exercise, value_of


def _batches(count: int) -> list[list[int]]:
    """Lengths with zeros, with one long sequence, all equal, and at random."""
    random = Random(14)
    drawn = [[random.randint(0, 60) for _ in range(random.randint(2, 9))] for _ in range(count)]
    return [[3, 1, 2], [4, 0, 0, 5], [1, 1, 40], [7, 7, 7], *drawn]


@exercise
def prelude(answer: Callable[[list[int]], tuple[list[int], list[int]]]) -> str:
    """Prefix sums and the sequence of each row."""
    for lengths in _batches(6):
        got = value_of(answer, list(lengths))
        if not isinstance(got, list) or [type(part) for part in got] != [list, list]:
            raise Hint(f"return two lists, the starts and the sequences of rows, not {got!r}")
        starts, segments = got
        want = [sum(lengths[:i]) for i in range(len(lengths) + 1)]
        if starts != want:
            raise Hint(
                f"for the lengths {lengths} the starts are {want}, not {starts}: a sequence begins "
                "where the one before it ends"
            )
        owners = [i for i, n in enumerate(lengths) for _ in range(n)]
        if segments != owners:
            raise Hint(f"for the lengths {lengths} the rows belong to {owners}, not {segments}")
    return "two passes over the lengths, and every row is found without a search."


@exercise
def largest_multiple(answer: Callable[[list[int], float], int]) -> str:
    """The largest tile that wastes at most a share of the rows."""
    for lengths in _batches(6):
        for share in (0.05, 0.25, 0.5):
            padded = {m: sum(-(-n // m) * m for n in lengths) for m in (1, 2, 4, 8, 16, 32, 64)}
            allowed = [m for m, p in padded.items() if p - sum(lengths) <= share * p]
            got, want = value_of(answer, list(lengths), share), max(allowed)
            if got == want:
                continue
            if got not in list(padded):
                raise Hint(f"a multiple is a power of two up to 64, not {got!r}")
            wasted = {m: 1 - sum(lengths) / p for m, p in padded.items()}
            raise Hint(
                f"for the lengths {lengths} and a share of {share} it is {want} (of whose rows "
                f"{wasted[want]:.0%} are padding), not {got} ({wasted[got]:.0%} would be padding)"
            )
    return "the padding that is worth its tile depends on the lengths."


def busiest(lengths: Sequence[int], chosen: Sequence[int], threads: int) -> int:
    """The work of the thread that has most."""
    loads = [0] * threads
    for n, thread in zip(lengths, chosen, strict=True):
        loads[thread] += n * n
    return max(loads)


@exercise
def deal(answer: Callable[[list[int], int], list[int]]) -> str:
    """Longest first, to the thread that has least to do (Graham's rule)."""
    for lengths in _batches(8):
        for threads in (2, 3):
            loads, rule = [0] * threads, [0] * len(lengths)
            for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
                rule[i] = loads.index(min(loads))
                loads[rule[i]] += lengths[i] ** 2
            got = value_of(answer, list(lengths), threads)
            if len(got) != len(lengths) or any(t not in range(threads) for t in got):
                raise Hint(f"return a thread from 0 to {threads - 1} for each sequence, not {got}")
            most, enough = busiest(lengths, got, threads), busiest(lengths, rule, threads)
            if most > enough:
                raise Hint(
                    f"for the lengths {lengths} and {threads} threads the busiest one has {most} "
                    f"to do; {enough} will do: long sequences first, each to the idlest thread"
                )
    return "no thread has much more to do than another one."
