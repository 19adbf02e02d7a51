"""`relaxlab.from_jax`: every primitive against JAX, at several sizes of one import.

JAX lives in an environment of its own (`make reference-env`), where `programs.py` runs; the tests
are skipped only when that environment is missing. RELAXLAB_SEED draws other values.
"""

from __future__ import annotations

import json
import os
import pathlib
import random
import subprocess
from typing import Any

import pytest

from relaxlab.frontend.jaxpr import importer  # fills the table
from relaxlab.frontend.jaxpr.complex import COMPLEX
from relaxlab.frontend.jaxpr.rows import TABLE
from relaxlab.frontend.packages import PackageMissing
from tests.golden import Golden
from tools.write_coverage import uses_text

ROOT = pathlib.Path(__file__).parents[3]
PYTHON = ROOT / ".venv-reference/bin/python"
SEED = random.Random(os.environ["RELAXLAB_SEED"]).getrandbits(32)


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    """What `programs.py` found."""
    if not PYTHON.exists():
        pytest.skip("needs .venv-reference (make reference-env)")
    program = [PYTHON, "-W", "ignore", "-m", "tests.frontend.jaxpr.programs", str(SEED)]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_programs_compute_what_jax_computes(report: dict[str, Any]) -> None:
    problems = {k: v["problem"] for k, v in report["programs"].items() if v["problem"]}
    assert not problems, f"RELAXLAB_SEED={SEED}: {problems}"
    assert sum(v["compiled"] for v in report["programs"].values()) >= 4


def test_every_row_is_covered(report: dict[str, Any]) -> None:
    """By a program whose jaxpr has the primitive; a program says itself which it is for."""
    reached: set[str] = set()
    for name, found in report["programs"].items():
        assert set(found["covers"]) <= set(found["primitives"]), name
        reached.update(found["primitives"])
    # Random bits expand to these two, and JAX's own gradients to `eq` and the like.
    assert set(TABLE) - reached == {"iota_2x32_shape"}
    assert not set(COMPLEX) - reached
    assert len(TABLE) >= 130


def test_what_rows_use_is_as_recorded(report: dict[str, Any], golden: Golden) -> None:
    golden.file("jax_uses", {"Operators that the rows of JAX use": uses_text(report["uses"])})


def test_the_interface(report: dict[str, Any]) -> None:
    assert report["interface"] and not {k: v for k, v in report["interface"].items() if v}


def test_without_jax_the_package_is_named() -> None:
    with pytest.raises(PackageMissing, match="pip install jax"):
        importer.from_jax(len)
