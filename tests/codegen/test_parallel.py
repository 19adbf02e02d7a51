"""Programs compiled as several modules, in several processes."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.codegen.llvm import builder, parallel
from relaxlab.codegen.llvm.builder import CodegenError
from relaxlab.script import ir as I
from relaxlab.script import relax as R


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
    monkeypatch.setattr(parallel, "_cores", lambda: cores)
    monkeypatch.setattr(parallel, "LEAST", 1000)
    exe = rl.compile(Program, use_cache=False)
    assert len(exe.artifact.code) == cores
    run(exe, rng)
    again = rl.Executable(exe.artifact.from_bytes(exe.artifact.to_bytes()), exe.target)
    run(again, rng)
    assert "rl.main" in exe.llvm()  # all modules are in the bitcode


def test_small_programs_are_compiled_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", None)
    assert len(rl.compile(Program, use_cache=False).artifact.code) == 1


def test_a_process_that_fails_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "_cores", lambda: 2)
    monkeypatch.setattr(parallel, "LEAST", 1000)
    monkeypatch.setattr(parallel.sys, "executable", "/bin/false")
    with pytest.raises(CodegenError, match="failed with 1"):
        rl.compile(Program, use_cache=False)


def test_long_host_functions_are_not_optimised(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    monkeypatch.setattr(builder, "MOST_OPTIMISED", 10)
    exe = rl.compile(Program, use_cache=False)
    assert "optnone" in exe.llvm()
    run(exe, rng)
