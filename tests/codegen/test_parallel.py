"""Programs compiled as several modules, in several processes."""

# pyright: reportInvalidTypeForm=false

from __future__ import annotations

import os
from typing import Literal

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.codegen.llvm import builder, parallel, versions
from relaxlab.ir import processes
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T


@I.ir_module
class Program:
    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 8), "float32")):
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.nn.softmax(a)
            c = R.sum(R.cumsum(b, axis=0), axis=1)
            R.output(b, c)
        return b, c


def run(exe: rl.Executable, rng: np.random.Generator) -> None:
    x, w = rng.standard_normal((5, 8), "float32"), rng.standard_normal((8, 8), "float32")
    weights = np.exp(x @ w)
    weights /= weights.sum(1, keepdims=True)
    got = exe["main"](x, w)
    np.testing.assert_allclose(got[0], weights, rtol=1e-4)
    np.testing.assert_allclose(got[1], weights.cumsum(0).sum(1), rtol=1e-4)


@pytest.mark.parametrize("cores", [2, 5])
def test_modules_call_each_other(
    cores: int, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    monkeypatch.setattr(parallel, "cores", lambda: cores)
    monkeypatch.setattr(processes, "cores", lambda: cores)
    monkeypatch.setattr(processes, "LEAST", 1e-9)
    monkeypatch.setattr(parallel, "LEAST", 1000)
    exe = rl.compile(Program, use_cache=False)
    assert len(exe.artifact.code) == cores
    run(exe, rng)
    again = rl.Executable(exe.artifact.from_bytes(exe.artifact.to_bytes()), exe.target)
    run(again, rng)
    assert "rl.main" in exe.llvm()  # all modules are in the bitcode


def test_small_programs_are_compiled_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fork", None)
    assert len(rl.compile(Program, use_cache=False).artifact.code) == 1


@I.ir_module
class Guarded:
    @T.prim_func
    def main(x: T.Buffer(("n",), "int32"), y: T.Buffer(("n",), "int32")):
        n = T.int64()
        if n <= 4:
            for i in T.parallel(n):
                y[i] = 100 // x[i]
        else:
            if n <= 8:
                for i in range(n):
                    assert x[i] != 3, "no three"
                    y[i] = 10 // x[i]
            else:
                for i in T.parallel(n):
                    y[i] = x[i]


def test_the_number_of_cores_changes_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "LEAST", 1e-9)
    monkeypatch.setattr(versions, "LARGE", 0)
    texts: list[str] = []
    for cores in (1, 3):
        monkeypatch.setattr(processes, "cores", lambda cores=cores: cores)
        texts.append(rl.compile(Guarded, use_cache=False).llvm())
    assert texts[0] == texts[1]
    assert "@rl.main_kernel.v2(" in texts[0]


@pytest.mark.parametrize("checks", ["default", "all"])
def test_versions_that_are_functions(
    checks: Literal["default", "all"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "LARGE", 0)
    main = rl.compile(Guarded, use_cache=False, checks=checks)["main"]
    for size, quotient in ((3, 50), (7, 5), (20, 2)):
        assert np.all(main(np.full(size, 2, "int32")) == quotient)
    # The failures of all versions are numbered together.
    for size in (3, 7):
        with pytest.raises(rl.CheckFailed, match="division by zero in `main_kernel`"):
            main(np.full(size, 0, "int32"))
    with pytest.raises(rl.CheckFailed, match="no three in `main_kernel`"):
        main(np.full(7, 3, "int32"))


def test_guards_that_may_fail_do_not_divide_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Division by a size that may be zero is a failure of the kernel, not of its caller."""
    monkeypatch.setattr(versions, "LARGE", 0)
    module = rl.parse("""
@T.prim_func
def f(A: T.Buffer(("n", "m"), "float32"), B: T.Buffer(("n", "m"), "float32")):
    if n // m > 2:
        for i, j in T.grid(n // m, m):
            B[i, j] = A[i, j] + 1.0
    else:
        for i, j in T.grid(n % m, m):
            B[i, j] = A[i, j] * 3.0
""")
    f = rl.compile(module, use_cache=False)["f"]
    for n, m in ((12, 3), (7, 4)):
        x = np.ones((n, m), "float32")
        got = f(x, np.zeros_like(x))
        value, rows = (2, n // m) if n // m > 2 else (3, n % m)
        assert (got[:rows] == value).all() and not got[rows:].any()
    with pytest.raises(rl.CheckFailed, match="division by zero"):
        f(np.ones((3, 0), "float32"), np.ones((3, 0), "float32"))


def test_long_host_functions_are_not_optimised(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    whole = rl.compile(Program, use_cache=False)
    monkeypatch.setattr(builder, "MOST_OPTIMISED", 10)
    exe = rl.compile(Program, use_cache=False)
    assert "optnone" in exe.llvm()
    # The long function is an object file of its own, for which LLVM allocates registers quickly.
    assert [len(e.artifact.code) for e in (whole, exe)] == [1, 2]
    run(exe, rng)


def test_an_assertion_on_a_private_buffer_is_the_first_threads() -> None:
    """Between two loops of a team, whose other threads would wait at a barrier for one that failed,
    or fail by what their own copies hold."""
    module = rl.parse("""
@T.prim_func
def f(A: T.Buffer(("n",), "int64"), B: T.Buffer(("n",), "int64")):
    first = T.alloc_buffer((1,), "int64", scope="local")
    for i in T.parallel(n):
        B[i] = A[i] + 1
    first[0] = T.if_then_else(n > 0, A[0], T.int64(0)) * 1000 + 17
    assert first[0] == 3017, "does not begin with 3"
    for i in T.parallel(n):
        B[i] = B[i] * 2
""")
    exe = rl.compile(module, threads=2)
    a, b = (np.full(1_000_000, 3) for _ in range(2))
    exe["f"](a, b)
    assert (b == 8).all()
    a[0] = 4
    with pytest.raises(rl.CheckFailed, match="does not begin with 3"):
        exe["f"](a, b)
    assert (b[1:] == 4).all()
