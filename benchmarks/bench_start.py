"""The whole process: from the command to the last of 64 tokens, with warm caches; and llama.cpp's.

    .venv/bin/python -m benchmarks.bench_start            a minute
    .venv/bin/python -m benchmarks.bench_start --quick    one round, to see that it works

Wall-clock and CPU seconds and peak memory of processes that take turns, the least of the rounds;
where the time goes inside of relaxlab's; and the peak of memory as a multiple of the file.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.bench_llm import say
from benchmarks.process import ROOT, output_of
from benchmarks.rows import BENCH, CORE
from relaxlab.models.loader import NAMED

LATEST = Path(__file__).with_name("results") / "latest-start.json"
PROMPT = "Why is the sky blue?"
TOKENS = 64

STAGES = """
import json, resource, sys, time
begin = time.perf_counter()
import relaxlab
package = time.perf_counter()
from relaxlab.models.generate import TextGenerator
from relaxlab.models.generation import CHUNK
from relaxlab.models.loader import open_model
from relaxlab.models.programs import program_for
from relaxlab.models.request import Request
imported = time.perf_counter()
checkpoint = open_model(sys.argv[1])
opened = time.perf_counter()
program_for(checkpoint, Request.of(sys.argv[2], None, CHUNK))
found = time.perf_counter()
generator = TextGenerator.load(checkpoint, activations=sys.argv[2])
loaded = time.perf_counter()
ids = generator.encode(sys.argv[3])
seconds = []
for _ in range(2):
    generator.reset()
    start = time.perf_counter()
    generator.logits(ids)
    seconds.append(time.perf_counter() - start)
print(json.dumps({
    "import relaxlab": package - begin, "import the generator": imported - package,
    "open the model": opened - imported, "find and load the program": found - opened,
    "load everything": loaded - found, "first prefill": seconds[0], "second prefill": seconds[1],
}))
"""
"""Stages of relaxlab's process, in seconds; `load everything` finds the program once more."""

LLAMA_CPP = """
import json, sys
import llama_cpp
llama = llama_cpp.Llama(sys.argv[1], n_ctx=4096, n_threads=int(sys.argv[2]),
                        n_threads_batch=int(sys.argv[2]), verbose=False)
tokens = llama.generate(json.loads(sys.argv[3]), temp=0.0)
for _ in range(int(sys.argv[4])):
    next(tokens)
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark. Raises RuntimeError with the output of a process that fails."""
    parser = argparse.ArgumentParser(prog="benchmarks.bench_start")
    parser.add_argument("--model", default="smollm2-135m", help="a name, a GGUF file or a folder")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--quick", action="store_true", help="one round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, default=LATEST, help="where the JSON goes")
    options = parser.parse_args(arguments)
    result = run(options.model, options.threads, 1 if options.quick else options.rounds)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    print(render(result))
    say(f"written: {options.output}")
    return 0


def run(model: str, threads: int, rounds: int) -> dict[str, Any]:
    """Everything, as one JSON object."""
    path = NAMED[model]() if model in NAMED else Path(model)
    commands = {
        f"relaxlab {activations}": _relaxlab(str(path), activations, threads)
        for activations in ("q8", "float32")
    }
    processes: dict[str, dict[str, Any]] = {}
    for name, command in commands.items():
        say(f"{name}: compile if need be")
        processes[name] = {"ids": json.loads(output_of(command))["prompt_ids"]}
    ids = json.dumps(processes["relaxlab q8"]["ids"])
    if BENCH.exists() and path.is_file():
        arguments = [str(path), str(threads), ids, str(TOKENS)]
        commands["llama.cpp"] = [str(BENCH), "-c", LLAMA_CPP, *arguments]
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        for name, command in commands.items():
            found = processes.setdefault(name, {})
            found.setdefault("rounds", []).append(_measured(command))
    stages = [
        json.loads(output_of([str(CORE), "-c", STAGES, str(path), "q8", PROMPT]))
        for _ in range(rounds)
    ]
    return {
        "machine": machine.describe(),
        "model": model,
        "file_mb": _megabytes(path),
        "threads": threads,
        "processes": processes,
        "stages": {name: min(s[name] for s in stages) for name in stages[0]},
    }


def _relaxlab(model: str, activations: str, threads: int) -> list[str]:
    return [
        str(CORE), "-m", "relaxlab", "generate", "--model", model, "--activations", activations,
        "--threads", str(threads), "--greedy", "--json", "--max-new-tokens", str(TOKENS),
        "--prompt", PROMPT,
    ]  # fmt: skip


def _measured(command: Sequence[str]) -> dict[str, float]:
    """Wall-clock and CPU seconds, and the peak of memory in MB (10^6 bytes), of one process."""
    start = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        output_of(command)  # says why
    return {
        "wall_s": seconds,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "peak_rss_mb": usage.ru_maxrss * 1024 / 1e6,
    }


def _megabytes(path: Path) -> float:
    files = path.glob("*.safetensors") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files) / 1e6


def render(result: dict[str, Any]) -> str:
    """The tables."""
    file_mb = result["file_mb"]
    lines = [
        f"{result['machine']['cpu']}, {result['threads']} threads; {result['model']}, "
        f"{file_mb:.0f} MB; {TOKENS} tokens",
        "",
        f"{'whole process':28}{'wall s':>10}{'CPU s':>10}{'peak MB':>10}{'x file':>10}",
    ]
    for name, found in result["processes"].items():
        wall, cpu, peak = (
            min(r[key] for r in found["rounds"]) for key in ("wall_s", "cpu_s", "peak_rss_mb")
        )
        lines.append(f"{name:28}{wall:10.2f}{cpu:10.2f}{peak:10.0f}{peak / file_mb:10.2f}")
    lines += ["", f"{'relaxlab q8, one process':28}{'ms':>10}"]
    lines += [f"{name:28}{1e3 * s:10.1f}" for name, s in result["stages"].items()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
