"""Chains of elementwise steps that read earlier values several times: their kernels, and so the
time to compile them, grow with the number of steps, not with the number of paths."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir import expr
from relaxlab.ir.module import Module
from relaxlab.ir.node import walk

NEWTON = ["x{j} = R.multiply(R.const(0.5, 'float32'), R.add(x{i}, R.divide(a, x{i})))"]
GELU = ["x{j} = R.nn.gelu(x{i})"]
COMPLEX_SQUARE = [
    "x{j} = R.add(R.subtract(R.multiply(x{i}, x{i}), R.multiply(y{i}, y{i})), a)",
    "y{j} = R.add(R.multiply(x{i}, y{i}), a)",
]


def chain(steps: list[str], count: int, last: str) -> Module:
    """Return a program of `count` steps from x0 and y0 = x0 * a, then z = `last`."""
    lines = [s.format(i=i, j=i + 1) for i in range(count) for s in steps]
    lines = ["y0 = R.multiply(x0, a)", *lines, f"z = {last.format(n=count)}"]
    body = "\n        ".join(lines)
    return rl.parse(f"""
@R.function
def main(x0: R.Tensor(("n", 8), "float32"), a: R.Tensor(("n", 8), "float32")):
    with R.dataflow():
        {body}
        R.output(z)
    return z
""")


@pytest.mark.parametrize(
    ("steps", "last"),
    [
        (NEWTON, "R.negative(x{n})"),
        (NEWTON, "R.nn.softmax(x{n})"),
        (NEWTON, "R.nn.softmax(x{n}, axis=0)"),
        (COMPLEX_SQUARE, "R.add(x{n}, y{n})"),
        (GELU, "R.negative(x{n})"),
    ],
)
def test_kernels_grow_with_the_steps(steps, last, rng):
    sizes: list[int] = []
    for count in (12, 48):
        mod = chain(steps, count, last)
        kernels = rl.trace(mod).result.loop_functions().values()
        sizes.append(sum(1 for kernel in kernels for _ in walk(kernel)))
    assert sizes[1] < 6 * sizes[0]
    x, a = (rng.random((5, 8), "float32") * 0.3 + 0.1 for _ in range(2))
    got, want = rl.compile(mod)["main"](x, a), rl.interpret(mod, "main", x, a)
    np.testing.assert_allclose(got, want, 1e-5, 1e-6)


def test_a_value_is_not_bound_around_a_choice():
    """A value that only one side of a condition reads may not exist for the other."""
    long = chain(NEWTON, 30, "R.nn.pad(R.negative(x{n}), (2, 2, 0, 0))")
    kernels = rl.trace(long).result.loop_functions().values()
    for call in (n for k in kernels for n in walk(k) if isinstance(n, expr.Call)):
        if call.op == "if_then_else":
            assert not any(isinstance(n, expr.Let) for n in walk(call.args[0]))
    x = np.full((3, 8), 0.5, "float32")
    np.testing.assert_allclose(
        rl.compile(long)["main"](x, x), rl.interpret(long, "main", x, x), 1e-5
    )
