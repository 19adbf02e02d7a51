"""Allocations of memory by a compiled model once it has started, counted natively."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.process import ROOT, output_of

LENGTHS = (5, 64, 17, 40, 1)
STEPS = 8


def measure() -> dict[str, Any] | None:
    """Calls of compiled functions of the tiny model after the first ones, and the allocations in
    them: all, and those that are not for a result. None without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory(prefix="relaxlab-bench-") as folder:
        library = str(Path(folder) / "allocations.so")
        source = str(Path(__file__).with_name("allocations.c"))
        output_of([compiler, "-O2", "-shared", "-fPIC", source, "-o", library, "-ldl"])
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.allocations", library],
            cwd=ROOT, env={**os.environ, "LD_PRELOAD": library}, check=True,
            capture_output=True, text=True,
        )  # fmt: skip
    return json.loads(done.stdout)


def main() -> None:
    from relaxlab.models.generate import TextGenerator

    library = ctypes.CDLL(sys.argv[1])
    count = ctypes.c_long.in_dll(library, "aligned_alloc_calls")
    generator = TextGenerator.load("tiny")
    for ids in ([3, 4, 5, 6], [7, 8]):  # prefill and decode have run after these
        generator.reset()
        generator.logits(ids[:-1])
        generator.logits(ids)
    before, calls = count.value, 0
    for length in LENGTHS:
        generator.reset()
        for end in range(length, length + STEPS):
            generator.logits(list(range(3, 3 + end)))
            calls += 1
    found = count.value - before
    json.dump({"calls": calls, "all": found, "besides": found - calls}, sys.stdout)


if __name__ == "__main__":
    main()
