"""Predicted times of the kernels that are measured on GPUs, beside those that were measured.

    python -m benchmarks.gpu.predictions --only matmul --gpus h100

Without `--only` and `--gpus` the results are written to `results/gpu-predicted.json`, with a chart
of those that were measured beside them. It needs no GPU; registers are NVRTC's where it is
installed.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import relaxlab as rl
from benchmarks.gpu.cases import BRAIN, Case, cases
from benchmarks.gpu.decoder import configuration, program, smollm2
from benchmarks.gpu.measured import DECODER_LAYERS, MEASURED, STATIC, Measured
from relaxlab.ir.gpus import GPUS
from relaxlab.models.config import DecoderConfig
from relaxlab.runtime.predict.predict import Prediction

RESULT = Path(__file__).parents[1] / "results" / "gpu-predicted.json"
CHART = RESULT.with_suffix(".svg")
RUN = ("h100", "h200")
"""The GPUs that times were measured on. Both are of one architecture."""
PROMPT = 1024
DECODERS: Sequence[tuple[str, Callable[[], DecoderConfig], int, str]] = (
    *((f"decoder, {DECODER_LAYERS} layers", lambda: configuration(DECODER_LAYERS), batch, format)
      for batch, format in ((1, "BF16"), (4, "BF16"), (16, "BF16"), (1, "Q4_0"))),
    *(("decoder, 32 layers", lambda: configuration(32), batch, "BF16") for batch in (1, 4, 16)),
    ("SmolLM2-135M", smollm2, 1, "BF16"),
)  # fmt: skip
"""Labels, sizes, sequences at a time, and the format of the weights."""


def recorded(case: str, gpu: str) -> float | None:
    """The microseconds that are recorded for a case on a GPU whose full name contains a known one;
    None where there are none."""
    rows: list[dict[str, Any]] = json.loads(RESULT.read_text())["rows"]
    known = [r for r in rows if r["case"] == case and r["gpu"] in gpu.lower()]
    return known[0]["us"] if known else None


def predicted(only: Sequence[str], gpus: Sequence[str]) -> Iterator[dict[str, Any]]:
    """A row for each case and GPU."""
    for case in cases():
        if _wanted(case.name, only):
            for gpu in gpus:
                found = rl.predict(case.module(), gpu, **case.sizes())
                yield _row(case.name, gpu, found, case.operations)
    for one in MEASURED:
        if one.case == STATIC and one.gpu in gpus and _wanted(one.label, only):
            yield _row(one.label, one.gpu, _product(one), 2 * 8192**3)
    for label, config, batch, format in DECODERS:
        name = f"{label}, batch {batch}, {format}"
        if _wanted(name, only):
            _, module = program(config(), batch, format)
            # Both are of one architecture.
            exe = rl.compile(module, target=GPUS[gpus[0]].target)
            for gpu in gpus:
                step = rl.predict(exe, gpu, "decode", p=PROMPT)
                yield _row(f"{name}: a step", gpu, step, 0)
                prompt = rl.predict(exe, gpu, "prefill", s=PROMPT, p=0)
                yield _row(f"{name}: a prompt of {PROMPT}", gpu, prompt, 0)


def _product(one: Measured) -> Prediction:
    n = 8192
    x = (f"({n}, {n})", (n, n), BRAIN)
    module = Case(one.case, "products", (x, x), "R.matmul(x, y)", max).module()
    decisions = {"matmul": dict(one.decisions or {})}
    exe = rl.compile(module, target="cuda:sm_90", decisions=decisions)  # without warpgroups
    return rl.predict(exe, one.gpu)


def _wanted(name: str, only: Sequence[str]) -> bool:
    return not only or any(text in name for text in only)


def _row(case: str, gpu: str, found: Prediction, operations: int) -> dict[str, Any]:
    slowest = max(found.launches, key=lambda x: x.seconds)
    known = next((m.us for m in MEASURED if m.label == case and m.gpu == gpu), None)
    return {
        "case": case,
        "gpu": gpu,
        "us": round(found.seconds * 1e6, 2),
        "bound": slowest.times.bound,
        "gb_s": round(found.bytes / found.seconds / 1e9),
        "tflop_s": round(operations / found.seconds / 1e12, 1),
        "measured_us": None if known is None else round(known, 1),
    }


def errors(rows: Sequence[Mapping[str, Any]]) -> list[float]:
    """Predicted times over measured ones."""
    return [r["us"] / r["measured_us"] for r in rows if r["measured_us"]]


def draw(rows: Sequence[Mapping[str, Any]]) -> None:
    """Write the chart: measured times, and predicted ones beside them."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    known = [r for r in rows if r["measured_us"]]
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "predicted", "font.size": 8})
    figure, axis = plt.subplots(figsize=(6, 0.46 * len(known) + 0.8))
    for n, kind, colour in ((-0.2, "measured_us", "#7a8a99"), (0.2, "us", "#d2691e")):
        bars = axis.barh([i + n for i in range(len(known))], [r[kind] for r in known], 0.38,
                         color=colour, label="measured" if n < 0 else "predicted")  # fmt: skip
        texts = [f"{r[kind]:.0f}" if n < 0 else f"{r[kind]:.0f}, {r['bound']}" for r in known]
        axis.bar_label(bars, texts, padding=3, color="#808080")
    labels = [textwrap.fill(f"{r['case']}, {r['gpu'].upper()}", 66) for r in known]
    axis.set_yticks(range(len(known)), labels)
    axis.invert_yaxis()
    axis.set_xscale("log")
    axis.margins(x=0.3)
    axis.set_xlabel("microseconds", color="#808080")
    axis.tick_params(colors="#808080", length=0)
    axis.legend(frameon=False, labelcolor="#808080")
    for side in axis.spines.values():
        side.set_visible(False)
    figure.savefig(CHART, transparent=True, bbox_inches="tight", metadata={"Date": None})


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; write it where no case and no GPU was left out."""
    options = _options(arguments)
    rows: list[dict[str, Any]] = []
    print(f"{'case':64} {'GPU':5} {'us':>9} {'measured':>9} {'ratio':>6}  bound by")
    for row in predicted(options.only, options.gpus):
        rows.append(row)
        known = row["measured_us"]
        ratio = f"{row['us'] / known:6.2f}" if known else " " * 6
        print(
            f"{row['case'][:64]:64} {row['gpu']:5} {row['us']:9.1f} {known or '':9} {ratio}  "
            f"{row['bound']}",
            flush=True,
        )
    if found := errors(rows):
        mean = math.exp(statistics.fmean(map(math.log, found)))
        worst = max(found, key=lambda r: abs(math.log(r)))
        off = statistics.median(abs(math.log(r)) for r in found)
        print(f"{len(found)} were measured: predicted over measured {mean:.2f} in the geometric")
        print(f"mean, typically off by {math.expm1(off):.0%}, {worst:.2f} at worst")
    if not options.only and set(options.gpus) == set(RUN):
        RESULT.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
        draw(rows)
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", nargs="*", default=(), help="cases with these texts in them")
    parser.add_argument("--gpus", nargs="*", default=RUN, choices=RUN)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
