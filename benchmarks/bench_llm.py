"""Language models: relaxlab, llama.cpp, OpenVINO and PyTorch, taking turns in one run.

    make bench BENCH=llm                                all of it: 430 s on two cores, once built
    .venv/bin/python -m benchmarks.bench_llm --quick    one short round, to see that it works

See README.md in this folder for what is measured.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import accuracy, machine, overheads, report
from benchmarks.process import Worker, WorkerFailed
from benchmarks.rows import CORE, ROWS, Row, Work, dequantised
from relaxlab.models.gguf import GGUF, read_gguf
from relaxlab.models.loader import NAMED, open_model
from relaxlab.testing.llama_numpy import LlamaNumpy

PAUSE_S = 0.4
"""Between turns: idle threads of the last peer stop spinning."""
QUESTIONS = ("Why is the sky blue?", "Write a short story about a lighthouse.")
LATEST = Path(__file__).with_name("results") / "latest-llm.json"


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a run. `prompt` fresh random tokens are read `reads` times per turn, after
    the last of which `steps` tokens follow; logits are compared at `positions` of a text."""

    model: str
    threads: int
    rounds: int = 9
    prompt: int = 128
    steps: int = 64
    reads: int = 4
    positions: int = 512
    answer: int = 64

    def quick(self) -> Settings:
        return Settings(self.model, self.threads, 1, 32, 8, 1, 32, 8)


@dataclass(slots=True)
class Entry:
    """A peer and its results."""

    row: Row
    worker: Worker | None = None
    result: dict[str, Any] = field(default_factory=dict)

    def fail(self, error: WorkerFailed) -> None:
        """It takes no further part."""
        self.worker = None
        self.result["error"] = str(error)
        say(f"{self.row.name}: {error}")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 1 if a peer failed."""
    options = _parser().parse_args(arguments)
    settings = Settings(options.model, options.threads)
    if options.quick:
        settings = settings.quick()
    rows = [r for r in ROWS if not options.only or r.name in options.only]
    result = run(settings, rows)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    print(report.render(result))
    say(f"written: {options.output}")
    return int(any("error" in found for found in result["peers"].values()))


def _parser() -> argparse.ArgumentParser:
    title = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog="benchmarks.bench_llm", description=title)
    parser.add_argument("--model", default="smollm2-135m", help="a name or a GGUF file")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", choices=[r.name for r in ROWS],
        help="only these peers, by the names in the table",
    )  # fmt: skip
    parser.add_argument("--output", type=Path, default=LATEST, help="where the JSON goes")
    return parser


def run(settings: Settings, rows: Sequence[Row]) -> dict[str, Any]:
    """Everything, as one JSON object."""
    started = time.monotonic()
    model = NAMED[settings.model]() if settings.model in NAMED else Path(settings.model)
    gguf = read_gguf(model)
    work = Work.of(gguf)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="relaxlab-bench-")))
        about = machine.describe()
        say("import and call times")
        costs = overheads.measure(CORE)
        entries = [Entry(row) for row in rows]
        for entry in entries:
            _start(entry, settings, model, folder, stack)
        say("limits of the machine")
        size = work.bytes_per_token(None)
        limits = Worker(CORE, "Limits", {"size": size, "threads": settings.threads})
        stack.callback(limits.close)
        _check_accuracy(entries, settings, gguf, folder)
        rounds = _take_turns(entries, limits, settings, work.config.vocab_size)
        for entry in entries:
            if entry.worker is not None:
                entry.result |= entry.worker.ask("peak_rss_mb")
    return {
        "machine": about,
        "settings": asdict(settings) | {"file": model.name, "seconds": time.monotonic() - started},
        "work": {
            "bytes_per_token": {r.name: work.bytes_per_token(r.weights or r.stored) for r in rows},
            "prefill_macs": work.prefill_macs(settings.prompt),
        },
        "overheads": costs,
        "limits": limits.about | {"rounds": [r["limits"] for r in rounds]},
        "busy_cores": [r["busy_cores"] for r in rounds],
        "rows": {row.name: asdict(row) | {"ours": row.ours} for row in rows},
        "peers": {entry.row.name: entry.result for entry in entries},
    }


def _start(entry: Entry, settings: Settings, model: Path, folder: Path, stack: ExitStack) -> None:
    """Start the worker; relaxlab's with an empty cache first, and then again from the cache."""
    row = entry.row
    file = model if row.weights is None else dequantised(model, row.weights, folder)
    options = {"model": str(file), "threads": settings.threads, **row.options}
    # An empty cache: nothing compiled before may be found.
    environment = {"RELAXLAB_CACHE": str(folder / row.name), **row.environment}
    starts = ("cold", "warm") if row.ours else ("cold",)
    try:
        for kind in starts:
            say(f"{row.name}: {kind} start")
            begin = time.perf_counter()
            worker = Worker(row.python, row.worker, options, environment)
            stack.callback(worker.close)
            ready = time.perf_counter() - begin
            worker.ask("generate", ids=list(range(8)), steps=2)
            memory = worker.ask("peak_rss_mb")
            entry.result[kind] = worker.about | memory | {"ready_s": ready}
            if kind != starts[-1]:
                worker.close()
    except WorkerFailed as error:
        entry.fail(error)
    else:
        entry.worker = worker


def _check_accuracy(entries: Sequence[Entry], settings: Settings, gguf: GGUF, folder: Path) -> None:
    """Logits on a text and greedy answers, against NumPy."""
    taking_part = [e for e in entries if e.worker is not None and e.row.logits]
    if not taking_part:
        return
    say("reference logits")
    oracle = LlamaNumpy.from_gguf(gguf)
    checkpoint = open_model(gguf.path)
    ids = checkpoint.tokenizer.encode(accuracy.TEXT.read_text("utf-8"))[: settings.positions]
    want = oracle.logits(ids)
    lengths = sorted({1, 17, len(ids) // 4, len(ids) // 2, len(ids)})
    prompts = [_encoded(checkpoint, question) for question in QUESTIONS]
    for entry in taking_part:
        say(f"{entry.row.name}: accuracy")
        assert entry.worker is not None
        try:
            found = accuracy.measure(entry.worker, ids, want, lengths, folder)
            greedy = [accuracy.greedy(entry.worker, oracle, p, settings.answer) for p in prompts]
            found["greedy"] = {key: sum(g[key] for g in greedy) for key in greedy[0]}
            entry.result["accuracy"] = found
        except WorkerFailed as error:
            entry.fail(error)


def _encoded(checkpoint: Any, question: str) -> list[int]:
    if checkpoint.chat is None:
        return checkpoint.tokenizer.encode(question)
    return checkpoint.chat.encode([{"role": "user", "content": question}])


def _take_turns(
    entries: Sequence[Entry], limits: Worker, settings: Settings, vocabulary: int
) -> list[dict[str, Any]]:
    """Run the rounds. Speeds go into each entry's `turns`; returns the machine's state in each
    round."""
    rng = random.Random(0)
    found: list[dict[str, Any]] = []
    order = list(entries)
    for number in range(settings.rounds):
        say(f"round {number + 1} of {settings.rounds}")
        pauses: list[float] = []
        for entry in order:
            if entry.worker is None:
                continue
            pauses.append(machine.busy_cores(lambda: time.sleep(PAUSE_S))[0])
            try:
                turn = _turn(entry.worker, settings, rng, vocabulary)
                entry.result.setdefault("turns", []).append(turn)
            except WorkerFailed as error:
                entry.fail(error)
        time.sleep(PAUSE_S)
        found.append({"limits": limits.ask("measure"), "busy_cores": pauses})
        order = [*order[1:], order[0]]  # nobody always follows the same other
    return found


def _turn(
    worker: Worker, settings: Settings, rng: random.Random, vocabulary: int
) -> Mapping[str, Any]:
    """Tokens per second of each read of a fresh prompt, and of the steps after the last one."""

    def generate(length: int, steps: int) -> dict[str, Any]:
        ids = [rng.randrange(3, vocabulary) for _ in range(length)]
        return worker.ask("generate", ids=ids, steps=steps)

    generate(8, 2)  # its memory and threads are awake again after this
    answers = [generate(settings.prompt, 0) for _ in range(settings.reads - 1)]
    answers.append(generate(settings.prompt, settings.steps))
    return {
        "prefill_tok_s": [settings.prompt / a["prefill_s"] for a in answers],
        "decode_tok_s": settings.steps / answers[-1]["decode_s"],
    }


if __name__ == "__main__":
    sys.exit(main())
