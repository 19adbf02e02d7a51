"""The forms a program takes on its way to machine code, each as something that can be run."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from relaxlab.analysis.evaluate import evaluate
from relaxlab.codegen.cuda.program import generate_cuda
from relaxlab.codegen.llvm.host_frame import UnsupportedHost
from relaxlab.codegen.program import compile_program
from relaxlab.ir import expr, graph, loops, types
from relaxlab.ir.equal import structural_equal
from relaxlab.ir.host import kernel_symbols
from relaxlab.ir.module import Module
from relaxlab.ir.node import walk
from relaxlab.ir.target import Target
from relaxlab.passes.base import Pass
from relaxlab.passes.lower_shapes import lower_shapes
from relaxlab.runtime.arrays import Array, ExecutionError
from relaxlab.runtime.check.inputs import copy_value
from relaxlab.runtime.check.races import find_race
from relaxlab.runtime.executable import Executable
from relaxlab.runtime.interpreter.graph import Machine
from relaxlab.runtime.interpreter.interpreter import bind_parameters, interpret_prim_func
from relaxlab.runtime.native.weights import transform_names
from relaxlab.runtime.vm.cuda import simulated
from relaxlab.runtime.vm.vm import Kernel, VirtualMachine

Runner = Callable[[str, tuple[Any, ...]], Any]


@dataclass(frozen=True, slots=True)
class Stage:
    """A form of the program: `run` calls a function of it. `before` and `one` are the module and
    the pass that it was made by, for a form after a pass; `after` is the module that has the
    program's functions with their parameters."""

    title: str
    number: int
    one: Pass | None
    before: Module
    after: Module
    run: Runner


@dataclass(slots=True)
class Interpreter:
    """Runs modules on NumPy, and remembers the longest reduction of the loop functions it ran."""

    length: int = 1
    _reductions: dict[loops.PrimFunc, list[tuple[expr.PrimExpr, ...]]] = field(
        default_factory=dict[loops.PrimFunc, list[tuple[expr.PrimExpr, ...]]]
    )

    def module(self, mod: Module) -> Runner:
        """Calls functions of a module."""
        return lambda name, args: Machine(mod, self.run_loops).call(name, args)

    def run_loops(self, func: loops.PrimFunc, args: Sequence[Any], *, name: str = "") -> None:
        """A loop function; where its schedule changed the layout of parameters that callers have
        not repacked yet (see the pass `rewrite_layouts`), it is given repacked copies."""
        args = _repacked(func, args)
        if func not in self._reductions:
            self._reductions[func] = _reductions(func)
        if self._reductions[func]:
            sizes = bind_parameters(func, args)
            for extents in self._reductions[func]:
                known = [evaluate(e, sizes) for e in extents if _is_known(e, sizes)]
                self.length = max(self.length, math.prod(known))
        interpret_prim_func(func, args, name=name)


def _reductions(func: loops.PrimFunc) -> list[tuple[expr.PrimExpr, ...]]:
    blocks = (n for n in walk(func.body) if isinstance(n, loops.Block))
    axes = (tuple(i.dom.extent for i in b.iter_vars if i.kind == "reduce") for b in blocks)
    return [a for a in axes if a]


def _is_known(e: expr.PrimExpr, sizes: dict[expr.Var, Any]) -> bool:
    return all(v in sizes for v in walk(e) if isinstance(v, expr.Var))


def _repacked(func: loops.PrimFunc, args: Sequence[Any]) -> list[Any]:
    given = list(args)
    for at, index_map in func.attrs.get("layout_rewrites", ()):
        old = given[at]
        grid = dict(zip(index_map.initial_indices, np.indices(old.shape), strict=True))
        places = tuple(np.broadcast_to(evaluate(e, grid), old.shape)
                       for e in index_map.final_indices)  # fmt: skip
        shape = index_map.map_shape(tuple(map(expr.const, old.shape)))
        given[at] = np.zeros([evaluate(d, {}) for d in shape], old.dtype)
        given[at][places] = old
    return given


def host_stages(mod: Module, target: Target, number: int) -> tuple[list[Stage], tuple[str, ...]]:
    """Return the stages after the passes (the virtual machine, then native code or simulated
    threads), and in words what cannot be compared."""
    program = lower_shapes(mod)

    def stage(title: str, run: Runner) -> Stage:
        return Stage(title, number, None, mod, mod, run)

    if target.kind == "cuda":
        kernels = simulated(generate_cuda(program))
        simt = VirtualMachine(program, kernels)
        return [
            stage("the virtual machine", _machine(VirtualMachine(program))),
            stage("simulated GPU threads", _machine(simt)),
        ], ()
    watched = {name: _watched(name, func) for name, func in program.kernels.items()}
    machine = stage("the virtual machine", _machine(VirtualMachine(program, watched)))
    try:
        exe = Executable(compile_program(program, target), target)
    except UnsupportedHost as reason:
        return [machine], (f"not compared with native code: {reason}",)
    absent = exe.artifact.left_out

    def run(name: str, args: tuple[Any, ...]) -> Any:
        return machine.run(name, args) if name in absent else exe[name](*args)

    reasons = (f"not compared with native code: {reason}" for reason in absent.values())
    return [machine, stage("native code", run)], tuple(reasons)


def _watched(name: str, func: loops.PrimFunc) -> Kernel:
    """The interpreter's run of a kernel; its first call looks for races in it."""
    watch = True

    def run(buffers: Sequence[Array], scalars: Sequence[int]) -> None:
        nonlocal watch
        by_symbol = dict(zip(kernel_symbols(func), scalars, strict=True))
        args = [*buffers, *(by_symbol[p] for p in func.params if isinstance(p, expr.Var))]
        race = find_race(func, args) if watch else None
        watch = False
        if race is not None:
            raise ExecutionError(f"the kernel `{name}` races: {race}")
        interpret_prim_func(func, args, name=name)

    return run


def _machine(vm: VirtualMachine) -> Runner:
    return lambda name, args: vm.run(name, *args)


def same_parameters(a: graph.Function, b: graph.Function) -> bool:
    """True if two functions take the same arguments."""
    one, other = (types.TupleType(tuple(p.ty or types.ObjectType() for p in f.params))
                  for f in (a, b))  # fmt: skip
    return len(a.params) == len(b.params) and structural_equal(one, other, map_free_vars=True)


def arguments_for(
    stage: Stage, name: str, original: graph.Function, args: tuple[Any, ...]
) -> tuple[Any, ...]:
    """Copies of arguments for the function as it is at a stage: where its weights were transformed
    by `lift_transform_params`, the transformed ones.

    Raises ExecutionError where its parameters have changed in another way.
    """
    here = stage.after.get(name)
    if not isinstance(here, graph.Function):
        raise ExecutionError(f"the function `{name}` is gone")
    given = copy_value(args)
    inputs = original.attrs.get("num_input")
    transform = next((n for n in transform_names(name) if n in stage.after), None)
    if inputs is None or transform is None:  # transformed weights may have the types of the others
        if same_parameters(here, original):
            return given
        raise ExecutionError(f"the parameters of `{name}` have changed")
    weights = stage.run(transform, (given[inputs:],))
    return (*given[:inputs], *weights)
