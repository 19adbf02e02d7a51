"""Native code of some operators; tests/codegen/test_operators.py has every use of all of them."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.expr import const
from relaxlab.ir.loops import Block, BufferStore, For
from relaxlab.ir.node import walk
from relaxlab.testing.op_check import CaseProgram, OpCase, T


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("count", [6, 203])
@pytest.mark.parametrize(
    ("call", "negative"),
    [("sign(x)", False), ("nn.relu(x)", True), ("nn.relu6(x)", True), ("clip(x, 0, 1)", True)],
)
def test_zeros_have_the_sign_that_pytorch_gives_them(call, negative, count, dtype, rng) -> None:
    """In vectors and in what is left beside them."""
    mod = rl.parse(f"""
@R.function
def main(x: R.Tensor(({count},), "{dtype}")):
    y = R.{call}
    return y
""")
    zeros = np.copysign(0.0, rng.standard_normal(count)).astype(numpy_dtype(dtype))
    main = rl.compile(mod, use_cache=False)["main"]
    for found in (main(zeros), rl.interpret(mod, "main", zeros)):
        assert (found == 0).all()
        np.testing.assert_array_equal(np.signbit(found), np.signbit(zeros) & negative)
    nan = np.full(count, np.nan, zeros.dtype)
    assert np.isnan(main(nan)).all()


@pytest.mark.parametrize("dtype", ["int8", "bool", "float32"])
@pytest.mark.parametrize("extent", [8, 1000, "n"])
def test_rows_are_sorted_by_digits(dtype: str, extent: int | str) -> None:
    """In a pass over the row for each; elements of short rows are compared with all others."""
    program = CaseProgram(OpCase("sort", (T(3, extent, dtype=dtype),)), {"n": 9}, symbolic=True)
    assert program.row.lower is not None
    func = program.row.lower(program.call, program.types, program.out)
    stores = (n for n in walk(func.body) if isinstance(n, BufferStore))
    compares = any(n.buffer.name == "T_ranks" for n in stores)
    counts = any(isinstance(n, For) and n.extent == const(255) for n in walk(func.body))
    assert (compares, counts) == (extent != 1000, extent != 8)


@pytest.mark.parametrize("kind", ["avg", "max"])
def test_gradients_of_pooling_add_up_one_phase(kind: str) -> None:
    """At most 3 x 2 elements of a window of 5 x 3 with a stride of 2 meet an input."""
    attrs = {"pool_size": (5, 3), "strides": 2}
    operands = T("n", 2, 4, 5), T("n", 2, 11, 11)
    case = OpCase(f"grad.{kind}_pool2d_backward", operands, attrs)
    program = CaseProgram(case, {"n": 1}, symbolic=True)
    assert program.row.lower is not None
    func = program.row.lower(program.call, program.types, program.out)
    block = [n for n in walk(func.body) if isinstance(n, Block) and n.name.endswith("backward")][-1]
    terms = [it.dom.extent for it in block.iter_vars if it.kind != "spatial"]
    assert terms == [const(3), const(2)]
