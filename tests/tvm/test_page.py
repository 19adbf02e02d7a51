"""The program of the page about TVM runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import relaxlab.tvm as tvm
from relaxlab.tvm.without_meaning import REASONS

ROOT = Path(__file__).parents[2]


def test_the_program_of_the_page_runs(tmp_path: Path) -> None:
    text = (ROOT / "docs/from-tvm.md").read_text("utf-8")
    program = tmp_path / "program.py"
    program.write_text("\n".join(re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)), "utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert "R.nn.gelu" in done.stdout and "fused_matmul_gelu" in done.stdout


def test_the_page_has_the_passes_without_a_meaning() -> None:
    text = (ROOT / "docs/from-tvm.md").read_text("utf-8")
    rows = re.findall(r"^\| (`\w+`.*) \| (.*) \|$", text, re.M)
    found = {name.strip("`"): why for names, why in rows for name in names.split(", ")}
    assert found == REASONS
    with pytest.raises(AttributeError, match="MakePackedAPI has no meaning in relaxlab: they make"):
        tvm.tir.transform.MakePackedAPI()
    with pytest.raises(AttributeError, match="SplitCallTIRByPattern has no meaning in relaxlab"):
        tvm.relax.transform.SplitCallTIRByPattern()
