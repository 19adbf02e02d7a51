"""Every kernel of the operators' cases and of the model, compiled by NVRTC without a GPU."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from relaxlab.codegen.cuda import nvrtc, sass
from relaxlab.codegen.cuda.dialect import CUDA_C
from relaxlab.codegen.gpu.program import launches_of, sources_of
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.module import Module
from relaxlab.ir.target import Target
from relaxlab.models.decoder import Decoder
from relaxlab.models.loader import open_model
from relaxlab.passes.base import Pipeline
from relaxlab.passes.pipeline import GRAPH_PASSES, cuda_pipeline
from relaxlab.passes.schedule_kernels import schedule_kernels
from relaxlab.testing.op_cases import FAMILIES
from relaxlab.testing.op_check import CaseProgram
from tests.disassembler import needs_disassembler

pytestmark = needs_disassembler
ARCHS = ("sm_80", "sm_100a")
"""The oldest and the newest: kernels for sm_90a are compiled where their instructions are counted,
and a third compilation of all operators would take a minute."""
SCHEDULED = Pipeline((*GRAPH_PASSES, schedule_kernels.with_options(target=Target.cuda())))


def compiled_everywhere(kernels: dict[str, PrimFunc]) -> list[nvrtc.Compiled]:
    """The kernels as one source, for each architecture; the compilers run side by side."""
    functions, source = sources_of(launches_of(kernels), CUDA_C)
    with ThreadPoolExecutor(len(ARCHS)) as pool:
        results = list(pool.map(lambda arch: nvrtc.compile_cuda(source, arch), ARCHS))
    names = {k.name for ks in functions.values() for k in ks}
    for result in results:
        assert set(result.resources) == names
        assert all(f".entry {n}(" in result.ptx for n in names)
    return results


@pytest.mark.parametrize("family", FAMILIES)
def test_operators(family: str) -> None:
    cases = {f"case{i}": c for i, c in enumerate(FAMILIES[family]())}
    functions = {n: CaseProgram(c, c.sizes[0], symbolic=True).function() for n, c in cases.items()}
    mod = SCHEDULED.run(Module.of(functions)).result
    for result in compiled_everywhere(mod.loop_functions()):
        assert max(r.spill_stores for r in result.resources.values()) <= 64
        # The median of a row of 90 bytes is one thread's, and NVRTC unrolls its passes: 255
        # registers, nothing spilled. Selection on GPUs needs a schedule of its own.
        most = 255 if family == "search_sort" else 128
        assert max(r.registers for r in result.resources.values()) <= most


@pytest.mark.parametrize("name", ["tiny", "smollm2-135m"])
def test_the_model(name: str) -> None:
    try:
        checkpoint = open_model(name)
    except FileNotFoundError as error:
        pytest.skip(str(error))
    llama = Decoder(checkpoint.config, checkpoint.formats, max_context=256)
    module, _ = llama.build(bounds={"s": 128, "p": 256})
    mod = cuda_pipeline().run(module).result
    for result in compiled_everywhere(mod.loop_functions()):
        assert set(sass.disassemble(result.cubin)) == set(result.resources)
        assert not any(r.spill_stores or r.spill_loads for r in result.resources.values())
        # One row is a vector by a matrix; versions for few, more and any rows have larger tiles.
        shared = {r.shared for n, r in result.resources.items() if "linear" in n}
        assert shared == {0, 27 << 10, 36 << 10, 48 << 10}


def test_a_wrong_source_is_refused_with_the_log() -> None:
    with pytest.raises(nvrtc.NvrtcError, match=r"sm_80:\n.*undefined"):
        nvrtc.compile_cuda('extern "C" __global__ void f() { g(); }', "sm_80")


def test_an_unknown_architecture_is_refused() -> None:
    with pytest.raises(nvrtc.NvrtcError, match="sm_999"):
        nvrtc.compile_cuda('extern "C" __global__ void f() {}', "sm_999")
