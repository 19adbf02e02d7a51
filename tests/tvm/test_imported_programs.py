"""`tvm.relax.frontend.torch` and `.onnx`, in the environment that has both."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-reference/bin/python"


@pytest.mark.skipif(not PYTHON.exists(), reason="needs .venv-reference (make reference-env)")
def test_programs_of_pytorch_and_onnx() -> None:
    command = [PYTHON, "-W", "ignore", "-m", "tests.tvm.imported_programs"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
