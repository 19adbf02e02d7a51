"""Random programs in processes of their own: a crash is a failure of the program that ran."""

from __future__ import annotations

import multiprocessing
import os
import queue
import time
from collections import Counter
from typing import Any

from relaxlab.testing.batch_check import BatchFailure
from relaxlab.testing.fuzz_program import Counts, Failure, run_programs
from relaxlab.testing.table_programs import Attributes

SILENCE = 60.0
"""Seconds between two lines about the rate."""
BATCH = 10
"""Programs after which a process reports its counts."""


def _work(
    first: int, step: int, end: int, until: float, shrink: bool, reports: Any, now: Any
) -> None:
    """Run the programs `first`, `first + step`, … and put their results into `reports`; `now` is
    the seed of the program that runs."""

    def report(failure: Failure | BatchFailure) -> None:
        reports.put(("failure", str(failure)))

    seeds, parent = iter(range(first, end, step)), os.getppid()
    done = False
    while not done:
        counts, drawn = Counts(), Attributes()
        for _ in range(BATCH):
            seed = next(seeds, None)
            if seed is None or time.time() > until or os.getppid() != parent:
                done = True
                break
            now.value = seed
            run_programs((seed,), report, counts, drawn, shrink=shrink)
        reports.put(("counts", (counts.run, counts.failed, counts.unusable, drawn)))
    now.value = -1


def run_jobs(
    seed: int, programs: int, seconds: float, jobs: int, shrink: bool
) -> tuple[Counts, Attributes]:
    """Run programs, from a seed on, in several processes; print failures and, once a minute at
    most, the rate. A process that dies counts as a failure of its program, and is replaced."""
    context = multiprocessing.get_context("spawn")
    start, reports = time.time(), context.Queue()
    end, until = seed + programs, time.time() + seconds
    total, drawn = Counts(), Attributes()
    seeds = [context.Value("q", -1) for _ in range(jobs)]

    def started(first: int, job: int) -> Any:
        now = seeds[job]
        now.value = first
        process = context.Process(
            target=_work, args=(first, jobs, end, until, shrink, reports, now), daemon=True
        )
        process.start()
        return process

    running = [started(seed + job, job) for job in range(jobs)]
    reported = start
    while any(p.is_alive() for p in running) or not reports.empty():
        _take(reports, total, drawn)
        for job, process in enumerate(running):
            if process.is_alive() or not process.exitcode:
                continue
            total.failed += 1
            at = seeds[job].value
            print(f"seed {at}: the process died (exit code {process.exitcode})", flush=True)
            running[job] = started(at + jobs, job)
        if time.time() - reported > SILENCE:
            reported = time.time()
            _say(seed, total, reported - start)
    _say(seed, total, time.time() - start)
    return total, drawn


def _take(reports: Any, total: Counts, drawn: Counter[Any]) -> None:
    """Add the next report of a process, if one arrives within 0.2 s."""
    try:
        kind, value = reports.get(timeout=0.2)
    except queue.Empty:
        return
    if kind == "failure":
        print(value, flush=True)
        return
    total.run += value[0]
    total.failed += value[1]
    total.unusable += value[2]
    drawn.update(value[3])


def _say(seed: int, total: Counts, took: float) -> None:
    print(f"{total.run} programs from seed {seed}: {total.run / max(took, 1e-9):.2f} a second, "
          f"{total.failed} failed, {total.unusable} accepted no arguments", flush=True)  # fmt: skip
