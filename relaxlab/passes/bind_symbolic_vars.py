"""Give symbols of a function their values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from relaxlab.ir import expr, graph
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.passes.base import module_pass
from relaxlab.passes.patterns.rewrite import normalized
from relaxlab.tracing import remark


@dataclass(frozen=True, slots=True)
class BindSymbolsOptions:
    """`values`: numbers by the symbols' names. `function`: whose symbols."""

    values: Mapping[str, int] = field(default_factory=dict[str, int])
    function: str = "main"

    def __str__(self) -> str:
        return f"{self.function}: {', '.join(f'{k} = {v}' for k, v in self.values.items())}"


@module_pass("bind_symbolic_vars", BindSymbolsOptions)
def bind_symbolic_vars(mod: Module, options: BindSymbolsOptions) -> Module:
    """Replace symbols of a function's parameters by numbers; calls check that they hold.

    Raises ValueError for a function or symbol that is not there, a negative number, and one above
    the symbol's declared upper bound.
    """
    if not options.values:
        return mod
    fn = graph_function(mod, options.function, "bind_symbolic_vars")
    env: dict[expr.Var, int] = {}
    bounds: Mapping[str, int] = fn.attrs.get("tir_var_upper_bound", {})
    for name, value in options.values.items():
        found = [s for s in symbols_in(fn.params) if s.name == name]
        if not found:
            names = ", ".join(dict.fromkeys(s.name for s in symbols_in(fn.params)))
            raise ValueError(
                f"bind_symbolic_vars: no parameter of `{options.function}` mentions `{name}`; "
                f"its symbols: {names or 'none'}"
            )
        if value < 0:
            raise ValueError(f"bind_symbolic_vars: `{name}` is a size, it cannot be {value}")
        if value > bounds.get(name, value):
            raise ValueError(
                f"bind_symbolic_vars: `{name}` is at most {bounds[name]}, it cannot be {value}"
            )
        env |= dict.fromkeys(found, value)
        remark("bind_symbolic_vars", f"{options.function}.{name}", f"is {value}")
    return normalized(mod.with_functions({options.function: with_symbols(fn, env)}))


def graph_function(mod: Module, name: str, rule: str) -> graph.Function:
    """The graph function of that name. Raises ValueError."""
    fn = mod.get(name)
    if not isinstance(fn, graph.Function):
        names = ", ".join(mod.graph_functions())
        raise ValueError(f"{rule}: no graph function `{name}`; the module has: {names}")
    return fn


def with_symbols(fn: graph.Function, values: Mapping[expr.Var, int]) -> graph.Function:
    """`fn` with numbers for symbols, also where it declares upper bounds for them."""
    if not values:
        return fn
    new = substitute(fn, symbols={s: expr.const(v, s.var_dtype) for s, v in values.items()})
    bounds: Mapping[str, int] = fn.attrs.get("tir_var_upper_bound", {})
    remaining = {k: v for k, v in bounds.items() if k not in {s.name for s in values}}
    return replace(new, attrs=new.attrs.with_(tir_var_upper_bound=remaining or None))
