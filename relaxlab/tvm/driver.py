"""`tvm.build` and `tvm.compile`: modules of either level to programs that run."""

from __future__ import annotations

from typing import Any

from relaxlab.ir.graph import Function
from relaxlab.ir.module import Module
from relaxlab.tvm import runtime
from relaxlab.tvm.relax import vm


def build(mod: Any, target: Any = None, **options: Any) -> Any:
    """Compile a module: one with graph functions to an executable for `relax.VirtualMachine`, one
    of loop functions to a module of functions that can be called."""
    graphs = isinstance(mod, Function) or (isinstance(mod, Module) and mod.graph_functions())
    if not graphs:
        return runtime.build(mod, target)
    return vm.build(mod, target, **options)


compile = build  # noqa: A001
__path__: list[str] = []  # which lets imports look for submodules, of which `hook` has the names
