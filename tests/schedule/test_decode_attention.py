"""Attention over a KV cache on GPUs, of one query and of many: results on simulated threads, and
the code."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab import nn
from relaxlab.codegen.cuda import nvrtc, sass
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.expr import const
from relaxlab.ir.module import Module
from relaxlab.nn import loop_functions
from relaxlab.runtime.vm.cuda import CudaExecutable, require_cupy
from tests.disassembler import needs_disassembler

SCALE = nn.Scores(0.3)
ONE = const(1)
TOLERANCE = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1e-2}


@dataclass(frozen=True)
class Case:
    """Attention of a cache: `heads` of queries, `kv_heads` of keys and values."""

    heads: int = 8
    kv_heads: int = 2
    width: int = 64
    dtype: str = "float32"
    scores: nn.Scores = SCALE
    batch: int | str = 1
    length: int | str = 1
    positions: int = 512
    query_dtype: str = "float32"

    def module(self) -> Module:
        shape = (self.kv_heads, self.width)
        func = loop_functions.cached_attention(
            self.heads, 0, self.heads, shape, self.dtype, self.scores, self.query_dtype
        )

        class Attend(nn.Module):
            def main(self, q, past, keys, values):
                return q.builder.call_loops("attention", func, [q, keys, values], past)[0]

        keys, values = loop_functions.cache_shapes(shape, self.positions)
        spec = nn.spec.Tensor
        mod, _ = Attend().export({"main": {
            "q": spec((self.batch, self.length, self.heads, self.width), self.query_dtype),
            "past": nn.spec.Shape(("p",)), "keys": spec((self.batch, *keys), self.dtype),
            "values": spec((self.batch, *values), self.dtype),
        }})  # fmt: skip
        return mod

    def compiled(self, target: str = "cuda:sm_90", **decisions: int) -> CudaExecutable:
        mod = self.module()
        (name,) = rl.trace(mod, target).result.loop_functions()
        return rl.compile(mod, target, decisions={name: decisions} if decisions else None)

    def check(self, exe: CudaExecutable, past: int, rng: np.random.Generator, n: int = 1) -> None:
        """Compare on simulated threads with float64."""
        self.check_call(partial(exe.simulate, "main"), past, rng, n)

    def check_call(
        self, run: Callable[..., Any], past: int, rng: np.random.Generator, n: int
    ) -> None:
        """Compare with float64; memory behind the last position holds NaN."""
        b = self.batch if isinstance(self.batch, int) else 2
        end, dtype, query_dtype = past + n, numpy_dtype(self.dtype), numpy_dtype(self.query_dtype)
        q = rng.normal(size=(b, n, self.heads, self.width)).astype(query_dtype)
        keys, values = (
            rng.normal(size=(b, self.kv_heads, self.positions, self.width)).astype(dtype)
            for _ in range(2)
        )
        keys[:, :, end:] = values[:, :, end:] = np.nan
        blocks = keys.reshape(b, self.kv_heads, -1, 16, self.width).swapaxes(3, 4)
        got = run(q, (past,), np.ascontiguousarray(blocks), values)
        want = self.reference(q, keys[:, :, :end], values[:, :, :end], past)
        # Tensor cores multiply weights that are rounded to the dtype of values.
        tolerance = TOLERANCE[self.query_dtype]
        np.testing.assert_allclose(np.asarray(got), want, tolerance, tolerance)

    def reference(self, q, keys, values, past: int) -> np.ndarray:
        q, keys, values = (x.astype("float64") for x in (q, keys, values))
        keys, values = (np.repeat(x, self.heads // self.kv_heads, 1) for x in (keys, values))
        scores = np.einsum("bshd,bhtd->bhst", q, keys) * self.scores.scale
        if cap := self.scores.softcap:
            scores = np.tanh(scores / cap) * cap
        key, query = np.arange(keys.shape[2]), past + np.arange(q.shape[1])[:, None]
        seen = (key <= query) & (key > query - (self.scores.window or np.inf))
        weights = np.where(seen, np.exp(scores - scores.max(-1, keepdims=True)), 0)
        weights /= weights.sum(-1, keepdims=True)
        return np.einsum("bhst,bhtd->bshd", weights, values)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_any_number_of_positions(dtype, rng) -> None:
    case = Case(dtype=dtype)
    exe = case.compiled()
    for past in (0, 1, 15, 16, 17, 100, 511):
        case.check(exe, past, rng)


@pytest.mark.parametrize(
    "case",
    [
        Case(scores=nn.Scores(0.3, softcap=5.0, window=33)),
        Case(dtype="bfloat16", scores=nn.Scores(0.3, window=20)),
        Case(4, 4),
        Case(6, 2, 96, "float16"),
        Case(7, 1, 128, "bfloat16", batch="b"),
        Case(batch=2),
        Case(4, 2, length="s"),
        Case(4, 2, 80, "bfloat16"),
        Case(4, 2, 18),
    ],
    ids=str,
)
def test_heads_windows_and_batches(case: Case, rng) -> None:
    exe = case.compiled()
    for past in (0, 40, 300):
        case.check(exe, past, rng)


@pytest.mark.parametrize(
    "decisions",
    [
        {"position_parts": 1, "threads_per_block": 32, "threads_per_key": 8},
        {"position_parts": 64, "threads_per_key": 4},
        {"position_parts": 2, "threads_per_key": 16, "shared_heads": 2},
    ],
    ids=str,
)
def test_other_decisions(decisions: dict[str, int], rng) -> None:
    case = Case()
    exe = case.compiled(**decisions)
    for past in (0, 40, 300):
        case.check(exe, past, rng)


@pytest.mark.parametrize(
    "case",
    [
        Case(2, 1, 64, length="s"),
        Case(2, 1, 32, "bfloat16", nn.Scores(0.3, softcap=5.0, window=33), batch=2, length="s"),
    ],
    ids=str,
)
def test_prompts(case: Case, rng) -> None:
    exe = case.compiled()
    (kernel,) = exe.gpu.kernels.values()
    assert len(kernel.launches) == 3
    for past, length in ((0, 3), (40, 70)):
        case.check(exe, past, rng, length)


@pytest.mark.parametrize(
    "case",
    [
        Case(2, 2, 80, "float16", length="s", query_dtype="float16"),
        Case(
            2, 1, 32, "bfloat16", nn.Scores(0.3, softcap=5.0, window=33), batch=2, length="s",
            query_dtype="bfloat16",
        ),
    ],
    ids=str,
)  # fmt: skip
def test_prompts_by_tensor_cores(case: Case, rng) -> None:
    """Chunks that no query of a tile sees are left out: the loop goes from the window of its first
    query to the position of its last one."""
    exe = case.compiled()
    code = exe.source()
    assert "mma_m16n8k16" in code
    tile = r"bx % \(\(s \+ 127\) / 128\) \* 128"
    end = rf"chunk < .*past \+ minimum<int64_t>\({tile} \+ 128, s\)"
    begin = rf".* - maximum<int64_t>\({tile} \+ past - 32, 0\) / 64" if case.scores.window else ""
    assert re.search(rf"{end}{begin}", code)
    for past, length in ((0, 3), (40, 140)):
        case.check(exe, past, rng, length)


@pytest.mark.parametrize(
    "case",
    [
        Case(2, 1, 64, "float16", query_dtype="float16", length="s"),
        Case(
            2, 2, 32, "bfloat16", nn.Scores(0.3, softcap=5.0, window=33), batch=2, length=11,
            query_dtype="bfloat16",
        ),
    ],
    ids=str,
)  # fmt: skip
def test_few_queries(case: Case, rng) -> None:
    """Parts of the positions by blocks of one warp each, some of which have none, and a kernel that
    combines them; a version of its own where the number of queries is a symbol."""
    exe = case.compiled()
    (kernel,) = exe.gpu.kernels.values()
    for past, length in ((0, 2), (40, 16), (400, 9)):
        case.check(exe, past, rng, case.length if isinstance(case.length, int) else length)
    tiles = kernel.launches[-3 if case.length == "s" else 0]
    assert [str(e) for e in tiles.extents("threadIdx")] == ["4", "8", "1"]
    (mixes,) = (b for b in kernel.buffers if b.name == "mix_split" and b.shape[2] != ONE)
    # Calls of other lengths allocate no more than this version needs.
    rows = 16 if case.length == "s" else 11
    assert list(mixes.shape[-3:]) == [const(n) for n in (rows, 64, case.width)]


@needs_disassembler
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_machine_code_of_few_queries(arch: str) -> None:
    """Tensor instructions for chunks of 64 positions, copied past registers; nothing is spilled."""
    case = Case(32, 8, 128, "bfloat16", length=8, query_dtype="bfloat16", positions=16384)
    compiled = case.compiled(f"cuda:{arch}").compiled()
    assert all(r.spill_stores == r.spill_loads == 0 for r in compiled.resources.values())
    codes = [sass.opcodes(code) for code in sass.disassemble(compiled.cubin).values()]
    (counts,) = (c for c in codes if c["HMMA"])
    assert counts["HMMA"] == 2 * 2 * 8 * 4
    assert counts["LDGSTS"] > 0 == counts["STS"] == counts["LDG"] == counts["LDL"]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_prompts_on_a_gpu(dtype: str, rng) -> None:
    cupy = require_cupy()
    case = Case(32, 8, 128, dtype, length="s", positions=2048, query_dtype=dtype)
    main = case.compiled("cuda")["main"]
    for past, length in ((0, 1024), (700, 130), (2000, 1), (0, 9)):
        case.check_call(lambda *a: cupy.asnumpy(main(*a)), past, rng, length)


def test_what_does_not_fit_is_remarked() -> None:
    """Features that no group of threads can share are summed by rows."""
    trace = rl.trace(Case(4, 2, 18).module(), "cuda")
    remarks = [w.reason for r in trace.passes for w in r.remarks]
    (reason,) = [w for w in remarks if w.startswith("one query has a block of threads per head")]
    assert "threads_per_key" in reason


def test_keys_and_values_are_read_by_wide_accesses() -> None:
    """For two of the heads that share them; a block of threads per part, a kernel that combines
    parts."""
    exe = Case(32, 8, 128, "bfloat16").compiled()
    ((name, kernel),) = exe.gpu.kernels.items()
    first, second = kernel.launches
    assert [str(e) for e in first.extents("blockIdx")] == ["512", "1", "1"]
    assert [str(e) for e in second.extents("blockIdx")] == ["32", "1", "1"]
    code = exe.source(name)
    for array in ("keys", "values"):
        assert re.search(rf"Vec<__nv_bfloat16, 8> {array}_vec = ", code)
        assert f"{array}[" not in code
    assert "__syncthreads" not in code.partition("chunk")[2].partition("_parts")[0]


@pytest.mark.skipif(not nvrtc.is_available(), reason="needs NVRTC")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_nothing_is_spilled(arch: str) -> None:
    for dtype in ("float32", "bfloat16"):
        exe = Case(32, 8, 128, dtype).compiled(f"cuda:{arch}")
        assert all(r.spill_stores == 0 and r.stack == 0 for r in exe.resources.values())


@needs_disassembler
def test_machine_code_of_prompts() -> None:
    """Keys lie by features, and are transposed as they are loaded, as values are."""
    case = Case(32, 8, 128, "float16", length=512, query_dtype="float16")
    compiled = case.compiled("cuda:sm_90a").compiled()
    assert all(r.spill_stores == r.spill_loads == 0 for r in compiled.resources.values())
    codes = [sass.opcodes(code) for code in sass.disassemble(compiled.cubin).values()]
    (counts,) = (c for c in codes if c["HMMA"])
    assert counts["HMMA"] == 2 * 2 * 8 * 4
    assert counts["LDSM"] == 8 + counts["LDSM.16.MT88.4"] == 8 + 2 * 8 * 4
    assert counts["LDGSTS"] > 0 == counts["STS"] == counts["LDG"] == counts["LDL"]
