"""Models of PyTorch, imported and compiled once for all sizes, against `torch.compile`.

    .venv/bin/python -m benchmarks.bench_frontend --only llama resnet

See README.md in this folder for what is measured.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import machine
from benchmarks.kernels.race import PAUSE_S, REFERENCE, Settings, environment, say
from benchmarks.kernels.table import Aim, aims_text
from benchmarks.process import Worker
from benchmarks.report import Spread, heading, table

OURS, THEIRS = "relaxlab", "torch.compile"
PEERS = {OURS: "ImportedModels", THEIRS: "CompiledModels"}
MODELS = ("llama", "qwen2", "bert", "t5", "vit", "whisper", "convnext", "resnet")
SIZES = ("2 x 5", "1 x 17", "3 x 40")
TOLERANCE, MEAN = 1e-4, 1.2
"""The largest difference, relative to the largest result; the aim for the mean of the ratios."""
RESULTS = Path(__file__).with_name("results") / "latest-frontend.json"


def measure(
    names: Sequence[str], rounds: int, seconds: float, threads: int, folder: Path
) -> dict[str, Any]:
    """Times of each model at each size, one per round of each peer."""
    started, busy, cases = time.monotonic(), list[float](), list[dict[str, Any]]()
    variables = environment(Settings(threads, fresh=False), folder)
    with ExitStack() as stack:
        workers: dict[str, Worker] = {}
        for name, peer in PEERS.items():
            workers[name] = Worker(REFERENCE, peer, {"threads": threads}, variables)
            stack.callback(workers[name].close)
        for model in names:
            say(model)
            compile_s = _prepared(workers, model, folder)
            sizes = [f"{model} {size}" for size in SIZES]
            times: dict[str, dict[str, list[float]]] = {s: {p: [] for p in PEERS} for s in sizes}
            for number in range(rounds):
                for peer in list(PEERS)[:: 1 if number % 2 else -1]:
                    busy.append(machine.busy_cores(lambda: time.sleep(PAUSE_S))[0])
                    answer = workers[peer].ask("time", names=sizes, seconds=seconds)
                    for size, value in answer.items():
                        times[size][peer].append(value)
            cases += [{"name": s, "peers": times[s], "compile_s": compile_s} for s in sizes]
            for worker in workers.values():
                worker.ask("forget")
        about = {name: worker.about for name, worker in workers.items()}
    return {
        "machine": machine.describe(), "peers": about, "cases": cases, "busy_cores": busy,
        "settings": {"threads": threads, "rounds": rounds, "seconds": time.monotonic() - started},
    }  # fmt: skip


def _prepared(workers: Mapping[str, Worker], model: str, folder: Path) -> dict[str, float]:
    """The seconds of export, compilation and first calls. RuntimeError where results differ."""
    seconds: dict[str, float] = {}
    found: list[np.ndarray] = []
    for name, worker in workers.items():
        file = folder / f"{name}.npy"
        seconds[name] = worker.ask("prepare", case=model, file=str(file))["compile_s"]
        found.append(np.load(file))
    error = float(np.abs(found[0] - found[1]).max() / np.abs(found[1]).max())
    if not error < TOLERANCE:
        raise RuntimeError(f"{model}: the peers' results differ by {error:.1e}")
    return seconds


def ratio(case: Mapping[str, Any]) -> Spread:
    """The speed in relation to `torch.compile`, of the same round."""
    pairs = zip(case["peers"][OURS], case["peers"][THEIRS], strict=True)
    return Spread.of([theirs / ours for ours, theirs in pairs])


def aims(result: Mapping[str, Any]) -> Iterator[Aim]:
    mean = statistics.geometric_mean([ratio(c).median for c in result["cases"]])
    yield f"{MEAN} times the speed of {THEIRS}, geometric mean", f"{mean:.2f}", mean >= MEAN


def render(result: Mapping[str, Any]) -> str:
    """The table of all models and sizes."""
    s = result["settings"]
    versions = ", ".join(f"{n} {about['version']}" for n, about in result["peers"].items())
    measured = f"{s['threads']} threads; {s['rounds']} rounds; {versions}"
    rows = [
        [
            case["name"], f"{ratio(case).text(2)}x",
            *(f"{statistics.median(case['peers'][p]) * 1e6:.0f}" for p in PEERS),
            *(f"{case['compile_s'][p]:.1f}" for p in PEERS),
        ]
        for case in result["cases"]
    ]  # fmt: skip
    title = ["model, batch x length", "speed", *(f"{p} us" for p in PEERS),
             *(f"{p} compiles, s" for p in PEERS)]  # fmt: skip
    head = heading(result, measured, result["busy_cores"], s["seconds"])
    return "\n\n".join([head, table(title, rows), aims_text(aims(result))])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark, print its table, and keep its results. Returns 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="one model, two short rounds")
    chosen = parser.parse_args(arguments)
    names, rounds, seconds = chosen.only, 7, 0.3
    if chosen.quick:
        names, rounds, seconds = names[:1], 2, 0.05
    with tempfile.TemporaryDirectory(prefix="relaxlab-bench-") as folder:
        result = measure(names, rounds, seconds, chosen.threads, Path(folder))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    print(render(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
