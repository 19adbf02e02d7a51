"""Batches that policies put the cells of dynamic networks into, and the time that choosing takes.

    .venv/bin/python -m benchmarks.bench_policies

Counts are exact and the same on every machine. See README.md in this folder.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks import machine
from benchmarks.kernels import program
from benchmarks.kernels.race import say
from benchmarks.kernels.table import Aim, aims_text
from benchmarks.report import table
from relaxlab.batching.automaton import Automaton
from relaxlab.batching.bound import batch_bound
from relaxlab.batching.execution import Execution, check_schedule
from relaxlab.batching.graph import Graph
from relaxlab.batching.learn import EPISODES, learn_policy
from relaxlab.batching.policies import POLICIES, Policy, schedule_batches
from relaxlab.runtime.build import compile as compiled
from relaxlab.script import parse
from relaxlab.testing.minibatches import WORKLOADS

Result = Mapping[str, Any]
SEED = 2
INSTANCES = 32
LEARNED_FROM, MINIBATCHES = 6, 4
"""Minibatches that the automata are learned from, and others that are counted."""
HIDDEN = 256
LIMITS: Sequence[tuple[str, str, float, str]] = (
    ("TreeLSTM", "fsm", 1.0, "bound"),
    ("TreeLSTM, two types", "fsm", 1.35, "bound"),
    ("BiLSTM tagger", "fsm", 1.02, "bound"),
    ("lattice LSTM", "ratio", 0.66, "agenda"),
    ("lattice LSTM", "fsm", 0.66, "agenda"),
    ("lattice LSTM", "critical", 0.57, "agenda"),
)
"""Model, policy, and the most that its batches may be of the bound's or of another policy's."""


def measure(instances: int, episodes: int) -> dict[str, Any]:
    """All models as a JSON object."""
    rng = np.random.default_rng(SEED)
    workloads: list[dict[str, Any]] = []
    for name, make in WORKLOADS.items():
        say(f"{name}: learning")
        started = perf_counter()
        learned = learn_policy(
            [make(rng, instances) for _ in range(LEARNED_FROM)], episodes=episodes
        )
        spent = perf_counter() - started
        say(f"{name}: counting")
        graphs = [make(rng, instances) for _ in range(MINIBATCHES)]
        about = {"encoding": learned.policy.encoding, "states": len(learned.policy.table)}
        found = counted(graphs, {**POLICIES, "fsm": learned.policy})
        workloads.append({"name": name, "learning_s": spent} | about | found)
    settings = {"seed": SEED, "instances": instances, "minibatches": MINIBATCHES}
    return {"machine": machine.describe(), "settings": settings, "workloads": workloads}


def counted(graphs: Sequence[Graph], policies: Mapping[str, Policy]) -> dict[str, Any]:
    """Return the nodes, the bound, and by policy the batches, those of `schedule_batches`, which
    compares with the policy agenda, and the seconds that making the schedule takes per batch."""
    batches: dict[str, int] = {}
    guarded: dict[str, int] = {}
    seconds: dict[str, float] = {}
    for name, policy in policies.items():
        started = perf_counter()
        schedules = [policy.schedule(graph) for graph in graphs]
        spent = perf_counter() - started
        for schedule in schedules:
            check_schedule(schedule)
        batches[name] = sum(map(len, schedules))
        seconds[name] = spent / batches[name]
        guarded[name] = sum(len(schedule_batches(graph, policy)) for graph in graphs)
    nodes, bound = sum(map(len, graphs)), sum(map(batch_bound, graphs))
    return {
        "nodes": nodes, "bound": bound, "batches": batches, "guarded": guarded, "seconds": seconds,
        "choice": choice_seconds(graphs[0], policies["fsm"]), "cell": cell_seconds(nodes / bound),
    }  # fmt: skip


def choice_seconds(graph: Graph, policy: Policy) -> float:
    """Return the median seconds that an automaton takes to look up a batch, in Python."""
    assert isinstance(policy, Automaton)
    chooser, execution = policy.chooser(graph), Execution(graph)
    seconds: list[float] = []
    while types := execution.ready_types():
        started = perf_counter()
        chosen = chooser.choose(execution, types)
        seconds.append(perf_counter() - started)
        chooser.ran(chosen, execution.run(chosen))
    return median(seconds)


def cell_seconds(rows: float) -> float:
    """Return the median seconds of the product of a batched LSTM cell, by one thread."""
    kernel = compiled(parse(CELL), threads=1)["main"]
    rng = np.random.default_rng(0)
    shapes = ((max(1, round(rows)), 2 * HIDDEN), (2 * HIDDEN, 4 * HIDDEN))
    arguments = [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]
    seconds: list[float] = []
    for _ in range(60):
        started = perf_counter()
        kernel(*arguments)
        seconds.append(perf_counter() - started)
    return median(seconds[10:])


CELL = f"""
@R.function
def main(
    x: R.Tensor(("n", {2 * HIDDEN}), "float32"),
    w: R.Tensor(({2 * HIDDEN}, {4 * HIDDEN}), "float32"),
):
    return R.tanh(x @ w)
"""


def aims(result: Result) -> Iterable[Aim]:
    """Yield each aim, the figure found, and whether that is enough."""
    by_name = {w["name"]: w for w in result["workloads"]}
    for name, policy, most, other in LIMITS:
        found = by_name[name]
        of = found["bound"] if other == "bound" else found["batches"][other]
        ratio = found["batches"][policy] / of
        yield f"{name}: {policy} at most {most:.2f}x {other}", f"{ratio:.3f}x", ratio <= most
    over = max(
        count / w["batches"]["agenda"] for w in by_name.values() for count in w["guarded"].values()
    )
    yield "schedule_batches: nowhere more than agenda", f"at most {over:.3f}x", over <= 1
    share = max(w["choice"] / w["cell"] for w in by_name.values())
    yield "an automaton chooses in 5 % of a cell's product", f"{share:.1%}", share <= 0.05


def render(result: Result) -> str:
    """The tables and the aims as text."""
    names = list(result["workloads"][0]["batches"])
    rows = [
        [
            w["name"], str(w["nodes"]), str(w["bound"]),
            *(f"{w['batches'][n] / w['bound']:.2f}x" for n in names),
            f"{w['encoding']}, {w['states']} states, {w['learning_s']:.0f} s",
        ]
        for w in result["workloads"]
    ]  # fmt: skip
    s = result["settings"]
    head = f"{s['minibatches']} minibatches of {s['instances']} instances, seed {s['seed']}"
    parts = [f"{head}; batches in relation to the bound\n" + table(
        ["model", "nodes", "bound", *names, "learned"], rows)]  # fmt: skip
    times = [
        [w["name"], f"{w['cell'] * 1e6:.0f}", f"{w['choice'] * 1e6:.2f}"]
        + [f"{w['seconds'][n] * 1e6:.0f}" for n in names]
        for w in result["workloads"]
    ]
    title = ["model", "cell's product", "lookup", *(f"schedule: {n}" for n in names)]
    parts.append(f"microseconds per batch, hidden size {HIDDEN}\n" + table(title, times))
    return "\n\n".join([*parts, aims_text(aims(result))])


def main(arguments: Sequence[str] | None = None) -> int:
    """Learn, count and measure; 0."""
    parser = program.parser_of("policies", (__doc__ or "").partition("\n")[0])
    options = parser.parse_args(arguments)
    result = measure(*((8, 50) if options.quick else (INSTANCES, EPISODES)))
    print(render(result))
    program.write(result, options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
