"""Attention by tensor cores: on the SIMT interpreter against NumPy, and as NVIDIA's compiler makes
it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import relaxlab as rl
from relaxlab.codegen.cuda import nvrtc, sass
from relaxlab.ir.module import Module
from relaxlab.ops.attention import attention_reference
from relaxlab.runtime.vm.cuda import CudaExecutable
from relaxlab.script import parse

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
from relaxlab.script import ir as I, relax as R
@R.function
def main({params}):
    y = R.nn.attention(q, k, v, causal_mask={self.mask!r})
    return y
""")

    def check(self, exe: CudaExecutable, queries: int, positions: int) -> None:
        rng = np.random.default_rng(queries)
        shapes = self.shapes(queries, positions)
        q, k, v = (rng.standard_normal(s).astype(DTYPES[self.dtype]) for s in shapes)
        got = exe.simulate("main", q, k, v).astype(np.float64)
        q, k, v = (a.astype(np.float64) for a in (q, k, v))
        want = attention_reference(q, k, v, causal_mask=self.mask)
        assert np.abs(got - want).max() <= TOLERANCE[self.dtype] * np.abs(want).max()


def test_attention_is_right() -> None:
    """Of symbolic lengths, with two heads that share their keys."""
    case = Case("bfloat16", 64, "BottomRight", 2, 2)
    exe = rl.compile(case.module("s", "t"), "cuda:sm_80")
    assert "mma_m16n8k16" in exe.source()
    case.check(exe, 130, 130)
    case.check(exe, 9, 70)


def test_other_decisions() -> None:
    case = Case("float16", 128, None, 1, 1)
    choices = {"query_rows": 32, "positions": 16, "query_stages": 3}
    exe = rl.compile(case.module(40, 70), "cuda", decisions={"attention": choices})
    (launch,) = exe.gpu.kernels["attention"].launches
    assert [str(e) for e in launch.extents("threadIdx")] == ["4", "8", "2"]
    case.check(exe, 40, 70)


@pytest.mark.skipif(
    not (nvrtc.is_available() and sass.is_available()), reason="needs NVRTC and nvdisasm"
)
def test_machine_code() -> None:
    """A chunk of 64 positions: 8 x 4 products of 16 x 16 tiles for the scores and for the mix, two
    instructions each; weights go through no memory; all copies are asynchronous."""
    exe = rl.compile(Case("bfloat16", 128, "BottomRight", 32, 4).module(4096, 4096), "cuda:sm_80")
    compiled = exe.compiled()
    (resources,) = compiled.resources.values()
    assert resources.registers <= 255 and resources.spill_stores == resources.spill_loads == 0
    (code,) = sass.disassemble(compiled.cubin).values()
    counts = sass.opcodes(code)
    assert counts["HMMA"] == 2 * 2 * 8 * 4
    assert counts["LDSM"] == 8 + 2 * 8 * 4
    assert counts["LDGSTS"] > 0 == counts["STS"] == counts["LDG"] == counts["LDL"]
