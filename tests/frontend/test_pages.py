"""The programs of the pages about other frameworks run, in an environment that has these."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.test_repo import ROOT

PYTHON = ROOT / ".venv-reference/bin/python"
PAGES = ("from-jax", "from-onnx")


@pytest.mark.parametrize("page", PAGES)
def test_the_program_of_a_page_runs(page: str, tmp_path: Path) -> None:
    if not PYTHON.exists():
        pytest.skip("needs .venv-reference (make reference-env)")
    text = (ROOT / f"docs/{page}.md").read_text("utf-8")
    program = tmp_path / "program.py"
    program.write_text("\n".join(re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)), "utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RELAXLAB_CACHE": str(tmp_path / "cache")}
    command = [PYTHON, "-W", "ignore", program]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
