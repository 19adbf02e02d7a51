"""The figures of docs/performance.md are those of the results in benchmarks/results."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from benchmarks.kernels import table
from benchmarks.report import speeds

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs/performance.md").read_text("utf-8")

MODEL_ROWS = {
    "relaxlab, `--activations q8`": "relaxlab q8",
    "relaxlab, float32 (default)": "relaxlab float32",
    "llama.cpp": "llama.cpp",
    "llama.cpp, flash attention and large pages": "llama.cpp, tuned",
    "OpenVINO GenAI": "OpenVINO GenAI",
    "relaxlab, weights in float32": "relaxlab, float32 weights",
    "PyTorch, weights in float32": "PyTorch float32",
    "relaxlab, weights in bfloat16": "relaxlab, bfloat16 weights",
    "PyTorch, weights in bfloat16": "PyTorch bfloat16",
}
"""The rows of the page by the names of the peers in the result."""
CHAINS = (
    "softmax", "layer norm", "rms norm", "rms norm(a@b + x)", "gelu(x)*x + 1", "row sum", "row max",
)  # fmt: skip
"""The chains in the order of the page, by their names in the result."""


def result(name: str) -> Any:
    return json.loads((ROOT / f"benchmarks/results/{name}-2-core-epyc.json").read_text("utf-8"))


def rows_of(heading: str) -> list[list[str]]:
    """The cells of the rows of the table in a section, without its head."""
    section = TEXT.split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in rows[2:]]


def head_of(heading: str) -> list[str]:
    """The cells of the head of the table in a section."""
    section = TEXT.split(f"## {heading}\n")[1]
    line = next(line for line in section.splitlines() if line.startswith("|"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def ratio(found: Any, case: Any) -> str:
    spread = table.ratio(found, case, "relaxlab")
    return f"{spread.median:.2f}"


def test_language_models() -> None:
    found = result("smollm2-135m")
    rows = rows_of("Language models")
    assert [row[0] for row in rows] == list(MODEL_ROWS)
    for name, decode, prefill, agreement in rows:
        peer = MODEL_ROWS[name]
        measured = [median(speeds(found, peer, f"{k}_tok_s")) for k in ("decode", "prefill")]
        assert [decode, prefill] == [f"{value:.0f}" for value in measured]
        steps = found["peers"][peer].get("accuracy", {}).get("steps")
        percent = "not measured" if steps is None else f"{100 * steps['agreement']:.1f} %"
        assert agreement == percent.replace("100.0", "100")


def test_products() -> None:
    found = result("gemm")
    sizes = [int(cell) for cell in head_of("Products by a 1024 x 1024 matrix")[1:]]
    for (_, *cells), constant in zip(
        rows_of("Products by a 1024 x 1024 matrix"), (True, False), strict=True
    ):
        cases = [c for c in found["cases"] if c["constant"] is constant]
        assert [c["sizes"]["m"] for c in cases] == sizes
        assert cells == [ratio(found, c) for c in cases]
    shares = [table.share(c, "relaxlab") for c in found["cases"] if c["sizes"]["m"] == 1024]
    written = re.findall(r"these are (\d+) % and (\d+) % of the multiply-adds", TEXT)
    assert written == [tuple(f"{100 * (share or 0):.0f}" for share in shares)]


@pytest.mark.parametrize(("rows", "column"), [(4096, 1), (131072, 3)])
def test_chains(rows: int, column: int) -> None:
    found = result("chains")
    cases = {c["name"].split(" n=")[0]: c for c in found["cases"] if c["sizes"]["n"] == rows}
    assert list(cases) == list(CHAINS)
    for cells, name in zip(rows_of("Chains of operators"), CHAINS, strict=True):
        share = table.share(cases[name], "relaxlab")
        assert share is not None
        assert cells[column : column + 2] == [ratio(found, cases[name]), f"{100 * share:.0f} %"]


def test_attention() -> None:
    found = result("attention")
    sizes = [int(cell) for cell in head_of("Causal attention")[1:]]
    cases = {c["sizes"]["s"]: c for c in found["cases"] if c["sizes"]["kv"] == 9}
    ((_, *cells),) = rows_of("Causal attention")
    assert cells == [ratio(found, cases[size]) for size in sizes]
