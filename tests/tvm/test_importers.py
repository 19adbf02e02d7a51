"""TVM's importers of PyTorch and ONNX, in `.venv-reference`, which has both."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-reference/bin/python"


@pytest.mark.skipif(not PYTHON.exists(), reason="needs .venv-reference (make reference-env)")
def test_programs_of_pytorch_and_onnx_have_their_results() -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [PYTHON, "-W", "ignore", Path(__file__).parent / "imported_programs.py"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert ran.returncode == 0 and "all agree" in ran.stdout, ran.stdout + ran.stderr
