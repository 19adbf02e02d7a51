"""Products of bfloat16 values in matrix tiles, against NumPy on rounded operands."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import relaxlab as rl
from relaxlab import nn
from relaxlab.codegen.errors import CodegenError
from relaxlab.codegen.llvm.kernel import emit_kernel
from relaxlab.ir.target import Target
from relaxlab.ops import te
from relaxlab.ops.block_formats import FORMATS, Format
from relaxlab.passes.base import Pipeline
from relaxlab.passes.pipeline import GRAPH_PASSES
from relaxlab.schedule import Schedule, TensorIntrin
from relaxlab.schedule.intrinsics import amx
from relaxlab.schedule.intrinsics.amx import FEATURES, TILE_SCOPE
from relaxlab.schedule.rules import tiles
from relaxlab.schedule.rules.context import Context

needs_tiles = pytest.mark.skipif(
    TensorIntrin.best(amx.FAMILY, Target.host()) is None,
    reason="this machine has no bfloat16 matrix tiles",
)
ROWS = (1, 2, 31, 32, 33, 70)


@pytest.fixture
def rng():
    return np.random.default_rng(7)


class Product(nn.Module):
    """y = residual + x @ W.T, with x and W rounded to bfloat16."""

    def __init__(self, format: str, rows: int, cols: int) -> None:
        self.linear = nn.Linear(
            cols, rows, format=format, precision=nn.Precision("bfloat16", "bfloat16")
        )

    def main(self, x, residual):
        return residual + self.linear(x)


def stored(fmt: Format, rows: int, cols: int, rng) -> list[np.ndarray]:
    found = []
    for _, dtype, tail in fmt.fields:
        shape = (rows, cols // fmt.block, *tail)
        if dtype == "float16":
            found.append((rng.normal(size=shape) / 8).astype(dtype))
        else:
            limits = np.iinfo(dtype)
            found.append(rng.integers(limits.min, limits.max, shape, dtype, endpoint=True))
    return found


def rounded(x: np.ndarray) -> np.ndarray:
    return x.astype(ml_dtypes.bfloat16).astype(np.float64)


@needs_tiles
@pytest.mark.parametrize("format", FORMATS)
def test_products_of_every_format(format, rng):
    fmt, rows, cols = FORMATS[format], 64, 256
    spec = nn.spec.Tensor
    mod, _ = Product(format, rows, cols).export(
        {"main": {"x": spec(("m", cols)), "residual": spec(("m", rows))}}
    )
    exe = rl.compile(mod, threads=2, use_cache=False)
    weights = stored(fmt, rows, cols, rng)
    names = (name for name, *_ in fmt.fields)
    blocks = fmt.storage.join_fields(dict(zip(names, weights, strict=True)))
    dense = fmt.storage.dequantise(blocks, (rows, cols))
    packed = exe["main_transform_params"](tuple(weights))
    for m in ROWS:
        x, residual = (rng.normal(size=(m, n)).astype(np.float32) for n in (cols, rows))
        got = np.asarray(exe["main"](x, residual, *packed))
        want = residual + rounded(x) @ rounded(dense).T
        assert np.abs(got - want).max() <= 2e-6 * np.abs(want).max() + 1e-6, m


WITH_TILES = Target("cpu", "x86_64-unknown-linux-gnu", "sapphirerapids", FEATURES)


def product(format: str, m: nn.spec.Dim, rows: int) -> Schedule:
    """The kernel of `Product` for m rows of 64 columns, before any schedule."""
    spec = nn.spec.Tensor
    mod, _ = Product(format, rows, 64).export(
        {"main": {"x": spec((m, 64)), "residual": spec((m, rows))}}
    )
    kernels = Pipeline(GRAPH_PASSES).run(mod).result.loop_functions()
    (kernel,) = (f for name, f in kernels.items() if "linear" in name)
    return Schedule(kernel)


def test_the_rule_needs_the_instructions_and_whole_tiles():
    with_tiles = Context(WITH_TILES)
    whole, parts = (product("Q4_1", "m", n) for n in (64, 40))
    assert isinstance(tiles.apply(whole.copy(), with_tiles), Schedule)
    assert tiles.apply(whole, Context(Target())) == "the processor has no tile registers"
    assert isinstance(tiles.apply(parts, with_tiles), str)
    x = te.placeholder((64, 64), "float32", "x")
    sums = te.create_prim_func([x, te.compute((64, 64), lambda i, j: x[i, j] + x[j, i], "sums")])
    assert isinstance(tiles.apply(Schedule(sums), with_tiles), str)


def test_a_constant_number_of_rows_needs_no_padding():
    sch = tiles.apply(product("Q8_0", 64, 32), Context(WITH_TILES))
    assert isinstance(sch, Schedule) and "_pad" not in sch.mod.script()


TILES_LIKE_MEMORY = f"""
@T.prim_func
def main(A: T.Buffer((32, 32), "float32"), B: T.Buffer((32, 32), "float32")):
    C = T.alloc_buffer((32, 32), "float32", scope="{TILE_SCOPE}")
    for i, j in T.grid(32, 32):
        with T.block("fill"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = A[vi, vj]
    for i, j in T.grid(32, 32):
        with T.block("use"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = C[vi, vj]
"""


def test_tiles_are_no_memory():
    func = rl.parse(TILES_LIKE_MEMORY)
    func = func["main"] if isinstance(func, rl.Module) else func
    with pytest.raises(CodegenError, match="lies in registers"):
        emit_kernel(func, "main", {})
