"""CUDA C of the standard kernels: wide accesses, warp shuffles, shared memory; in the source, and
in the PTX that NVRTC makes of it."""

from __future__ import annotations

import re

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.codegen.cuda import nvrtc
from relaxlab.codegen.errors import CodegenError
from relaxlab.codegen.gpu.lower import lower_launches
from relaxlab.ir.module import Module
from relaxlab.ir.target import Target
from relaxlab.passes.base import Pipeline
from relaxlab.passes.pipeline import GRAPH_PASSES
from relaxlab.passes.schedule_kernels import schedule_kernels
from relaxlab.runtime.simt.access import costs
from relaxlab.runtime.simt.simt import simt_prim_func
from relaxlab.runtime.vm.cuda import CudaExecutable
from relaxlab.schedule import Schedule
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T

SCHEDULED = Pipeline((*GRAPH_PASSES, schedule_kernels.with_options(target=Target.cuda())))


@I.ir_module
class Standard:
    @R.function
    def activation(x: R.Tensor(("n", 96), "float32")):
        return R.add(R.nn.gelu(x), R.const(1.0, "float32"))

    @R.function
    def halves(x: R.Tensor(("n", 96), "float16"), y: R.Tensor(("n", 96), "float16")):
        return R.multiply(x, y)

    @R.function
    def rows(x: R.Tensor(("n", "m"), "float32")):
        return R.nn.softmax(x)

    @R.function
    def norm(
        x: R.Tensor(("n", "m"), "float32"),
        g: R.Tensor(("m",), "float32"),
        b: R.Tensor(("m",), "float32"),
    ):
        return R.nn.layer_norm(x, g, b, axes=-1)

    @R.function
    def dense(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((128, 64), "float32")):
        return R.linear(x, w)

    @R.function
    def product(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, 128), "float32")):
        return R.matmul(x, w)


@pytest.fixture(scope="module")
def exe() -> CudaExecutable:
    return rl.compile(Standard, "cuda:sm_80")


def ptx_of(exe: CudaExecutable, name: str) -> str:
    """The PTX of the kernels whose name begins so."""
    if not nvrtc.is_available():
        pytest.skip("needs the wheels nvidia-cuda-nvrtc-cu12 and -runtime-cu12")
    parts = re.split(r"(?=\.visible \.entry )", exe.ptx)[1:]
    return "".join(p for p in parts if p.split("entry ")[1].startswith(name))


@pytest.mark.parametrize("name", ["fused_gelu_add", "multiply"])
def test_elementwise_kernels_move_16_bytes_at_once(exe: CudaExecutable, name: str) -> None:
    ptx = ptx_of(exe, name)
    loads = re.findall(r"ld\.global(?:\.nc)?\.v4\.\w+", ptx)
    assert len(loads) == (2 if name == "multiply" else 1)
    assert re.search(r"st\.global\.v4\.\w+", ptx)


@pytest.mark.parametrize("name", ["softmax", "layer_norm"])
def test_rows_are_reduced_by_shuffles_and_shared_memory(exe: CudaExecutable, name: str) -> None:
    source = exe.source(name)
    assert "__shared__" in source and "__syncthreads()" in source
    ptx = ptx_of(exe, name)
    assert ptx.count("shfl.sync") >= 2 * 8  # two reductions over 32 lanes, then over 8 warps
    assert "ld.shared" in ptx and "st.shared" in ptx and "bar.sync" in ptx


@pytest.mark.parametrize("name", ["linear", "matmul"])
def test_products_work_on_slices_in_shared_memory(exe: CudaExecutable, name: str) -> None:
    one, *by_rows = exe.gpu.kernels[name].launches
    assert not one.shared and len(by_rows) == 3  # few rows, some, and many
    for launch in by_rows:
        assert len(launch.shared) == 2
        ptx = ptx_of(exe, launch.name)
        assert "bar.sync" in ptx and "ld.shared" in ptx and ptx.count("fma.rn.f32") >= 8 * 8 * 16
    # Rows of the weights are read along by a warp each, columns are gone down by threads.
    assert ("shfl.sync" in ptx_of(exe, one.name)) == (name == "linear")


def test_registers_and_spills_are_reported(exe: CudaExecutable) -> None:
    if not nvrtc.is_available():
        pytest.skip("needs the wheels nvidia-cuda-nvrtc-cu12 and -runtime-cu12")
    resources = exe.resources
    names = {k.name for kernels in exe.gpu.functions.values() for k in kernels}
    assert set(resources) == names
    for name, found in resources.items():
        print(name, found)
        assert 0 < found.registers <= 255
        assert found.spill_stores == found.spill_loads == 0
    slices = 3 * (16 + 128) * 16 * 4
    assert resources["linear_kernel1"].shared == resources["matmul_kernel1"].shared == slices


def test_norms_of_symbolic_width_are_rows() -> None:
    trace = SCHEDULED.run(Standard)
    (record,) = [r for r in trace.passes if r.name == "schedule_kernels"]
    rules = {w.subject: w.reason.removeprefix("scheduled by the rule ") for w in record.remarks}
    assert rules["layer_norm"] == rules["softmax"] == "rows"


@pytest.mark.parametrize(("name", "shape"), [("linear", (128, 64)), ("matmul", (64, 128))])
def test_reads_of_slices_have_no_bank_conflicts(name: str, shape: tuple[int, int]) -> None:
    """Rows of an odd number of words, and results that lie 16 apart: every warp gets what it reads
    of shared memory in as few rounds as it can."""
    func = SCHEDULED.run(Standard).result.loop_functions()[name]
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=s).astype("float32") for s in ((70, 64), shape))
    out = np.zeros((70, 128), "float32")
    report = simt_prim_func(func, [x, w, out], record=(0, 0, 0)).check()
    np.testing.assert_allclose(out, x @ (w.T if name == "linear" else w), rtol=1e-4, atol=1e-4)
    (launch,) = [one for one in report.launches if one.accesses]
    found = costs(launch.accesses)
    shared = {s: c for s, c in found.items() if s.buffer and s.buffer.scope == "shared"}
    reads = [c for s, c in shared.items() if not s.write]
    assert len(reads) == 2 and all(c.count == c.least for c in reads)
    assert all(c.count <= 2 * c.least for s, c in shared.items() if s.write)
    total = sum(c.count for c in shared.values())
    assert total <= 1.05 * sum(c.least for c in shared.values())


@pytest.mark.parametrize("columns", [5, 16, 20, 72])
def test_narrow_products_are_tiles_too(columns: int) -> None:
    text = Standard.script().replace("(64, 128)", f"(64, {columns})")
    text = text.replace("(n, 128)", f"(n, {columns})").replace('("n", 128)', f'("n", {columns})')
    mod = Module.of({"product": rl.parse(text, check=False)["product"]})
    trace = SCHEDULED.run(mod)
    reasons = [w.reason for r in trace.passes for w in r.remarks if w.subject == "matmul"]
    assert reasons[-1] == "scheduled by the rule matmul"
    rng = np.random.default_rng(columns)
    x, w = (rng.normal(size=s).astype("float32") for s in ((70, 64), (64, columns)))
    out = np.zeros((70, columns), "float32")
    simt_prim_func(trace.result.loop_functions()["matmul"], [x, w, out]).check()
    np.testing.assert_allclose(out, x @ w, rtol=1e-4, atol=1e-4)


@T.prim_func
def through_shared(a: T.handle, b: T.handle):
    A, B = T.match_buffer(a, (32, 32)), T.match_buffer(b, (32, 32))
    S = T.alloc_buffer((32, 32), scope="shared")
    for t in T.thread_binding(32, thread="threadIdx.x"):
        for i in range(32):
            with T.block("S"):
                vi, vt = T.axis.remap("SS", [i, t])
                S[vi, vt] = A[vi, vt]
    for t in T.thread_binding(32, thread="threadIdx.x"):
        for i in range(32):
            with T.block("B"):
                vi, vt = T.axis.remap("SS", [i, t])
                B[vi, vt] = S[vt, vi]


@pytest.mark.parametrize(
    ("factor", "offset", "stride"), [(2, 1, 33), (32, 1, 33), (16, 8, 40), (1, 0, 32), (32, 0, 32)]
)
def test_storage_align_chooses_the_stride(factor: int, offset: int, stride: int) -> None:
    sch = Schedule(through_shared)
    sch.storage_align(sch.get_block("S"), 0, 0, factor, offset)
    launches = lower_launches(sch.func, "f").launches
    (shared,) = {b for one in launches for b in one.shared}
    assert [str(d) for d in shared.shape] == ["32", str(stride)]
    a, b = np.arange(1024, dtype="float32").reshape(32, 32), np.zeros((32, 32), "float32")
    simt_prim_func(sch.func, [a, b]).check()
    np.testing.assert_array_equal(b, a.T)


def test_strides_that_do_not_exist_are_refused() -> None:
    sch = Schedule(through_shared)
    sch.storage_align(sch.get_block("S"), 0, 1, 2, 1)
    with pytest.raises(CodegenError, match="the stride of axis 1 of 'S' cannot be chosen"):
        lower_launches(sch.func, "f")
