"""The machine, how busy it is with other things, and the state of the source."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.process import ROOT

Result = TypeVar("Result")


def describe() -> dict[str, Any]:
    """Processor, cores, memory, system, interpreter, date, and the commit that is measured."""
    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "cpu": _first("/proc/cpuinfo", "model name"),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(int(_first("/proc/meminfo", "MemTotal").split()[0]) * 1024 / 1e9, 1),
        "large_pages": _large_pages(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "commit": _commit(),
    }


def _first(file: str, key: str) -> str:
    for line in Path(file).read_text("utf-8").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return ""


def _large_pages() -> str:
    """Return whether the system grants large pages: always, madvise or never."""
    file = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not file.exists():
        return "unknown"
    return file.read_text("ascii").partition("[")[2].partition("]")[0]


def _commit() -> str:
    def git(*words: str) -> str:
        run = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
        return run.stdout.strip()

    try:
        changed = git("status", "--porcelain", "relaxlab", "benchmarks")
        return git("rev-parse", "--short", "HEAD") + (" with changes" if changed else "")
    except FileNotFoundError:
        return "unknown"


def busy_cores(during: Callable[[], Result]) -> tuple[float, Result]:
    """Return the number of cores that all processes together kept busy while `during` ran, and its
    result. While it only sleeps that is what others take from a measurement, the host's share
    included."""
    before, start = _busy_seconds(), time.monotonic()
    result = during()
    return (_busy_seconds() - before) / (time.monotonic() - start), result


def _busy_seconds() -> float:
    """Seconds that all cores were busy since the start, or were taken by the host."""
    cpu = Path("/proc/stat").read_text("ascii").splitlines()[0].split()[1:]
    user, nice, system, _, _, irq, softirq, steal = (int(field) for field in cpu[:8])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
