"""Programs that import `tvm` run as they are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import relaxlab.tvm as tvm

PROGRAM = """
import sys
import tvm
from tvm import relax
from tvm.script import ir as I, relax as R
from tvm.base import TVMError
from tvm.relax.struct_info import TensorStructInfo
from tvm.script.parser import tir as T

@I.ir_module
class Doubled:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        y = R.add(x, x)
        return y

tvm.ir.assert_structural_equal(Doubled, tvm.script.from_source(Doubled.script()))
assert isinstance(Doubled, tvm.IRModule)
assert isinstance(Doubled["main"].params[0].struct_info, TensorStructInfo)
assert TVMError is tvm.TVMError
print(sys.argv[1:], relax.BlockBuilder.__module__)
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env)


def test_a_file_runs_unchanged(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM, "utf-8")
    ran = run("-m", "relaxlab.tvm", str(file), "an", "argument")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "['an', 'argument'] relaxlab.tvm.relax.block_builder\n"


def test_a_missing_file() -> None:
    ran = run("-m", "relaxlab.tvm", "nowhere.py")
    assert ran.returncode == 1
    assert "no file 'nowhere.py'; usage: python -m relaxlab.tvm FILE" in ran.stderr


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match=r"tvm\.relax\.nothing is not among the names of TVM"):
        _ = tvm.relax.nothing


TESTING = """
import numpy as np
import pytest
import tvm
import tvm.prim
import tvm.relax.op.nn as nn
import tvm.sym
import tvm.testing
from tvm import tirx

size = tvm.testing.parameter(2, 3)


@tvm.testing.requires_llvm
def test_arrays(size):
    x = tvm.runtime.tensor(np.ones(size, "float32"))
    tvm.testing.assert_allclose(x, np.ones(size), rtol=1e-5)
    with pytest.raises(AssertionError):
        tvm.testing.assert_allclose(x, np.ones(size + 1))


@tvm.testing.parametrize_targets("llvm")
def test_targets(target, dev):
    assert target == "llvm" and dev.exist and callable(nn.relu)


def test_expressions():
    n = tirx.Var("n", "int64")
    tvm.testing.assert_prim_expr_equal(n + n, n * 2)
    assert tvm.sym.Analyzer().can_prove_equal(n + n, tvm.prim.Mul(n, 2))


if __name__ == "__main__":
    tvm.testing.main()
"""


def test_a_file_of_tests_runs(tmp_path: Path) -> None:
    file = tmp_path / "test_program.py"
    file.write_text(TESTING, "utf-8")
    ran = run("-m", "relaxlab.tvm", str(file), "-q", "-p", "no:cacheprovider", "-p", "no:xdist")
    assert ran.returncode == 0 and "4 passed" in ran.stdout, ran.stdout + ran.stderr
