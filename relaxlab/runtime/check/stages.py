"""The forms a program takes on its way to machine code, each as something that can be run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from relaxlab.analysis.evaluate import evaluate
from relaxlab.analysis.ragged import stored_parameter, totals_of
from relaxlab.ir import expr, graph, loops, types
from relaxlab.ir.equal import structural_equal
from relaxlab.ir.module import Module
from relaxlab.ir.node import walk
from relaxlab.ir.target import Target, target_kind
from relaxlab.passes.base import Pass
from relaxlab.passes.lower_shapes import lower_shapes
from relaxlab.passes.rewrite_layouts import repacked_shape
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.check.forms import Forms, Runner
from relaxlab.runtime.check.inputs import copy_value
from relaxlab.runtime.interpreter.graph import Machine
from relaxlab.runtime.interpreter.interpreter import bind_parameters, interpret_prim_func
from relaxlab.runtime.native.weights import transform_of


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
        return lambda name, args: Machine.of(mod, self.run_loops).call(name, args)

    def run_loops(self, func: loops.PrimFunc, args: Sequence[Any], *, name: str = "") -> None:
        """A loop function; where its schedule changed the layout of parameters that callers have
        not repacked yet (see the pass `rewrite_layouts`), it is given repacked copies."""
        args = _repacked(func, args)
        if func not in self._reductions:
            self._reductions[func] = _reductions(func)
        if self._reductions[func]:
            sizes = bind_parameters(func, args)
            for extents in self._reductions[func]:
                self.length = max(self.length, _length(extents, sizes))
        interpret_prim_func(func, args, name=name)


def longest_reduction(func: loops.PrimFunc, sizes: dict[expr.Var, Any]) -> int:
    """The length of the longest reduction of a loop function, as far as its extents are known."""
    return max((_length(extents, sizes) for extents in _reductions(func)), default=1)


def _length(extents: tuple[expr.PrimExpr, ...], sizes: dict[expr.Var, Any]) -> int:
    return math.prod(evaluate(e, sizes) for e in extents if _is_known(e, sizes))


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
        used, param = index_map.map_shape(tuple(map(expr.const, old.shape))), func.params[at]
        assert isinstance(param, loops.Buffer)
        shape = [evaluate(d, {}) for d in repacked_shape(used, param.shape)]
        given[at] = np.zeros(shape, old.dtype)
        given[at][places] = old
    return given


def host_stages(mod: Module, target: Target, number: int) -> tuple[list[Stage], tuple[str, ...]]:
    """Return the stages after the passes, as the target has them, and in words what cannot be
    compared."""
    forms: Forms = target_kind(target.kind).forms(lower_shapes(mod), target)
    stages = [Stage(title, number, None, mod, mod, run) for title, run in forms.runs]
    return stages, forms.left_out


def same_parameters(a: graph.Function, b: graph.Function) -> bool:
    """True if two functions take the same arguments."""

    def taken(f: graph.Function) -> types.Type:
        totals = totals_of(f)
        given = (stored_parameter(p, totals) or types.ObjectType() for p in f.params)
        return types.TupleType(tuple(given))

    one, other = taken(a), taken(b)
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
    transform = transform_of(stage.after, name)
    if inputs is None or transform is None:  # transformed weights may have the types of the others
        if same_parameters(here, original):
            return given
        raise ExecutionError(f"the parameters of `{name}` have changed")
    weights = stage.run(transform, (given[inputs:],))
    return (*given[:inputs], *weights)
