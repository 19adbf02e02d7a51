"""The recorded predictions of times on GPUs: of every case, beside what was measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import relaxlab as rl
from benchmarks.gpu import predictions
from benchmarks.gpu.cases import cases
from benchmarks.gpu.measured import MEASURED
from benchmarks.gpu.predictions import CHART, DECODERS, RESULT, errors, recorded

ROWS = json.loads(RESULT.read_text())["rows"]


def test_every_case_is_recorded() -> None:
    known = {(r["case"], r["gpu"]) for r in ROWS}
    assert {(c.name, gpu) for c in cases() for gpu in ("h100", "h200")} <= known
    assert {(m.label, m.gpu) for m in MEASURED} <= known
    decoders = [f"{label}, batch {n}, {format}: a step" for label, _, n, format in DECODERS]
    assert {(name, gpu) for name in decoders for gpu in ("h100", "h200")} <= known
    assert recorded("add f32", "NVIDIA H100 80GB HBM3") == recorded("add f32", "h100")
    assert recorded("add f32", "NVIDIA A10") is None


def test_measured_times_are_beside_them() -> None:
    for row in ROWS:
        found = [m.us for m in MEASURED if (m.label, m.gpu) == (row["case"], row["gpu"])]
        assert row["measured_us"] == pytest.approx(found[0], abs=0.1) if found else True
        assert (row["measured_us"] is None) == (not found)
    ratios = sorted(errors(ROWS))
    assert len(ratios) == len(MEASURED)
    assert 0.9 < ratios[len(ratios) // 2] < 1.1
    assert CHART.read_text("utf-8").count("measured") >= 1


def test_a_prediction_is_what_is_recorded() -> None:
    (case,) = [c for c in cases() if c.name == "add f32"]
    found = rl.predict(case.module(), "h100", **case.sizes())
    assert found.seconds * 1e6 == pytest.approx(recorded("add f32", "h100"), rel=0.02)


def test_a_run_of_a_part_writes_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(predictions, "RESULT", tmp_path / "none.json")
    assert predictions.main(["--only", "max f32", "--gpus", "h200"]) == 0
    assert "max f32 axis 1" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())
