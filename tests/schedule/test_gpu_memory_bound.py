"""Memory-bound kernels for GPUs: on simulated threads against NumPy, and as NVIDIA's compiler makes
them: accesses of 16 bytes, rows read once, and nothing spilled."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import relaxlab as rl
from relaxlab.codegen.cuda import sass
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.runtime.vm.cuda import CudaExecutable
from relaxlab.script import parse
from tests.disassembler import needs_disassembler

DTYPES = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16}
TOLERANCE = {"float32": 1e-5, "bfloat16": 2e-2}


def compiled(shape: str, dtype: str, body: str) -> CudaExecutable:
    return rl.compile(
        parse(f"""
@R.function
def main(x: R.Tensor({shape}, "{dtype}")):
    with R.dataflow():
        y = {body}
        R.output(y)
    return y
"""),
        target="cuda:sm_90",
    )


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def layer_norm(x: Any) -> Any:
    centred = x - x.mean((-2, -1), keepdims=True)
    return centred / np.sqrt((centred**2).mean((-2, -1), keepdims=True) + 1e-5)


SOFTMAX = (softmax, "R.nn.softmax(x)")
SUMS = (lambda x: x.sum(0), "R.sum(x, axis=0)")
TRANSPOSE = (lambda x: x.T, "R.permute_dims(x)")
ONES = "R.ones(R.shape([6, 20]), 'float32')"
NORM = (layer_norm, f"R.nn.layer_norm(x, {ONES}, R.zeros_like({ONES}), axes=[-2, -1])")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("kernel", "inner", "rows"),
    [
        (SOFTMAX, (64,), 9),  # a warp, with lanes that have nothing
        (SOFTMAX, (1030,), 2),  # no multiple of 16 bytes
        (SOFTMAX, (20000,), 1),  # no multiple of what the threads have
        (SOFTMAX, (70000,), 1),  # neither registers nor shared memory hold it
        (NORM, (6, 20), 3),  # two axes
        (SUMS, (64,), 700),
        (SUMS, (70,), 9),
        (TRANSPOSE, (128,), 70),
        (TRANSPOSE, (66,), 3),
        (TRANSPOSE, (67,), 40),
    ],
)
def test_results(kernel: tuple[Any, str], inner: tuple[int, ...], rows: int, dtype: str) -> None:
    want, body = kernel
    exe = compiled(str(("n", *inner)), dtype, body.replace("float32", dtype))
    x = np.random.default_rng(rows).standard_normal((rows, *inner)).astype(DTYPES[dtype])
    got, right = exe.simulate("main", x).astype(np.float64), want(x.astype(np.float64))
    assert np.abs(got - right).max() <= TOLERANCE[dtype] * np.abs(right).max()


DECODED = """
@R.function
def main(x: R.Tensor((1, 512), "float32"), d: R.Tensor((COLS, 16), "float16"),
         qs: R.Tensor((COLS, 16, 16), "uint8")):
    return R.linear(x, R.decode_blocks((d, qs), format="Q4_0"))
"""


@pytest.mark.parametrize(("cols", "own"), [(64, 4), (40, 1)])
def test_a_warp_multiplies_a_row_by_several_columns_of_four_bits(cols: int, own: int) -> None:
    """16 elements of the row are loaded for four columns of 8 bytes, where these divide."""
    mod = parse(DECODED.replace("COLS", str(cols)))
    exe = rl.compile(mod, target="cuda:sm_90")
    (launch,) = (x for k in exe.gpu.kernels.values() for x in k.launches)
    assert [str(d) for d in launch.extents("blockIdx")][0] == str(cols // (8 * own))
    rng = np.random.default_rng(cols)
    x = rng.standard_normal((1, 512), "float32")
    d = rng.standard_normal((cols, 16)).astype("float16")
    qs = rng.integers(0, 256, (cols, 16, 16), "uint8")
    want = rl.interpret(mod, "main", x, d, qs)
    assert np.abs(exe.simulate("main", x, d, qs) - want).max() <= 1e-5 * np.abs(want).max()


@needs_disassembler
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
@pytest.mark.parametrize(
    ("kernel", "shape", "dtype", "loads", "stores"),
    [
        (SOFTMAX, '("n", 4096)', "float32", 4, 4),
        (SOFTMAX, '("n", 4096)', "bfloat16", 2, 2),
        (SOFTMAX, '("n", 32000)', "float32", 8, 8),
        (SUMS, '("n", 8192)', "float32", 8, 1),
    ],
)
def test_rows_are_read_once_by_wide_loads(
    kernel: tuple[Any, str], shape: str, dtype: str, loads: int, stores: int, arch: str
) -> None:
    found = compiled(shape, dtype, kernel[1]).compiled(arch)
    assert not any(r.spill_stores or r.spill_loads or r.stack for r in found.resources.values())
    first = min(sass.disassemble(found.cubin).items())[1]
    counts = sass.opcodes(first)
    assert counts["LDG.E.128.CONSTANT"] == loads and counts["STG.E.128"] == stores
    # Those at edges, where there are some.
    assert counts["LDG"] == loads or kernel is SUMS


@needs_disassembler
def test_squares_are_loaded_before_they_are_stored() -> None:
    """All loads of a thread are under way together, and no index is divided by a symbol."""
    found = compiled('("n", 8192)', "float32", "R.permute_dims(x)").compiled("sm_90")
    (code,) = sass.disassemble(found.cubin).values()
    accesses = [i.opcode.partition(".")[0] for i in code]
    assert accesses.count("LDG") == 16 and "MUFU" not in accesses
    assert accesses[: accesses.index("STS")].count("LDG") >= 8


@pytest.mark.parametrize(
    ("shape", "dtype", "loads", "stores"),
    [
        ("(64, 128)", "bfloat16", 2, 2),
        ('("n", 128)', "float16", 2, 1),
        ("(64, 127)", "float16", 1, 2),
        ("(64, 128)", "int8", 2, 2),
        ("(64, 128)", "float32", 1, 1),
    ],
)
def test_squares_move_by_words(shape: str, dtype: str, loads: int, stores: int) -> None:
    """The elements of an access, where rows of the operand or of the result have whole words."""
    exe = compiled(shape, dtype, "R.permute_dims(x)")
    source = exe.source(next(iter(exe.gpu.functions)))
    before, after = source.split("__syncthreads")
    for text, count in ((before, loads), (after, stores)):
        assert (f", {count}>" in text) == (count > 1), text
    width = 127 if "127" in shape else 128
    x = np.random.default_rng(3).integers(-9, 9, (64, width)).astype(numpy_dtype(dtype))
    np.testing.assert_array_equal(exe.simulate("main", x), x.T)
