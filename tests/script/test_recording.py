"""Programs that calls build are those that their text defines."""

from __future__ import annotations

import numpy as np
import pytest

from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.equal import structural_equal
from relaxlab.script import parse
from relaxlab.script.recording import FunctionFrame, Namespace, Recorder, parameter, signature

T, R = Namespace("T"), Namespace("R")


def test_symbols_are_declared_where_they_are_used() -> None:
    with Recorder() as program, FunctionFrame("T"):
        n = T.int64()
        a = T.match_buffer(parameter("a", T.handle), (n, 4), "float32")
        with T.grid(n, 4) as (i, j), T.sblock("store"):
            vi, vj = T.axis.remap("SS", [i, j])
            program.line(f"{a[vi, vj].text} = {T.float32(1.5).text}")
    wanted = """
@T.prim_func
def main(a: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n, 4), "float32")
    for i, j in T.grid(n, 4):
        with T.sblock("store"):
            vi, vj = T.axis.remap("SS", [i, j])
            A[vi, vj] = T.float32(1.5)
"""
    assert structural_equal(parse(program.text()), parse(wanted))


def test_objects_from_outside_are_parts_of_the_program() -> None:
    with Recorder() as program, FunctionFrame("R", pure=True):
        n = R.shape  # a member that is not called
        x = parameter("x", R.Tensor((2,), "float32"))
        y = program.bound(R.add(x, R.const(np.array([1, 2], "float32"))).text, "y")
        program.line(f"return {y.text}")
    assert n.path == "R.shape"
    mod = parse(program.text(), names=program.values)
    assert "R.const([1.0, 2.0]" in mod.script()


def test_names_do_not_collide_and_can_be_changed() -> None:
    with Recorder() as program, FunctionFrame("T"):
        a = parameter("a", T.Buffer((4,), "int32"))
        first, second = T.alloc_buffer((4,), "int32"), T.alloc_buffer((4,), "int32")
        assert second.name_ is not None
        second.name_.wanted = "a"
        program.line(f"{a[0].text} = {(first[1] + -second[2] * 3).text}")
    body = program.text().splitlines()[-1]
    assert body.strip() == "a[0] = (buffer[1] + ((-a_1[2]) * 3))"
    parse(program.text())


def test_what_is_wrong_is_told() -> None:
    with pytest.raises(ValueError, match="no program is being built"):
        T.serial(4)
    with Recorder(), pytest.raises(ValueError, match="no function is being built"):
        signature()
    with pytest.raises(AttributeError, match=r"no T\.serail"):
        _ = T.serail
    with Recorder() as program, FunctionFrame("T"):
        a = parameter("A", T.Buffer((4,), "int32"))
        with pytest.raises(TypeError, match=r"T\.If"):
            _ = 1 if a[0] > 1 else 2
        program.line(f"{a[1, 2].text} = 1")
    with pytest.raises(DiagnosticError, match="indexed with 2"):
        parse(program.text())
