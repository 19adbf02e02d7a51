"""The benchmark of imported models: its figures, from times that are made up."""

from __future__ import annotations

from benchmarks import bench_frontend
from benchmarks.bench_frontend import MODELS, OURS, PEERS, THEIRS, aims, ratio, render
from benchmarks.worker import MODULES


def result(ours: float) -> dict:
    case = {
        "name": "llama 2 x 5",
        "peers": {OURS: [ours, ours * 1.1], THEIRS: [2e-3, 2e-3]},
        "compile_s": {OURS: 3.0, THEIRS: 20.0},
    }
    machine = {"cpu": "c", "cores": 2, "memory_gb": 1, "system": "s", "date": "d", "commit": "x"}
    return {
        "machine": machine,
        "peers": {name: {"version": "1"} for name in PEERS},
        "cases": [case, case],
        "busy_cores": [0.0],
        "settings": {"threads": 2, "rounds": 2, "seconds": 1.0},
    }


def test_ratios_are_of_the_same_round() -> None:
    found = result(1e-3)
    assert round(ratio(found["cases"][0]).median, 3) == round((2 + 2 / 1.1) / 2, 3)
    ((_, value, met),) = aims(found)
    assert value == "1.91" and met
    ((_, _, met),) = aims(result(2e-3))
    assert not met


def test_the_table_names_all() -> None:
    text = render(result(1e-3))
    for part in ("llama 2 x 5", "1.91", "1050", "2000", "20.0", "torch.compile"):
        assert part in text


def test_workers_are_known() -> None:
    assert set(PEERS.values()) <= set(MODULES)
    assert bench_frontend.main.__doc__ and len(MODELS) == 8
