"""Copies of loop functions for calls with constant dimensions."""

from __future__ import annotations

import numpy as np

import relaxlab as rl
from relaxlab.passes.specialize_loop_functions import specialize_loop_functions
from relaxlab.runtime.interpreter.interpreter import interpret

PROGRAM = """
@T.prim_func
def scale(X: T.Buffer(("n", "k"), "float32"), Y: T.Buffer(("n", "k"), "float32"), factor: T.int64):
    for i, j in T.grid(n, k):
        with T.block("scale"):
            vi, vj = T.axis.remap("SS", [i, j])
            Y[vi, vj] = X[vi, vj] * T.Cast("float32", factor)

@R.function
def several(x: R.Tensor(("m", 4), "float32")) -> R.Tensor(("m", 4), "float32"):
    with R.dataflow():
        a = R.call_tir(cls.scale, (x,), R.Tensor((m, 4), "float32"), tir_vars=R.shape([3]))
        b = R.call_tir(cls.scale, (a,), R.Tensor((m, 4), "float32"), tir_vars=R.shape([m]))
        R.output(b)
    return b

@R.function
def one(x: R.Tensor((1, 4), "float32")) -> R.Tensor((1, 4), "float32"):
    with R.dataflow():
        a = R.call_tir(cls.scale, (x,), R.Tensor((1, 4), "float32"), tir_vars=R.shape([3]))
        R.output(a)
    return a

@R.function
def unknown(x: R.Tensor(("m", "k"), "float32")) -> R.Tensor(("m", "k"), "float32"):
    with R.dataflow():
        a = R.call_tir(cls.scale, (x,), R.Tensor((m, k), "float32"), tir_vars=R.shape([3]))
        R.output(a)
    return a
"""


def test_constants_of_a_call_become_constants_of_a_copy():
    mod = rl.parse(PROGRAM)
    new = specialize_loop_functions(mod)
    shapes = {
        name: tuple(str(d) for d in f.buffers[0].shape) for name, f in new.loop_functions().items()
    }
    assert shapes == {"scale": ("n", "k"), "scale_4": ("n", "4"), "scale_1_4": ("1", "4")}
    text = new.script()
    assert text.count("cls.scale_4") == 2 and text.count("cls.scale_1_4") == 1
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    for name, given in (("several", x), ("one", x[:1]), ("unknown", x)):
        np.testing.assert_array_equal(
            np.asarray(interpret(new, name, given)), np.asarray(interpret(mod, name, given))
        )


def test_nothing_constant_is_the_same_module():
    mod = specialize_loop_functions(rl.parse(PROGRAM))
    assert specialize_loop_functions(mod) is mod
