"""Schedules of a compilation, found in its trace and written as Python programs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import relaxlab as rl
from relaxlab.ir.equal import assert_structural_equal
from relaxlab.ir.target import Target
from relaxlab.lab.loops import loops
from relaxlab.passes.pipeline import default_pipeline
from relaxlab.schedule.compiled import schedule_of
from relaxlab.schedule.decisions import Decided

# No symbol has the name of a loop, which the printer would give another one, and blocks with it.
PROGRAMS = {
    "product": """
@R.function
def main(x: R.Tensor(("a", "b"), "float32"), w: R.Tensor(("b", "c"), "float32")):
    with R.dataflow():
        y = R.nn.relu(R.matmul(x, w))
        R.output(y)
    return y
""",
    "columns": """
@R.function
def main(x: R.Tensor(("n", 8, "m"), "float32")):
    return R.nn.softmax(x, axis=0)
""",
    "names of a schedule's program": """
@R.function
def main(x: R.Tensor(("b0", "l1"), "float32"), w: R.Tensor(("l1", "sch"), "float32")):
    with R.dataflow():
        y = R.nn.softmax(R.matmul(x, w), axis=-1)
        R.output(y)
    return y
""",
    "transpose": """
@R.function
def main(x: R.Tensor(("n", "m"), "float32")):
    return R.permute_dims(x)
""",
}
CHECK = """
import relaxlab as rl
from relaxlab.ir.equal import assert_structural_equal
trace = rl.trace(rl.parse(open("program").read()))
assert_structural_equal(sch.func, trace.find("schedule_kernels").after[sch.name])
"""


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_printed_schedule_makes_the_kernel(program: str, tmp_path: Path) -> None:
    trace = rl.trace(rl.parse(PROGRAMS[program]))
    record = trace.find("schedule_kernels")
    kernels = list(record.after.loop_functions())
    (tmp_path / "program").write_text(PROGRAMS[program])
    for kernel in kernels:
        sch = schedule_of(trace, kernel)
        assert_structural_equal(sch.func, record.after[kernel])
        file = tmp_path / "schedule.py"
        file.write_text(sch.as_python() + CHECK)
        run = subprocess.run([sys.executable, file], cwd=tmp_path, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr


def test_a_kernel_that_no_rule_scheduled() -> None:
    trace = rl.trace(rl.parse(PROGRAMS["transpose"]))
    (kernel,) = trace.find("schedule_kernels").after.loop_functions()
    with pytest.raises(KeyError, match=f"no rule scheduled a kernel 'main'; there are: {kernel}"):
        schedule_of(trace, "main")


def test_the_loops_explorer_steps_into_nested_schedules() -> None:
    trace = rl.trace(rl.parse(PROGRAMS["columns"]))
    record = trace.find("schedule_kernels")
    (kernel,) = record.after.loop_functions()
    view = loops(schedule_of(trace, kernel))
    first, *versions = view.state["versions"]
    last = versions[-1]
    assert first["within"] == last["within"] == []
    assert "join_axes" in last["calls"][-1] and last["run"]["steps"]
    paths = list(dict.fromkeys(tuple(v["within"]) for v in versions))
    assert paths == [
        ("joined axes",),
        ("joined axes", "any n"),
        *(("joined axes", f"n ≤ {bound}") for bound in _bounds(paths)),
        (),
    ]
    nested = [v for v in versions if v["within"]]
    assert all(v["run"] is None and v["costs"] is None for v in nested)
    calls = [call for v in nested for call in v["calls"]]
    assert sum("sch.parallel(" in call for call in calls) == len(paths) - 2
    # A version begins with the function as it was before the step that holds it.
    begun = [v for v in nested if not v["calls"] and len(v["within"]) == 2]
    assert len(begun) > 1 and all({*v["marks"]} == {"="} and not v["gone"] for v in begun)
    splits = [v for v in nested if any("sch.split(" in call for call in v["calls"])]
    assert splits and all("+" in v["marks"] for v in splits)
    assert "    joined axes:" not in view.text and "joined axes:" in view.text


def _bounds(paths: list[tuple[str, ...]]) -> list[int]:
    names = [path[-1] for path in paths if path and "≤" in path[-1]]
    return [int(name.split()[-1]) for name in names]


def test_a_schedule_is_made_anew_with_other_decisions() -> None:
    module = rl.parse(PROGRAMS["transpose"])
    trace = rl.trace(module)
    kernel = next(iter(trace.find("schedule_kernels").after.loop_functions()))
    asked = {"any n / any m / tile_side": 32}
    sch = schedule_of(trace, kernel, Decided(asked))
    assert {key: d.value for key, d in sch.decisions.items()}.items() >= asked.items()
    options = {kernel: asked}
    passes = default_pipeline(Target.host()).with_options("schedule_kernels", decisions=options)
    assert_structural_equal(sch.func, schedule_of(rl.trace(module, pipeline=passes), kernel).func)
    defaults = schedule_of(trace, kernel, Decided({}))
    assert_structural_equal(defaults.func, schedule_of(trace, kernel).func)
