"""The gain from fusion, memory planning, guarded versions and library calls: each switched off (or
on) alone, on SmolLM2 with float32 weights, like the paper's Figure 17.

    .venv/bin/python -m benchmarks.bench_ablation --quick

See README.md in this folder for what is measured.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.bench_memory import planned_bytes, uses_of
from benchmarks.kernels import chart, program
from benchmarks.kernels.race import CORE, PAUSE_S, say
from benchmarks.kernels.table import failures
from benchmarks.models import decoder
from benchmarks.process import Worker, WorkerFailed
from benchmarks.report import Spread, heading, table
from benchmarks.rows import Work, dequantised
from benchmarks.variants import VARIANTS
from relaxlab.models.config import DecoderConfig
from relaxlab.models.gguf import read_gguf
from relaxlab.models.loader import NAMED
from relaxlab.passes.pipeline import cpu_pipeline
from relaxlab.passes.plan_memory import memory_plan_of

Result = Mapping[str, Any]
PROMPT, STEPS, READS = 128, 32, 2


def temporaries(config: DecoderConfig, variant: str, length: int, threads: int) -> int:
    """Return the bytes of the temporaries of a prompt of `length` tokens: the planned arenas, or
    without a plan all of them, as none is freed before the call returns. By accounting."""
    module = decoder(config, ("prefill",))
    pipeline = VARIANTS[variant](cpu_pipeline())
    planned = any(p.name == "plan_memory" for p in pipeline.passes)
    trace = pipeline.run(module)
    mod = trace.find("plan_memory").before if planned else trace.result
    fn, values = mod.graph_functions()["prefill"], {"s": length, "p": 0}
    if planned:
        return planned_bytes(memory_plan_of(fn, mod), values, threads)
    return sum(use.size for use in uses_of(fn, mod, values, threads))


class Race:
    """The variants' workers and their results."""

    def __init__(self, model: Path, threads: int, stack: ExitStack) -> None:
        self.found: dict[str, dict[str, Any]] = {}
        self.busy_cores: list[float] = []
        self._workers: dict[str, Worker] = {}
        gguf = read_gguf(model)
        config = Work.of(gguf).config
        self._vocabulary, self._rng = config.vocab_size, random.Random(0)
        for name in VARIANTS:
            say(f"{name}: start")
            memory = temporaries(config, name, PROMPT, threads)
            self.found[name] = {"temporaries": memory, "decode": [], "prefill": []}
            options = {"model": str(model), "threads": threads, "variant": name}
            try:
                worker = Worker(CORE, "Ablated", options)
            except WorkerFailed as error:
                self._fail(name, error)
            else:
                stack.callback(worker.close)
                self._workers[name] = worker
                self.found[name] |= {"compile_s": worker.about["compile_s"]}

    def _fail(self, name: str, error: WorkerFailed) -> None:
        self._workers.pop(name, None)
        self.found[name]["error"] = str(error)
        say(f"{name}: {error}")

    def round(self, number: int) -> None:
        """A turn of each, in an order that rotates."""
        names = list(self._workers)
        shift = number % max(1, len(names))
        for name in names[shift:] + names[:shift]:
            self.busy_cores.append(machine.busy_cores(lambda: time.sleep(PAUSE_S))[0])
            try:
                self._turn(name)
            except WorkerFailed as error:
                self._fail(name, error)

    def _turn(self, name: str) -> None:
        def generate(length: int, steps: int) -> dict[str, Any]:
            ids = [self._rng.randrange(3, self._vocabulary) for _ in range(length)]
            return self._workers[name].ask("generate", ids=ids, steps=steps)

        generate(8, 2)  # awake again
        answers = [generate(PROMPT, STEPS if last else 0) for last in (*[False] * READS, True)]
        seconds = statistics.median(a["prefill_s"] for a in answers)
        self.found[name]["prefill"].append(PROMPT / seconds)
        self.found[name]["decode"].append(STEPS / answers[-1]["decode_s"])


def measure(model: str, threads: int, rounds: int) -> dict[str, Any]:
    """Everything as a JSON object."""
    file = NAMED[model]() if model in NAMED else Path(model)
    started = time.monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="relaxlab-bench-")))
        race = Race(dequantised(file, "F32", folder), threads, stack)
        for number in range(rounds):
            say(f"round {number + 1} of {rounds}")
            race.round(number)
    seconds = time.monotonic() - started
    return {
        "machine": machine.describe(),
        "settings": {"threads": threads, "rounds": rounds, "file": file.name, "seconds": seconds},
        "peers": race.found,
        "busy_cores": race.busy_cores,
    }


def relative(result: Result, name: str, what: str) -> Spread | None:
    """A variant's speed relative to everything's in the same round."""
    own, whole = (result["peers"][n][what] for n in (name, "everything"))
    pairs = list(zip(own, whole, strict=False))
    return Spread.of([a / b for a, b in pairs]) if pairs else None


def render(result: Result) -> str:
    s = result["settings"]
    title = ["relative to everything: median (quartiles)", "decode", "tok/s", "prefill", "tok/s"]
    title += ["temporaries MB", "compile s"]
    rows: list[list[str]] = []
    for name, found in result["peers"].items():
        row = [name]
        for what in ("decode", "prefill"):
            spread = relative(result, name, what)
            row.append("–" if spread is None else f"{spread.text(2)}x")
            row.append(f"{statistics.median(found[what]):.0f}" if found[what] else "–")
        row += [f"{found['temporaries'] / 1e6:.1f}", f"{found.get('compile_s', float('nan')):.1f}"]
        rows.append(row)
    measured = (
        f"{s['file']} in float32; {s['threads']} threads; {s['rounds']} rounds: prompts of "
        f"{PROMPT} tokens, {STEPS} decoded"
    )
    head = heading(result, measured, result["busy_cores"], s["seconds"])
    return "\n\n".join(part for part in (head, table(title, rows), failures(result)) if part)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 1 if a variant failed."""
    parser = program.parser_of("ablation", (__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="smollm2-135m", help="a name or a GGUF file")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    result = measure(options.model, options.threads, 1 if options.quick else options.rounds)
    print(render(result))
    program.write(result, options.output)
    bars = {
        name: {
            what: (spread.low, spread.median, spread.high)
            for what in ("decode", "prefill")
            if (spread := relative(result, name, what)) is not None
        }
        for name in result["peers"]
    }
    title = "one thing switched off or on: median and quartiles of the rounds"
    program.drawn(chart.bars(bars, title, "speed relative to everything", options.output, line=1))
    return int(any("error" in found for found in result["peers"].values()))


if __name__ == "__main__":
    sys.exit(main())
