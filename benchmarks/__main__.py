"""All benchmarks, or those named: `python -m benchmarks gemm chains --quick`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

NAMES = (
    "gemm", "chains", "attention", "ragged", "shapes", "symbols", "operators", "memory", "ablation",
    "llm", "batch", "dynamic", "policies", "start", "frontend",
)  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """Run the named benchmarks in order; arguments from the first option on go to each of them.
    Returns 1 if any failed, 2 for an unknown name."""
    first = next((i for i, a in enumerate(arguments) if a.startswith("-")), len(arguments))
    names, options = arguments[:first] or NAMES, arguments[first:]
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        known = ", ".join(NAMES)
        print(f"no benchmark is called {unknown[0]}; there are: {known}", file=sys.stderr)
        return 2
    failed = False
    for name in names:
        print(f"\n=== {name} ===\n", flush=True)
        failed |= bool(import_module(f"benchmarks.bench_{name}").main(options))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
