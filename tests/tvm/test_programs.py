"""Programs that print the same under TVM and under `relaxlab.tvm`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TVM = ROOT / ".venv-tvm/bin/python"
PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*.py"))


def output(*command: str | Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.stem)
def test_a_program_prints_what_it_prints_under_tvm(program: Path) -> None:
    if not TVM.exists():
        pytest.skip("needs .venv-tvm (make tvm-env)")
    ours = output(sys.executable, "-m", "relaxlab.tvm", program)
    assert ours == output(TVM, "-W", "ignore", program)
