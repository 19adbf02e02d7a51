"""The benchmarks of compilation and of whole models run at tiny sizes without peers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as everything
from benchmarks import bench_ablation, bench_shapes, models
from benchmarks.kernels import program, race
from benchmarks.variants import VARIANTS
from relaxlab.models import tiny
from relaxlab.models.config import Rope
from relaxlab.models.families import config_from_gguf
from relaxlab.models.gguf import read_gguf
from relaxlab.passes.pipeline import cpu_pipeline

SMALL = replace(
    models.LLAMA3_8B, hidden_size=64, num_heads=4, num_kv_heads=2, head_dim=16, ffn_size=96,
    vocab_size=50, num_layers=1, rope=Rope(1e4, 16),
)  # fmt: skip


def test_shapes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_shapes, "LLAMA3_8B", SMALL)
    monkeypatch.setattr(bench_shapes, "LARGEST", 16)
    monkeypatch.setattr(bench_shapes, "SHAPES", 3)
    monkeypatch.setattr(race, "PAUSE_S", 0.01)
    monkeypatch.setattr(program, "Settings", lambda threads: race.Settings(1, 1))
    output = tmp_path / "shapes.json"
    arguments = ["--only", "relaxlab", "--seed", "7", "--output", str(output)]
    assert bench_shapes.main(arguments) == 0
    result = json.loads(output.read_text("utf-8"))
    assert [len(c["functions"]) for c in result["compilations"]] == [1, 2]
    for found in result["compilations"]:
        assert found["passes"]["schedule_kernels"] > 0
        assert sum(found["passes"].values()) <= found["passes_s"] <= found["native_s"]
    assert len(result["cases"]) == 9 and result["settings"]["seed"] == 7
    shown = capsys.readouterr().out
    assert "3 random shapes each, seed 7" in shown and "hottest passes: " in shown


def test_random_shapes_are_distinct_and_repeatable() -> None:
    first, again = (bench_shapes.random_cases(50, 3, 1024) for _ in range(2))
    assert first == again != bench_shapes.random_cases(50, 4, 1024)
    for cases in first:
        assert len({case.name for case in cases}) == len(cases) == 50


def test_ratios_of_shapes() -> None:
    def case(name: str, mine: list[float], peer: list[float]) -> dict[str, Any]:
        seconds = {"relaxlab": mine, "peer": peer}
        found = {n: {"seconds": s, "compile_s": 2.0} for n, s in seconds.items()}
        return {"kind": "softmax", "name": name, "work": 8.0, "peers": found}

    cases = [case("a", [1.0, 2.0, 4.0], [2.0, 2.0, 2.0]), case("b", [1.0], [3.0])]
    result = {"cases": cases, "ours": ["relaxlab"], "peers": {"relaxlab": {}, "peer": {}}}
    assert bench_shapes.ratios(result, "softmax", "peer") == [(1.0, "a"), (3.0, "b")]
    assert bench_shapes.ratios(result, "attention", "peer") == []
    assert bench_shapes.compile_s(result, "softmax", "peer") == 4.0


def test_ablation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_ablation, "PAUSE_S", 0.01)
    monkeypatch.setattr(bench_ablation, "PROMPT", 9)
    monkeypatch.setattr(bench_ablation, "STEPS", 3)
    chosen = ("everything", "without fusion", "without memory planning")
    monkeypatch.setattr(bench_ablation, "VARIANTS", {name: VARIANTS[name] for name in chosen})
    output = tmp_path / "ablation.json"
    assert bench_ablation.main(["--quick", "--model", "tiny", "--output", str(output)]) == 0
    result = json.loads(output.read_text("utf-8"))
    assert tuple(result["peers"]) == chosen
    shown = capsys.readouterr().out
    for name, found in result["peers"].items():
        assert name in shown and len(found["decode"]) == len(found["prefill"]) == 1
    whole = bench_ablation.relative(result, "everything", "decode")
    assert whole is not None and whole.median == 1


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_every_variant_is_a_pipeline_that_works(name: str) -> None:
    config = config_from_gguf(read_gguf(tiny.path()))
    pipeline = VARIANTS[name](cpu_pipeline())
    assert (pipeline != cpu_pipeline()) == (name != "everything")
    size = bench_ablation.temporaries(config, name, 16, 2)
    whole = bench_ablation.temporaries(config, "everything", 16, 2)
    assert (size > 2 * whole) == (name == "without memory planning")


def test_benchmarks_by_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[tuple[str, list[str]]] = []

    class Fake:
        def __init__(self, name: str) -> None:
            self.name = name

        def main(self, options: Sequence[str]) -> int:
            seen.append((self.name, list(options)))
            return int(self.name.endswith("gemm"))

    monkeypatch.setattr(everything, "import_module", Fake)
    assert everything.main(["gemm", "llm", "--quick"]) == 1
    assert seen == [("benchmarks.bench_gemm", ["--quick"]), ("benchmarks.bench_llm", ["--quick"])]
    seen.clear()
    assert everything.main(["memory"]) == 0
    assert everything.main([]) == 1
    assert [name for name, _ in seen[1:]] == [f"benchmarks.bench_{n}" for n in everything.NAMES]
    assert everything.main(["nothing"]) == 2
    assert "no benchmark is called nothing" in capsys.readouterr().err
