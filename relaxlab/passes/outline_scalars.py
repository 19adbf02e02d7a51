"""Scalars that a graph function calculates become calls of loop functions of their symbols."""

from __future__ import annotations

from dataclasses import dataclass, field

from relaxlab.ir import expr, graph, loops, types
from relaxlab.ir.equal import structural_equal
from relaxlab.ir.module import Module
from relaxlab.ir.names import fresh_name
from relaxlab.ir.node import Attrs, Node, replace, rewrite, walk
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.patterns.rewrite import normalized

NAME = "compute_symbolic_expr"


@module_pass("outline_scalars", needs=("normalize",))
def outline_scalars(mod: Module, _: NoOptions) -> Module:
    """Make each scalar that is calculated, a condition or an argument, the result of a private loop
    function of the symbols in it; equal ones share a function. Shapes stay as they are."""
    outliner = _Outliner(mod)
    updates = {
        name: outliner.outlined(fn)
        for name, fn in mod.graph_functions().items()
        if any(isinstance(n, graph.Expr) and is_calculated(n) for n in walk(fn))
    }
    return normalized(mod.with_functions({**outliner.made, **updates})) if updates else mod


def is_calculated(e: graph.Expr) -> bool:
    """True for a scalar that is neither a symbol nor a constant."""
    plain = expr.Var | expr.IntImm | expr.FloatImm
    return isinstance(e, graph.PrimValue) and not isinstance(e.value, plain)


def _without_value(n: Node) -> Node | None:
    if not isinstance(n, types.PrimType) or n.value is None or isinstance(n.value, expr.Var):
        return None
    return types.PrimType(n.dtype)


@dataclass(slots=True)
class _Outliner:
    """Holds the functions that were `made`."""

    mod: Module
    made: dict[str, loops.PrimFunc] = field(default_factory=dict[str, loops.PrimFunc])

    def outlined(self, fn: graph.Function) -> graph.Function:
        """The function with calls; types say no longer which values variables and results have."""
        bound = (b for b in walk(fn) if isinstance(b, graph.VarBinding) and is_calculated(b.value))
        plain = {b.var: replace(b.var, ty=None) for b in bound}
        fn = rewrite(fn, lambda n: plain.get(n) if isinstance(n, graph.Var) else None)
        returned = None if fn.ret_ty is None else rewrite(fn.ret_ty, _without_value)
        return rewrite(replace(fn, ret_ty=returned), self.node)

    def node(self, n: Node) -> Node | None:
        if not isinstance(n, graph.PrimValue) or not is_calculated(n):
            return None
        symbols = tuple(dict.fromkeys(symbols_in(n.value)))
        callee = graph.GlobalVar(self.function(n.value, symbols))
        return graph.Call(callee, tuple(graph.PrimValue(s) for s in symbols), span=n.span)

    def function(self, value: expr.PrimExpr, symbols: tuple[expr.Var, ...]) -> str:
        """The name of the function that returns the value."""
        params = tuple(expr.Var(s.name, s.dtype) for s in symbols)
        own = substitute(value, dict(zip(symbols, params, strict=True)))
        end = loops.Evaluate(expr.Call(own.dtype, "ret", (own,)))
        root = loops.Block("root", (), (), (), end)
        body = loops.BlockRealize((), expr.const(1, "bool"), root)
        func = loops.PrimFunc(params, body, Attrs({"tirx.is_host_func": True}), private=True)
        for name, known in self.made.items():
            if structural_equal(known, func):
                return name
        name = fresh_name(NAME, {*self.mod, *self.made}.__contains__)
        self.made[name] = func
        return name
