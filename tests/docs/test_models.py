"""The table of docs/models.md has the families that there are."""

from __future__ import annotations

import re
from pathlib import Path

from relaxlab.models.families import FAMILIES

TEXT = (Path(__file__).parents[2] / "docs/models.md").read_text("utf-8")


def test_the_table_names_all_families() -> None:
    rows = re.findall(r"^\| [^|]+ \| `(\w+)` \| `(\w+)` \|", TEXT, re.MULTILINE)
    assert rows == [(f.model_type, f.architecture) for f in FAMILIES]
