"""Networks whose control flow depends on the input: relaxlab in batches, and one instance at a
time; DyNet by both of its ways to batch; PyTorch one at a time, and batched by tree level by hand;
taking turns.

    .venv/bin/python -m benchmarks.bench_dynamic            some minutes
    .venv/bin/python -m benchmarks.bench_dynamic --quick    one short round, to see that it works

Instances per second, medians and quartiles over the rounds. Each round has other instances.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any

from benchmarks import machine
from benchmarks.bench_llm import PAUSE_S, say
from benchmarks.process import ROOT, Worker, WorkerFailed
from benchmarks.rows import CORE

LATEST = Path(__file__).with_name("results") / "latest-dynamic.json"
REFERENCE = ROOT / ".venv-reference" / "bin" / "python"
DYNET = ROOT / ".venv-dynet" / "bin" / "python"
PEERS: dict[str, tuple[Path, str, int]] = {
    "relaxlab": (CORE, "RelaxlabDynamic", 1),
    "relaxlab, one by one": (CORE, "RelaxlabDynamic", 0),
    "DyNet, by agenda": (DYNET, "DyNetDynamic", 1),
    "DyNet, by depth": (DYNET, "DyNetDynamic", 2),
    "PyTorch, by level": (REFERENCE, "PyTorchDynamic", 1),
    "PyTorch, one by one": (REFERENCE, "PyTorchDynamic", 0),
}
"""The peers: interpreter, worker, and 0 where it runs no batches, else which way to."""
TOLERANCE = 1e-3


@dataclass(frozen=True, slots=True)
class Settings:
    """The networks with their hidden sizes, the batches, and how often each is run in a round."""

    models: tuple[tuple[str, int], ...]
    threads: int
    batches: tuple[int, ...] = (1, 8, 64)
    rounds: int = 5
    repeats: int = 5


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 1 if a peer failed or results differ."""
    parser = argparse.ArgumentParser(prog="benchmarks.bench_dynamic")
    parser.add_argument("--models", nargs="+", default=["tree_lstm", "mv_rnn", "bi_rnn"])
    parser.add_argument("--hidden", nargs="+", type=int, default=[128, 256, 512])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--only", nargs="+", choices=list(PEERS), help="only these")
    parser.add_argument("--output", type=Path, default=LATEST, help="where the JSON goes")
    options = parser.parse_args(arguments)
    # A node of the matrix-vector network is a matrix: sizes as in the paper are smaller.
    pairs = [(m, h // 4 if m == "mv_rnn" else h) for m in options.models for h in options.hidden]
    settings = Settings(tuple(pairs), options.threads, rounds=options.rounds)
    if options.quick:
        settings = Settings(tuple(pairs[:1]), options.threads, (1, 3), 1, 1)
    result = run(settings, options.only or list(PEERS))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    print(render(result))
    say(f"written: {options.output}")
    return int(bool(result["problems"]))


def run(settings: Settings, names: Sequence[str]) -> dict[str, Any]:
    """Everything, as one JSON object."""
    networks: list[dict[str, Any]] = []
    problems: list[str] = []
    for model, hidden in settings.models:
        found = _network(model, hidden, settings, names)
        networks.append(found)
        problems += found["problems"]
    return {
        "machine": machine.describe(), "settings": asdict(settings), "networks": networks,
        "problems": problems,
    }  # fmt: skip


def _network(model: str, hidden: int, settings: Settings, names: Sequence[str]) -> dict[str, Any]:
    where = f"{model} {hidden}"
    turns: dict[str, dict[str, list[Any]]] = {}
    problems: list[str] = []
    workers: dict[str, Worker] = {}
    busy: list[float] = []
    with ExitStack() as stack:
        for name in names:
            python, worker, batched = PEERS[name]
            if worker == "PyTorchDynamic" and model != "tree_lstm":
                continue
            if not python.exists():
                say(f"{name} is left out: there is no {python.relative_to(ROOT)}")
                continue
            say(f"{where}: {name}: start")
            given = {
                "model": model, "hidden": hidden, "threads": settings.threads, "batched": batched,
            }  # fmt: skip
            try:
                workers[name] = Worker(python, worker, given)
                stack.callback(workers[name].close)
            except WorkerFailed as error:
                problems.append(f"{where}, {name}: {error}")
        order = list(workers)
        for number in range(settings.rounds):
            for batch in settings.batches:
                asked = {"batch": batch, "seed": 100 * number + batch, "repeats": settings.repeats}
                answers: dict[str, Any] = {}
                for name in order:
                    busy.append(machine.busy_cores(lambda: time.sleep(PAUSE_S))[0])
                    answers[name] = workers[name].ask("time_instances", **asked)
                    turns.setdefault(name, {}).setdefault(str(batch), []).append(answers[name])
                problems += _differences(f"{where}, batch {batch}", answers)
            order = [*order[1:], order[0]]  # nobody always follows the same other
    about = {name: worker.about for name, worker in workers.items()}
    return {
        "model": model, "hidden": hidden, "about": about, "turns": turns, "problems": problems,
        "busy_cores": busy,
    }  # fmt: skip


def _differences(where: str, answers: dict[str, Any]) -> list[str]:
    """The peers whose results are not those of the first."""
    (first, expected), *others = [(n, a.pop("sums")) for n, a in answers.items()]
    return [
        f"{where}: {name} and {first} differ"
        for name, sums in others
        if any(abs(a - b) > TOLERANCE * max(1, abs(b)) for a, b in zip(sums, expected, strict=True))
    ]


def render(result: dict[str, Any]) -> str:
    """The tables, instances per second."""
    batches = [str(b) for b in result["settings"]["batches"]]
    cpu, threads = result["machine"]["cpu"], result["settings"]["threads"]
    lines = [f"{cpu}, {threads} threads; instances per second"]
    for network in result["networks"]:
        title = f"{network['model']} {network['hidden']}"
        lines += ["", f"{title:24}" + "".join(f"{'batch ' + b:>22}" for b in batches)]
        for name, found in network["turns"].items():
            cells = [_cell([int(b) / t["seconds"] for t in found[b]]) for b in batches]
            lines.append(f"{name:24}" + "".join(f"{c:>22}" for c in cells))
    return "\n".join([*lines, *result["problems"]])


def _cell(values: list[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:.0f}"
    low, middle, high = quantiles(values, n=4)
    return f"{middle:.0f} ({low:.0f}-{high:.0f})"


if __name__ == "__main__":
    sys.exit(main())
