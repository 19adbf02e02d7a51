"""The programs with symbols are the programs with constants. No timings."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import relaxlab as rl
from benchmarks import bench_symbols
from benchmarks.bench_symbols import CONSTANTS, MOST, ratios, render
from benchmarks.symbols import Case, all_cases

MATMUL = Case("matmul", "x: n k; w: k m", "R.matmul(x, w)", {"n": 5, "k": 7, "m": 9}, ("n", "n k"))


def test_measurements(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_symbols, "all_cases", lambda: [MATMUL])
    output = tmp_path / "new" / "symbols.json"
    assert bench_symbols.main(["--rounds", "2", "--output", str(output)]) == 0
    result, shown = json.loads(output.read_text("utf-8")), capsys.readouterr().out
    (case,) = result["cases"]
    assert list(case["versions"]) == [CONSTANTS, "n", "n k"]
    for version in case["versions"].values():
        assert len(version["seconds"]) == 2 and min(version["seconds"]) > 0
        assert version["rules"] == ["matmul"]
    assert "matmul n=5 k=7 m=9: n k" in shown


def test_slow_versions_are_marked() -> None:
    versions = {
        CONSTANTS: {"seconds": [1.0, 2.0], "rules": ["a"]},
        "n": {"seconds": [1.1, 2.2], "rules": ["a"]},
        "m": {"seconds": [3.0, 6.0], "rules": ["b"]},
    }
    result = bench_symbols.measure([], 2, 1) | {
        "cases": [{"name": "case", "versions": versions}], "busy_cores": [0.0]
    }  # fmt: skip
    found = {symbols: spread.median for _, symbols, spread in ratios(result)}
    assert found == pytest.approx({"n": 1.1, "m": 3.0}) and found["m"] > MOST
    lines = render(result).splitlines()
    assert [line for line in lines if "x !" in line] == [
        line for line in lines if line.startswith("case: m")
    ]
    assert "MISSED" in lines[-1] and "1 of 2 do; the worst 3.00x: case, symbols m" in lines[-1]


def test_versions_that_differ_are_refused() -> None:
    got = np.ones(3, np.float32)
    with pytest.raises(RuntimeError, match="with the symbols m the result differs"):
        bench_symbols._check(MATMUL, "m", got, got * 1.01)


def test_every_case_is_a_program() -> None:
    """Names are unique, symbols are extents, and arguments fit the parameters."""
    cases = all_cases()
    assert max(Counter(case.name for case in cases).values()) == 1
    for case in cases:
        assert set(" ".join(case.symbols).split()) <= set(case.sizes)
        for symbols in (CONSTANTS, *case.symbols):
            main = rl.parse(case.script(symbols.split())).graph_functions()["main"]
            shapes = [[str(d) for d in p.ty.shape] for p in main.params]
            assert symbols == CONSTANTS or any(not d.isdigit() for dims in shapes for d in dims)
            if symbols == CONSTANTS:
                given = [[str(d) for d in a.shape] for a in case.arrays(np.random.default_rng(0))]
                assert given == shapes
