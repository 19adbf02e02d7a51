"""Attention by warpgroups: on the SIMT interpreter against NumPy, and as NVIDIA's compiler makes
it."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import relaxlab as rl
from relaxlab.codegen.cuda import sass
from relaxlab.codegen.gpu.launch import DeviceKernel
from relaxlab.codegen.gpu.lower import lower_launches
from relaxlab.ir.expr import Call
from relaxlab.ir.loops import Evaluate, SeqStmt
from relaxlab.ir.node import rewrite
from relaxlab.ir.target import Target
from relaxlab.passes.pipeline import cuda_pipeline
from relaxlab.runtime.simt.report import SimtError
from relaxlab.runtime.simt.simt import simt, simt_device_kernel
from relaxlab.runtime.vm.cuda import gpu_architecture, require_cupy
from relaxlab.script import parse
from relaxlab.testing.replay import replay_kernels
from tests.disassembler import needs_disassembler
from tests.schedule.test_tensor_attention import Case

TARGET = Target.cuda("sm_90a")


def test_attention_is_right() -> None:
    """Attention with symbolic lengths and two heads that share their keys."""
    case = Case("bfloat16", 64, "BottomRight", 2, 2)
    exe = rl.compile(case.module("s", "t"), TARGET)
    assert "wgmma_registers_m64n128k16" in exe.source() and "tma_load_4d" in exe.source()
    case.check(partial(exe.simulate, "main"), 130, 200)


def test_drawn_decisions(rng: np.random.Generator) -> None:
    seed, width = int(rng.integers(1 << 31)), int(rng.choice([64, 128]))
    queries, more = map(int, rng.integers(9, 150, 2))
    case = Case("float16", width, [None, "BottomRight", "TopLeft"][seed % 3], 2, 1 + seed % 2)
    print(f"{case} of {queries} and {queries + more}, decisions of seed {seed}")
    pipeline = cuda_pipeline(TARGET).with_options("schedule_kernels", seed=seed)
    trace = pipeline.run(case.module(queries, queries + more))
    replay_kernels(trace)
    case.check(
        lambda *a: simt(trace.result, "main", *a, target=TARGET).check().result,
        queries, queries + more,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("op", "message"),
    [
        ("wgmma_wait", "uninitialised read: .* reads T_attention_dot"),
        ("mbarrier_arrive", r"deadlock: .* waits for ever at empty"),
    ],
)
def test_what_is_missing_is_found(op: str, message: str) -> None:
    """Four chunks go through two slots, each of which is filled a second time."""
    case = Case("bfloat16", 64, None, 1, 1)
    choices = {"warpgroups": 1, "positions": 64}
    exe = rl.compile(case.module(40, 256), TARGET, decisions={"attention": choices})
    func = exe.program.kernels["attention"]
    kernel = lower_launches(func, "attention", facts=TARGET.facts)

    def change(n: Any) -> Any:
        left_out = isinstance(n, Evaluate) and isinstance(n.value, Call) and n.value.op == op
        return SeqStmt(()) if left_out else None

    def run(*operands: Any, change: Any = lambda _: None) -> Any:
        launches = tuple(
            dataclasses.replace(x, body=rewrite(x.body, change)) for x in kernel.launches
        )
        changed = DeviceKernel("attention", kernel.buffers, kernel.scalars, (), launches)
        out = np.zeros(operands[0].shape, operands[0].dtype)
        simt_device_kernel(func, changed, [*operands, out]).check()
        return out

    case.check(run, 40, 256)
    with pytest.raises(SimtError, match=message):
        case.check(partial(run, change=change), 40, 256)


@pytest.mark.parametrize(
    ("shape", "piece", "how"),
    [
        ((1, "t", 2, 64), "axes=[2], begin=[1], end=[2]", "tma_load"),
        # Boxes are zeros beyond the end of the array alone.
        ((1, 256, 1, 64), "axes=[1], begin=[0], end=[200]", "mma_m16n8k16"),
    ],
)
def test_slices_are_read_where_they_are(shape: tuple[Any, ...], piece: str, how: str) -> None:
    mod = parse(f"""
@R.function
def main(q: R.Tensor((1, 40, 1, 64), "bfloat16"), k: R.Tensor({shape!r}, "bfloat16"),
         v: R.Tensor({shape!r}, "bfloat16")):
    with R.dataflow():
        a = R.strided_slice(k, {piece})
        b = R.strided_slice(v, {piece})
        y = R.nn.attention(q, a, b)
        R.output(y)
    return y
""")
    exe = rl.compile(mod, TARGET)
    assert how in exe.source()
    rng = np.random.default_rng(3)
    sizes = tuple(70 if n == "t" else n for n in shape)
    given = ((1, 40, 1, 64), sizes, sizes)
    q, k, v = (rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in given)
    want = rl.interpret(mod, "main", q, k, v).astype(np.float64)
    got = exe.simulate("main", q, k, v).astype(np.float64)
    assert np.abs(got - want).max() <= 1e-2 * np.abs(want).max()


def test_wide_heads_have_too_many_sums() -> None:
    source = rl.compile(Case("bfloat16", 256, None, 1, 1).module(128, 128), TARGET).source()
    assert "mma_m16n8k16" in source and "wgmma" not in source


@needs_disassembler
@pytest.mark.parametrize("mask", [None, "BottomRight"])
def test_machine_code(mask: str | None) -> None:
    """Eight instructions of 64 x 128 x 16 for the scores of a chunk and as many for the mix; one
    exponential for each of a thread's 64 scores, and two where a maximum changes. All of them are
    there twice: for the first chunk, and for the others."""
    exe = rl.compile(Case("bfloat16", 128, mask, 32, 4).module(4096, 4096), TARGET)
    compiled = exe.compiled()
    (resources,) = compiled.resources.values()
    assert resources.spill_stores == resources.spill_loads == 0 and not compiled.warnings
    (code,) = sass.disassemble(compiled.cubin).values()
    counts = sass.opcodes(code)
    assert counts["HGMMA"] == 2 * 16 and counts["UTMALDG"] > 0 and counts["USETMAXREG"] == 2
    assert counts["MUFU.EX2"] == 2 * (64 + 2)
    assert counts["LDS"] == counts["STS"] == counts["LDGSTS"] == counts["LDL"] == 0


@pytest.mark.gpu
@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("mask", [None, "BottomRight"])
def test_on_a_gpu(width: int, mask: str | None) -> None:
    cupy, case = require_cupy(), Case("bfloat16", width, mask, 8, 4)
    if gpu_architecture() != "sm_90a":
        pytest.skip("no other architecture has wgmma")
    main = rl.compile(case.module("s", "t"), TARGET)["main"]
    for queries, positions in ((130, 130), (9, 700), (1024, 1024), (1000, 3000)):
        case.check(lambda *a: cupy.asnumpy(main(*a)), queries, positions)
