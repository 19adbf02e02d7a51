"""The benchmark against MetaSchedule: its programs, its peer's protocol, its table."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import relaxlab as rl
from benchmarks import bench_metaschedule
from benchmarks.bench_metaschedule import CASES, TINY, Case, Peer, Row, table

PEER = """\
import sys
from pathlib import Path
import numpy as np
action, script, folder, cores = sys.argv[1:]
if action == "tune":
    sys.exit("no XGBoost")
given = np.load(Path(folder) / "arguments.npz")
x, w = (given[name] for name in given.files)
for line in sys.stdin:
    do, what = line.split()
    if do == "result":
        np.save(what, FACTOR * (x @ w))
    print(1e-3, flush=True)
"""


@pytest.mark.parametrize("case", [*CASES.values(), TINY])
def test_programs_have_the_types_that_they_state(case: Case) -> None:
    mod = rl.parse(case.script())
    assert len(mod["main"].params) == len(case.shapes)
    assert len(CASES) >= 12


def peer(monkeypatch: pytest.MonkeyPatch, folder: Path, factor: float) -> Peer:
    file = folder / "peer.py"
    file.write_text(PEER.replace("FACTOR", str(factor)))
    monkeypatch.setattr(bench_metaschedule, "PEER", file)
    monkeypatch.setattr(bench_metaschedule, "PYTHON", Path(sys.executable))
    return Peer(TINY, folder, 1)


@pytest.mark.parametrize("factor", [1.0, 1.01])
def test_both_compute_the_same_and_are_timed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, factor: float
) -> None:
    made = peer(monkeypatch, tmp_path, factor)
    exe = rl.compile(rl.parse(TINY.script()), threads=1)
    made.serve()
    try:
        if factor != 1:
            with pytest.raises(RuntimeError, match="compute different things"):
                bench_metaschedule._timed(exe, made, tmp_path / "result.npy")
        else:
            ours, theirs = bench_metaschedule._timed(exe, made, tmp_path / "result.npy")
            assert theirs == 1e-3 and 0 < ours < 1
    finally:
        made.close()


def test_a_peer_that_ends_is_no_result(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = peer(monkeypatch, tmp_path, 1.0)
    assert made.trials == 0
    with pytest.raises(RuntimeError, match="MetaSchedule ended: no XGBoost"):
        made.tune(60)


def test_the_table() -> None:
    rows = [Row("a", 1e-5, 2e-5, 40, 10, 60), Row("b", 4e-5, 2e-5, 20, 10, 60)]
    lines = table(rows).splitlines()
    assert lines[2] == "| a | 10.0 µs | 20.0 µs | 2.00 | 40 | 10 |"
    assert lines[-1].startswith("geometric mean of the ratios 1.00 (aim 1.3), trials 3.00 times")
    assert np.isclose(rows[1].ratio, 0.5)
