"""`tvm.relax.build` and `tvm.relax.VirtualMachine`: compiled modules and calls of their functions.

Programs are machine code; the virtual machine of TVM's name is the interface to them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from relaxlab.analysis.loops_check import require_accesses_inside
from relaxlab.ir import graph
from relaxlab.ir.module import Module
from relaxlab.ir.node import Node, map_children, replace
from relaxlab.passes.bind_params import BindParamsOptions, bind_params
from relaxlab.runtime.build import compile as compile_module
from relaxlab.tvm import runtime
from relaxlab.tvm.relax.pipeline import run_before_building
from relaxlab.tvm.target import core_target


class VMExecutable(runtime.Module):
    """A compiled module, which `VirtualMachine` runs."""

    @property
    def mod(self) -> VMExecutable:
        """The executable itself."""
        return self

    def jit(self, **options: Any) -> VMExecutable:
        """The executable itself, which is machine code already."""
        return self


def build(
    mod: Any,
    target: Any = None,
    params: Mapping[str, Any] | None = None,
    relax_pipeline: Any = None,
    *,
    exec_mode: str = "compiled",
    tir_pipeline: Any = None,
    pipeline: Any = None,
) -> VMExecutable:
    """Compile a module with graph functions. `params` are bound to parameters of `main` by name; a
    pipeline is run before the core's own."""
    program = mod if isinstance(mod, Module) else Module.of({"main": mod})
    require_accesses_inside(program.loop_functions())
    if params:
        arrays: dict[str, np.ndarray[Any, Any]] = {
            k: np.asarray(runtime.unwrapped(v)) for k, v in params.items()
        }
        program = bind_params.function(program, BindParamsOptions(arrays))
    program = _calling_own_functions(program)
    program = run_before_building(program, relax_pipeline or pipeline)
    chosen = core_target(target)
    return VMExecutable(compile_module(program, chosen), runtime.device_of(chosen.kind))


def _calling_own_functions(mod: Module) -> Module:
    """A module whose packed calls of loop functions in it, which TVM finds by their names, call
    them directly."""
    own = mod.loop_functions()

    def visit(n: Node) -> Node:
        new = map_children(n, visit)
        match new:
            case graph.Call(graph.Op("call_dps_packed"), (graph.ExternFunc(name), *rest)):
                if name in own:
                    callee = graph.GlobalVar(name)
                    return replace(new, op=graph.Op("call_tir"), args=(callee, *rest))
                return new
            case _:
                return new

    return mod.with_functions({k: visit(f) for k, f in mod.graph_functions().items()})  # type: ignore[dict-item]


class VirtualMachine:
    """Calls the functions of an executable: `vm["main"](array)`."""

    def __init__(
        self, rt_mod: Any, device: Any = None, memory_cfg: Any = None, profile: bool = False
    ) -> None:
        self.module: runtime.Module = rt_mod
        self._inputs: dict[str, tuple[Any, ...]] = {}
        self._outputs: dict[str, Any] = {}
        self._saved: dict[str, Callable[..., Any]] = {}

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return self._saved[name] if name in self._saved else self.module[name]

    def __contains__(self, name: str) -> bool:
        return name in self._saved or self.module.implements_function(name)

    def invoke_closure(self, closure: Callable[..., Any], *args: Any) -> Any:
        """The result of calling a function that a program returned."""
        return closure(*args)

    def save_function(
        self,
        func_name: str,
        saved_name: str,
        *args: Any,
        include_return: bool = True,
        **kwargs: Any,
    ) -> None:
        """Keep a call with its arguments under a name."""
        function = self[func_name]

        def call() -> Any:
            result = function(*args, **kwargs)
            return result if include_return else None

        self._saved[saved_name] = call

    def set_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Set the arguments that `invoke_stateful` passes, by position or by name."""
        if kwargs:
            names = [p.name for p in self.module.exe[func_name].params]
            missing = [n for n in names[len(args) :] if n not in kwargs]
            if missing:
                raise ValueError(f"{func_name}: no value for {', '.join(missing)}")
            args = (*args, *(kwargs[n] for n in names[len(args) :]))
        self._inputs[func_name] = args

    def invoke_stateful(self, func_name: str) -> None:
        """Call a function with the arguments that were set."""
        if func_name not in self._inputs:
            raise ValueError(f"no arguments are set for {func_name}: call set_input before")
        self._outputs[func_name] = self[func_name](*self._inputs[func_name])

    def get_outputs(self, func_name: str) -> Any:
        """The result of the last `invoke_stateful`."""
        if func_name not in self._outputs:
            raise ValueError(f"{func_name} was not run: call invoke_stateful before")
        return self._outputs[func_name]

    def time_evaluator(
        self, func_name: str, dev: Any = None, **options: Any
    ) -> Callable[..., runtime.BenchmarkResult]:
        """A function that times calls."""
        return runtime.time_evaluator(self[func_name], **options)


Executable = VMExecutable
"""The older name."""
