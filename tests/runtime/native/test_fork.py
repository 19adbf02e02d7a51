"""Child processes forked while other threads of the parent call or compile."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

FORKS = """
import os, signal, threading
import numpy as np
import relaxlab as rl

SCRIPT = '''
@R.function
def main(x: R.Tensor(("n", "k"), "float32"), w: R.Tensor(("k", 64), "float32")):
    with R.dataflow():
        t = R.matmul(x, w)
        y = R.nn.relu(t)
        R.output(y)
    return y
'''
mod = rl.parse(SCRIPT)
busy, idle = (rl.compile(mod, threads=2, use_cache=False) for _ in range(2))
x, w = np.ones((500, 300), "float32"), np.ones((300, 64), "float32")
idle["main"](x, w)
over = threading.Event()

def call():
    while not over.is_set():
        busy["main"](x, w)

def compile():
    while not over.is_set():
        rl.compile(mod, use_cache=False)

def child(work):
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1]
    signal.alarm(60)
    os._exit(0 if np.all(np.asarray(work()) == 300) else 3)

for target, works in {targets}.items():
    over.clear()
    thread = threading.Thread(target=globals()[target])
    thread.start()
    for work in works:
        for _ in range(5):
            print(target, work, child(lambda: eval(work)))
    over.set()
    thread.join()
"""


def statuses(targets: dict[str, list[str]]) -> list[str]:
    """Lines `<what the parent's thread does> <what the child does> <wait status>`."""
    program = FORKS.replace("{targets}", repr(targets))
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program],
        capture_output=True, text=True, timeout=600, check=True,
    )  # fmt: skip
    return done.stdout.splitlines()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_forked_during_a_call_computes() -> None:
    lines = statuses({"call": ['busy["main"](x, w)', 'idle["main"](x, w)']})
    assert len(lines) == 10 and all(line.endswith(" 0") for line in lines), lines


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_forked_during_a_compilation_computes() -> None:
    compiles = 'rl.compile(mod, use_cache=False)["main"](x, w)'
    lines = statuses({"compile": ['busy["main"](x, w)', compiles]})
    assert len(lines) == 10 and all(line.endswith(" 0") for line in lines), lines
