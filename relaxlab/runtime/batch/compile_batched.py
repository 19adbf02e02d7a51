"""A program whose control flow depends on its input, to machine code that runs it in batches."""

from __future__ import annotations

from relaxlab.codegen.cuda.dialect import CUDA_C
from relaxlab.codegen.gpu.program import generate
from relaxlab.codegen.llvm.recording import recording_code
from relaxlab.ir.module import Module
from relaxlab.ir.target import Target
from relaxlab.passes.lower_recording import lower_recording
from relaxlab.passes.lower_shapes import lower_shapes
from relaxlab.passes.make_blocks import RECORDED
from relaxlab.passes.pipeline import marking_dead_memory
from relaxlab.passes.schedule_kernels import schedule_kernels
from relaxlab.runtime.batch.cuda import BatchedCudaExecutable
from relaxlab.runtime.batch.executable import BatchedExecutable
from relaxlab.runtime.batch.recorder import Recorder
from relaxlab.runtime.collection import collection_paused
from relaxlab.runtime.compile_native import native_artifact
from relaxlab.runtime.request import Request


def compile_batched(request: Request) -> BatchedExecutable:
    """Compile for a CPU: the functions that are recorded become code that records, the functions
    that run batches of blocks become code as all others do."""
    debug = request.checks == "all"
    passes = marking_dead_memory(request.passes) if debug else request.passes
    with collection_paused():
        trace = passes.run(request.mod)
        blocks, recorder = _split(trace.result, request.target)
        artifact = native_artifact(blocks, blocks, request.target, checks=debug)
    exe = BatchedExecutable(artifact, request.target, request.threads, recorder)
    # Weights as they are before any of them is packed.
    unpacked = trace.find("write_results").after
    exe.belongs_to(unpacked, request.pipeline, {}, poison=debug)
    exe.compiled_from = request.mod, request.pipeline
    return exe


def compile_batched_cuda(request: Request) -> BatchedCudaExecutable:
    """Compile for a GPU, on which the functions that run batches of blocks run: the functions that
    are recorded become code for this machine.

    Raises ValueError for options of CPUs, and for kernels that are scheduled for another machine.
    """
    request.refuse_options_of_cpus()
    scheduled_for = {
        (p.options.target or Target.host()).kind
        for p in request.passes.passes if p.name == schedule_kernels.name
    }  # fmt: skip
    if scheduled_for != {request.target.kind}:
        kind = request.target.kind
        raise ValueError(
            f"the pipeline schedules kernels for {', '.join(sorted(scheduled_for))}; pass "
            f"pipeline=rl.batched_pipeline({kind!r})"
        )
    with collection_paused():
        result = request.result()
        blocks, recorder = _split(result, Target.host())
        program = generate(lower_shapes(blocks), CUDA_C, request.target.facts)
    transforms = {
        name: f.attrs["transform_params"]
        for name, f in blocks.graph_functions().items() if "transform_params" in f.attrs
    }  # fmt: skip
    return BatchedCudaExecutable(program, request.target, recorder, transforms)


def _split(result: Module, records_on: Target) -> tuple[Module, Recorder]:
    """The functions that run on the target of a program, and the code that records the others."""
    recorded = [n for n, f in result.graph_functions().items() if RECORDED in f.attrs]
    program = lower_recording(result)
    code, messages = recording_code(program, records_on)
    return result.without(*recorded), Recorder(program, code, messages, records_on)
