"""Programs that a virtual machine runs are called as those of processors are."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import relaxlab as rl

X = np.arange(6, dtype="float32").reshape(2, 3)


Program = rl.parse("""
@R.function
def main(x: R.Tensor(("n", 3), "float32"), y: R.Tensor((3,), "float32")):
    with R.dataflow():
        z = R.subtract(x, y)
        R.output(z)
    return z

@R.function
def other(x: R.Tensor(("n", 3), "float32")):
    return x
""")


@pytest.fixture(params=["cpu", "interpreter"])
def exe(request: pytest.FixtureRequest) -> rl.Executable:
    return rl.compile(Program, request.param)


def test_ways_to_call(exe: rl.Executable) -> None:
    want = X - X[1]
    for got in (exe(X, X[1]), exe.main(X, X[1]), exe(y=X[1], x=X), exe["main"](X, y=X[1])):
        np.testing.assert_array_equal(got, want)
    assert {"main", "other"} <= {*dir(exe)}


def test_mistakes_are_named(exe: rl.Executable) -> None:
    with pytest.raises(rl.ArgumentError, match="`main` has no parameter `v`; it has: x, y"):
        exe(X, v=X)
    with pytest.raises(rl.ArgumentError, match="`main` got two values for `x`"):
        exe(X, x=X)
    with pytest.raises(rl.ArgumentError, match="`main` needs a value for `x`"):
        exe(y=X)
    with pytest.raises(AttributeError, match="mian.*main"):
        exe.mian(X)


def test_the_only_function_needs_no_name() -> None:
    mod = rl.Module.of({"one": Program["other"]})
    np.testing.assert_array_equal(rl.compile(mod, "interpreter")(X), X)
    several = rl.Module.of({"one": Program["other"], "two": Program["other"]})
    with pytest.raises(TypeError, match="several functions; call one of one, two"):
        rl.compile(several, "interpreter")(X)


def test_an_executable_of_a_gpu_is_called_by_name() -> None:
    exe = rl.compile(Program, "cuda:sm_80")
    assert "other" in dir(exe) and exe.other.name == "other"
    assert copy.copy(exe).arch == "sm_80"
