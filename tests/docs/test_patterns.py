"""The examples of docs/patterns.md run, and its tables name what there is."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from relaxlab.passes.base import find_pass
from relaxlab.passes.lower_to_libraries import BLAS
from tests.test_repo import ROOT

TEXT = (ROOT / "docs/patterns.md").read_text("utf-8")


def test_the_examples_run(tmp_path: Path) -> None:
    pytest.importorskip("scipy_openblas64")
    script = tmp_path / "examples.py"
    script.write_text("\n".join(re.findall(r"```python\n(.*?)```", TEXT, re.S)), "utf-8")
    runpy.run_path(str(script))


def test_the_tables_name_what_there_is() -> None:
    names = re.findall(r"^\| `([\w.]+)`(?:, `(\w+)`)? \|", TEXT, re.M)
    flat = [n for pair in names for n in pair if n]
    assert set(BLAS) <= set(flat)
    for name in set(flat) - set(BLAS):
        __import__(f"relaxlab.passes.{name}")
        assert find_pass(name).name == name
