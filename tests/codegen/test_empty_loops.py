"""Loops of a constant extent of zero: no code is made of their bodies."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl

TEXT = """
@R.function
def main(x: R.Tensor((0, 2, 7, 3), "float32"), w: R.Tensor((2, 6, 2, 2), "float32")):
    with R.dataflow():
        y = R.nn.conv1d(x, w, data_layout="NCW3c", kernel_layout="OIW2o", out_layout="NCW")
        z = R.tanh(y)
        R.output(z)
    return z
"""


def test_a_convolution_of_no_images() -> None:
    main = rl.compile(rl.parse(TEXT), use_cache=False)["main"]
    got = main(np.zeros((0, 2, 7, 3), "float32"), np.zeros((2, 6, 2, 2), "float32"))
    assert got.shape == (0, 4, 6)


@pytest.mark.parametrize(
    ("shapes", "call"),
    [
        (["0, 5"], "R.exp(x0)"),
        (["5, 0"], "R.exp(x0)"),
        (["0, 5"], "R.nn.softmax(x0)"),
        (["0, 5"], "R.sum(x0, axis=[0])"),
        (["5, 0"], "R.sum(x0, axis=[1])"),
        (["0, 40"], "R.permute_dims(x0)"),
        (["0, 8", "8, 4"], "R.matmul(x0, x1)"),
        (["3, 0", "0, 4"], "R.matmul(x0, x1)"),
        (["3, 8", "8, 0"], "R.matmul(x0, x1)"),
        (["0, 8", "3, 8"], "R.concat((x0, x1), axis=0)"),
        (["0, 8"], "R.add(R.exp(x0), R.sum(x0, axis=[1], keepdims=True))"),
    ],
)
def test_constant_extents_of_zero_are_well_formed_in_every_form(
    shapes: list[str], call: str
) -> None:
    params = ", ".join(f'x{i}: R.Tensor(({dims}), "float32")' for i, dims in enumerate(shapes))
    mod = rl.parse(f"""
@R.function
def main({params}):
    with R.dataflow():
        y = {call}
        R.output(y)
    return y
""")
    report = rl.check(mod, runs=1)
    assert report.ok, report


@pytest.mark.parametrize("rest", ["", ", axis=1"])
def test_no_repeats_have_no_elements(rest: str) -> None:
    mod = rl.parse(f"""
@R.function
def main(x: R.Tensor((2, "n", 8), "float32")):
    return R.repeat(x, 0{rest})
""")
    x = np.ones((2, 33, 8), "float32")
    got = rl.compile(mod, use_cache=False)["main"](x)
    np.testing.assert_array_equal(got, np.repeat(x, 0, 1 if rest else None))


def test_nothing_is_derived_of_a_variable_without_values() -> None:
    """Two loops, one of them of extent 0, were made one vector: its divisions are never reached."""
    exe = rl.compile(
        rl.parse("""
@T.prim_func
def main(A: T.Buffer(("m", "n"), "int64"), B: T.Buffer(("m", "n"), "int64")):
    T.func_attr({"tir.is_scheduled": True})
    for i in T.vectorized(0):
        with T.sblock("copy"):
            vi = T.axis.spatial(m, i // 0)
            vj = T.axis.spatial(n, 0)
            B[vi, vj] = A[vi, vj]
"""),
        use_cache=False,
    )
    empty = np.zeros((4, 0), "int64")
    exe(empty, empty.copy())
