"""Tiers of tests by measured cost.

`tests/costs.json` has the seconds that each test function takes altogether, set-up and all its
parameters included, on two cores; what takes less than a second is left out. A tier leaves out the
functions that cost more than its limit. `pytest --record-costs` measures anew what it runs. What is
beyond the tier `hook` can be run in shares, `--share 0/3` and so on, which together are all of it.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

COSTS = Path(__file__).with_name("costs.json")
LIMITS = {"hook": 1.0, "default": 3.0, "all": float("inf")}
"""Seconds per test function. `hook` is meant to end within a minute, for every commit; `default`,
which `make test` runs, within ten minutes on two cores; `all` is what is run before a release."""
LEFT_OUT = 1.0
"""Seconds below which a function's cost is not kept: the file would change with every run."""


def function_of(nodeid: str) -> str:
    """The id of a test without its parameters."""
    return nodeid.split("[")[0]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tiers", "tiers by measured cost")
    group.addoption("--tier", choices=[*LIMITS], default="all", help="which tests to run")
    group.addoption("--share", type=_share, default=(0, 1), metavar="K/N",
                    help="of what the tier `hook` leaves out, share K of N")  # fmt: skip
    group.addoption("--record-costs", action="store_true",
                    help=f"write the seconds of what is run into {COSTS.name}")  # fmt: skip


def _share(text: str) -> tuple[int, int]:
    """K and N of "K/N". Raises ValueError where K is no number from 0 to N - 1."""
    number, count = map(int, text.split("/"))
    if not 0 <= number < count:
        raise ValueError(f"{text} is no share: the first of three is 0/3, the last 2/3")
    return number, count


def is_chosen(
    nodeid: str, costs: Mapping[str, float], limit: float, share: tuple[int, int]
) -> bool:
    """True if a run whose tier has this limit, in seconds, and of its dear tests takes one share
    (number, how many) has this test."""
    cost, (number, count) = costs.get(function_of(nodeid), 0), share
    in_share = cost <= LIMITS["hook"] or zlib.crc32(nodeid.encode()) % count == number
    return cost <= limit and in_share


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--record-costs") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(), "record-costs")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    limit, share = LIMITS[str(config.getoption("--tier"))], cast(Any, config.getoption("--share"))
    costs: dict[str, float] = json.loads(COSTS.read_text())
    chosen = [item for item in items if is_chosen(item.nodeid, costs, limit, share)]
    if len(chosen) < len(items):
        known = set(map(id, chosen))
        config.hook.pytest_deselected(items=[item for item in items if id(item) not in known])
        items[:] = chosen
    # Workers take whole files (`--dist loadfile`), since what a file's tests share is made once per
    # worker: the dearest first, so that both end at about the same time.
    files: Counter[Path] = Counter()
    for function, seconds in costs.items():
        files[config.rootpath / function.partition("::")[0]] += seconds  # type: ignore[assignment]
    items.sort(key=lambda item: -files[item.path])


class Recorder:
    """Adds up the seconds of each test function of a run, and writes them at its end. Functions
    that the run leaves out keep their costs, for as long as their files have them."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[function_of(report.nodeid)] += report.duration  # type: ignore[assignment]

    def pytest_sessionfinish(self) -> None:
        COSTS.write_text(json.dumps(self.costs(json.loads(COSTS.read_text())), indent=0) + "\n")

    def costs(self, before: Mapping[str, float]) -> dict[str, float]:
        """The seconds of each function, those of a run before this one where this one has none."""
        kept = {k: v for k, v in before.items() if k not in self.seconds and is_there(k)}
        now = {k: round(float(v), 1) for k, v in self.seconds.items() if v >= LEFT_OUT}
        return dict(sorted((kept | now).items()))


def is_there(function: str) -> bool:
    """True if the file of this test function, "tests/ir/test_a.py::test_b", defines it."""
    path, _, name = function.partition("::")
    file = COSTS.parent.parent / path
    return file.exists() and f"def {name.split('::')[-1]}(" in file.read_text()
