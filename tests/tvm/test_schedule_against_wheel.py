"""Each primitive makes of a program what TVM's does, and refuses what TVM's refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import relaxlab as rl
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.node import replace
from tests.tvm.schedule_cases import CASES, DIFFERENT, PROGRAMS

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("RELAXLAB_TVM_PYTHON", ROOT / ".venv-tvm/bin/python"))

pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="needs .venv-tvm with TVM")


@cache
def results(which: str) -> list[dict[str, str]]:
    python = sys.executable if which == "relaxlab" else str(PYTHON)
    env = {**os.environ, "PYTHONPATH": str(ROOT) if which == "relaxlab" else ""}
    run = subprocess.run(
        [python, str(ROOT / "tests/tvm/run_cases.py"), which],
        input=json.dumps([(PROGRAMS[program], steps) for program, steps in CASES]),
        capture_output=True, text=True, check=False, env=env,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    return json.loads(run.stdout)


def function_of(result: dict[str, str]) -> PrimFunc:
    func: Any = rl.parse(result["script"])
    unnamed = {"global_symbol": None, "tir.noalias": None}
    return replace(func, attrs=func.attrs.with_(**unnamed))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}: {case[1]}"[:100])
def test_steps_make_the_same_program(case: tuple[str, str]) -> None:
    number = CASES.index(case)
    theirs, ours = results("tvm")[number], results("relaxlab")[number]
    same = True
    if "script" in theirs and "script" in ours:
        same = rl.structural_equal(function_of(theirs), function_of(ours))
        same = same and theirs["printed"] == ours["printed"]
    else:
        assert "error" not in ours, ours
        same = "script" not in theirs and "refused" in ours
    program, steps = case
    known = any(program == p and part in steps for p, part, _ in DIFFERENT)
    assert same == (not known), f"TVM: {theirs}\nrelaxlab: {ours}"
