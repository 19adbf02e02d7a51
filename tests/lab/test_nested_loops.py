"""The loops view of a compiler's schedule: steps within versions of the function, in Chromium."""

from __future__ import annotations

import pytest

import relaxlab as rl
from relaxlab.lab.loops import loops
from relaxlab.schedule.compiled import schedule_of

SOFTMAX = """
@R.function
def main(x: R.Tensor(("n", 8, "m"), "float32")):
    return R.nn.softmax(x, axis=0)
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_steps_of_nested_schedules(open_view, audit, scheme):
    trace = rl.trace(rl.parse(SOFTMAX))
    (kernel,) = trace.find("schedule_kernels").after.loop_functions()
    view = loops(schedule_of(trace, kernel))
    page = open_view(view, scheme)
    options = page.locator(".schedule [role=option]")
    assert options.count() == len(view.state["versions"])
    assert page.get_by_label("Next step").count() > 0  # the whole function, which is run
    options.filter(has_text="any n:").click()
    assert page.get_by_text("In the version for joined axes, any n").count() == 1
    assert page.get_by_label("Next step").count() == 0
    assert page.locator(".tree .new").count() == 0
    options.filter(has_text="sch.split(").first.click()
    assert page.locator(".tree .new").count() > 0
    page.get_by_role("tab", name="Reuse").click()
    assert page.get_by_text("choose a step that is not indented").count() == 1
    page.get_by_role("tab", name="Costs of the steps").click()
    rows = page.locator(".costs tbody tr")
    assert rows.count() == sum(not v["within"] for v in view.state["versions"])
    rows.last.get_by_role("button").click()
    assert options.last.get_attribute("aria-selected") == "true"
    assert audit(page) == []
