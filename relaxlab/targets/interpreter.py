"""A plain machine whose kernels nobody compiles: the interpreter runs them. It is what a machine of
one's own begins with, `replace(INTERPRETER, name=..., facts=..., rules=...)`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from relaxlab.ir.facts import Facts
from relaxlab.ir.target import Target
from relaxlab.targets.cpu import CPU

# Finding a compiled program takes no part of the compiler.
if TYPE_CHECKING:
    from relaxlab.ir.host import HostProgram
    from relaxlab.ir.loops import PrimFunc


def _compile(request: Any) -> Any:
    from relaxlab.runtime.vm.executable import compile_for_interpreter

    return compile_for_interpreter(request)


def _forms(program: HostProgram, target: Target) -> Any:
    from relaxlab.runtime.check.forms import interpreted_forms

    return interpreted_forms(program)


def _code(name: str, func: PrimFunc, target: Target) -> Any:
    from relaxlab.codegen.listing import loops_listing

    return loops_listing(name, func)


INTERPRETER = replace(
    CPU, name="interpreter", machine=lambda text: Target(cpu=text), facts=lambda target: Facts(),
    compile=_compile, forms=_forms, code=_code, machines=(), devices=(), llvm=False,
)  # fmt: skip
