"""Networks whose control flow depends on the input: relaxlab in batches, one instance at a time,
and with its kernels called by hand for each level; DyNet by both of its ways to batch; PyTorch one
at a time, and batched by tree level by hand; taking turns.

    .venv/bin/python -m benchmarks.bench_dynamic               some minutes
    .venv/bin/python -m benchmarks.bench_dynamic --others      the other networks of the papers
    .venv/bin/python -m benchmarks.bench_dynamic --ablations   relaxlab with each pass left out, and
                                                               by each policy
    .venv/bin/python -m benchmarks.bench_dynamic --quick       one short round, to see that it works

Instances per second, medians and quartiles over the rounds, below the ratios to the peers. Each
round has other instances. The results are written after each round of each network: a run that is
stopped keeps what was measured.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from benchmarks import machine
from benchmarks.bench_llm import PAUSE_S, say
from benchmarks.limits import CLimits
from benchmarks.peers.dynamic import LEARNED
from benchmarks.process import ROOT, Worker, WorkerFailed
from benchmarks.rows import CORE
from relaxlab.batching.policies import POLICIES

LATEST = Path(__file__).with_name("results") / "latest-dynamic.json"
REFERENCE = ROOT / ".venv-reference" / "bin" / "python"
DYNET = ROOT / ".venv-dynet" / "bin" / "python"
PEERS: dict[str, tuple[Path, str, int]] = {
    "relaxlab": (CORE, "RelaxlabDynamic", 1),
    "relaxlab, one by one": (CORE, "RelaxlabDynamic", 0),
    "relaxlab, by level": (CORE, "RelaxlabLevels", 1),
    "DyNet, by agenda": (DYNET, "DyNetDynamic", 1),
    "DyNet, by depth": (DYNET, "DyNetDynamic", 2),
    "PyTorch, by level": (REFERENCE, "PyTorchDynamic", 1),
    "PyTorch, one by one": (REFERENCE, "PyTorchDynamic", 0),
}
"""The peers: interpreter, worker, and 0 where it runs no batches, else which way to."""
MAIN = ("tree_lstm", "mv_rnn", "bi_rnn")
OTHERS = (
    "tree_gru", "tree_fc", "bi_lstm_tagger", "lattice_lstm", "drnn", "nested_rnn", "stack_rnn",
    "berxit",
)  # fmt: skip
BY_LEVEL = {"RelaxlabLevels": MAIN, "PyTorchDynamic": ("tree_lstm",)}
"""The networks that there are by level, by worker."""
LEFT_OUT = (
    "clone_by_weights", "split_concat_product", "make_blocks.coarse", "make_blocks.hoist",
    "combine_gates", "split_phases", "annotate_recording.side_by_side", "annotate_recording.ghosts",
    "annotate_recording.memoize",
    "batch_blocks.fuse_gathers", "limit_rows", "fuse_ops",
)  # fmt: skip
"""The passes of `batched_pipeline`, and options of passes, that are left out in turn."""
VARIANTS: dict[str, dict[str, str]] = {
    **{f"without {name}": {"leave_out": name} for name in LEFT_OUT},
    "with batch_twins": {"add": "batch_twins"},
    **{f"by {name}": {"policy": name} for name in (*POLICIES, LEARNED)},
}
"""By name, an ablation as options of the worker: a pass left out or added, or batches that a
policy chooses, by way of Python."""
TOLERANCE = 1e-3


@dataclass(frozen=True, slots=True)
class Settings:
    """The networks with their hidden sizes, the batches, and how often each is run in a round."""

    models: tuple[tuple[str, int], ...]
    threads: int
    batches: tuple[int, ...] = (1, 8, 64)
    rounds: int = 5
    repeats: int = 5
    variants: tuple[str, ...] = ()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 1 if a peer failed or results differ."""
    parser = argparse.ArgumentParser(prog="benchmarks.bench_dynamic")
    parser.add_argument("--models", nargs="+", choices=[*MAIN, *OTHERS], help="only these")
    parser.add_argument("--others", action="store_true", help="the other networks, at 128 and 256")
    parser.add_argument("--ablations", action="store_true", help="all variants, at 128 and 256")
    parser.add_argument("--hidden", nargs="+", type=int, help="default: 128 256 512")
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8, 64])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=5, help="runs in a round: the median counts")
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--only", nargs="+", choices=list(PEERS), help="only these")
    parser.add_argument("--output", type=Path, default=LATEST, help="where the JSON goes")
    options = parser.parse_args(arguments)
    few = options.others or options.ablations
    sizes = options.hidden or ([128, 256] if few else [128, 256, 512])
    default = OTHERS if options.others else (*MAIN, *OTHERS) if options.ablations else MAIN
    models = tuple(options.models or default)
    # A node of the matrix-vector network is a matrix: sizes as in the paper are smaller.
    pairs = tuple((m, h // 4 if m == "mv_rnn" else h) for m in models for h in sizes)
    variants = tuple(VARIANTS) if options.ablations else ()
    settings = Settings(
        pairs, options.threads, tuple(options.batches), options.rounds, options.repeats, variants
    )
    if options.quick:
        settings = Settings(pairs[:1], options.threads, (1, 3), 1, 1, variants)
    names = ["relaxlab"] if options.ablations else list(PEERS)
    most = 0.0 if options.quick else _multiply_adds_per_s(settings.threads)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    result = run(settings, options.only or names, most, options.output)
    print(render(result))
    say(f"written: {options.output}")
    return int(bool(result["problems"]))


def run(
    settings: Settings, names: Sequence[str], most: float, output: Path
) -> dict[str, Any]:
    """Everything, as one JSON object, which is written to `output` after each round; `most` are
    the multiply-adds a second of the machine."""
    result: dict[str, Any] = {
        "machine": machine.describe(), "settings": asdict(settings), "networks": [],
        "multiply_adds_per_s": most, "problems": [],
    }  # fmt: skip
    for model, hidden in settings.models:
        found: dict[str, Any] = {}
        result["networks"].append(found)
        for found_so_far in _rounds(model, hidden, settings, names):
            found.update(found_so_far)
            every = (n["problems"] for n in result["networks"])
            result["problems"] = [problem for problems in every for problem in problems]
            # By way of another file: a run that is stopped while writing keeps what was there.
            part = output.with_name(output.name + ".part")
            part.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
            part.replace(output)
    return result


def _multiply_adds_per_s(threads: int) -> float:
    """The most float32 multiply-adds a second; 0 where there is no C compiler to measure it."""
    with tempfile.TemporaryDirectory() as folder:
        return max(CLimits(threads, Path(folder)).measure(("fma",)).values(), default=0.0)


def _rounds(
    model: str, hidden: int, settings: Settings, names: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Yield, after each round, the measurements of a network so far."""
    where = f"{model} {hidden}"
    turns: dict[str, dict[str, list[Any]]] = {}
    problems: list[str] = []
    workers: dict[str, Worker] = {}
    busy: list[float] = []
    with ExitStack() as stack:
        for name, python, worker, given in _contestants(model, hidden, settings, names):
            if not python.exists():
                say(f"{name} is left out: there is no {python.relative_to(ROOT)}")
                continue
            say(f"{where}: {name}: start")
            try:
                workers[name] = Worker(python, worker, given)
                stack.callback(workers[name].close)
            except WorkerFailed as error:
                problems.append(f"{where}, {name}: {error}")
        order = list(workers)
        about = {name: worker.about for name, worker in workers.items()}
        for number in range(settings.rounds):
            for batch in settings.batches:
                asked = {"batch": batch, "seed": 100 * number + batch, "repeats": settings.repeats}
                answers: dict[str, Any] = {}
                # Once for all: before each of 12 variants, pauses took longer than what is timed.
                busy.append(machine.busy_cores(lambda: time.sleep(PAUSE_S))[0])
                for name in order:
                    answers[name] = workers[name].ask("time_instances", **asked)
                    turns.setdefault(name, {}).setdefault(str(batch), []).append(answers[name])
                problems += _differences(f"{where}, batch {batch}", answers)
            order = [*order[1:], order[0]]  # nobody always follows the same other
            yield {
                "model": model, "hidden": hidden, "about": about, "turns": turns,
                "problems": problems, "busy_cores": busy,
            }  # fmt: skip


def _contestants(
    model: str, hidden: int, settings: Settings, names: Sequence[str]
) -> Iterator[tuple[str, Path, str, dict[str, Any]]]:
    """The peers that have the network: name, interpreter, worker and its options."""
    for name in names:
        python, worker, batched = PEERS[name]
        if batched and model not in BY_LEVEL.get(worker, (model,)):
            continue
        given = {
            "model": model, "hidden": hidden, "threads": settings.threads, "batched": batched,
        }  # fmt: skip
        yield name, python, worker, given
        if name == "relaxlab":
            for variant in settings.variants:
                yield variant, python, worker, given | VARIANTS[variant]


def _differences(where: str, answers: dict[str, Any]) -> list[str]:
    """The peers whose results are not those of the first."""
    if not answers:
        return []
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
    most = result["multiply_adds_per_s"]
    for network in result["networks"]:
        title = f"{network['model']} {network['hidden']}"
        lines += ["", f"{title:42}" + "".join(f"{'batch ' + b:>22}" for b in batches)]
        lines += _compared(network["turns"], batches, most)
        for name, found in network["turns"].items():
            cells = [_cell([int(b) / t["seconds"] for t in found[b]]) for b in batches]
            lines.append(f"{name:42}" + "".join(f"{c:>22}" for c in cells))
    return "\n".join([*lines, *result["problems"]])


def _compared(turns: dict[str, Any], batches: Sequence[str], most: float) -> Iterator[str]:
    """Rows with ratios of relaxlab in batches to each peer, and its share of the multiply-adds that
    the machine can do."""
    ours = turns.get("relaxlab")
    if ours is None:
        return
    dynet = [n for n in turns if n.startswith("DyNet")]
    pairs = {f"relaxlab / {n}": [n] for n in turns if n != "relaxlab" and n not in dynet}
    if dynet:
        pairs["relaxlab / the better DyNet"] = dynet
    for title, names in pairs.items():
        ratios = [
            median(
                min(turns[n][b][i]["seconds"] for n in names) / ours[b][i]["seconds"]
                for i in range(len(ours[b]))
            )
            for b in batches
        ]
        yield f"{title:42}" + "".join(f"{r:>22.2f}" for r in ratios)
    if most and all(t["multiply_adds"] for b in batches for t in ours[b]):
        rates = (median(t["multiply_adds"] / t["seconds"] for t in ours[b]) for b in batches)
        shares = "".join(f"{r / most:>22.2f}" for r in rates)
        yield f"{'share of the multiply-add limit':42}{shares}"


def _cell(values: list[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:.0f}"
    low, middle, high = quantiles(values, n=4)
    return f"{middle:.0f} ({low:.0f}-{high:.0f})"


if __name__ == "__main__":
    sys.exit(main())
