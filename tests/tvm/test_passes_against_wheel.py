"""Each pass makes of a program what TVM's does, or one with the same results."""

from __future__ import annotations

import pytest

from relaxlab.testing.pass_check import compare_runs
from relaxlab.tvm.ir.equal import structural_equal
from relaxlab.tvm.script import from_source
from tests.tvm.pass_cases import CASES, DIFFERENT, MISSING, WITHOUT_RUN
from tests.tvm.wheel import needs_wheel, results

pytestmark = needs_wheel
TEXTS = tuple((program, expression) for expression, program in CASES.values())


@pytest.mark.parametrize("name", CASES)
def test_passes_make_the_same_module(name: str) -> None:
    number = list(CASES).index(name)
    theirs, ours = (results(which, "transform", TEXTS)[number] for which in ("tvm", "relaxlab"))
    assert "script" in theirs, theirs
    if name.partition("_")[0] in MISSING:
        assert "script" not in ours
        return
    assert "script" in ours, f"TVM: {theirs['script']}\nrelaxlab: {ours}"
    a, b = from_source(theirs["script"]), from_source(ours["script"])
    assert structural_equal(a, b) == (name not in DIFFERENT), f"{a.script()}\n{b.script()}"
    if name in DIFFERENT and name not in WITHOUT_RUN:
        compare_runs(a, b, runs=1)
