"""Check that the devices a program names are the one it is compiled for."""

from __future__ import annotations

from dataclasses import dataclass

from relaxlab.ir import graph
from relaxlab.ir.diagnostics import Diagnostic, DiagnosticError
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace
from relaxlab.ops.devices import device_kind
from relaxlab.passes.base import module_pass
from relaxlab.passes.bindings import map_blocks, with_bindings
from relaxlab.tracing import remark

MARKS = (graph.Op("hint_on_device"), graph.Op("to_vdevice"))


@dataclass(frozen=True, slots=True)
class DeviceOptions:
    """`kind`: that of the target."""

    kind: str = "cpu"


@module_pass("realize_devices", DeviceOptions, needs=("normalize",))
def realize_devices(mod: Module, options: DeviceOptions) -> Module:
    """Replace `hint_on_device` and `to_vdevice` by their argument, which is on that device.

    Raises `DiagnosticError` E0508 for another device: a program runs on one.
    """
    found: list[Diagnostic] = []

    def block(name: str, blk: graph.BindingBlock) -> graph.BindingBlock:
        return with_bindings(blk, [_realized(name, b, options.kind, found) for b in blk.bindings])

    updates = {
        name: map_blocks(fn, lambda b, n=name: block(n, b))
        for name, fn in mod.graph_functions().items()
    }
    if found:
        raise DiagnosticError(found)
    return mod.with_functions(updates)


def _realized(name: str, b: graph.Binding, kind: str, found: list[Diagnostic]) -> graph.Binding:
    call = b.value
    if not isinstance(call, graph.Call) or call.op not in MARKS:
        return b
    wanted = device_kind(call)
    if wanted != kind:
        text = f"in `{name}`: `{b.var.name}` is to be on {wanted}, the program is for {kind}"
        fix = f'compile it with target="{wanted}", or split it into a program per device'
        found.append(Diagnostic("E0508", text, call.span, suggestion=fix))
        return b
    remark("realize_devices", f"{name}.{b.var.name}", f"is on {kind} already")
    return replace(b, value=call.args[0])  # type: ignore[call-arg]
