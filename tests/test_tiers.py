"""The measured costs that put tests into tiers."""

from __future__ import annotations

import json
from pathlib import Path

from tests.tiers import COSTS, LEFT_OUT, LIMITS

ROOT = Path(__file__).resolve().parent.parent


def test_every_cost_is_that_of_a_test() -> None:
    costs: dict[str, float] = json.loads(COSTS.read_text())
    gone = [
        test
        for test in costs
        for path, *_, name in [test.split("::")]
        if not (ROOT / path).exists() or f"def {name}(" not in (ROOT / path).read_text()
    ]
    assert not gone, "run `pytest --record-costs`"
    assert all(seconds >= LEFT_OUT for seconds in costs.values())


def test_tiers_grow() -> None:
    assert list(LIMITS.values()) == sorted(LIMITS.values())
