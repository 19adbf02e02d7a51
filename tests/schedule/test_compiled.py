"""Schedules of a compilation, found in its trace and written as Python programs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import relaxlab as rl
from relaxlab.ir.equal import assert_structural_equal
from relaxlab.lab.loops import loops
from relaxlab.schedule.compiled import schedule_of

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


def test_the_loops_explorer_steps_through_it() -> None:
    trace = rl.trace(rl.parse(PROGRAMS["columns"]))
    (kernel,) = trace.find("schedule_kernels").after.loop_functions()
    state = loops(schedule_of(trace, kernel)).state
    assert len(state["versions"]) > 1
    assert "guarded_versions" in "".join(state["versions"][-1]["calls"])
