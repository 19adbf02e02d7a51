"""The measured costs that put tests into tiers."""

from __future__ import annotations

import json
from pathlib import Path

from tests.tiers import COSTS, LEFT_OUT, LIMITS, is_chosen

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


def test_shares_have_each_dear_case_once_and_all_cheap_ones() -> None:
    dear, cheap = [f"a.py::dear[{i}]" for i in range(40)], ["a.py::cheap[1]", "a.py::new"]
    costs, limit = {"a.py::dear": 9.0, "a.py::cheap": 1.0}, LIMITS["all"]
    shares = [[i for i in dear + cheap if is_chosen(i, costs, limit, (k, 3))] for k in range(3)]
    assert sorted(i for share in shares for i in share) == sorted(dear + 3 * cheap)
    assert all(len(share) > 5 for share in shares)
    assert [i for i in dear + cheap if is_chosen(i, costs, 1.0, (0, 1))] == cheap
