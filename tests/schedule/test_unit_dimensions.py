"""Dimensions of size 1 change nothing: kernels have the loops that they have without them."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.loops import For
from relaxlab.ir.module import Module
from relaxlab.ir.node import walk

CALLS = (
    "R.less(x, x)", "R.nn.gelu_tanh(x)", "R.permute_dims(x, axes={axes})", "R.max(x)",
    "R.sum(x, axis=[{last}])", "R.sum(x, axis=[{first}])", "R.min(R.astype(x, 'int64'))",
    "R.argmax(x, axis={last})", "R.variance(x, axis={last})", "R.nn.softmax(x, axis={first})",
    "R.nn.softmax(x, axis={last})",
    "R.cumsum(x, axis={first})", "R.cumsum(x, axis={last})", "R.concat([x, x], axis={last})",
    "R.flip(x, axis={last})", "R.strided_slice(x, axes=[{first}], begin=[1], end=[200])",
    "R.add(x, R.sum(x, axis=[{first}], keepdims=True))", "R.take(x, i, axis={first})",
)  # fmt: skip
ROWS, COLUMNS = 300, 57


def program(call: str, unit: int | None, symbolic: bool) -> Module:
    """`call` of x (300, 57), the rows a symbol on request, with a dimension of size 1 at `unit`."""
    places, dims = [0, 1], ['"n"' if symbolic else str(ROWS), str(COLUMNS)]
    if unit is not None:
        places = [p + (p >= unit) for p in places]
        dims.insert(unit, "1")
    axes = list(reversed(range(len(dims))))
    text = call.format(first=places[0], last=places[1], axes=axes)
    return rl.parse(f"""
@R.function
def main(x: R.Tensor(({", ".join(dims)}), "float32"), i: R.Tensor((40,), "int64")):
    return {text}
""")


def loops(mod: Module) -> list[list[tuple[str, str]]]:
    """Kind and extent of each loop of more than one iteration, kernel by kernel."""
    kernels = rl.cpu_pipeline().run(mod).result.loop_functions().values()
    found = [[(n.kind, str(n.extent)) for n in walk(f.body) if isinstance(n, For)] for f in kernels]
    return [[(kind, extent) for kind, extent in nest if extent != "1"] for nest in found]


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("call", CALLS)
def test_loops_are_those_without_the_dimension(call: str, symbolic: bool) -> None:
    wanted = loops(program(call, None, symbolic))
    assert any(wanted)
    for unit in range(3):
        assert loops(program(call, unit, symbolic)) == wanted, unit


@pytest.mark.parametrize("call", CALLS)
def test_results(call: str, rng: np.random.Generator) -> None:
    """With memory checks, for a dimension in a place that is drawn."""
    unit = int(rng.integers(3))
    mod = program(call, unit, True)
    places = rng.integers(ROWS, size=40)
    x = np.expand_dims(rng.standard_normal((ROWS, COLUMNS), np.float32), unit)
    want = rl.interpret(mod, "main", x, places)
    for exe in (rl.compile(mod, checks="all"), *(rl.compile(mod, threads=n) for n in (1, 3))):
        np.testing.assert_allclose(exe["main"](x, places), want, 1e-4, 1e-4)
