"""The gain from CUDA graphs, fusion, memory planning and versions on a GPU: each switched off
alone, for steps and prompts of Llama-3-8B's sizes, like the paper's Figure 17.

    python -m benchmarks.bench_gpu_ablation --layers 4 --out build/gpu

It needs PyTorch, CuPy and a GPU in the Python that runs it. Lines of `ablation.jsonl` are written
as they are measured. See README.md in this folder.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.bench_gpu_models import PROMPT, ROUNDS, STEPS, seconds_of
from benchmarks.variants import VARIANTS

GRAPHS = "without CUDA graphs"
OF_PROCESSORS = ("without replicated small kernels", "with library calls (OpenBLAS)")
"""Variants that change nothing on a GPU."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 1 if a variant failed."""
    options = _options(arguments)
    # Here, so that the arguments of a machine without PyTorch or a GPU are still checked.
    from benchmarks.gpu.decoder import configuration
    from benchmarks.gpu.llama import Ours

    begin, failed = time.monotonic(), False
    options.out.mkdir(parents=True, exist_ok=True)
    config, whole = configuration(options.layers), dict[str, float]()
    with open(options.out / "ablation.jsonl", "w", encoding="utf-8") as file:
        for name in (*(v for v in VARIANTS if v not in OF_PROCESSORS), GRAPHS):
            case = f"{options.layers} layers, {name}"
            if time.monotonic() - begin > options.seconds:
                row: dict[str, Any] = {"case": case, "error": "the time was over"}
            else:
                try:
                    ours = Ours(config, 1, variant=VARIANTS.get(name))
                    row = {"case": case, "compile_s": ours.seconds_to_compile}
                    row |= _measured(ours, name != GRAPHS, config.vocab_size)
                    whole = whole or row["us"]
                    row["of_everything"] = {n: whole[n] / t for n, t in row["us"].items()}
                    print(_text(row), flush=True)
                except Exception as error:  # the other variants are measured all the same
                    failed = True
                    row = {"case": case, "error": traceback.format_exc()}
                    print(f"{case}: {type(error).__name__}: {str(error)[:300]}", flush=True)
            file.write(json.dumps(row) + "\n")
            file.flush()
    return int(failed)


def _measured(ours: Any, graphs: bool, vocabulary: int) -> dict[str, Any]:
    """Medians of the microseconds of a prompt and of a step behind it."""
    import torch

    call = ours.decoder(graphs)
    ids = torch.randint(0, vocabulary, (1, PROMPT + STEPS), device="cuda").int()
    prompt, rest = ids[:, :PROMPT].contiguous(), ids[:, PROMPT:]
    steps = [rest[:, i : i + 1].contiguous() for i in range(STEPS)]

    def decode() -> None:
        for i, step in enumerate(steps):
            call(step, PROMPT + i)

    call(prompt, 0)
    decode()  # captures graphs
    prompts, decoded = list[float](), list[float]()
    for _ in range(ROUNDS):
        prompts.append(seconds_of(lambda: call(prompt, 0)))
        decoded.append(seconds_of(decode) / STEPS)
    medians = {"prompt": statistics.median(prompts), "step": statistics.median(decoded)}
    return {"us": {n: t * 1e6 for n, t in medians.items()}}


def _text(row: Mapping[str, Any]) -> str:
    parts = (
        f"{n} {t:.0f} us ({row['of_everything'][n]:.2f} of everything's speed)"
        for n, t in row["us"].items()
    )
    return f"{row['case']:48} {'; '.join(parts)}"


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=600, help="start no variant after so long")
    parser.add_argument("--out", type=Path, default=Path("build/gpu"), help="folder of the results")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
