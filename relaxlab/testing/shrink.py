"""Making a failing program smaller: fewer or earlier results, one arm of an `If`, and parameters in
place of what was computed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from relaxlab.analysis.annotate import annotate
from relaxlab.analysis.deduce import type_of
from relaxlab.ir import graph
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace, walk
from relaxlab.ir.substitute import substitute
from relaxlab.ir.types import ShapeType
from relaxlab.passes.dead_code_elimination import dead_code_elimination
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.interpreter.interpreter import interpret

SECONDS = 240.0
"""Time after which the smallest program found so far is the result."""

Args = tuple[Any, ...]
Fails = Callable[[Module, Args], bool]


def shrunk(mod: Module, args: Args, fails: Fails) -> tuple[Module, Args]:
    """A smaller module and arguments for its `main` for which `fails` is still true."""
    end = time.monotonic() + SECONDS
    found = True
    while found and time.monotonic() < end:
        found = False
        for candidate in _smaller(mod, args):
            if time.monotonic() > end:
                break
            if candidate is not None and fails(*candidate):
                mod, args = candidate
                found = True
                break
    return mod, args


def _smaller(mod: Module, args: Args) -> Iterator[tuple[Module, Args] | None]:
    main = mod["main"]
    assert isinstance(main, graph.Function) and isinstance(main.body, graph.SeqExpr)
    result = main.body.body
    if isinstance(result, graph.Tuple):
        for field in result.fields:
            yield _cleaned(mod, _returning(main, field), args)
    bindings = [b for blk in main.body.blocks for b in blk.bindings]
    # From the end: a late value that still fails cuts off the most.
    for b in reversed(bindings):
        # Claims about shapes are left: a candidate that has none of them is given them anew.
        if isinstance(b.var, graph.Var) and b.var is not result and not _is_claim(b):
            yield _given(mod, main, b.var, args)
    # An `If` that overwrites values stays although nothing reads it: its arms may matter.
    for b in reversed(bindings):
        if b.var is not result:
            cut = _cleaned(mod, _returning(main, b.var), args)
            if cut is not None and _length(cut[0]) < _length(mod):
                yield cut
    for number, block in enumerate(main.body.blocks):
        for b in block.bindings:
            if isinstance(b, graph.VarBinding) and isinstance(b.value, graph.If):
                for arm in (b.value.true_branch, b.value.false_branch):
                    yield _cleaned(mod, _with_arm(main, number, b, arm), args)
                    # Outside the `If`, what nothing reads is dropped: let the result read it.
                    if b.var is not result:
                        shown = _returning(main, b.var)
                        yield _cleaned(mod, _with_arm(shown, number, b, arm), args)
    for i, p in enumerate(main.params):
        if not any(n is p for n in walk(main.body)):
            params = (*main.params[:i], *main.params[i + 1 :])
            yield _cleaned(mod, replace(main, params=params), (*args[:i], *args[i + 1 :]))


def _length(mod: Module) -> int:
    """The number of bindings of `main`, those of arms among them."""
    return sum(isinstance(n, graph.Binding) for n in walk(mod["main"]))


def _is_claim(b: graph.Binding) -> bool:
    return isinstance(b, graph.MatchCast) and isinstance(b.ty, ShapeType)


def _returning(main: graph.Function, value: graph.Expr) -> graph.Function:
    assert isinstance(main.body, graph.SeqExpr)
    plain: dict[graph.Var, graph.Expr] = {}
    if isinstance(value, graph.DataflowVar):
        plain[value] = graph.Var(value.name, value.ty)
    body = substitute(replace(main.body, body=value), values=plain)
    return replace(main, body=body, ret_ty=None)


def _with_arm(
    main: graph.Function, number: int, b: graph.VarBinding, arm: graph.SeqExpr
) -> graph.Function:
    """One arm in place of an `If` that a block binds."""
    assert isinstance(main.body, graph.SeqExpr)
    blocks, bindings = main.body.blocks, main.body.blocks[number].bindings
    at = next(i for i, other in enumerate(bindings) if other is b)
    var = graph.Var(b.var.name, type_of(arm.body))
    parts = (
        graph.BindingBlock(bindings[:at]), *arm.blocks,
        graph.BindingBlock((graph.VarBinding(arm.body, var), *bindings[at + 1 :])),
    )  # fmt: skip
    kept = tuple(part for part in parts if part.bindings)
    body = replace(main.body, blocks=(*blocks[:number], *kept, *blocks[number + 1 :]))
    return replace(main, body=substitute(body, values={b.var: var}), ret_ty=None)


def _given(
    mod: Module, main: graph.Function, var: graph.Var, args: Args
) -> tuple[Module, Args] | None:
    """`var` as a parameter that has the value it had."""
    try:
        shown = _cleaned(mod, _returning(main, var), args)
        if shown is None:
            return None
        value = interpret(shown[0], "main", *args)
    except ExecutionError:  # what only this value needs is not there: compute it as before
        return None
    param = graph.Var(var.name, var.ty)
    assert isinstance(main.body, graph.SeqExpr)
    blocks = tuple(
        replace(blk, bindings=tuple(b for b in blk.bindings if b.var is not var))
        for blk in main.body.blocks
    )
    body = replace(main.body, blocks=tuple(b for b in blocks if b.bindings))
    body = substitute(body, values={var: param})
    cut = replace(main, params=(*main.params, param), body=body)
    return _cleaned(mod, cut, (*args, value))


def _cleaned(mod: Module, main: graph.Function, args: Args) -> tuple[Module, Args] | None:
    """The module with another `main`, without unread bindings and unused functions; None if that is
    not a valid program."""
    try:
        made, problems = annotate(mod.with_functions({"main": main}))
        if problems:
            return None
        return dead_code_elimination(made), args
    except DiagnosticError:
        return None
