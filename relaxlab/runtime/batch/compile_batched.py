"""A program whose control flow depends on its input, to machine code that runs it in batches."""

from __future__ import annotations

from relaxlab.codegen.llvm.recording import recording_code
from relaxlab.passes.lower_recording import lower_recording
from relaxlab.passes.make_blocks import RECORDED
from relaxlab.passes.pipeline import marking_dead_memory
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
        result = trace.result
        recorded = [n for n, f in result.graph_functions().items() if RECORDED in f.attrs]
        blocks = result.without(*recorded)
        artifact = native_artifact(blocks, blocks, request.target, checks=debug)
        program = lower_recording(result)
        code, messages = recording_code(program, request.target)
    recorder = Recorder(program, code, messages, request.target)
    exe = BatchedExecutable(artifact, request.target, request.threads, recorder)
    # Weights as they are before any of them is packed.
    unpacked = trace.find("write_results").after
    exe.belongs_to(unpacked, request.pipeline, {}, poison=debug)
    exe.compiled_from = request.mod, request.pipeline
    return exe
