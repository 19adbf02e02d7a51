"""Types of graph values while a function is read, as far as they are plain to see.

Bare numbers beside a tensor take its dtype (`y > 0`), so the parser must know it before types are
deduced for good.
"""

from __future__ import annotations

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.deduce import call_signature, deduce_call, field_type, lca, lca_of, type_of
from relaxlab.ir import graph, types
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.module import Module


class KnownTypes:
    """The types of the variables bound so far, deduced on first use."""

    def __init__(self) -> None:
        self._types: dict[graph.Var, types.Type | None] = {}
        self._waiting: list[graph.VarBinding | graph.MatchCast] = []

    def add(self, binding: graph.VarBinding | graph.MatchCast) -> None:
        """A binding was read."""
        self._waiting.append(binding)

    def of(self, e: graph.Expr, mod: Module) -> types.Type | None:
        """The type of `e`, or None where it is not known yet or wrong."""
        for b in self._waiting:  # in order: each needs only what was bound before
            found = b.ty if isinstance(b, graph.MatchCast) else self._deduced(b.value, mod)
            self._types[b.var] = found
        self._waiting.clear()
        return self._deduced(e, mod)

    def _deduced(self, e: graph.Expr, mod: Module) -> types.Type | None:
        match e:
            case graph.Var():
                return e.ty or self._types.get(e)
            case graph.GlobalVar() | graph.ExternFunc():
                return types.FuncType(None, types.ObjectType(), is_pure=False)
            case graph.Tuple(fields):
                inner = [self._deduced(f, mod) for f in fields]
                known = [t for t in inner if t is not None]
                return types.TupleType(tuple(known)) if len(known) == len(inner) else None
            case graph.SeqExpr(_, body):
                return self._deduced(body, mod)
            case graph.If(_, yes, no):
                one, other = self._deduced(yes, mod), self._deduced(no, mod)
                return None if one is None or other is None else lca(one, other, Analyzer())
            case graph.Match(_, cases):
                arms = [self._deduced(c.body, mod) for c in cases]
                known = [t for t in arms if t is not None]
                return lca_of(known, Analyzer()) if len(known) == len(arms) else None
            case graph.Function(params, body, ret):
                ret = ret or self._deduced(body, mod) or types.ObjectType()
                return types.FuncType(tuple(p.ty or types.ObjectType() for p in params), ret)
            case _:
                pass
        try:
            if isinstance(e, graph.TupleGetItem):
                whole = self._deduced(e.tuple_value, mod)
                return None if whole is None else field_type(whole, e.index, e)
            if isinstance(e, graph.Call):
                args = [self._deduced(a, mod) for a in e.args]
                known = [t for t in args if t is not None]
                if len(known) < len(args):
                    return None
                if isinstance(e.op, graph.Var):
                    callee = self._deduced(e.op, mod)
                    if not isinstance(callee, types.FuncType) or callee.params is None:
                        return None
                    return call_signature(callee, tuple(known), e, Analyzer())
                return deduce_call(e, known, mod, computable=False)
            return type_of(e, mod, computable=False)
        except DiagnosticError:
            return None
