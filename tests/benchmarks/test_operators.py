"""The benchmark of operators: its calls, and a run without PyTorch. No timings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import bench_operators, operators
from relaxlab.testing.op_check import CaseProgram


def test_the_calls() -> None:
    calls = operators.all_calls()
    assert len({c.name for c in calls}) == len(calls) > 300
    names = [c.name for c in calls]
    assert names[:2] == ["sum(float32[n], axis=0)", "sum(int8[n], axis=0)"]
    assert {"exp(float16[n, 1024])", "logical_and(bool[n, 1024], bool[n, 1024])"} <= {*names}
    for call in calls:
        assert CaseProgram(call.case, call.sizes, symbolic=True).row.lower is not None
    sizes = {c.name: c.sizes["n"] for c in calls}
    assert sizes["sum(int8[n, 64], axis=1)"] == 4 * sizes["sum(float32[n, 64], axis=1)"] == 1 << 17


def test_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(bench_operators.PEERS, "PyTorch")
    monkeypatch.setattr(bench_operators, "PAUSE_S", 0.01)
    output = tmp_path / "result.json"
    only = ["--only", "max(float32[n, 64]", "nn.relu6(float32"]
    arguments = [*only, "--rounds", "2", "--threads", "1", "--output", str(output)]
    assert bench_operators.main(arguments) == 0
    result: dict[str, Any] = json.loads(output.read_text("utf-8"))
    largest, relu = result["cases"]
    assert largest["bytes"] == (8 << 20) + (8 << 20) // 64 and relu["bytes"] == 16 << 20
    assert [len(t) for t in largest["peers"].values()] == [2, 2]
    assert list(relu["peers"]) == ["relaxlab"]  # NumPy has no networks
    shown = capsys.readouterr().out
    assert largest["name"] in shown and relu["name"] in shown
    ratio = bench_operators.ratio(largest)
    assert ratio is not None and ratio.low > 0 and bench_operators.ratio(relu) is None


def test_a_wrong_result_is_reported() -> None:
    import numpy as np

    right = np.arange(10.0)
    assert bench_operators.error_of(right, right) == 0
    assert bench_operators.error_of(right + 1, right) > 0.1
    assert bench_operators.error_of(right[:3], right) == float("inf")
