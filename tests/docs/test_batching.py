"""docs/batching.md: its programs run, its tables name what there is."""

from __future__ import annotations

import re
from pathlib import Path

import relaxlab as rl
from relaxlab.batching.automaton import ENCODINGS
from relaxlab.batching.layout import block_layout, block_patterns
from relaxlab.batching.policies import POLICIES
from tests.batching.cells import CELLS

TEXT = (Path(__file__).parents[2] / "docs" / "batching.md").read_text("utf-8")


def test_programs_run(capsys):
    names = {"rl": rl}
    blocks = re.findall(r"^```python\n(.*?)^```", TEXT, re.M | re.S)
    assert len(blocks) == 3
    for block in blocks:
        exec(block, names)
    assert "leaf [0 1]\ninner [2]\n2 2" in capsys.readouterr().out


def test_tables_name_policies_and_encodings():
    rows = re.findall(r"^\| `(\w+)` \|", TEXT, re.M)
    assert rows == [*POLICIES, *ENCODINGS]


def test_copies_of_cells():
    table = TEXT.partition("| cell, hidden size 256")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| ([\w ,]+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", table, re.M)
    assert len(rows) == len(CELLS)
    for (_, *numbers), make in zip(rows, CELLS.values(), strict=True):
        kernels = make(256)
        found = block_layout(kernels)
        bytes_ = [found.copied_bytes(order) for order in (found.program_order, found.order)]
        assert [*map(int, numbers)] == [len(kernels), len(block_patterns(kernels)[0]), *bytes_]
