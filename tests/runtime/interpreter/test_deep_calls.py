"""Recursion as deep in the interpreter as in compiled code."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextvars import ContextVar

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.interpreter.deep_calls import LEVELS_PER_THREAD, MOST_LEVELS, call_nested

COUNT = rl.parse("""
@R.function
def twice(x: R.Tensor((), "int64")) -> R.Tensor((), "int64"):
    positive = R.greater(x, R.const(0, "int64"))
    if positive:
        even = R.equal(R.floor_mod(x, R.const(2, "int64")), R.const(0, "int64"))
        less = R.subtract(x, R.const(1, "int64"))
        if even:
            below = cls.twice(less)
            result = R.add(below, R.const(2, "int64"))
        else:
            below = cls.twice(less)
            result = R.add(below, R.const(2, "int64"))
    else:
        result = x
    return result
""")


@pytest.mark.parametrize("depth", [0, LEVELS_PER_THREAD - 1, LEVELS_PER_THREAD, 150, 2000])
def test_the_interpreter_and_compiled_code_agree_at_every_depth(depth: int) -> None:
    x = np.array(depth)
    assert rl.interpret(COUNT, "twice", x) == rl.compile(COUNT)["twice"](x) == 2 * depth


def test_endless_recursion_is_refused_with_each_place_once() -> None:
    mod = rl.parse("""
@R.function
def on(x: R.Tensor((), "int64")) -> R.Tensor((), "int64"):
    y = cls.on(x)
    return y
""")
    with pytest.raises(ExecutionError) as failure:
        rl.interpret(mod, "on", np.array(1))
    limit = f"`on` is called too deeply: {MOST_LEVELS:,} calls are in progress"
    assert str(failure.value) == f"in `on`: computing `y`: {limit}"
    assert threading.active_count() < 20


def test_nested_calls_see_context_variables_and_pass_errors_on() -> None:
    setting: ContextVar[int] = ContextVar("setting")
    setting.set(7)

    def down(levels: int) -> int:
        if not levels:
            raise KeyError(setting.get())
        return call_nested("down", lambda: down(levels - 1))

    with pytest.raises(KeyError, match="7"):
        down(3 * LEVELS_PER_THREAD)


MEMORY = """
import resource
import numpy as np
import relaxlab as rl

mod = rl.parse('''
@R.function
def node(k: R.Tensor((), "int64"), x: R.Tensor(("n",), "float32")) -> R.Tensor((), "float32"):
    inner = R.greater(k, R.const(0, "int64"))
    if inner:
        y = R.subtract(k, R.const(1, "int64"))
        less = R.multiply(R.cumsum(x, axis=0), R.const(1e-6, "float32"))
        s = R.sum(less)
        left = cls.node(y, x)
        right = cls.node(y, less)
        r = R.add(R.add(left, right), s)
    else:
        r = R.sum(x)
    return r
''')
exe = rl.compile(mod, use_cache=False)
x = np.ones(1 << 18, "float32")  # 1 MB
shallow, deep = np.array(2), np.array(9)
want = rl.interpret(mod, "node", shallow, x)
assert np.isclose(exe["node"](shallow, x), want), (exe["node"](shallow, x), want)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
exe["node"](deep, x)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts kilobytes as Linux does")
def test_calls_give_their_memory_back_when_they_return() -> None:
    """1023 calls of a megabyte or more each, at most ten of them at a time."""
    command = [sys.executable, "-c", MEMORY]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 64 << 10
