"""Random programs over the whole operator table: uses of every operator with all their options,
among the calls, branches, tuples and claims of `mixed_programs`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from relaxlab.analysis.deduce import type_of
from relaxlab.ir import expr, graph, types
from relaxlab.ir.dtypes import is_float
from relaxlab.ir.module import Module
from relaxlab.ir.node import Attrs
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.runtime.check_inputs import random_value
from relaxlab.testing.mixed_operators import Made
from relaxlab.testing.mixed_programs import MixedProgram
from relaxlab.testing.op_cases import FAMILIES
from relaxlab.testing.op_check import CaseProgram, Env, OpCase, random_arguments

SIZES = (0, 1, 1, 2, 3, 5, 8, 17, 33)
"""Extents of symbols: none, one, full vectors, and what no vector width divides."""


@cache
def cases() -> dict[str, list[OpCase]]:
    """All uses of each operator."""
    found: dict[str, list[OpCase]] = {}
    for family in FAMILIES.values():
        for case in family():
            found.setdefault(case.op, []).append(case)
    return found


class TableProgram(MixedProgram):
    """A program with calls out of the table; its `arguments` are right for them."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.given: dict[graph.Var, Any] = {}
        self.sizes: dict[expr.Var, int] = {}

    def makers(self) -> list[Callable[[], Made | None]]:
        """Half of the calls are uses out of the table."""
        others = super().makers()
        return [*others, *[self.use] * len(others)]

    def attrs(self, inputs: int) -> Attrs:
        """No weights: what depends on them alone would be given to `main` already computed."""
        return super().attrs(inputs).with_(num_input=None)

    def use(self) -> Made | None:
        """A use of a random operator, on parameters of its own; its result is read by others."""
        case = self.rng.choice(cases()[self.rng.choice(sorted(cases()))])
        env, symbolic = self.rng.choice(list(case.sizes)), self.rng.random() < 0.7
        program = CaseProgram(case, env, symbolic)
        params = list(dict.fromkeys(v for a in program.call.args for v in _variables(a)))
        values = random_arguments(case, env, self.rng.getrandbits(32))
        self._declare(program, params, values, env)
        named = {p: self._fresh(p) for p in params}
        for p, value in zip(params, values, strict=True):
            self.given[named[p]] = value
        self.extra += named.values()
        call = substitute(program.call, values=named)
        result = self.bind(call)
        ty = type_of(result)
        while isinstance(ty, types.TupleType) and ty.fields:
            result = self.bind(graph.TupleGetItem(result, self.rng.randrange(len(ty.fields))))
            ty = type_of(result)
        if not isinstance(ty, types.TensorType) or ty.dtype is None:
            return None
        if is_float(ty.dtype):
            return graph.Call(graph.Op("tanh"), (result,)), 1.0, False
        return graph.Call(graph.Op("abs"), (result,)), 100.0, True

    def _fresh(self, like: graph.Var) -> graph.Var:
        self.count += 1
        return graph.Var(f"p{self.count}", like.ty)

    def _declare(
        self, program: CaseProgram, params: list[graph.Var], values: list[Any], env: Env
    ) -> None:
        """A shape parameter for the symbols that no dimension of a parameter is."""
        sizes = {v: env[name] for name, v in program.symbols.items()}
        self.sizes |= sizes
        dims = [d for p in params if isinstance(p.ty, types.TensorType) for d in p.ty.shape or ()]
        free = [v for v in symbols_in(program.call) if v in sizes and v not in dims]
        if free:
            self.count += 1
            shape = graph.Var(f"s{self.count}", types.ShapeType(tuple(free)))
            self.extra.append(shape)
            self.given[shape] = tuple(sizes[v] for v in free)

    def arguments(self, mod: Module, rng: np.random.Generator) -> tuple[Any, ...]:
        """Random arguments for `main`."""
        main = mod["main"]
        assert isinstance(main, graph.Function)
        bounds = main.attrs.get("tir_var_upper_bound", {})
        env = dict(self.sizes)
        for s in symbols_in(main.params):
            env.setdefault(s, min(int(rng.choice(SIZES)), bounds.get(s.name, 1 << 30)))
        names = {p.name: value for p, value in self.given.items()}
        return tuple(
            names[p.name] if p.name in names else random_value(p.ty, env, rng)
            for p in main.params
        )


def _variables(e: graph.Expr) -> list[graph.Var]:
    if isinstance(e, graph.Tuple):
        return [v for f in e.fields for v in _variables(f)]
    return [e] if isinstance(e, graph.Var) else []
