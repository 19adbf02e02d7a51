"""Another virtual device in the place of one."""

from __future__ import annotations

from dataclasses import dataclass

from relaxlab.analysis.annotate import annotate
from relaxlab.ir import graph
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.module import GLOBAL_INFOS, Module
from relaxlab.ir.node import Node, replace, rewrite
from relaxlab.ir.types import TensorType, vdevice_named
from relaxlab.ops.devices import vdevice_of
from relaxlab.passes.base import module_pass
from relaxlab.passes.retype import with_param_types


@dataclass(frozen=True, slots=True)
class RenameOptions:
    """`index`: the number of the device among those of the module; `new`: the other device's name,
    such as "cuda:0:global"."""

    index: int = 0
    new: str = "cpu"


@module_pass("rename_device", RenameOptions)
def rename_device(mod: Module, options: RenameOptions) -> Module:
    """Put another virtual device in the place of one of those that a module lists, in types and in
    calls that move values. Raises IndexError where the module has no such device."""
    infos = dict(mod.attrs.get(GLOBAL_INFOS, {}))
    devices = list(infos.get("vdevice", ()))
    if not 0 <= options.index < len(devices):
        raise IndexError(f"the module has {len(devices)} virtual devices, none is {options.index}")
    target, number, scope = devices[options.index]
    old = f"{target['kind'] if not isinstance(target, str) else target}:{number}:{scope}"
    new = vdevice_named(options.new)
    kind, index, memory = new.split(":")
    devices[options.index] = (kind, int(index), memory)

    def renamed(n: object) -> Node | None:
        match n:
            case TensorType(vdevice=device) if device == old:
                return replace(n, vdevice=new)
            case graph.Call(_, _, attrs) if "dst_vdevice" in attrs and vdevice_of(n) == old:
                return replace(n, attrs=attrs.with_(dst_vdevice=new, memory_scope=None))
            case _:
                return None

    updates: dict[str, graph.Function] = {}
    for name, fn in mod.graph_functions().items():
        tys = {p: rewrite(p.ty, renamed) for p in fn.params if p.ty is not None}
        made = with_param_types(rewrite(fn, renamed), tys)
        # The result of a function that calls itself cannot be deduced.
        updates[name] = made if fn.ret_ty is None else replace(
            made, ret_ty=rewrite(fn.ret_ty, renamed)
        )  # fmt: skip
    listed = mod.attrs.with_(**{GLOBAL_INFOS: {**infos, "vdevice": tuple(devices)}})
    result, problems = annotate(replace(mod.with_functions(updates), attrs=listed))
    if problems:
        raise DiagnosticError(problems)
    return result
