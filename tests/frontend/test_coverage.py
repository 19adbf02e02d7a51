"""The pages of what operators there are, and what is recorded of runs for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from relaxlab.ir.op_table import find_op
from tools import write_coverage


@pytest.mark.parametrize("path", [p for p, _ in write_coverage.files()], ids=lambda p: p.name)
def test_pages_are_up_to_date(path: Path) -> None:
    text = dict(write_coverage.files())[path]
    assert path.read_text("utf-8") == text, "run python -m tools.write_coverage"


def test_recorded_operators_are_there() -> None:
    for source, uses in write_coverage.uses().items():
        unknown = {op for used in uses.values() for op in used if find_op(op) is None}
        assert not unknown, (source, unknown)


def test_the_record_of_pytorch() -> None:
    found = [o["reason"] for o in write_coverage.torch_record()]
    assert len(found) == 677 and found.count("equal") >= 556
    assert not [reason for reason in found if reason.startswith(("wrong", "relaxlab:"))]
