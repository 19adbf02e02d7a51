"""Modules of other frameworks as TVM's importers return them."""

from __future__ import annotations

from collections.abc import Mapping

from relaxlab.frontend.program import ImportedProgram
from relaxlab.ir import graph, types
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace
from relaxlab.passes.bind_params import bind_params
from relaxlab.tvm.runtime import Tensor, tensor


class WithParams(Module):
    """A module whose weights are parameters, with their values, which scripts cannot write."""

    __slots__ = ("params",)
    params: Mapping[str, list[Tensor]]


def module_of(program: ImportedProgram, keep_params: bool, tuple_of_one: bool) -> Module:
    """The module of a program: its weights are constants, or parameters that `detach_params` gives
    the values of; `main` returns one result alone, or in a tuple."""
    mod, main = program.module, program.module["main"]
    assert isinstance(main, graph.Function)
    if tuple_of_one and main.ret_ty is not None and not isinstance(main.ret_ty, types.TupleType):
        alone = replace(main.body, body=graph.Tuple((main.body.body,)))
        ret_ty = types.TupleType((main.ret_ty,))
        mod = mod.with_functions({"main": replace(main, body=alone, ret_ty=ret_ty)})
    if not keep_params:
        names = [p.name for p in main.params[len(main.params) - len(program.params) :]]
        values = dict(zip(names, program.params.values(), strict=True))
        bound = bind_params.with_options(params=values)(mod)
        attrs = main.attrs.with_(num_input=None)  # there are no weights to load ahead of calls
        return bound.with_functions({"main": replace(bound["main"], attrs=attrs)})
    found = WithParams(mod.functions, mod.attrs)
    object.__setattr__(found, "params", {"main": [tensor(v) for v in program.params.values()]})
    return found


def detach_params(mod: Module) -> tuple[Module, dict[str, list[Tensor]]]:
    """The module of an importer and the weights of its functions. Raises ValueError for another
    module: passes return modules without the weights."""
    if not isinstance(mod, WithParams):
        raise ValueError(
            "this module has no weights beside it; call detach_params on what an importer returned "
            "with keep_params_as_input=True, before any pass"
        )
    return Module(mod.functions, mod.attrs), dict(mod.params)
