"""Refuse programs that read a value after it was overwritten in place."""

from __future__ import annotations

from relaxlab.ir import graph
from relaxlab.ir.diagnostics import Diagnostic, DiagnosticError
from relaxlab.ir.module import Module
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.bindings import all_bindings, is_alias, tir_call, vars_in
from relaxlab.tracing import note


@module_pass("check_inplace_calls")
def check_inplace_calls(mod: Module, _: NoOptions) -> Module:
    """Check that what a `call_tir_inplace` overwrites, under any name, is not read afterwards: only
    then may other passes move calls. The module stays as it is.

    Raises `DiagnosticError` (E0506) naming the value, the call and the later read.
    """
    found = [d for name, fn in mod.graph_functions().items() for d in _check(name, fn)]
    if found:
        raise DiagnosticError(found)
    return mod


def _check(name: str, fn: graph.Function) -> list[Diagnostic]:
    same: dict[graph.Var, graph.Var] = {}
    overwritten: dict[graph.Var, graph.Binding] = {}
    found: list[Diagnostic] = []

    def read(value: graph.Expr) -> None:
        for v in dict.fromkeys(vars_in(value)):
            by = overwritten.get(same.get(v, v))
            if by is not None:
                found.append(_late_read(name, v, by, value))

    for b in all_bindings(fn):
        value = b.value
        read(value)
        if is_alias(b):
            source = next(vars_in(value), None)
            if source is not None:
                same[b.var] = same.get(source, source)
        call = tir_call(value)
        for i in call.inplace if call is not None else ():
            arg = call.args[i] if call is not None and i >= 0 else None
            if isinstance(arg, graph.Var):
                overwritten[same.get(arg, arg)] = b
                note("check_inplace_calls", f"{name}.{arg.name}", "updated in place")
    read(fn.body.body)
    return found


def _late_read(name: str, v: graph.Var, by: graph.Binding, reader: graph.Expr) -> Diagnostic:
    var = by.var  # type: ignore[attr-defined]
    return Diagnostic(
        "E0506",
        f"in `{name}`: {v.name} is read after it was overwritten in place",
        getattr(reader, "span", None) or v.span,
        notes=(f"`{var.name}` is computed into its memory",),
        suggestion=f"use `{var.name}`, or copy {v.name} before",
        related=(("overwritten here", by.span),) if by.span is not None else (),
    )
