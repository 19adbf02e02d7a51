"""The OpenMP runtime that a process happens to have."""

from __future__ import annotations

import ctypes.util
import os
import subprocess
import sys

import pytest

PROGRAM = """
import os
import numpy as np, relaxlab as rl, relaxlab.runtime.native.openmp as openmp
openmp.candidates = lambda: ["libgomp.so.1"]
mod = rl.parse('''
from relaxlab.script import ir as I, relax as R
@I.ir_module
class M:
    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        y = R.exp(x)
        return y
''')
exe = rl.compile(mod, threads=2)
x = np.zeros(30000, "float32")
exe["main"](x)
child = os.fork()
if not child:
    sums = exe["main"](x).sum(), rl.compile(mod, threads=2)["main"](x).sum()
    os._exit(7 if sums == (30000, 30000) and exe.threads == 1 else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), exe.threads)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.skipif(not ctypes.util.find_library("gomp"), reason="needs libgomp")
def test_under_libgomp_a_forked_process_goes_on_alone() -> None:
    """Its threads are the parent's: it would wait for them forever."""
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "7 2\n"), done.stderr
