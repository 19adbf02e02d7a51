"""One compilation for all shapes: what it costs, and how it fares against peers specialised to each
of 50 random shapes. How long a 32-block transformer takes through the passes and to native code.

    .venv/bin/python -m benchmarks.bench_shapes --quick

See README.md in this folder for what is measured.
"""

from __future__ import annotations

import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.kernels import chart, program, race
from benchmarks.kernels.cases import HEADS, Case
from benchmarks.kernels.race import say
from benchmarks.kernels.table import OURS, Aim, aims_text, failures, others_of, race_heading, speeds
from benchmarks.models import LLAMA3_8B, decoder
from benchmarks.report import Spread, table
from relaxlab.codegen.program import compile_program
from relaxlab.ir.target import Target
from relaxlab.passes.lower_shapes import lower_shapes
from relaxlab.passes.pipeline import cpu_pipeline

Result = Mapping[str, Any]
ROWS = (race.RELAXLAB, race.PYTORCH, race.COMPILED, race.JAX)
SHAPES = 50
SEED = 20
LARGEST = 1024
PASSES_S, NATIVE_S = 3.0, 10.0
METHODS = (("prefill",), ("prefill", "decode"))


def random_cases(count: int, seed: int, largest: int) -> list[list[Case]]:
    """Return as many shapes of each kind, the logarithms of their sizes evenly distributed."""
    rng = random.Random(seed)

    def size() -> int:
        return round(math.exp(rng.uniform(0, math.log(largest))))

    def cases(make: Callable[[], Case]) -> list[Case]:
        found: dict[str, Case] = {}
        while len(found) < count:
            case = make()
            found.setdefault(case.name, case)
        return list(found.values())

    width = {"n": largest, "k": largest}
    return [
        cases(lambda: Case("matmul+bias+gelu", {"m": size(), **width}, constant=True)),
        cases(lambda: Case("softmax", {"n": size(), "d": size()}, limit="copy")),
        cases(lambda: Case("attention", {"s": size(), "kv": HEADS})),
    ]


def compile_times(layers: int) -> list[dict[str, Any]]:
    """Seconds of every pass, of the host program, and of LLVM, by the graph functions compiled."""
    found: list[dict[str, Any]] = []
    config = replace(LLAMA3_8B, num_layers=layers)
    for methods in METHODS:
        say(f"compile {layers} blocks: {', '.join(methods)}")
        module = decoder(config, methods)
        begin = time.perf_counter()
        trace = cpu_pipeline().run(module)
        middle = time.perf_counter()
        host = lower_shapes(trace.result)
        lowered = time.perf_counter()
        compile_program(host, Target.host(), {})
        end = time.perf_counter()
        passes: dict[str, float] = {}
        for record in trace.passes:
            passes[record.name] = passes.get(record.name, 0.0) + record.seconds
        found.append({
            "functions": methods, "blocks": layers, "passes_s": middle - begin,
            "lower_shapes_s": lowered - middle, "llvm_s": end - lowered,
            "native_s": end - begin, "passes": passes, "kernels": len(host.kernels),
        })  # fmt: skip
    return found


def ratios(result: Result, kind: str, peer: str) -> list[tuple[float, str]]:
    """relaxlab's speed relative to the peer's in the same round, the median per shape."""
    found: list[tuple[float, str]] = []
    for case in result["cases"]:
        if case["kind"] == kind and peer in others_of(result, case):
            mine = speeds(case, OURS)
            pairs = zip(mine, speeds(case, peer), strict=False)
            found.append((statistics.median(a / b for a, b in pairs), case["name"]))
    return found


def compile_s(result: Result, kind: str, name: str) -> float:
    """Return the time of compiling all shapes of a kind together, first runs included."""
    cases = [c["peers"].get(name) for c in result["cases"] if c["kind"] == kind]
    return sum(found["compile_s"] for found in cases if found is not None)


def aims(result: Result) -> Iterator[Aim]:
    for found in result["compilations"]:
        what = f"{found['blocks']} blocks ({' and '.join(found['functions'])})"
        for text, key, most in (
            ("through all graph passes", "passes_s", PASSES_S),
            ("to native code", "native_s", NATIVE_S),
        ):
            yield f"{what} {text} in {most:.0f} s", f"{found[key]:.1f} s", found[key] <= most


def render(result: Result) -> str:
    parts = [race_heading(result), _compilations(result), _shapes(result), aims_text(aims(result))]
    return "\n\n".join(part for part in [*parts, failures(result)] if part)


def _compilations(result: Result) -> str:
    lines: list[str] = []
    for found in result["compilations"]:
        hottest = sorted(found["passes"].items(), key=lambda item: -item[1])[:6]
        shown = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in hottest)
        lines.append(
            f"{found['blocks']} blocks, {' and '.join(found['functions'])}: passes "
            f"{found['passes_s']:.1f} s, host program {found['lower_shapes_s']:.1f} s, LLVM "
            f"{found['llvm_s']:.1f} s, together {found['native_s']:.1f} s; "
            f"{found['kernels']} kernels\n  hottest passes: {shown}"
        )
    return "\n".join(lines)


def _shapes(result: Result) -> str:
    rows: list[list[str]] = []
    for kind in dict.fromkeys(case["kind"] for case in result["cases"]):
        for peer in (n for n in result["peers"] if n != OURS):
            found = ratios(result, kind, peer)
            if found:
                worst, where = min(found)
                rows.append([
                    f"{kind} / {peer}", f"{Spread.of([r for r, _ in found]).text(2)}x",
                    f"{worst:.2f}x", where.removeprefix(kind),
                    f"{compile_s(result, kind, OURS):.1f}", f"{compile_s(result, kind, peer):.1f}",
                ])  # fmt: skip
    s = result["settings"]
    title = ["ratio to the peer", "median (quartiles)", "worst", "at", "compile s", "peer's"]
    head = f"{s['shapes']} random shapes each, seed {s['seed']}; compile: all shapes together"
    return f"{head}\n{table(title, rows)}" if rows else head


def measure(
    rows: Sequence[race.Row], settings: race.Settings, quick: bool, seed: int = SEED
) -> dict[str, Any]:
    """The compilations first, then the kinds one after the other."""
    count = 8 if quick else SHAPES
    compilations = compile_times(4 if quick else LLAMA3_8B.num_layers)
    result = race.run(rows, random_cases(count, seed, LARGEST), settings)
    result["settings"] |= {"shapes": count, "seed": seed}
    return result | {"compilations": compilations}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 1 if a peer failed."""
    parser = program.parser_of("shapes", (__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=SEED, help="of the random shapes")
    settings, rows, options = program.chosen(parser, ROWS, arguments)
    settings = replace(settings, rounds=min(settings.rounds, 3), seconds=0.02)
    result = measure(rows, settings, options.quick, options.seed)
    print(render(result))
    program.write(result, options.output)
    title = f"{result['settings']['shapes']} random shapes, median and quartiles"
    program.drawn(chart.bars(_bars(result), title, "speed relative to the peer", options.output))
    return int(any("error" in about for about in result["peers"].values()))


def _bars(result: Result) -> dict[str, dict[str, chart.Bar]]:
    found: dict[str, dict[str, chart.Bar]] = {}
    for kind in dict.fromkeys(case["kind"] for case in result["cases"]):
        for peer in result["peers"]:
            values = [r for r, _ in ratios(result, kind, peer)]
            if values:
                spread = Spread.of(values)
                bar = spread.low, spread.median, spread.high
                found.setdefault(kind, {})[f"against {peer}"] = bar
    return found


if __name__ == "__main__":
    sys.exit(main())
