"""Attention by tensor cores: on the SIMT interpreter against NumPy, and as NVIDIA's compiler makes
it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import relaxlab as rl
from relaxlab.codegen.cuda import sass
from relaxlab.ir.module import Module
from relaxlab.ops.attention import attention_reference
from relaxlab.passes.pipeline import cuda_pipeline
from relaxlab.runtime.simt.simt import simt
from relaxlab.runtime.vm.cuda import require_cupy
from relaxlab.script import parse
from relaxlab.testing.replay import replay_kernels
from tests.disassembler import needs_disassembler

DTYPES = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
TOLERANCE = {"bfloat16": 1e-2, "float16": 2e-3}


@dataclass(frozen=True)
class Case:
    """Attention of heads of a width; `group` of them read the same keys."""

    dtype: str
    width: int
    mask: str | None
    heads: int
    group: int

    def shapes(self, queries: Any, positions: Any) -> list[tuple[Any, ...]]:
        keys = 1, positions, self.heads // self.group, self.width
        return [(1, queries, self.heads, self.width), keys, keys]

    def module(self, queries: Any, positions: Any) -> Module:
        shapes = zip("qkv", self.shapes(queries, positions), strict=True)
        params = ", ".join(f'{name}: R.Tensor({s!r}, "{self.dtype}")' for name, s in shapes)
        return parse(f"""
@R.function
def main({params}):
    y = R.nn.attention(q, k, v, causal_mask={self.mask!r})
    return y
""")

    def check(self, run: Callable[..., Any], queries: int, positions: int) -> None:
        """Compare what a function of the operands returns with attention in float64."""
        rng = np.random.default_rng(queries)
        shapes = self.shapes(queries, positions)
        q, k, v = (rng.standard_normal(s).astype(DTYPES[self.dtype]) for s in shapes)
        got = np.asarray(run(q, k, v)).astype(np.float64)
        q, k, v = (a.astype(np.float64) for a in (q, k, v))
        want = attention_reference(q, k, v, causal_mask=self.mask)
        assert np.abs(got - want).max() <= TOLERANCE[self.dtype] * np.abs(want).max()


def test_attention_is_right() -> None:
    """Attention with symbolic lengths and two heads that share their keys."""
    case = Case("bfloat16", 64, "BottomRight", 2, 2)
    exe = rl.compile(case.module("s", "t"), "cuda:sm_80")
    assert "mma_m16n8k16" in exe.source()
    for queries, positions in ((130, 130), (9, 70)):
        case.check(partial(exe.simulate, "main"), queries, positions)


def test_other_decisions() -> None:
    case = Case("float16", 128, None, 1, 1)
    choices = {"query_rows": 64, "warp_queries": 32, "positions": 16, "query_stages": 3}
    exe = rl.compile(case.module(40, 70), "cuda", decisions={"attention": choices})
    (launch,) = exe.gpu.kernels["attention"].launches
    assert [str(e) for e in launch.extents("threadIdx")] == ["4", "8", "2"]
    case.check(partial(exe.simulate, "main"), 40, 70)


@pytest.mark.parametrize("draw", range(3))
def test_drawn_decisions(draw: int, rng: np.random.Generator) -> None:
    seed, width = int(rng.integers(1 << 31)), int(rng.choice([32, 64, 128]))
    queries, more = map(int, rng.integers(9, 150, 2))
    case = Case("bfloat16", width, [None, "BottomRight", "TopLeft"][seed % 3], 2, 1 + seed % 2)
    print(f"draw {draw}: {case} of {queries} and {queries + more}, decisions of seed {seed}")
    pipeline = cuda_pipeline().with_options("schedule_kernels", seed=seed)
    trace = pipeline.run(case.module(queries, queries + more))
    replay_kernels(trace)
    case.check(lambda *a: simt(trace.result, "main", *a).check().result, queries, queries + more)


@pytest.mark.gpu
@pytest.mark.parametrize("width", [64, 128])
def test_on_a_gpu(width: int) -> None:
    cupy, case = require_cupy(), Case("bfloat16", width, "BottomRight", 8, 4)
    main = rl.compile(case.module("s", "t"), "cuda")["main"]
    for queries, positions in ((130, 130), (9, 700), (1024, 1024)):
        case.check(lambda *a: cupy.asnumpy(main(*a)), queries, positions)


@needs_disassembler
@pytest.mark.parametrize("arch", ["sm_80", "sm_100a"])
def test_machine_code(arch: str) -> None:
    """A chunk of 64 positions: 8 x 4 products of 16 x 16 tiles for the scores and for the mix, two
    instructions each; weights go through no memory; all copies are asynchronous."""
    exe = rl.compile(Case("bfloat16", 128, "BottomRight", 32, 4).module(4096, 4096), f"cuda:{arch}")
    compiled = exe.compiled()
    (resources,) = compiled.resources.values()
    assert resources.registers <= 255 and resources.spill_stores == resources.spill_loads == 0
    (code,) = sass.disassemble(compiled.cubin).values()
    counts = sass.opcodes(code)
    assert counts["HMMA"] == 2 * 2 * 8 * 4
    assert counts["LDSM"] == 8 + 2 * 8 * 4
    assert counts["LDGSTS"] > 0 == counts["STS"] == counts["LDG"] == counts["LDL"]


@pytest.mark.parametrize("queries", [9, 16, 32])
def test_queries_of_one_warp(queries: int) -> None:
    """A block has no warps without queries, which would keep sums that others need."""
    case = Case("bfloat16", 64, "BottomRight", 2, 1)
    exe = rl.compile(case.module(queries, 40), "cuda:sm_80")
    case.check(partial(exe.simulate, "main"), queries, 40)
