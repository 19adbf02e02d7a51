"""Activation memory of a Llama3-8B: planned bytes against pools at run time, by accounting.

    .venv/bin/python -m benchmarks.bench_memory

No weights are made. How often compiled code allocates is counted natively, with a tiny model.
See README.md in this folder for what is measured.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from benchmarks import allocations, machine
from benchmarks.kernels import chart, program
from benchmarks.kernels.race import say
from benchmarks.kernels.table import Aim, aims_text
from benchmarks.models import LLAMA3_8B, decoder
from benchmarks.pools import BestFitPool, BucketPool, Pool, Use, peak, replay
from benchmarks.report import table
from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr, graph
from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.module import Module
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.ir.types import TensorType
from relaxlab.passes.liveness import is_per_thread, liveness_of
from relaxlab.passes.pipeline import cpu_pipeline
from relaxlab.passes.plan_memory import MemoryPlan, memory_plan_of

Result = Mapping[str, Any]
WORKLOADS: tuple[tuple[str, str, str, tuple[int, ...], float], ...] = (
    ("prefills", "prefill", "s", (128, 256, 512, 1024), 0.78),
    ("decode batches", "decode", "b", (1, 16, 32, 64), 0.60),
)
"""Programs, with the function, the symbol that varies and its values, and the paper's ratio."""
POOLS: Mapping[str, type[Pool]] = {"size buckets": BucketPool, "best fit": BestFitPool}


def measure(layers: int, threads: int) -> dict[str, Any]:
    """All workloads as a JSON object."""
    config = replace(LLAMA3_8B, num_layers=layers)
    workloads: list[dict[str, Any]] = []
    for name, function, symbol, values, aim in WORKLOADS:
        say(f"{name}: passes")
        batch = "b" if symbol == "b" else 1
        bounds = {symbol: max(values), "p": 1024}
        module = decoder(config, (function,), batch, bounds)
        unplanned = cpu_pipeline().run(module).find("plan_memory").before
        found = account(unplanned, function, symbol, values, threads)
        workloads.append({"name": name, "symbol": symbol, "values": values, "aim": aim} | found)
    say("allocations of compiled code")
    return {
        "machine": machine.describe(),
        "settings": {"layers": layers, "threads": threads},
        "workloads": workloads,
        "allocations": allocations.measure(),
    }


def account(
    mod: Module, function: str, symbol: str, values: Sequence[int], threads: int
) -> dict[str, Any]:
    """Return the bytes of temporaries of an expanded function: `planned` with upper bounds,
    `symbolic` planned for unbounded sizes (the arena grows to the largest), those live at the peak
    of the largest, and those of each pool after runs of all sizes in turn. Results are the
    caller's."""
    fn = mod.graph_functions()[function]
    pools = {name: make() for name, make in POOLS.items()}
    uses: list[Use] = []
    for value in values:
        uses = list(uses_of(fn, mod, {symbol: value}, threads))
        for pool in pools.values():
            replay(pool, uses)
    largest = {symbol: max(values)}
    return {
        "planned": planned_bytes(memory_plan_of(fn, mod), largest, threads),
        "symbolic": planned_bytes(memory_plan_of(fn, mod, use_bounds=False), largest, threads),
        "peak": peak(uses),
        "pools": {name: pool.reserved for name, pool in pools.items()},
    }


def uses_of(
    fn: graph.Function, mod: Module, values: Mapping[str, int], threads: int
) -> Iterator[Use]:
    """The temporaries of a function at given values of its symbols. What every thread has a copy of
    counts as often."""
    for interval in liveness_of(fn, mod).intervals.values():
        ty = interval.var.ty
        assert isinstance(ty, TensorType) and ty.shape is not None and ty.dtype is not None
        if interval.escapes is None:
            copies = threads if is_per_thread(interval.binding.value) else 1
            size = evaluate(_product(ty.shape), values) * bytes_of(ty.dtype)
            yield Use(interval.start, interval.end, size * copies)


def _product(shape: Sequence[expr.PrimExpr]) -> expr.PrimExpr:
    result: expr.PrimExpr = expr.const(1)
    for dim in shape:
        result = result * dim
    return result


def planned_bytes(plan: MemoryPlan, values: Mapping[str, int], threads: int) -> int:
    """All arenas at given values of the symbols."""
    return sum(
        evaluate(arena.size, values) * (threads if arena.scope == graph.StringImm("local") else 1)
        for arena in plan.arenas
    )


def evaluate(e: expr.PrimExpr, values: Mapping[str, int]) -> int:
    """KeyError for a symbol without a value."""
    known = {s: expr.const(values[s.name]) for s in symbols_in(e)}
    result = Analyzer().simplify(substitute(e, known))
    assert isinstance(result, expr.IntImm)
    return result.value


def aims(result: Result) -> Iterable[Aim]:
    for w in result["workloads"]:
        found = {name: w["planned"] / size for name, size in w["pools"].items()}
        value = ", ".join(f"{ratio:.2f}x ({name})" for name, ratio in found.items())
        text = f"{w['name']}: planned at most {w['aim']:.2f}x of either pool"
        yield text, value, max(found.values()) <= w["aim"]
    counted = result["allocations"]
    if counted is not None:
        value = f"{counted['besides']} in {counted['calls']} calls, the results apart"
        yield "no allocation after the start", value, counted["besides"] == 0


def render(result: Result) -> str:
    title = ["temporaries, MB", "planned", "without bounds", "live at the peak"]
    title += [part for name in POOLS for part in (f"pool: {name}", "planned / pool")]
    rows: list[list[str]] = []
    for w in result["workloads"]:
        sizes = ", ".join(map(str, w["values"]))
        row = [f"{w['name']} {w['symbol']} = {sizes}"]
        row += [f"{w[key] / 1e6:.1f}" for key in ("planned", "symbolic", "peak")]
        for bytes_ in w["pools"].values():
            row += [f"{bytes_ / 1e6:.1f}", f"{w['planned'] / bytes_:.2f}x"]
        rows.append(row)
    s = result["settings"]
    head = f"Llama3-8B, {s['layers']} blocks, float32, {s['threads']} threads, no weights"
    return "\n\n".join([f"{head}\n{table(title, rows)}", aims_text(aims(result))])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the accounting; 0."""
    parser = program.parser_of("memory", (__doc__ or "").partition("\n")[0])
    options = parser.parse_args(arguments)
    result = measure(2 if options.quick else LLAMA3_8B.num_layers, options.threads)
    print(render(result))
    program.write(result, options.output)
    bars = {
        w["name"]: {"planned": w["planned"], "live at the peak": w["peak"], **w["pools"]}
        for w in result["workloads"]
    }
    program.drawn(chart.bars(bars, "temporaries of a Llama3-8B", "bytes", options.output))
    return 0


if __name__ == "__main__":
    sys.exit(main())
