"""Functions whose parameters have other types."""

from __future__ import annotations

from collections.abc import Mapping

from relaxlab.ir import graph
from relaxlab.ir.node import replace
from relaxlab.ir.substitute import substitute
from relaxlab.ir.types import Type
from relaxlab.passes.bindings import all_bindings


def with_param_types(fn: graph.Function, tys: Mapping[graph.Var, Type]) -> graph.Function:
    """A function with other types of some parameters. What is computed of them has no types, which
    `annotate` deduces again."""
    params: dict[graph.Var, graph.Expr] = {p: graph.Var(p.name, ty) for p, ty in tys.items()}
    bare = {
        b.var: type(b.var)(b.var.name) for b in all_bindings(fn) if isinstance(b, graph.VarBinding)
    }
    return substitute(replace(fn, ret_ty=None), values={**bare, **params})
