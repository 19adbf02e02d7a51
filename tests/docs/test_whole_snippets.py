"""Snippets that are whole programs, of pages that also have fragments, run as they are written."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import relaxlab as rl
from relaxlab import nn
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T
from tests.test_repo import ROOT

GIVEN = {"rl": rl, "np": np, "nn": nn, "I": I, "R": R, "T": T}
RAGGED = {
    **{name: np.ones((rows, 512), "float32") for name, rows in
       {"first": 3, "second": 1, "third": 5, "w": 1536}.items()},
    "c": np.zeros(1536, "float32"),
}  # fmt: skip
"""The arrays that docs/ragged.md calls a program with."""


def whole(page: str) -> list[str]:
    """The blocks that begin with an import, a class or a decorator, and leave nothing out."""
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text("utf-8"), re.M | re.S)
    starts = ("import ", "from ", "class ", "@")
    return [b for b in blocks if b.startswith(starts) and "..." not in b]


@pytest.mark.parametrize(
    ("page", "count"), [("docs/dynamic-programs.md", 2), ("docs/ragged.md", 4)]
)
def test_they_run(page: str, count: int, tmp_path: Path) -> None:
    blocks = whole(page)
    assert len(blocks) == count
    for number, block in enumerate(blocks):
        file = tmp_path / f"{number}.py"  # where the decorators read the source
        file.write_text(block, "utf-8")
        exec(compile(block, str(file), "exec"), {**GIVEN, **RAGGED, "__name__": "snippet"})
