"""Counts of batches: the report says what was counted."""

from __future__ import annotations

import copy
import json

import pytest

from benchmarks import bench_policies


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> bench_policies.Result:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench_policies, "cell_seconds", lambda rows: 1e-4)
        measured = bench_policies.measure(2, 2)
    return json.loads(json.dumps(measured))


def test_counts_are_in_order(result: bench_policies.Result) -> None:
    for workload in result["workloads"]:
        counts = workload["batches"]
        assert workload["bound"] <= min(counts.values()) and counts["agenda"] <= counts["depth"]
        assert all(n <= counts["agenda"] for n in workload["guarded"].values())


def test_the_report_has_every_model_and_aim(result: bench_policies.Result) -> None:
    text = bench_policies.render(result)
    assert all(text.count(w["name"]) >= 2 for w in result["workloads"])
    assert "met     schedule_batches: nowhere more than agenda" in text
    worse = copy.deepcopy(dict(result))
    trees = worse["workloads"][0]
    trees["batches"]["fsm"] = trees["bound"] + 1
    trees["guarded"]["fsm"] = trees["batches"]["agenda"] + 1
    shown = bench_policies.render(worse)
    assert "MISSED  TreeLSTM: fsm at most 1.00x bound" in shown
    assert "MISSED  schedule_batches: nowhere more than agenda" in shown
