"""Panels that operands are copied to have zeros in the lanes without a column: whatever the memory
held before may be denormal numbers, by which multiply-adds take 50 times as long."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.analysis.arith import simplify
from relaxlab.ir.expr import IntImm, const
from relaxlab.ir.loops import Buffer
from relaxlab.ir.substitute import substitute, symbols_in

COLUMNS = {"33": (33,), '"m"': (9, 17, 33)}
"""Numbers of columns by the extent that a program has: one more than whole vectors of 8, 16 and 32
elements, as versions for other numbers of columns have workspaces of their own."""


def assert_panels_are_whole(array: np.ndarray, columns: int) -> None:
    """Panels (…, panel, term, lane) of all columns have numbers in all lanes; those behind them,
    for which versions for up to some columns have room, are as they were."""
    filled = ~np.isnan(array).all(axis=(-2, -1))
    assert np.isfinite(array[filled]).all()
    assert (filled.sum(axis=-1) * array.shape[-1] >= columns).all()
    assert (np.sort(filled, axis=-1)[..., ::-1] == filled).all(), "not the first panels"


@pytest.mark.parametrize("extent", COLUMNS)
@pytest.mark.parametrize(
    ("shapes", "result"),
    [
        (["33, 33", "M, 33"], "R.linear(x, y)"),
        (["1, 8, 2, 20", "1, M, 2, 20", "1, M, 2, 20"], "R.nn.attention(x, y, z)"),
    ],
)
def test_lanes_without_a_column_are_zero(
    shapes: list[str], result: str, extent: str, rng: np.random.Generator
) -> None:
    params = ", ".join(
        f'{name}: R.Tensor(({shape.replace("M", extent)}), "float32")'
        for name, shape in zip("xyz", shapes, strict=False)
    )
    module = rl.parse(f"@R.function\ndef main({params}):\n    return {result}\n")
    (kernel,) = rl.trace(module).passes[-1].after.loop_functions().values()
    run, used = rl.compile(kernel), set[int]()
    for columns in COLUMNS[extent]:
        arrays: list[np.ndarray] = []
        for param in kernel.params:
            assert isinstance(param, Buffer)
            symbols = {s: const(columns) for s in symbols_in(param.shape)}
            shape = [simplify(substitute(dim, symbols)) for dim in param.shape]
            sizes = [dim.value for dim in shape if isinstance(dim, IntImm)]
            arrays.append(rng.standard_normal(sizes, np.float32))
        written = arrays[len(shapes) :]
        for array in written:
            array[...] = np.nan
        run(*arrays)
        for number, array in enumerate(written):
            if number == 0:  # the result
                assert np.isfinite(array).all()
            elif np.isnan(array).all():  # a workspace of other versions is as it was
                continue
            else:
                assert_panels_are_whole(array, columns)
            used.add(number)
    assert len(used) == len(written), "some workspace is never used"
