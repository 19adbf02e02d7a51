"""Run random programs over the whole operator table against NumPy, for as long as one likes:

    python -m relaxlab.testing.fuzz --seconds 600 --jobs 2
    python -m relaxlab.testing.fuzz --programs 1 --seed 7

Each program is interpreted as it was made, operators by their NumPy references, and compiled, every
third one as a debug build, every fifth one with random schedules of its kernels, most of them
without LLVM's optimiser; one compilation is called with several sizes of its symbols. The schedules
that every seventh one's kernels have on CPUs and on GPUs are replayed from their JSON. Every
eleventh one is another kind: recursive functions over data types, run in batches. A program
that fails is made smaller and printed with its seed. `--reference torch` draws calls for the NumPy
references alone, and compares them with PyTorch.
"""

from __future__ import annotations

import argparse
import math
import sys

import numpy as np

from relaxlab.testing.draw_rules import RULES
from relaxlab.testing.fuzz_jobs import run_jobs
from relaxlab.testing.table_programs import Attributes
from relaxlab.testing.torch_reference import compare_references


def coverage(drawn: Attributes) -> str:
    """A line per operator: how often it was drawn, and each value of its attributes."""
    lines: list[str] = []
    for op in sorted({name for name, _, _ in drawn}):
        parts = [f"{op} {drawn[op, '', '']}"]
        for attr in sorted({a for o, a, _ in drawn if o == op and a}):
            values = {v: n for (o, a, v), n in drawn.items() if (o, a) == (op, attr)}
            shown = ", ".join(f"{v}: {n}" for v, n in sorted(values.items()))
            parts.append(f"  {attr}: {shown}")
        lines += parts
    return "\n".join(lines)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m relaxlab.testing.fuzz", description=__doc__)
    parser.add_argument("--programs", type=int, default=None, help="at most so many (100)")
    parser.add_argument("--seconds", type=float, default=None, help="for so long")
    parser.add_argument("--seed", type=int, default=None, help="of the first; the others follow")
    parser.add_argument("--jobs", type=int, default=1, help="processes (1)")
    parser.add_argument("--no-shrink", action="store_true", help="print failing programs whole")
    parser.add_argument("--coverage", action="store_true", help="print how often what was drawn")
    parser.add_argument("--reference", choices=("torch",), help="compare the references with it")
    options = parser.parse_args()
    seed = options.seed
    if seed is None:
        seed = int(np.random.default_rng().integers(1 << 31))
    programs = options.programs
    if programs is None:
        programs = 100 if options.seconds is None else 1 << 40
    print(f"first seed {seed}", flush=True)
    if options.reference is not None:
        problems, taken = compare_references(seed, -(-programs // len(RULES)))
        print("\n".join(problems), f"{sum(taken.values())} calls, {len(problems)} differ", sep="\n")
        return 1 if problems else 0
    counts, drawn = run_jobs(
        seed, programs, options.seconds or math.inf, options.jobs, not options.no_shrink
    )
    if options.coverage:
        print(coverage(drawn))
    return 1 if counts.failed else 0


if __name__ == "__main__":
    sys.exit(main())
