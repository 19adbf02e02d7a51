"""The benchmark of operators: its calls, and a run without PyTorch. No timings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxlab
from benchmarks import bench_operators, operators
from relaxlab.ir.module import Module
from relaxlab.ir.op_table import op_names, op_row
from relaxlab.testing.op_check import CaseProgram, OpCase, Shape, T


def test_the_calls() -> None:
    calls = operators.all_calls()
    assert len({c.name for c in calls}) == len(calls) > 900
    kinds = list(dict.fromkeys(c.program for c in calls))
    assert kinds[:2] == ["sum(float32[n], axis=0)", "sum(int8[n], axis=0)"]
    assert {"exp(float16[n, 1024])", "logical_and(bool[n, 1024], bool[n, 1024])"} <= {*kinds}
    for call in operators.operator_calls():
        row = CaseProgram(call.case, call.sizes, symbolic=True).row
        # Attention of sequences becomes that of ranges of keys in a pass.
        assert row.lower is not None or row.name == "nn.attention_var_len"
    sizes = [c.sizes["n"] for c in calls if c.program == "sum(int8[n, 64], axis=1)"]
    assert [64 * n for n in sizes] == list(operators.SIZES)


def test_every_operator_has_a_call() -> None:
    without = {*op_names()} - {c.op for c in operators.all_calls()}
    lowered = {name for name in without if op_row(name).lower is not None}
    assert lowered == {*operators.NOTHING_TO_DO}


@pytest.mark.parametrize("op", [op for op in operators.NOTHING_TO_DO if op != "size"])
def test_operators_with_nothing_to_do_share_memory(op: str) -> None:
    one = T(2, 1, 3)
    more = {"reshape": (Shape(3, 2),)}.get(op, ())
    attrs = {"expand_dims": {"axis": 0}, "squeeze": {"axis": 1}}.get(op, {})
    program = CaseProgram(OpCase(op, (one, *more), attrs), {}, symbolic=True)
    main = relaxlab.compile(Module.of({"main": program.function()}))["main"]
    x = np.zeros((2, 1, 3), np.float32)
    assert np.shares_memory(main(x, ()), x)


def test_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_operators, "PAUSE_S", 0.01)
    output = tmp_path / "result.json"
    only = ["--only", "max(float32[n, 64]", "nn.relu6(float32", "--peers", "NumPy"]
    arguments = [*only, "--rounds", "2", "--threads", "1", "--output", str(output)]
    assert bench_operators.main(arguments) == 0
    result: dict[str, Any] = json.loads(output.read_text("utf-8"))
    cases = {c["name"]: c for c in result["cases"]}
    assert len(cases) == 6
    largest, relu = (
        cases["max(float32[n, 64], axis=1), n = 64"],
        cases["nn.relu6(float32[n, 1024]), n = 4"],
    )
    assert largest["bytes"] == (16 << 10) + (16 << 10) // 64 and relu["bytes"] == 32 << 10
    assert largest["flops"] == 64 * 64
    assert [len(t) for t in largest["peers"].values()] == [2, 2]
    assert list(relu["peers"]) == ["relaxlab"]  # NumPy has no networks
    shown, page = capsys.readouterr().out, output.with_suffix(".html").read_text("utf-8")
    for name in cases:
        assert name in shown and name in page
    ratio = bench_operators.ratio(largest)
    assert ratio is not None and ratio.low > 0 and bench_operators.ratio(relu) is None


def test_bounds() -> None:
    case = {"bytes": 1000, "flops": 10.0, "copy": [1e3, 1e3], "peers": {"relaxlab": [2.0, 4.0]}}
    assert bench_operators.bound(case, fma=100.0) == (1.0, "bytes")
    assert bench_operators.bound(case, fma=1.0) == (5.0, "operations")
    assert bench_operators.share_of_bound(case, fma=100.0) == 1 / 3


def test_parts_are_of_one_size() -> None:
    calls = operators.all_calls()
    parts = list(bench_operators.parts_of(calls))
    assert sorted(c.name for part in parts for c in part) == sorted(c.name for c in calls)
    for part in parts:
        sizes = [bench_operators.size_of(c) for c in part]
        assert len(part) == 1 or (
            sum(sizes) <= bench_operators.MOST_BYTES and sizes == sorted(sizes)
        )


def test_a_wrong_result_is_reported() -> None:
    right = np.arange(10.0)
    assert bench_operators.error_of(right, right) == 0
    assert bench_operators.error_of(right + 1, right) > 0.1
    assert bench_operators.error_of(right[:3], right) == float("inf")
