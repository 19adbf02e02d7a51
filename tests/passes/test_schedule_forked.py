"""Kernels that forked processes schedule."""

from __future__ import annotations

import pytest

import relaxlab as rl
from relaxlab.analysis.well_formed import check_well_formed
from relaxlab.ir import processes
from relaxlab.ir.loops import PrimFunc
from relaxlab.passes.base import Pipeline
from relaxlab.passes.pipeline import GRAPH_PASSES
from relaxlab.passes.schedule_kernels import schedule_kernels
from relaxlab.schedule.known_schedules import KnownSchedules
from relaxlab.tracing import PassRecord, first_rewrites

SCRIPT = """
@R.function
def main(x: R.Tensor(("n", "k"), "float32"), w: R.Tensor(("k", 8), "float32")):
    with R.dataflow():
        a = R.nn.softmax(x)
        b = R.sum(R.cumsum(a, axis=0), axis=1)
        c = R.permute_dims(w)
        R.output(b, c)
    return b, c
"""


def test_other_processes_schedule_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    mod = Pipeline(GRAPH_PASSES).run(rl.parse(SCRIPT)).result
    monkeypatch.setattr(processes, "LEAST", 1e-9)
    runs: list[PassRecord] = []
    for cores in (1, 3):
        monkeypatch.setattr(processes, "cores", lambda cores=cores: cores)
        monkeypatch.setattr("relaxlab.passes.schedule_kernels.KNOWN", KnownSchedules())
        runs.append(Pipeline((schedule_kernels,)).run(mod).passes[0])
    here, there = runs
    assert str(there.after) == str(here.after)
    assert list(map(str, there.remarks)) == list(map(str, here.remarks)) != []
    assert not list(check_well_formed(there.after))
    for name, f in mod.items():
        if isinstance(f, PrimFunc):
            # Others may refer to their parameters, which are no copies.
            scheduled = there.after[name]
            assert all(a is b for a, b in zip(f.params, scheduled.params, strict=True))


def test_limited_rewrites_are_made_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    mod = Pipeline(GRAPH_PASSES).run(rl.parse(SCRIPT)).result
    monkeypatch.setattr(processes, "LEAST", 1e-9)
    monkeypatch.setattr(processes, "cores", lambda: 3)
    with first_rewrites(2) as rewrites:
        schedule_kernels(mod)
    assert len(rewrites.made) == 2
