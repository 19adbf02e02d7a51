"""Loop functions are read, printed and read again; TVM reads what is printed, and what TVM prints
means the same."""

from __future__ import annotations

import numpy as np
import pytest

from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.equal import structural_equal
from relaxlab.ir.loops import PrimFunc
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.script import parse
from relaxlab.tvm.accessors import script
from tests.tvm.loop_programs import DIFFERENT, PROGRAMS, REFUSED
from tests.tvm.wheel import needs_wheel, results

READ = tuple(name for name in PROGRAMS if name not in REFUSED)


@pytest.mark.parametrize("name", READ)
def test_what_is_printed_is_the_same_program(name: str) -> None:
    mod = parse(PROGRAMS[name])
    assert structural_equal(parse(mod.script()), mod)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_read_says_so(name: str) -> None:
    with pytest.raises(DiagnosticError):
        parse(PROGRAMS[name])


@needs_wheel
@pytest.mark.parametrize("name", READ)
def test_tvm_reads_what_is_printed(name: str) -> None:
    printed = tuple((script(parse(PROGRAMS[n])), "") for n in READ)
    answer = results("tvm", "print", printed)[READ.index(name)]
    assert "script" in answer, f"{answer}\n{printed[READ.index(name)][0]}"


@needs_wheel
@pytest.mark.parametrize("name", READ)
def test_what_tvm_prints_is_the_same_program(name: str) -> None:
    answer = results("tvm", "print", tuple((PROGRAMS[n], "") for n in READ))[READ.index(name)]
    same = structural_equal(parse(answer["script"]), parse(PROGRAMS[name]))
    assert same == (name not in DIFFERENT), answer["script"]


def test_scalars_that_are_assigned_again() -> None:
    """They are elements of memory: what a loop assigns is seen after it."""
    func = parse("""
@T.prim_func
def main(A: T.Buffer((8,), "int32"), B: T.Buffer((3,), "int32")):
    total: T.int32 = 0
    last: T.int32
    for i in range(8):
        if A[i] < 0:
            T.continue_loop()
        if A[i] > 50:
            T.break_loop()
        total += A[i]
        last = i
    B[0] = total
    B[1] = last
    total = total * 2
    B[2] = total
""")["main"]
    assert isinstance(func, PrimFunc)
    found = np.zeros(3, "int32")
    interpret_prim_func(func, [np.array([1, -7, 2, 3, 60, 4, 5, 6], "int32"), found])
    assert found.tolist() == [6, 3, 12]
