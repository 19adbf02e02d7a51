"""Results of cases under TVM's wheel and under relaxlab, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("RELAXLAB_TVM_PYTHON", ROOT / ".venv-tvm/bin/python"))

needs_wheel = pytest.mark.skipif(not PYTHON.exists(), reason="needs .venv-tvm with TVM")


@cache
def results(which: str, kind: str, cases: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    """Return the answers of `run_cases.py` to cases of a kind, with `tvm` or `relaxlab`."""
    python = sys.executable if which == "relaxlab" else str(PYTHON)
    env = {**os.environ, "PYTHONPATH": str(ROOT) if which == "relaxlab" else ""}
    run = subprocess.run(
        [python, str(ROOT / "tests/tvm/run_cases.py"), which, kind],
        input=json.dumps(cases), capture_output=True, text=True, check=False, env=env,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    return json.loads(run.stdout)
