"""Products by warpgroups: on the SIMT interpreter against NumPy, and as NVIDIA's compiler makes
them."""

# Functions here are programs of the script language, whose annotations are buffers.
# pyright: basic, reportInvalidTypeForm=false

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import relaxlab as rl
from relaxlab.codegen.cuda import sass
from relaxlab.codegen.errors import CodegenError
from relaxlab.codegen.gpu.launch import DeviceKernel
from relaxlab.codegen.gpu.lower import lower_launches
from relaxlab.ir.expr import Call
from relaxlab.ir.loops import BufferLoad, Evaluate, For, PrimFunc, SeqStmt
from relaxlab.ir.node import replace, rewrite
from relaxlab.ir.target import Target
from relaxlab.passes.pipeline import cuda_pipeline
from relaxlab.runtime.simt.report import SimtError
from relaxlab.runtime.simt.simt import simt, simt_device_kernel
from relaxlab.runtime.vm.cuda import gpu_architecture, require_cupy
from relaxlab.schedule.annotate import WARP_SPECIALIZE
from relaxlab.schedule.decisions import DecisionError
from relaxlab.script import parse
from relaxlab.script import tir as T
from relaxlab.testing.replay import replay_kernels
from tests.disassembler import needs_disassembler

TARGET = Target.cuda("sm_90a")


def program(rows: Any, cols: Any, terms: Any, form: str, dtype: str = "bfloat16") -> Any:
    """x @ w (`kj`), or x @ w.T (`jk`)."""
    weights = (cols, terms) if form == "jk" else (terms, cols)
    return parse(f"""
@R.function
def main(x: R.Tensor(({rows!r}, {terms!r}), "{dtype}"), w: R.Tensor({weights!r}, "{dtype}")):
    y = R.matmul(x, {"R.permute_dims(w)" if form == "jk" else "w"})
    return y
""")


def operands(rows: int, cols: int, terms: int, form: str) -> tuple[Any, Any, Any]:
    """Arguments, and their product."""
    rng = np.random.default_rng(rows + cols + terms)
    shapes = (rows, terms), (cols, terms) if form == "jk" else (terms, cols)
    x, w = (rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in shapes)
    a, b = (v.astype(np.float64) for v in (x, w))
    return x, w, a @ (b.T if form == "jk" else b)


def require_close(got: Any, want: Any) -> None:
    assert np.abs(got.astype(np.float64) - want).max() <= 1e-2 * np.abs(want).max()


@pytest.mark.parametrize("form", ["kj", "jk"])
def test_odd_edges(form: str) -> None:
    exe = rl.compile(program(130, 264, 136, form), TARGET)
    assert "wgmma_m64n" in exe.source() and "tma_load" in exe.source()
    x, w, want = operands(130, 264, 136, form)
    require_close(exe.simulate("main", x, w), want)


@pytest.mark.parametrize(
    ("rows", "cols", "terms", "form"),
    [(131, 137, 73, "kj"), ("m", "n", "k", "kj"), ("m", 264, "k", "jk")],
)
def test_rows_at_any_address_are_copied(rows: Any, cols: Any, terms: Any, form: str) -> None:
    """A box is of rows at multiples of 16 bytes: others are copied by a launch of their own."""
    exe = rl.compile(program(rows, cols, terms, form), TARGET)
    assert "tma_load" in exe.source()
    for sizes in [(131, 137, 73), (90, 71, 0)] if rows == "m" and cols == "n" else [(131, 264, 73)]:
        m, n, k = (s if isinstance(s, int) else d
                   for s, d in zip((rows, cols, terms), sizes, strict=True))  # fmt: skip
        x, w, want = operands(m, n, k, form)
        require_close(exe.simulate("main", x, w), want)


def batched(form: str) -> tuple[Any, Any, Any, Any]:
    """A program for batches of products, two arguments, and the result."""
    shape, right = ("136, 72", "R.permute_dims(w, [0, 2, 1])") if form == "jk" else ("72, 136", "w")
    mod = parse(f"""
@R.function
def main(x: R.Tensor(("b", "m", 72), "bfloat16"), w: R.Tensor(("b", {shape}), "bfloat16")):
    return R.matmul(x, {right})
""")
    rng = np.random.default_rng(4)
    shapes = (3, 130, 72), (3, 136, 72) if form == "jk" else (3, 72, 136)
    x, w = (rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in shapes)
    a, b = (v.astype(np.float64) for v in (x, w))
    return mod, x, w, a @ (b.transpose(0, 2, 1) if form == "jk" else b)


@pytest.mark.parametrize("form", ["kj", "jk"])
def test_batches(form: str) -> None:
    mod, x, w, want = batched(form)
    exe = rl.compile(mod, TARGET)
    assert "wgmma" in exe.source()
    require_close(exe.simulate("main", x, w), want)


def test_operands_of_six_dimensions_are_no_boxes() -> None:
    mod = parse("""
@R.function
def main(x: R.Tensor((1, 2, 1, 1, 128, 64), "bfloat16"),
         w: R.Tensor((1, 2, 1, 1, 64, 128), "bfloat16")):
    return R.matmul(x, w)
""")
    source = rl.compile(mod, TARGET).source()
    assert "mma_m16n8k16" in source and "tma_load" not in source


def test_blocks_share_the_terms_of_few_tiles() -> None:
    made = {"any m / split_terms": 3, "any m / warpgroup_cols": 64}
    exe = rl.compile(program("m", 128, "k", "kj"), TARGET, decisions={"matmul": made})
    x, w, want = operands(70, 128, 1300, "kj")
    require_close(exe.simulate("main", x, w), want)


@pytest.mark.parametrize("terms, fitting", [(64, {1}), (256, {1, 2, 4}), (130, {1, 2, 3})])
def test_no_part_is_of_padding_alone(terms: int, fitting: set[int]) -> None:
    mod = program(268, 79, terms, "jk")
    x, w, want = operands(268, 79, terms, "jk")
    for parts in (1, 2, 3, 4, 6, 8):
        made = {"fused_permute_dims_matmul": {"split_terms": parts}}
        if parts in fitting:
            exe = rl.compile(mod, TARGET, decisions=made)
            require_close(exe.simulate("main", x, w), want)
        else:
            with pytest.raises(DecisionError, match="is no candidate"):
                rl.compile(mod, TARGET, decisions=made)


def test_drawn_decisions(rng: np.random.Generator) -> None:
    seed, form = int(rng.integers(1 << 31)), str(rng.choice(["kj", "jk"]))
    rows, cols, terms = int(rng.integers(65, 300)), *(int(n) for n in rng.integers(1, 240, 2))
    print(f"x @ w of {rows}, {cols}, {terms}, {form}, decisions of seed {seed}")
    pipeline = cuda_pipeline(TARGET).with_options("schedule_kernels", seed=seed)
    trace = pipeline.run(program(rows, cols, terms, form))
    replay_kernels(trace)
    x, w, want = operands(rows, cols, terms, form)
    require_close(simt(trace.result, "main", x, w, target=TARGET).check().result, want)


@pytest.fixture(scope="module")
def scheduled() -> PrimFunc:
    """Small tiles, of which a block takes every second one: 64 rows by 64 columns."""
    mod = program(150, 128, 136, "kj")
    decisions = {"matmul": {"warpgroups": 1, "warpgroup_cols": 64, "pipeline_stages": 2}}
    exe = rl.compile(mod, TARGET, decisions=decisions)

    def few(n: Any) -> Any:
        if isinstance(n, For) and WARP_SPECIALIZE in n.annotations:
            return replace(n, annotations=n.annotations.with_(**{WARP_SPECIALIZE: 2}))
        return None

    return rewrite(exe.program.kernels["matmul"], few)


def run(func: PrimFunc, change: Callable[[Any], Any] = lambda _: None) -> None:
    """Run the launch for many rows, changed, and compare its result."""
    kernel = lower_launches(func, "matmul", facts=TARGET.facts)
    tiles = kernel.launches[-1]
    body = rewrite(tiles.body, change)
    launches = (dataclasses.replace(tiles, body=body),)
    kernel = DeviceKernel("matmul", kernel.buffers, kernel.scalars, (), launches)
    x, w, want = operands(150, 128, 136, "kj")
    out = np.zeros(want.shape, ml_dtypes.bfloat16)
    simt_device_kernel(func, kernel, [x, w, out]).check()
    require_close(out, want)


def without(op: str) -> Callable[[Any], Any]:
    """The change that leaves calls out."""

    def change(n: Any) -> Any:
        if isinstance(n, Evaluate) and isinstance(n.value, Call) and n.value.op == op:
            return SeqStmt(())
        return None

    return change


def test_blocks_take_tile_after_tile(scheduled: PrimFunc) -> None:
    run(scheduled)


@pytest.mark.parametrize(
    ("op", "message"),
    [
        ("mbarrier_arrive", r"deadlock: .* waits for ever at empty\[0\].*: 0 of 1 arrivals"),
        ("tma_load", r"deadlock: .* at full\[0\].*1 of 1 arrivals and 0 of 16384 expected bytes"),
        ("wgmma_wait", "uninitialised read: .* reads T_matmul"),
    ],
)
def test_what_is_missing_is_found(scheduled: PrimFunc, op: str, message: str) -> None:
    with pytest.raises(SimtError, match=message):
        run(scheduled, without(op))


def test_reading_without_waiting_is_found(scheduled: PrimFunc) -> None:
    def change(n: Any) -> Any:
        match n:
            case Evaluate(Call(_, "mbarrier_wait", (Call(_, _, (BufferLoad() as load,)), _))):
                return SeqStmt(()) if load.buffer.name == "full" else None
            case _:
                return None

    with pytest.raises(SimtError, match="multiplies elements of .* that nobody has written"):
        run(scheduled, change)


@needs_disassembler
@pytest.mark.parametrize("form", ["kj", "jk"])
def test_machine_code(form: str) -> None:
    """Four instructions of 64 x 256 x 16 for each slice, once more for the first slice of a tile;
    slices come as boxes alone, and the compiler makes no instruction wait for another."""
    compiled = rl.compile(program(8192, 8192, 8192, form), TARGET).compiled()
    (resources,) = compiled.resources.values()
    assert resources.spill_stores == resources.spill_loads == 0 and not compiled.warnings
    (code,) = sass.disassemble(compiled.cubin).values()
    counts = sass.opcodes(code)
    assert counts["HGMMA"] in (4, 8) and counts["UTMALDG"] > 0
    assert counts["USETMAXREG"] == 2
    assert counts["LDG"] == counts["LDGSTS"] == counts["LDS"] == counts["LDL"] == counts["STL"] == 0


def test_operands_that_are_computed_are_no_boxes() -> None:
    """Weights of int8 are decoded where they are copied, which no box does."""
    mod = parse("""
@R.function
def main(x: R.Tensor((130, 128), "bfloat16"), w: R.Tensor((128, 256), "int8")):
    with R.dataflow():
        y = R.matmul(x, R.astype(w, "bfloat16"))
        R.output(y)
    return y
""")
    source = rl.compile(mod, TARGET).source()
    assert "mma_m16n8k16" in source and "wgmma" not in source


def test_weights_are_decoded_once_for_many_rows() -> None:
    mod = parse("""
@R.function
def main(x: R.Tensor(("m", 136), "bfloat16"), w: R.Tensor((136, 72), "int8")):
    with R.dataflow():
        y = R.matmul(x, R.astype(w, "bfloat16"))
        R.output(y)
    return y
""")
    exe = rl.compile(mod, TARGET)
    assert "wgmma" in exe.source() and "mma_m16n8k16" in exe.source()  # many rows, and few
    x, _, _ = operands(260, 72, 136, "kj")
    w = np.arange(136 * 72, dtype=np.int8).reshape(136, 72)
    require_close(exe.simulate("main", x, w), x.astype(np.float64) @ w)


def test_products_that_nobody_waits_for_are_refused() -> None:
    @T.prim_func
    def f(A: T.Buffer((64, 64), "float16"), B: T.Buffer((128,), "float32")):
        S = T.alloc_buffer((64, 64), "float16", scope="shared")
        for t in T.thread_binding(128, thread="threadIdx.x"):
            C = T.alloc_buffer((32,), "float32", scope="local")
            T.evaluate(
                T.wgmma(
                    T.address_of(C[0]), T.address_of(S[0, 0]), T.address_of(S[0, 0]), 64, 0, 16, 1
                )
            )
            B[t] = C[0]

    with pytest.raises(CodegenError, match="multiplies by wgmma and waits nowhere"):
        lower_launches(f, "f")


@pytest.mark.gpu
@pytest.mark.parametrize("form", ["kj", "jk"])
@pytest.mark.parametrize(
    ("rows", "cols", "terms"),
    [(130, 264, 136), (3000, 4104, 520), (16, 4104, 4000), (128, 1000, 4104), (1001, 777, 333)],
)
def test_on_a_gpu(rows: int, cols: int, terms: int, form: str) -> None:
    if gpu_architecture() != "sm_90a":
        pytest.skip("no other architecture has wgmma")
    exe = rl.compile(program(rows, cols, terms, form), "cuda")
    assert "wgmma" in exe.source()
    x, w, want = operands(rows, cols, terms, form)
    require_close(np.asarray(require_cupy().asnumpy(exe["main"](x, w))), want)


@pytest.mark.gpu
@pytest.mark.parametrize("form", ["kj", "jk"])
def test_batches_on_a_gpu(form: str) -> None:
    mod, x, w, want = batched(form)
    exe = rl.compile(mod, "cuda")
    require_close(np.asarray(require_cupy().asnumpy(exe["main"](x, w))), want)
