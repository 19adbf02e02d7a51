"""GPUs of browsers: kernels become WGSL, the language of WebGPU, which other programs run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from relaxlab.ir.facts import WEBGPU
from relaxlab.ir.target import Target
from relaxlab.targets.cuda import CUDA

if TYPE_CHECKING:
    from relaxlab.ir.loops import PrimFunc


def _machine(text: str) -> Target:
    if text:
        raise ValueError(f"WGSL is the same for all GPUs: write 'wgsl', not 'wgsl:{text}'")
    return Target("wgsl", cpu="")


def _compile(request: Any) -> Any:
    from relaxlab.runtime.vm.wgsl import compile_wgsl

    return compile_wgsl(request)


def _code(name: str, func: PrimFunc, target: Target) -> Any:
    from relaxlab.codegen.wgsl.listing import kernel_listing

    return kernel_listing(name, func, target)


WGSL = replace(
    CUDA, name="wgsl", machine=_machine, facts=lambda target: WEBGPU, compile=_compile, code=_code,
    devices=("webgpu",),
)  # fmt: skip
