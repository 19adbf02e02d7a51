"""The gradient of every operator against differences of the function itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.analysis.well_formed import check_well_formed
from relaxlab.ir import graph, types
from relaxlab.ir.dtypes import is_float
from relaxlab.ir.module import Module
from relaxlab.ir.op_table import op_names, op_row
from relaxlab.ops.block_builder import BlockBuilder
from relaxlab.ops.gradients.base import NotDifferentiable, nothing, op
from relaxlab.passes.differentiate import differentiate
from relaxlab.passes.normalize import normalize
from relaxlab.testing.op_cases import FAMILIES
from relaxlab.testing.op_check import CaseProgram, OpCase, T, random_arguments

CASES_PER_OPERATOR = 4
NO_CASE = {"grad.no_grad", "grad.start_checkpoint", "grad.end_checkpoint", "null_value"}
"""Operators whose gradient is not the limit of differences, or that no case calls with floats."""
ELSEWHERE = ("linalg.", "signal.")
"""Operators without loops, whose gradients tests/ops/test_factors.py has."""
ORDERS = {"sort", "topk"}
"""Operators that are not differentiable where two elements are equal."""


def tensors(args: Any) -> list[T]:
    if isinstance(args, tuple):
        return [t for a in args for t in tensors(a)]
    return [args] if isinstance(args, T) else []


def wide(arg: Any) -> Any:
    """An argument with its floats in float64, where differences are exact enough."""
    if isinstance(arg, tuple):
        return tuple(map(wide, arg))
    if not isinstance(arg, T) or not is_float(arg.dtype):
        return arg
    return T(*arg.shape, dtype="float64", low=arg.low, high=arg.high)


def cases() -> dict[str, list[OpCase]]:
    """Some cases of each differentiable operator, in float64."""
    found: dict[str, list[OpCase]] = {}
    for family in FAMILIES.values():
        for case in family():
            given = tensors(case.args)
            gradient = op_row(case.op).gradient
            if gradient in (None, nothing) or case.op in NO_CASE:
                continue
            special = any(t.values is not None and is_float(t.dtype) for t in given)
            floats = any(is_float(t.dtype) for t in given)
            rootless = case.op == "std" and not given[0].shape  # of one element
            if special or rootless or not floats or case.attrs.get("mode") == "nan":
                continue
            attrs = {
                k: "float64" if isinstance(v, str) and k.endswith("dtype") and is_float(v) else v
                for k, v in case.attrs.items()
            }
            found.setdefault(case.op, []).append(replace(case, args=wide(case.args), attrs=attrs))
    return {name: of[:: max(1, len(of) // CASES_PER_OPERATOR)] for name, of in found.items()}


CASES = cases()


def loss_of(case: OpCase, env: dict[str, int]) -> tuple[Module, list[str]]:
    """A function that returns the sum of the results times given weights, and the names of the
    parameters that are floats; the weights come last."""
    program = CaseProgram(case, env, symbolic=False)
    outs = program.out.fields if isinstance(program.out, types.TupleType) else (program.out,)
    given = [p for p in program.function().params if not isinstance(p.ty, types.ShapeType)]
    floats = [p for p in given if is_float(p.ty.dtype or "")]  # type: ignore[union-attr]
    weighted = [i for i, t in enumerate(outs) if is_float(t.dtype or "")]  # type: ignore[union-attr]
    if not weighted:
        raise NotDifferentiable(f"{case} has no float result")
    weights = [graph.Var(f"w{i}", outs[i]) for i in weighted]
    names = {p: graph.Var(f"x{i}", p.ty) for i, p in enumerate(given)}
    call = rl.ir.substitute.substitute(program.call, values=names)
    bb = BlockBuilder()
    with bb.function("main", [*names.values(), *weights]):
        with bb.dataflow():
            y = bb.emit(call)
            loss: Any = None
            for i, w in zip(weighted, weights, strict=True):
                part = graph.TupleGetItem(y, i) if isinstance(program.out, types.TupleType) else y
                term = op("sum", op("multiply", part, w))
                loss = bb.emit(term if loss is None else op("add", loss, term))
            out = bb.emit_output(loss)
        bb.emit_func_output(out)
    return normalize(bb.get()), [names[p].name for p in floats]


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_the_limits_of_differences(name: str) -> None:
    known = 0
    for seed, case in enumerate(CASES[name]):
        env = dict(next((e for e in case.sizes if 0 not in e.values()), {}))
        try:
            mod, names = loss_of(case, env)
            mod = differentiate(mod)
        except NotDifferentiable:
            continue
        if name in ORDERS and _has_ties(case, env, seed):
            continue
        known += 1
        assert not check_well_formed(mod)
        rng = np.random.default_rng(seed)
        arrays = random_arguments(case, env, seed)
        params = mod.graph_functions()["main"].params
        for p in params[len(arrays) :]:
            shape = tuple(d.value for d in p.ty.shape)  # type: ignore[union-attr]
            arrays.append(np.asarray(rng.standard_normal(shape)))
        _, gradients = rl.interpret(mod, "main_adjoint", *arrays)
        for i, p in enumerate(params):
            if p.name in names:
                direction = np.asarray(rng.standard_normal(arrays[i].shape))
                slope = difference(mod, arrays, i, direction)
                got = float(np.sum(gradients[i] * direction))
                assert got == pytest.approx(slope, rel=1e-5, abs=1e-6), f"{case}, seed {seed}, {p}"
    assert known, f"no case of {name} has a gradient"


def _has_ties(case: OpCase, env: dict[str, int], seed: int) -> bool:
    """True if a step of a difference could exchange two elements."""
    values = (np.sort(a, axis=None) for a in random_arguments(case, env, seed))
    return any(float(np.min(np.diff(v), initial=1)) < 1e-4 for v in values)


def difference(mod: Module, arrays: list[Any], i: int, direction: Any) -> float:
    """The slope of the function along a direction of one of its arguments."""
    step = 1e-6
    ahead, behind = list(arrays), list(arrays)
    ahead[i] = np.asarray(arrays[i] + step * direction)
    behind[i] = np.asarray(arrays[i] - step * direction)
    values = [float(rl.interpret(mod, "main", *a)) for a in (ahead, behind)]
    return (values[0] - values[1]) / (2 * step)


def test_every_gradient_is_tried() -> None:
    names = {n for n in op_names() if op_row(n).gradient not in (None, nothing)}
    names = {n for n in names if not n.startswith(ELSEWHERE)}
    assert not names - CASES.keys() - NO_CASE
