"""`relaxlab.from_onnx`: ONNX's own tests, and what the importer promises beside them.

onnx lives in an environment of its own (`make reference-env`), where `conformance.py` and
`interface.py` run; the tests are skipped only when that environment is missing. All outcomes are
recorded in outcomes.json, from which tools/write_coverage.py writes pages; a fixed part of them is
run.
"""

from __future__ import annotations

import json
import os
import pathlib
import random
import subprocess

import pytest

from relaxlab.frontend.onnx import importer  # fills the table
from relaxlab.frontend.onnx.rows import TABLE
from relaxlab.frontend.packages import PackageMissing
from tools.write_coverage import onnx_record

ROOT = pathlib.Path(__file__).parents[3]
PYTHON = ROOT / ".venv-reference/bin/python"
RECORDED = onnx_record()["outcomes"]
PASSING = sorted(k for k, v in RECORDED.items() if v.startswith("pass"))
SLICE = sorted(RECORDED)[::20]
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
    outcomes, uses = found["outcomes"], onnx_record()["uses"]
    assert set(outcomes) == {*SLICE, *COMPILED}
    assert outcomes == {k: RECORDED[k] for k in outcomes}
    assert all(set(used) <= set(uses[name]) for name, used in found["uses"].items())


def test_what_is_recorded() -> None:
    assert len(RECORDED) == 1884 and len(PASSING) >= 1603
    assert set(onnx_record()["uses"]) <= set(TABLE) and len(TABLE) >= 140


def test_the_interface() -> None:
    problems = json.loads(run("interface"))
    assert problems and not {k: v for k, v in problems.items() if v}


def test_random_models() -> None:
    """RELAXLAB_SEED repeats them."""
    first = random.Random(os.environ["RELAXLAB_SEED"]).getrandbits(30)
    assert json.loads(run("random_models", str(first), "12")) == {}, f"from seed {first}"


def test_without_onnx_the_package_is_named() -> None:
    with pytest.raises(PackageMissing, match="pip install onnx"):
        importer.from_onnx("model.onnx")
