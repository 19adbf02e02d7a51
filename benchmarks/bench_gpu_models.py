"""Llama-3-8B on a GPU against transformers, eager and compiled.

    python -m benchmarks.bench_gpu_models --layers 8 --batches 1 4 16 --out build/gpu

It needs transformers, PyTorch, CuPy and a GPU in the Python that runs it. Lines of `models.jsonl`
are written as they are measured. See README.md in this folder.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

PROMPT, STEPS, ROUNDS = 1024, 16, 5
OURS = ("relaxlab", "no graphs")
"""Steps as CUDA graphs, and launched one by one."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 1 if a part failed."""
    options = _options(arguments)
    # Here, so that the arguments of a machine without PyTorch or a GPU are still checked.
    from benchmarks.gpu import llama, timing
    from benchmarks.gpu.decoder import configuration

    begin, failed = time.monotonic(), False
    options.out.mkdir(parents=True, exist_ok=True)
    config = configuration(options.layers)
    copy = timing.copy_bandwidth()
    peer = llama.Peer(config)
    with open(options.out / "models.jsonl", "w", encoding="utf-8") as file:

        def write(line: Mapping[str, Any]) -> None:
            file.write(json.dumps(line) + "\n")
            file.flush()

        for batch in options.batches:
            for format in options.formats:
                case = f"{options.layers} layers, batch {batch}, {format}"
                if time.monotonic() - begin > options.seconds:
                    write({"case": case, "error": "the time was over"})
                    continue
                try:
                    row = _measured(case, config, batch, format, peer, options.eager)
                    row["share_of_bandwidth"] = (
                        row["floor_bytes"] / copy / row["decode"]["relaxlab"]
                    )
                    print(_text(row), flush=True)
                except Exception as error:  # the other cases are measured all the same
                    failed = True
                    row = {"case": case, "error": traceback.format_exc()}
                    print(f"{case}: {type(error).__name__}: {str(error)[:300]}", flush=True)
                write(row)
    return int(failed)


def _measured(
    case: str, config: Any, batch: int, format: str, peer: Any, eager: bool
) -> dict[str, Any]:
    """Seconds of a prompt and of a step of each, and the difference of the logits."""
    import torch

    from benchmarks.gpu import llama

    model = peer.model if format == "BF16" else None
    ours = llama.Ours(config, batch, model, format)
    peers = {
        "relaxlab": ours.decoder(True),
        "no graphs": ours.decoder(False),
        "eager": peer.decoder(False, batch),
    }
    if not eager:
        peers["compiled"] = peer.decoder(True, batch)
    generator = torch.Generator("cuda").manual_seed(1)
    ids = torch.randint(
        0, config.vocab_size, (batch, PROMPT + STEPS), generator=generator, device="cuda"
    ).int()
    logits: dict[str, list[Any]] = {name: [] for name in peers}
    failed: dict[str, str] = {}
    for name, call in peers.items():  # compiles, and shows whether they agree
        given = ids if name in OURS else ids.long()
        try:
            logits[name].append(call(given[:, :PROMPT].contiguous(), 0).float().clone())
            for at in range(PROMPT, PROMPT + 4):
                logits[name].append(call(given[:, at : at + 1].contiguous(), at).float().clone())
        except Exception:
            if name in OURS:
                raise
            failed[name] = traceback.format_exc()  # the others are measured without it
            print(f"{name}: {failed[name].strip().splitlines()[-1][:200]}", flush=True)
    peers = {name: call for name, call in peers.items() if name not in failed}
    errors = [
        float((a - b).norm() / b.norm())
        for a, b in zip(logits["relaxlab"], logits["eager"], strict=True)
    ]
    prefill: dict[str, list[float]] = {name: [] for name in peers}
    decode: dict[str, list[float]] = {name: [] for name in peers}
    for _ in range(ROUNDS):
        for name, call in peers.items():
            given = ids if name in OURS else ids.long()
            prompt, steps = given[:, :PROMPT].contiguous(), given[:, PROMPT:].contiguous()
            parts = [steps[:, i : i + 1].contiguous() for i in range(STEPS)]
            prefill[name].append(seconds_of(lambda c=call, p=prompt: c(p, 0)))

            def run(c: Callable[..., Any] = call, parts: Sequence[Any] = parts) -> None:
                for i, part in enumerate(parts):
                    c(part, PROMPT + i)

            decode[name].append(seconds_of(run) / STEPS)
    row: dict[str, Any] = {
        "case": case,
        "prefill": {n: statistics.median(t) for n, t in prefill.items()},
        "decode": {n: statistics.median(t) for n, t in decode.items()},
        "rounds": {"prefill": prefill, "decode": decode},
        "floor_bytes": ours.bytes_per_token,
        "seconds_to_compile": ours.seconds_to_compile,
        "failed": failed,
        # Only with the same weights do logits compare.
        "logits_off_by": errors if format == "BF16" else None,
    }
    return row


def seconds_of(call: Callable[[], Any]) -> float:
    """Seconds of a call, until the GPU has done what it asks for."""
    import torch

    torch.cuda.synchronize()
    begin = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return time.perf_counter() - begin


def _text(row: Mapping[str, Any]) -> str:
    lines = [row["case"]]
    for what in ("decode", "prefill"):
        mine = row[what]["relaxlab"]
        times = "; ".join(f"{n} {t * 1e3:.2f} ms ({t / mine:.2f}x)" for n, t in row[what].items())
        lines.append(f"  {what:8} {times}")
    lines.append(
        f"  decoding reads weights at {row['share_of_bandwidth']:.2f} of the copy bandwidth"
    )
    if row["logits_off_by"]:
        lines.append(f"  logits differ by {max(row['logits_off_by']):.1e}")
    return "\n".join(lines)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--batches", type=int, nargs="*", default=(1, 4, 16))
    parser.add_argument("--formats", nargs="*", default=("BF16", "Q4_0"))
    parser.add_argument("--eager", action="store_true", help="leave torch.compile out")
    parser.add_argument("--seconds", type=float, default=600, help="start no case after so long")
    parser.add_argument("--out", type=Path, default=Path("build/gpu"), help="folder of the results")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
