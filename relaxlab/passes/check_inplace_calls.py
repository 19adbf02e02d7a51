"""Refuse programs that read a value after it was overwritten in place."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from relaxlab.ir import graph, types
from relaxlab.ir.diagnostics import Diagnostic, DiagnosticError
from relaxlab.ir.module import Module
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.effects import Aliases, Cell, base_of, overlaps, summary_of
from relaxlab.tracing import remark


@module_pass("check_inplace_calls", needs=("normalize",))
def check_inplace_calls(mod: Module, _: NoOptions) -> Module:
    """Check that memory that a call overwrites, under any name, is not read afterwards: only then
    may other passes move calls. The module stays as it is.

    Raises `DiagnosticError`: E0506 naming the value, the call and the later read, E0507 for a
    constant that is overwritten, E0508 for a donated value that is no tensor parameter.
    """
    found = [d for name, fn in mod.graph_functions().items() for d in _check(name, fn, mod)]
    if found:
        raise DiagnosticError(found)
    return mod


@dataclass(slots=True)
class _Checker:
    name: str
    aliases: Aliases
    overwritten: dict[graph.Expr, dict[Cell, graph.Binding]] = field(default_factory=lambda: {})
    """The cells that were overwritten, and by what, under the variable that they are part of."""
    found: list[Diagnostic] = field(default_factory=lambda: [])

    def sequence(self, seq: graph.SeqExpr) -> None:
        for block in seq.blocks:
            for b in block.bindings:
                self.binding(b)
        self.read(seq.body)

    def binding(self, b: graph.Binding) -> None:
        if isinstance(b.value, graph.If):
            self.read(b.value.condition)
            before = {base: dict(cells) for base, cells in self.overwritten.items()}
            self.sequence(b.value.true_branch)
            after, self.overwritten = self.overwritten, before
            self.sequence(b.value.false_branch)
            for base, cells in after.items():
                self.overwritten[base] = cells | self.overwritten.get(base, {})
            self.aliases.note(b)
            return
        self.read(b.value)
        for cell in dict.fromkeys(self.aliases.passed_twice(b.value)):
            self.found.append(_passed_twice(self.name, _name(base_of(cell)), b.value))
        self.aliases.note(b)
        for cell in self.aliases.overwritten(b.value):
            base = base_of(cell)
            if base is b.var:  # a function may return what it overwrote, and is checked itself
                continue
            if isinstance(base, graph.Constant):
                self.found.append(_constant(self.name, b))
                continue
            self.overwritten.setdefault(base, {})[cell] = b
            remark("check_inplace_calls", f"{self.name}.{b.var.name}", f"in place of {_name(base)}")

    def read(self, value: graph.Expr) -> None:
        for cell in dict.fromkeys(self.aliases.read(value)):
            base = base_of(cell)
            for lost, by in self.overwritten.get(base, {}).items():
                if overlaps(cell, (lost,)):
                    self.found.append(_late_read(self.name, _name(base), by, value))


def _check(name: str, fn: graph.Function, mod: Module) -> list[Diagnostic]:
    checker = _Checker(name, Aliases(summary_of(mod)))
    checker.sequence(fn.body)
    return [*_bad_donations(name, fn), *checker.found]


def _bad_donations(name: str, fn: graph.Function) -> list[Diagnostic]:
    """Errors of the attribute `donated`."""
    donated: Any = fn.attrs.get("donated", ())
    tensors = [p.name for p in fn.params if isinstance(p.ty, types.TensorType)]
    wrong: list[Any] = [donated]
    if isinstance(donated, tuple):
        wrong = [n for n in cast("tuple[Any, ...]", donated) if n not in tensors]
    return [
        Diagnostic(
            "E0508",
            f"in `{name}`: {one!r} is donated, which is no tensor parameter",
            fn.span,
            suggestion=f"give a list of names among {', '.join(tensors) or 'none'}",
        )
        for one in wrong
    ]


def _name(e: graph.Expr) -> str:
    return getattr(e, "name", "a value")


def _constant(name: str, by: graph.Binding) -> Diagnostic:
    return Diagnostic(
        "E0507",
        f"in `{name}`: `{by.var.name}` is computed into the memory of a constant",
        by.span,
        suggestion="overwrite a value that is computed, such as R.zeros or R.full",
    )


def _passed_twice(name: str, lost: str, call: graph.Expr) -> Diagnostic:
    op = call.op if isinstance(call, graph.Call) else call
    callee = "the closure" if isinstance(op, graph.Op) else f"`{_name(op)}`"
    return Diagnostic(
        "E0506",
        f"in `{name}`: {lost} is given to {callee} twice, which overwrites it",
        getattr(call, "span", None),
        notes=("one argument would be read after it was overwritten through the other",),
        suggestion=f"copy {lost} before, and pass the copy once",
    )


def _late_read(name: str, lost: str, by: graph.Binding, reader: graph.Expr) -> Diagnostic:
    return Diagnostic(
        "E0506",
        f"in `{name}`: {lost} is read after it was overwritten in place",
        getattr(reader, "span", None),
        notes=(f"`{by.var.name}` is computed into its memory",),
        suggestion=f"use `{by.var.name}`, or copy {lost} before",
        related=(("overwritten here", by.span),) if by.span is not None else (),
    )
