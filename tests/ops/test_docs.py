"""The page of operators lists every operator with its parameters."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from relaxlab.ir.op_table import op_names
from relaxlab.ops.define import builder

PAGE = Path(__file__).parents[2] / "docs/operators.md"


def test_the_page_lists_every_operator() -> None:
    listed = re.findall(r"`([a-z][\w.]*\([^`]*\))`", PAGE.read_text("utf-8"))
    signatures = [f"{name}{inspect.signature(builder(name))}" for name in op_names()]
    examples = {"relaxlab.ops.add(x, y)"}
    assert sorted(set(listed) - examples) == sorted(signatures)
