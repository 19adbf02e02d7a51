"""Types of `R.decode_blocks`, and its kernels; what it gives is compared with NumPy's reference
among the cases of all operators, and that with GGML's own package in tests/ir."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab import ops
from relaxlab.ir import graph
from relaxlab.ir.op_table import TypeDeductionError
from relaxlab.ir.quant_formats import FORMAT_BY_NAME
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T
from tests.ops.test_deduction import M, N, coarse, infer, tensor


def half(*dims):
    return tensor(*dims, dtype="float16")


def byte(*dims):
    return tensor(*dims, dtype="uint8")


@pytest.mark.parametrize(
    ("fields", "format", "text"),
    [
        ((half(N, M), byte(N, M, 16)), "Q4_0", "R.Tensor((n, m * 32), 'float32')"),
        ((byte(N, 2, 18),), "Q4_0", "R.Tensor((n, 64), 'float32')"),
        ((coarse(2, "float16"), byte(3, M, 16)), "Q4_0", "R.Tensor((3, m * 32), 'float32')"),
        ((half(N, 2), half(N, 2), byte(N, 2, 12), byte(N, 2, 128)), "Q4_K",
         "R.Tensor((n, 512), 'float32')"),
    ],
)  # fmt: skip
def test_types(fields: tuple[graph.Expr, ...], format: str, text: str) -> None:
    assert str(infer(ops.decode_blocks(fields, format=format))) == text


@pytest.mark.parametrize(
    ("fields", "format", "message"),
    [
        ((half(N, 2), byte(N, 2, 16)), "Q4_2", "format 'Q4_2' is not known"),
        ((half(N, 2), byte(N, 2, 16)), "Q4_1", "has the fields d, m, qs, or whole blocks, not 2"),
        ((tensor(N, 2), byte(N, 2, 16)), "Q4_0", r"d of Q4_0 must be float16 \(rows, blocks\)"),
        ((half(N, 2), byte(N, 3, 16)), "Q4_0", r"qs of Q4_0 must be \(n, 2, 16\)"),
        ((byte(N, 2, 17),), "Q4_0", r"blocks of Q4_0 must be \(n, 2, 18\)"),
    ],
)
def test_refused(fields: tuple[graph.Expr, ...], format: str, message: str) -> None:
    with pytest.raises(TypeDeductionError, match=message):
        infer(ops.decode_blocks(fields, format=format))


@I.ir_module
class Product:
    @R.function
    def main(
        x: R.Tensor(("n", 64), "float32"),
        d: R.Tensor((8, 2), "float16"),
        qs: R.Tensor((8, 2, 16), "uint8"),
    ):
        n = T.int64()
        R.func_attr({"num_input": 1})
        return R.linear(x, R.decode_blocks((d, qs), format="Q4_0"))


def test_a_product_decodes_its_weights(rng: np.random.Generator) -> None:
    exe = rl.compile(Product)
    storage = FORMAT_BY_NAME["Q4_0"]
    raw = storage.quantise(rng.normal(size=(8, 64)))
    fields = storage.split_fields(raw, (8, 64))
    x = rng.normal(size=(3, 64)).astype(np.float32)
    want = x @ storage.dequantise(raw, (8, 64)).T
    np.testing.assert_allclose(
        exe["main"](x, fields["d"], fields["qs"]), want, rtol=1e-4, atol=1e-5
    )
    kernels = [name for name in rl.trace(Product).result.loop_functions() if "linear" in name]
    assert len(kernels) == 1 and "decode" in kernels[0]
