"""Refuse programs that read a value after it was overwritten in place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from relaxlab.ir import graph
from relaxlab.ir.diagnostics import Diagnostic, DiagnosticError
from relaxlab.ir.module import Module
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.bindings import note_alias, overwritten_by, overwritten_params, vars_in
from relaxlab.tracing import note


@module_pass("check_inplace_calls")
def check_inplace_calls(mod: Module, _: NoOptions) -> Module:
    """Check that what a call overwrites, under any name, is not read afterwards: only then may
    other passes move calls. The module stays as it is.

    Raises `DiagnosticError` (E0506) naming the value, the call and the later read.
    """
    found = [d for name, fn in mod.graph_functions().items() for d in _check(name, fn, mod)]
    if found:
        raise DiagnosticError(found)
    return mod


@dataclass(slots=True)
class _Checker:
    name: str
    known: Mapping[str, frozenset[int]]
    same: dict[graph.Var, graph.Var] = field(default_factory=lambda: {})
    overwritten: dict[graph.Var, graph.Binding] = field(default_factory=lambda: {})
    found: list[Diagnostic] = field(default_factory=lambda: [])

    def sequence(self, seq: graph.SeqExpr) -> None:
        for block in seq.blocks:
            for b in block.bindings:
                self.binding(b)
        self.read(seq.body)

    def binding(self, b: graph.Binding) -> None:
        if isinstance(b.value, graph.If):
            self.read(b.value.condition)
            before = dict(self.overwritten)
            self.sequence(b.value.true_branch)
            after, self.overwritten = self.overwritten, before
            self.sequence(b.value.false_branch)
            self.overwritten = after | self.overwritten
            return
        self.read(b.value)
        note_alias(b, self.same)
        for v in overwritten_by(b.value, self.known):
            self.overwritten[self.same.get(v, v)] = b
            note("check_inplace_calls", f"{self.name}.{v.name}", "updated in place")

    def read(self, value: graph.Expr) -> None:
        for v in dict.fromkeys(vars_in(value)):
            by = self.overwritten.get(self.same.get(v, v))
            if by is not None:
                self.found.append(_late_read(self.name, v, by, value))


def _check(name: str, fn: graph.Function, mod: Module) -> list[Diagnostic]:
    checker = _Checker(name, overwritten_params(mod))
    checker.sequence(fn.body)
    return checker.found


def _late_read(name: str, v: graph.Var, by: graph.Binding, reader: graph.Expr) -> Diagnostic:
    var = by.var
    return Diagnostic(
        "E0506",
        f"in `{name}`: {v.name} is read after it was overwritten in place",
        getattr(reader, "span", None) or v.span,
        notes=(f"`{var.name}` is computed into its memory",),
        suggestion=f"use `{var.name}`, or copy {v.name} before",
        related=(("overwritten here", by.span),) if by.span is not None else (),
    )
