"""Kernels on a GPU against PyTorch, eager and compiled, and the limits of the device.

    python -m benchmarks.bench_gpu --seconds 200 --only matmul softmax --out build/gpu

It needs PyTorch, CuPy and a GPU in the Python that runs it. Each line of the table is also a line
of `kernels.jsonl`, written as soon as it is measured. See README.md in this folder.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

COMPILED_GROUPS = ("elementwise", "rows", "reductions")
"""Groups of which `torch.compile` makes kernels of its own; it leaves products to libraries."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 1 if a case failed."""
    options = _options(arguments)
    # Here, so that the arguments of a machine without PyTorch or a GPU are still checked.
    from benchmarks.gpu import timing
    from benchmarks.gpu.cases import cases

    begin, failed = time.monotonic(), False
    limits = {"copy": timing.copy_bandwidth(), "product": timing.product_rate()}
    options.out.mkdir(parents=True, exist_ok=True)
    with open(options.out / "kernels.jsonl", "w", encoding="utf-8") as file:

        def write(line: Mapping[str, Any]) -> None:
            file.write(json.dumps(line) + "\n")
            file.flush()

        write({"device": _device(), "limits": limits})
        print(
            f"{_device()}: copies {limits['copy'] / 1e9:.0f} GB/s, "
            f"products {limits['product'] / 1e12:.0f} TFLOP/s"
        )
        print(f"{'case':44} {'eager':>6} {'comp.':>6} {'limit':>6}   us (quartiles)")
        for case in cases():
            if options.only and not any(text in case.name for text in options.only):
                continue
            if time.monotonic() - begin > options.seconds:
                write({"case": case.name, "error": "the time was over"})
                print(f"{case.name:44} the time was over")
                continue
            try:
                row = measured(case, limits, compiled=not options.eager)
                print(_text(row), flush=True)
            except Exception as error:  # one kernel's failure must not lose the others' results
                failed = True
                row = {"case": case.name, "error": traceback.format_exc()}
                print(f"{case.name:44} {type(error).__name__}: {str(error)[:200]}", flush=True)
            write(row)
    return int(failed)


def measured(case: Any, limits: Mapping[str, float], compiled: bool) -> dict[str, Any]:
    """Check and time one case. Raises AssertionError for a result that is too far from PyTorch's
    in float64."""
    import torch

    import relaxlab as rl
    from benchmarks.gpu.predictions import recorded
    from benchmarks.gpu.timing import COLD_BYTES, Captured, race

    begin = time.monotonic()
    main = rl.compile(case.module(), target="cuda")["main"]
    given = case.tensors(0)
    own = sum(t.nbytes for t in given)
    wide = case.for_peer(*(t.double() for t in given))
    error = _error(torch.from_dlpack(main(*given)), case.peer(*wide))
    assert error <= case.tolerance, f"the result is off by {error:.1e}"
    prepared = time.monotonic() - begin
    sets = [given, *(case.tensors(seed) for seed in range(1, -(-COLD_BYTES // own)))]
    functions: dict[str, Callable[..., Any]] = {"relaxlab": main, "eager": case.peer}
    if compiled and case.group in COMPILED_GROUPS:
        torch._dynamo.reset()
        functions["compiled"] = torch.compile(case.peer, dynamic=False)
    of_peer = [case.for_peer(*tensors) for tensors in sets]
    times = race({
        name: Captured(function, sets if function is main else of_peer)
        for name, function in functions.items()
    })  # fmt: skip
    ours = times["relaxlab"].median
    floor = max(case.bytes / limits["copy"], case.operations / limits["product"]) * 1e6
    ratios = {n: t.median / ours for n, t in times.items() if n != "relaxlab"}
    return {
        "case": case.name,
        "group": case.group,
        "us": {n: [t.median, t.low, t.high] for n, t in times.items()},
        "ratios": ratios,
        "share_of_limit": floor / ours,
        "predicted_us": recorded(case.name, _device()),
        "gb_s": case.bytes / ours / 1e3,
        "tflop_s": case.operations / ours / 1e6,
        "error": error,
        "seconds_to_prepare": prepared,
    }


def _error(got: Any, want: Any) -> float:
    """The norm of the difference in relation to the norm of `want`; infinite for NaN."""
    error = float((got.double() - want).norm() / want.norm())
    return error if error == error else float("inf")


def _text(row: Mapping[str, Any]) -> str:
    ratios = [
        f"{row['ratios'][n]:6.2f}" if n in row["ratios"] else " " * 6 for n in ("eager", "compiled")
    ]
    spread = "; ".join(
        f"{n} {m:.1f} ({low:.1f}-{high:.1f})" for n, (m, low, high) in row["us"].items()
    )
    if row["predicted_us"]:
        spread += f"; predicted {row['predicted_us']:.1f}"
    rate = f", {row['tflop_s']:.0f} TFLOP/s" if row["tflop_s"] else f", {row['gb_s']:.0f} GB/s"
    return f"{row['case']:44} {' '.join(ratios)} {row['share_of_limit']:6.2f}   {spread}{rate}"


def _device() -> str:
    import torch

    return torch.cuda.get_device_name()


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=600, help="start no case after so long")
    parser.add_argument(
        "--only", nargs="*", default=(), help="cases whose names contain these texts"
    )
    parser.add_argument("--eager", action="store_true", help="leave torch.compile out")
    parser.add_argument("--out", type=Path, default=Path("build/gpu"), help="folder of the results")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
