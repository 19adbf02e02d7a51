"""NVIDIA's GPUs: kernels become CUDA C, host functions are run by the virtual machine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from relaxlab.ir.facts import CUDA as FACTS
from relaxlab.ir.facts import KB, Facts
from relaxlab.ir.target import Target, TargetKind

# Finding a compiled program takes no part of the compiler.
if TYPE_CHECKING:
    from relaxlab.ir.host import HostProgram
    from relaxlab.ir.loops import PrimFunc


def _machine(arch: str) -> Target:
    if arch and not re.fullmatch(r"sm_\d+a?", arch):
        hint = "write for example 'cuda:sm_80'"
        if arch.isdecimal():
            hint = (
                "a target names an architecture, not a device: write 'cuda' for the GPU that "
                "is there (CUDA_VISIBLE_DEVICES chooses it), or for example 'cuda:sm_80'"
            )
        raise ValueError(f"{arch!r} is no architecture of CUDA; {hint}")
    if not arch and find_spec("cupy"):
        from relaxlab.runtime.vm.cuda import gpu_architecture

        arch = gpu_architecture()
    return Target("cuda", "nvptx64-nvidia-cuda", arch)


SHARED_AT_LAUNCH = {"sm_80": 163, "sm_87": 163, "sm_90": 227, "sm_100": 227, "sm_103": 227}
"""KB of shared memory that a block can ask for, where they are more than the 99 of every GPU from
sm_80 on (CUDA C++ Programming Guide, *Compute Capabilities*)."""


def _facts(target: Target) -> Facts:
    number = re.search(r"\d+", target.cpu)
    if number is not None and int(number[0]) < 80:
        # `cp.async`, and tensor instructions on bfloat16, are of sm_80.
        return replace(FACTS, shared_at_launch=0, tensor_cores=False)
    most = SHARED_AT_LAUNCH.get(target.cpu.rstrip("a"))
    if most is None:
        return FACTS
    return replace(FACTS, shared_at_launch=most * KB, warpgroups=target.cpu == "sm_90a")


def _rules() -> Sequence[tuple[str, Any]]:
    from relaxlab.schedule.rules_gpu import rules

    return rules()


def _pipeline(target: Target) -> Any:
    from relaxlab.passes.pipeline import cuda_pipeline

    return cuda_pipeline(target)


def _compile(request: Any) -> Any:
    from relaxlab.runtime.vm.cuda import compile_cuda

    if request.is_batched:
        from relaxlab.runtime.batch.compile_batched import compile_batched_cuda

        return compile_batched_cuda(request)
    return compile_cuda(request)


def _forms(program: HostProgram, target: Target) -> Any:
    from relaxlab.runtime.check.forms import simulated_forms

    return simulated_forms(program, target)


def _code(name: str, func: PrimFunc, target: Target) -> Any:
    from relaxlab.codegen.cuda.listing import kernel_listing

    return kernel_listing(name, func, target)


CUDA = TargetKind(
    "cuda", _machine, _facts, _rules, _pipeline, _compile, _forms, _code,
    devices=("gpu",),
)  # fmt: skip
