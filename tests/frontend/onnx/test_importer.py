"""`relaxlab.from_onnx`: ONNX's own tests, and what the importer promises beside them.

onnx lives in an environment of its own (`make reference-env`), where `conformance.py` and
`interface.py` run; the tests are skipped only when that environment is missing. All outcomes are
recorded in outcomes.json, from which docs/onnx-coverage.md is written; a fixed part of them is run.
"""

from __future__ import annotations

import json
import pathlib
import subprocess

import pytest

from relaxlab.frontend.onnx import importer  # fills the table
from relaxlab.frontend.onnx.rows import TABLE
from relaxlab.frontend.packages import PackageMissing
from tools.write_onnx_coverage import PAGE, page, recorded

ROOT = pathlib.Path(__file__).parents[3]
PYTHON = ROOT / ".venv-reference/bin/python"
PASSING = sorted(k for k, v in recorded().items() if v.startswith("pass"))
SLICE = sorted(recorded())[::20]
COMPILED = PASSING[7::220]


def run(module: str, *args: str) -> str:
    """What a program of this folder prints."""
    if not PYTHON.exists():
        pytest.skip("needs .venv-reference (make reference-env)")
    command = [PYTHON, "-W", "ignore", "-m", f"tests.frontend.onnx.{module}", *args]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_part_of_the_outcomes_is_as_recorded() -> None:
    found = json.loads(run("conformance", *SLICE, "--compiled", *COMPILED))
    assert set(found) == {*SLICE, *COMPILED}
    assert found == {k: recorded()[k] for k in found}


def test_the_page_is_what_is_recorded() -> None:
    assert PAGE.read_text("utf-8") == page(recorded())
    assert len(recorded()) == 1884 and len(PASSING) >= 1500
    assert len(TABLE) >= 140


def test_the_interface() -> None:
    problems = json.loads(run("interface"))
    assert problems and not {k: v for k, v in problems.items() if v}


def test_without_onnx_the_package_is_named() -> None:
    with pytest.raises(PackageMissing, match="pip install onnx"):
        importer.from_onnx("model.onnx")
