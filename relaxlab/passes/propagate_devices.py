"""Virtual devices of parameters, from those of the values that are computed of them."""

from __future__ import annotations

from collections.abc import Iterator

from relaxlab.analysis.annotate import annotate
from relaxlab.analysis.vdevices import place_of
from relaxlab.ir import graph, types
from relaxlab.ir.diagnostics import Diagnostic, DiagnosticError
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace, walk
from relaxlab.ops.devices import vdevice_of
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.bindings import all_bindings, map_blocks, with_bindings
from relaxlab.passes.retype import with_param_types

HINT, MOVE = graph.Op("hint_on_device"), graph.Op("to_vdevice")


@module_pass("propagate_devices", needs=("normalize",))
def propagate_devices(mod: Module, _: NoOptions) -> Module:
    """Give parameters the devices that hints and types name for what is computed of them, up to
    where `to_vdevice` moves a value; the hints go. Types then say where each value is.

    Raises `DiagnosticError` E0508 where values that belong together are to be on several devices.
    """
    functions = mod.graph_functions()
    updates = {name: _placed(name, fn) for name, fn in functions.items()}
    if all(updates[name] is fn for name, fn in functions.items()):
        return mod
    result, problems = annotate(mod.with_functions(updates))
    if problems:
        raise DiagnosticError(problems)
    return result


def _placed(name: str, fn: graph.Function) -> graph.Function:
    together = _Together(name)
    for p in fn.params:
        together.place(p, getattr(p.ty, "vdevice", ""))
    for b in all_bindings(fn):
        together.add(b)
    tys: dict[graph.Var, types.Type] = {}
    for p in fn.params:
        device = together.devices.get(together.root(p), "")
        if isinstance(p.ty, types.TensorType) and device != p.ty.vdevice:
            tys[p] = replace(p.ty, vdevice=device)
    whole = map_blocks(fn, _without_hints)
    if whole is fn and not tys:
        return fn
    placed = with_param_types(whole, tys)
    # The result of a function that calls itself cannot be deduced.
    recurs = graph.GlobalVar(name) in walk(fn.body)
    return replace(placed, ret_ty=fn.ret_ty) if recurs else placed


def _without_hints(block: graph.BindingBlock) -> graph.BindingBlock:
    def kept(b: graph.Binding) -> graph.Binding:
        call = b.value
        if isinstance(call, graph.Call) and call.op == HINT:
            return replace(b, value=call.args[0])  # type: ignore[call-arg]
        return b

    return with_bindings(block, [kept(b) for b in block.bindings])


class _Together:
    """The values of a function that are on one device each, and the devices that are known."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.parents: dict[graph.Var, graph.Var] = {}
        self.devices: dict[graph.Var, str] = {}

    def root(self, var: graph.Var) -> graph.Var:
        while var in self.parents:
            var = self.parents[var]
        return var

    def add(self, b: graph.Binding) -> None:
        value = b.value
        if isinstance(value, graph.Call) and value.op == MOVE:
            self.place(b.var, vdevice_of(value))
            return
        for operand in _operands(value):
            self.join(b.var, operand)
        if isinstance(value, graph.Call) and value.op == HINT:
            self.place(b.var, vdevice_of(value))
        self.place(b.var, getattr(b.var.ty, "vdevice", ""))

    def join(self, a: graph.Var, b: graph.Var) -> None:
        if not (_holds_tensors(a) and _holds_tensors(b)) or self.root(a) is self.root(b):
            return
        device = self.devices.get(self.root(b), "")
        self.parents[self.root(b)] = self.root(a)
        self.place(a, device)

    def place(self, var: graph.Var, device: str) -> None:
        known = self.devices.get(self.root(var), device)
        if device and place_of(known) != place_of(device):
            text = f"in `{self.name}`: `{var.name}` is to be on {device} and on {known}"
            fix = "move a value to another device with R.to_vdevice"
            raise DiagnosticError([Diagnostic("E0508", text, var.span, suggestion=fix)])
        if device:
            self.devices.setdefault(self.root(var), device)


def _holds_tensors(var: graph.Var) -> bool:
    return isinstance(var.ty, types.TensorType | types.TupleType)


def _operands(value: graph.Expr) -> Iterator[graph.Var]:
    """The values that a value is computed of by operators, on their device."""
    match value:
        case graph.Var():
            yield value
        case graph.Call(graph.Op(), args) | graph.Tuple(args):
            for a in args:
                yield from _operands(a)
        case graph.TupleGetItem(tuple_value):
            yield from _operands(tuple_value)
        case graph.If(_, yes, no):
            for branch in (yes, no):
                yield from _operands(branch.body)
        case _:
            pass
