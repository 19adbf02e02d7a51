"""Products of float32 matrices for GPUs: on simulated threads against NumPy, and as NVIDIA's
compiler makes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.codegen.cuda import sass
from relaxlab.runtime.vm.cuda import CudaExecutable
from relaxlab.script import parse
from tests.disassembler import needs_disassembler

BODIES = {
    "kj": ("R.matmul(x, w)", lambda x, w: x @ w),
    "jk": ("R.nn.relu(R.matmul(x, R.permute_dims(w)))", lambda x, w: np.maximum(x @ w.T, 0)),
}


def compiled(form: str, cols: int, terms: int, rows: int | str = "n") -> CudaExecutable:
    weights = (terms, cols) if form == "kj" else (cols, terms)
    return rl.compile(
        parse(f"""
@R.function
def main(x: R.Tensor(({rows!r}, {terms}), "float32"), w: R.Tensor({weights}, "float32")):
    with R.dataflow():
        y = {BODIES[form][0]}
        R.output(y)
    return y
"""),
        target="cuda:sm_90",
    )


@pytest.mark.parametrize("form", BODIES)
def test_products_are_right(form: str) -> None:
    """Edges along all axes; a single row and few rows have versions of their own."""
    exe = compiled(form, 132, 40)
    rng = np.random.default_rng(3)
    w: Any = rng.standard_normal((40, 132) if form == "kj" else (132, 40), "float32")
    for rows in (1, 20, 131):
        x: Any = rng.standard_normal((rows, 40), "float32")
        want = BODIES[form][1](x.astype(np.float64), w.astype(np.float64))
        assert np.abs(exe.simulate("main", x, w) - want).max() <= 1e-5 * np.abs(want).max()


@needs_disassembler
@pytest.mark.parametrize("form", BODIES)
def test_a_slice_is_multiplied_from_registers(form: str) -> None:
    """The 64 results of a thread take 1024 multiplications and 64 loads for a slice of 16 terms,
    which was copied while others were multiplied."""
    found = compiled(form, 4096, 4096).compiled("sm_90")
    assert not any(r.spill_stores or r.spill_loads or r.stack for r in found.resources.values())
    codes = map(sass.opcodes, sass.disassemble(found.cubin).values())
    copying = [c for c in codes if c["LDGSTS"]]
    assert len(copying) == 3  # for few rows, for some, and for many
    for counts in copying:
        assert counts["FFMA"] == 1024 and counts["LDS.128"] == 64
        assert counts["LDGSTS.E.BYPASS.128"] == counts["LDGSTS"]


@pytest.mark.parametrize("form", BODIES)
@pytest.mark.parametrize("rows", [5, 8, 9, 16, 17, 33, 64, 70])
def test_known_few_rows(rows: int, form: str) -> None:
    """Tiles have as many rows, and blocks share terms where there are few tiles."""
    terms, cols = 544, 132
    exe = compiled(form, cols, terms, rows)
    rng = np.random.default_rng(rows)
    w: Any = rng.standard_normal((terms, cols) if form == "kj" else (cols, terms), "float32")
    x: Any = rng.standard_normal((rows, terms), "float32")
    want = BODIES[form][1](x.astype(np.float64), w.astype(np.float64))
    assert np.abs(exe.simulate("main", x, w) - want).max() <= 2e-5 * np.abs(want).max()
    (kernels,) = exe.gpu.kernels.values()
    assert len(kernels.launches) == 2  # the second one adds the sums of parts
