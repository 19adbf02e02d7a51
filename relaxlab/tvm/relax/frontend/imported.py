"""Modules of programs of other frameworks in the form that TVM's importers give them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relaxlab.frontend.program import ImportedProgram
from relaxlab.ir import graph
from relaxlab.ir.module import Module
from relaxlab.ir.node import Attrs, node, replace
from relaxlab.tvm.relax.transform import BindParams
from relaxlab.tvm.runtime import tensor
from relaxlab.tvm.script.normal import normalized


@node
class WithParams(Module):
    """A module with the values of the last parameters of `main`, by their names."""

    params: Attrs = Attrs()


def as_tvm(program: ImportedProgram, keep_params: bool, unwrap: bool) -> Module:
    """The module of a program. Its parameters are constants, or stay parameters with
    `keep_params`; one result is a tuple of one unless `unwrap`."""
    mod = program.module
    fn = mod["main"]
    assert isinstance(fn, graph.Function)
    result = fn.body.body
    if not unwrap and isinstance(result, graph.Var):
        body = replace(fn.body, body=graph.Tuple((result,)))
        mod = normalized(mod.with_functions({"main": replace(fn, body=body, ret_ty=None)}))
    inputs = len(fn.params) - len(program.params)
    names = (p.name for p in fn.params[inputs:])
    params = dict(zip(names, program.params.values(), strict=True))
    attrs = fn.attrs.with_(num_input=inputs if keep_params else None)
    mod = mod.with_functions({"main": replace(mod["main"], attrs=attrs)})
    if not keep_params:
        return BindParams("main", params)(mod)
    return WithParams(mod.functions, mod.attrs, params=Attrs(params))


def detach_params(mod: Module) -> tuple[Module, dict[str, list[Any]]]:
    """The module alone, and the values of the last parameters by function."""
    held: Mapping[str, Any] = getattr(mod, "params", {})
    fn = mod["main"]
    assert isinstance(fn, graph.Function)
    names = [p.name for p in fn.params if p.name in held]
    return Module(mod.functions, mod.attrs), {"main": [tensor(held[n]) for n in names]}
