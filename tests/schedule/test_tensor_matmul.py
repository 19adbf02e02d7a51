"""Products by tensor cores: on the SIMT interpreter against NumPy, and as NVIDIA's compiler makes
them."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import relaxlab as rl
from relaxlab.codegen.cuda import sass
from relaxlab.codegen.errors import CodegenError
from relaxlab.codegen.gpu.lower import lower_launches
from relaxlab.ir import expr
from relaxlab.ir.loops import Block, Evaluate, For, PrimFunc, SeqStmt
from relaxlab.ir.node import replace, walk
from relaxlab.passes.pipeline import cuda_pipeline
from relaxlab.runtime.simt.report import SimtError
from relaxlab.runtime.simt.simt import simt, simt_device_kernel
from relaxlab.runtime.vm.cuda import CudaExecutable
from relaxlab.script import parse
from relaxlab.script import tir as T
from relaxlab.testing.replay import replay_kernels
from tests.disassembler import needs_disassembler

DTYPES = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
TOLERANCE = {"bfloat16": 1e-2, "float16": 1e-3}


def program(rows: Any, cols: int, terms: int, dtype: str = "bfloat16", form: str = "kj") -> Any:
    """x @ w, x @ w.T (`jk`) or, with a bias and an activation behind it, `epilogue`."""
    weights = (cols, terms) if form == "jk" else (terms, cols)
    product = "R.matmul(x, R.permute_dims(w))" if form == "jk" else "R.matmul(x, w)"
    value = f"R.nn.relu(R.add({product}, b))" if form == "epilogue" else product
    return parse(f"""
@R.function
def main(x: R.Tensor(({rows!r}, {terms}), "{dtype}"), w: R.Tensor({weights}, "{dtype}"),
         b: R.Tensor(({cols},), "{dtype}")):
    with R.dataflow():
        y = {value}
        R.output(y)
    return y
""")


def arguments(rows: int, cols: int, terms: int, dtype: str, form: str) -> list[Any]:
    rng = np.random.default_rng(rows + cols + terms)
    shapes = (rows, terms), (cols, terms) if form == "jk" else (terms, cols), (cols,)
    return [rng.standard_normal(s).astype(DTYPES[dtype]) for s in shapes]


def expected(x: Any, w: Any, b: Any, form: str) -> Any:
    x, w, b = (a.astype(np.float64) for a in (x, w, b))
    product = x @ (w.T if form == "jk" else w)
    return np.maximum(product + b, 0) if form == "epilogue" else product


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", ["kj", "jk", "epilogue"])
@pytest.mark.parametrize(
    ("rows", "cols", "terms"), [(128, 128, 64), (70, 200, 70), (16, 40, 136), (9, 3, 24)]
)
def test_products_are_right(rows: int, cols: int, terms: int, form: str, dtype: str) -> None:
    exe = rl.compile(program(rows, cols, terms, dtype, form), target="cuda")
    assert "mma_m16n8k16" in exe.source()
    args = arguments(rows, cols, terms, dtype, form)
    got, want = exe.simulate("main", *args).astype(np.float64), expected(*args, form)
    assert np.abs(got - want).max() <= TOLERANCE[dtype] * np.abs(want).max()


@pytest.mark.parametrize("rows", [1, 2, 17, 130])
def test_a_symbolic_number_of_rows(rows: int) -> None:
    exe = rl.compile(program("n", 72, 96), target="cuda")
    args = arguments(rows, 72, 96, "bfloat16", "kj")
    got, want = exe.simulate("main", *args).astype(np.float64), expected(*args, "kj")
    assert np.abs(got - want).max() <= 1e-2 * np.abs(want).max()


@pytest.mark.parametrize(
    "decisions",
    [
        {"pipeline_stages": 1},
        {"pipeline_stages": 2, "fragments_ahead": False},
        {"block_rows": 32, "block_cols": 32, "block_terms": 16, "warp_rows": 1, "warp_cols": 1},
        {"block_rows": 64, "block_cols": 128, "block_terms": 32, "warp_rows": 2, "warp_cols": 4},
        {"raster_columns": 1},
        {"block_rows": 16, "block_cols": 32, "block_terms": 32, "split_terms": 3},
        {"split_terms": 2, "pipeline_stages": 1, "block_cols": 32},
    ],
)
def test_other_decisions(decisions: dict[str, int]) -> None:
    mod = program(130, 256, 80)
    exe = rl.compile(mod, target="cuda", decisions={"matmul": decisions})
    args = arguments(130, 256, 80, "bfloat16", "kj")
    got, want = exe.simulate("main", *args).astype(np.float64), expected(*args, "kj")
    assert np.abs(got - want).max() <= 1e-2 * np.abs(want).max()


def test_drawn_decisions(rng: np.random.Generator) -> None:
    seed = int(rng.integers(1 << 31))
    rows, cols, terms = (int(n) for n in rng.integers(5, 200, 3))
    form = ["kj", "jk", "epilogue"][seed % 3]
    print(f"{form} of {rows} x {cols} x {terms}, decisions of seed {seed}")
    pipeline = cuda_pipeline().with_options("schedule_kernels", seed=seed)
    trace = pipeline.run(program(rows, cols, terms, form=form))
    replay_kernels(trace)
    (applied,) = trace.result.loop_functions().values()
    assert any(isinstance(n, Block) and n.annotations.get("tensor_intrin") for n in walk(applied))
    args = arguments(rows, cols, terms, "bfloat16", form)
    got = simt(trace.result, "main", *args).check().result.astype(np.float64)
    want = expected(*args, form)
    assert np.abs(got - want).max() <= 1e-2 * np.abs(want).max()


@pytest.mark.parametrize("form", ["kj", "jk", "epilogue"])
def test_blocks_share_the_terms_of_few_tiles(form: str) -> None:
    """Parts of 17 slices; the last one has zeros behind its terms."""
    rows, cols, terms = 33, 50, 8000
    exe = rl.compile(program(rows, cols, terms, form=form), target="cuda:sm_80")
    (kernel,) = exe.gpu.kernels.values()
    sums, added = kernel.launches
    (parts,) = (b.shape[0] for b in sums.buffers if b.name.endswith("_rf"))
    assert parts == expr.const(8) and "T_matmul_pad_rf" in {b.name for b in added.buffers}
    args = arguments(rows, cols, terms, "bfloat16", form)
    got, want = exe.simulate("main", *args).astype(np.float64), expected(*args, form)
    assert np.abs(got - want).max() <= 1e-2 * np.abs(want).max()


@pytest.fixture(scope="module")
def large() -> CudaExecutable:
    return rl.compile(program(4096, 4096, 4096, form="jk"), target="cuda:sm_90")


@needs_disassembler
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_machine_code(large: CudaExecutable, arch: str) -> None:
    """A step of 64 terms of a warp's 64 x 64 results: 128 instructions, from 32 loads of fragments;
    copies of 16 bytes past the registers; nothing in local memory."""
    compiled = large.compiled(arch)
    (resources,) = compiled.resources.values()
    assert resources.registers <= 255 and resources.spill_stores == resources.spill_loads == 0
    (code,) = sass.disassemble(compiled.cubin).values()
    counts = sass.opcodes(code)
    assert counts["HMMA"] == 4 * 4 * 8
    assert 32 <= counts["LDSM"] <= 40  # with those before the loop
    assert counts["LDGSTS"] > 0 and counts["LDGSTS"] == sum(
        n for name, n in counts.items() if name.startswith("LDGSTS.") and "128" in name
    )
    assert counts["LDL"] == counts["STL"] == counts["LDG"] == 0


def kernel_of(exe: CudaExecutable) -> tuple[PrimFunc, Any]:
    (name,) = exe.gpu.kernels
    return exe.program.kernels[name], exe.gpu.kernels[name]


def test_tiles_are_for_the_multiprocessors_that_there_are() -> None:
    cuda = rl.target_kind("cuda")
    small = replace(
        cuda, name="small", facts=lambda target: replace(cuda.facts(target), multiprocessors=16)
    )
    rl.register_target(small, override=True)
    blocks: dict[str, int] = {}
    for target in ("cuda", "small"):
        func, _ = kernel_of(rl.compile(program(1024, 1024, 64), target=f"{target}:sm_80"))
        loops = [n for n in walk(func) if isinstance(n, For)]
        grid = [n.extent for n in loops if (n.thread or "").startswith("blockIdx")]
        blocks[target] = math.prod(e.value for e in grid)  # type: ignore[union-attr]
    assert blocks == {"cuda": 8 * 16, "small": 4 * 8}


def test_a_missing_wait_is_found() -> None:
    tile = {"block_rows": 64, "block_cols": 16, "warp_rows": 4}
    exe = rl.compile(program(64, 64, 128), target="cuda", decisions={"matmul": tile})
    func, kernel = kernel_of(exe)
    (launch,) = kernel.launches
    args = arguments(64, 64, 128, "bfloat16", "kj")
    out = np.zeros((64, 64), ml_dtypes.bfloat16)
    report = simt_device_kernel(func, kernel, [*args[:2], out], record=(0, 0, 0)).check()
    counters = report.launches[0].counters
    assert counters and report.launches[0].geometry.blocks == 4
    assert counters.products == 2 * 64 * 16 * 128
    moved = {name: cost for (name, write), cost in counters.by_buffer().items() if not write}
    assert {n: (c.count, c.excess) for n, c in moved.items() if c.unit == "sectors"} == {
        "A": (64 * 128 * 2 / 32, 1), "B": (16 * 128 * 2 / 32, 1),
    }  # fmt: skip
    # Each warp loads the 16 x 16 tiles of its rows, and those of the columns that all warps need.
    assert {n: (c.count, c.excess) for n, c in moved.items() if c.unit != "sectors"} == {
        "A_shared": (4 * 8 * 4, 1), "B_shared": (4 * 8 * 4, 1),
    }  # fmt: skip

    def without_waits(s: Any) -> Any:
        if isinstance(s, SeqStmt):
            kept = [p for p in s.stmts if not is_wait(p)]
            return replace(s, stmts=tuple(map(without_waits, kept)))
        return replace(s, body=without_waits(s.body)) if isinstance(s, For) else s

    def is_wait(s: Any) -> bool:
        return isinstance(s, Evaluate) and getattr(s.value, "op", "") == "cp_async_wait"

    assert any(is_wait(n) for n in walk(launch.body))
    broken = replace(kernel, launches=(replace(launch, body=without_waits(launch.body)),))
    with pytest.raises(SimtError, match="nobody has written"):
        simt_device_kernel(func, broken, [*args[:2], out]).check()


def test_a_loop_that_is_no_pipeline_is_refused() -> None:
    @T.prim_func
    def direct(X: T.Buffer((64,), "float32"), Y: T.Buffer((64,), "float32")):
        for t in T.thread_binding(32, thread="threadIdx.x"):
            for i in T.serial(2, annotations={"software_pipeline": 2}):
                Y[i * 32 + t] = X[i * 32 + t]

    with pytest.raises(CodegenError, match="not copies into shared memory and a computation"):
        lower_launches(direct, "f")

    @T.prim_func
    def one(X: T.Buffer((64,), "float32"), Y: T.Buffer((64,), "float32")):
        S = T.alloc_buffer((32,), "float32", scope="shared")
        for t in T.thread_binding(32, thread="threadIdx.x"):
            for i in T.serial(2, annotations={"software_pipeline": 1}):
                S[t] = X[i * 32 + t]
                Y[i * 32 + t] = S[31 - t]

    with pytest.raises(CodegenError, match="loop i of 'f' has 1 stage; .* takes 2 or more"):
        lower_launches(one, "f")
