"""CPUs: kernels and host functions become machine code through LLVM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from relaxlab.ir.facts import Facts
from relaxlab.ir.target import Target, TargetKind
from relaxlab.targets.machines import MACHINES, cpu_facts, host

# Finding a compiled program takes no part of the compiler.
if TYPE_CHECKING:
    from relaxlab.ir.host import HostProgram
    from relaxlab.ir.loops import PrimFunc


def _machine(text: str) -> Target:
    if text and text not in MACHINES:
        raise ValueError(
            f"{text!r} is no machine that is known by its name; known: {', '.join(MACHINES)}. For "
            "others make a Target of a triple and features"
        )
    return MACHINES[text] if text else host()


def _facts(target: Target) -> Facts:
    architecture = target.triple.partition("-")[0]
    return cpu_facts(architecture, target.cpu, target.features, target.caches)


def _rules() -> Sequence[tuple[str, Any]]:
    from relaxlab.schedule.rules import rules

    return rules()


def _pipeline(target: Target) -> Any:
    from relaxlab.passes.pipeline import cpu_pipeline

    return cpu_pipeline(target)


def _compile(request: Any) -> Any:
    from relaxlab.runtime.compile_native import compile_native

    if request.is_batched:
        from relaxlab.runtime.batch.compile_batched import compile_batched

        return compile_batched(request)
    return compile_native(request)


def _forms(program: HostProgram, target: Target) -> Any:
    from relaxlab.runtime.check.forms import native_forms

    return native_forms(program, target)


def _code(name: str, func: PrimFunc, target: Target) -> Any:
    from relaxlab.codegen.llvm.listing import kernel_listing

    return kernel_listing(name, func, target)


CPU = TargetKind(
    "cpu", _machine, _facts, _rules, _pipeline, _compile, _forms, _code,
    machines=(*MACHINES,), devices=("llvm",), llvm=True,
)  # fmt: skip
