"""Many sequences at once: relaxlab in batches and one by one, and llama.cpp, taking turns.

    .venv/bin/python -m benchmarks.bench_batch            a few minutes
    .venv/bin/python -m benchmarks.bench_batch --quick    one short round, to see that it works

Tokens per second of all sequences together, medians and quartiles over the rounds.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.bench_llm import PAUSE_S, say
from benchmarks.process import Worker, WorkerFailed
from benchmarks.rows import BENCH, CORE
from relaxlab.models.gguf import read_gguf
from relaxlab.models.loader import NAMED

LATEST = Path(__file__).with_name("results") / "latest-batch.json"
PEERS: dict[str, tuple[Path, str, dict[str, Any]]] = {
    "relaxlab q8": (CORE, "RelaxlabBatches", {"activations": "q8"}),
    "relaxlab q8, one by one": (CORE, "RelaxlabOneByOne", {"activations": "q8"}),
    "llama.cpp": (BENCH, "LlamaCppBatches", {}),
    "llama.cpp, flash": (BENCH, "LlamaCppBatches", {"flash": True}),
}


@dataclass(frozen=True, slots=True)
class Settings:
    """Each of `batches` prompts has about `prompt` tokens, no two of the same length where there
    are several; `steps` tokens follow."""

    model: str
    threads: int
    rounds: int = 5
    prompt: int = 64
    steps: int = 32
    batches: tuple[int, ...] = (1, 4, 16, 32)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 1 if a peer failed."""
    parser = argparse.ArgumentParser(prog="benchmarks.bench_batch")
    parser.add_argument("--model", default="smollm2-135m", help="a name or a GGUF file")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=list(PEERS), help="only these")
    parser.add_argument("--output", type=Path, default=LATEST, help="where the JSON goes")
    options = parser.parse_args(arguments)
    settings = Settings(options.model, options.threads, options.rounds)
    if options.quick:
        settings = Settings(options.model, options.threads, 1, 6, 2, (1, 3))
    result = run(settings, options.only or list(PEERS))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    print(render(result))
    say(f"written: {options.output}")
    return int(any("error" in found for found in result["peers"].values()))


def run(settings: Settings, names: Sequence[str]) -> dict[str, Any]:
    """Everything, as one JSON object."""
    model = NAMED[settings.model]() if settings.model in NAMED else Path(settings.model)
    vocabulary = len(read_gguf(model).metadata["tokenizer.ggml.tokens"])
    results: dict[str, dict[str, Any]] = {name: {} for name in names}
    workers: dict[str, Worker] = {}
    busy: list[float] = []
    rng = random.Random(0)
    with ExitStack() as stack:
        for name in names:
            python, worker, options = PEERS[name]
            say(f"{name}: start")
            try:
                given = {"model": str(model), "threads": settings.threads, **options}
                workers[name] = Worker(python, worker, given)
                stack.callback(workers[name].close)
                results[name]["about"] = workers[name].about
            except WorkerFailed as error:
                results[name]["error"] = str(error)
        order = list(workers)
        for number in range(settings.rounds):
            say(f"round {number + 1} of {settings.rounds}")
            for batch in settings.batches:
                lengths = [max(1, settings.prompt + i - batch // 2) for i in range(batch)]
                prompts = [[rng.randrange(3, vocabulary) for _ in range(n)] for n in lengths]
                for name in order:
                    busy.append(machine.busy_cores(lambda: time.sleep(PAUSE_S))[0])
                    turn = _turn(workers[name], prompts, settings.steps)
                    results[name].setdefault("turns", {}).setdefault(str(batch), []).append(turn)
            order = [*order[1:], order[0]]  # nobody always follows the same other
    return {
        "machine": machine.describe(),
        "settings": asdict(settings),
        "busy_cores": busy,
        "peers": results,
    }


def _turn(worker: Worker, prompts: list[list[int]], steps: int) -> dict[str, float]:
    worker.ask("generate_batch", prompts=[p[:4] for p in prompts[:1]], steps=1)  # awake again
    answer = worker.ask("generate_batch", prompts=prompts, steps=steps)
    return {
        "decode_tok_s": len(prompts) * steps / answer["decode_s"],
        "prefill_tok_s": sum(map(len, prompts)) / answer["prefill_s"],
    }


def render(result: dict[str, Any]) -> str:
    """The table."""
    batches = [str(b) for b in result["settings"]["batches"]]
    busy = statistics.median(result["busy_cores"])
    lines = [
        f"{result['machine']['cpu']}, {result['settings']['threads']} threads, "
        f"busy with other things: {busy:.2f} cores",
    ]
    for figure in ("decode_tok_s", "prefill_tok_s"):
        lines += ["", f"{figure:28}" + "".join(f"{'batch ' + b:>20}" for b in batches)]
        for name, found in result["peers"].items():
            if "error" in found:
                lines.append(f"{name:28}  failed: {found['error'].splitlines()[0]}")
                continue
            cells = [_cell([t[figure] for t in found["turns"][b]]) for b in batches]
            lines.append(f"{name:28}" + "".join(f"{c:>20}" for c in cells))
    return "\n".join(lines)


def _cell(values: list[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:.0f}"
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.0f} ({low:.0f}-{high:.0f})"


if __name__ == "__main__":
    sys.exit(main())
