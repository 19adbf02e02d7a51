"""Hints on the device of a value (`R.hint_on_device`, `R.to_vdevice`).

A program runs on one device, its target's, so both keep the value; `realize_devices` refuses a
device that is another.
"""

from __future__ import annotations

import re
from typing import Any

from relaxlab.ir import graph
from relaxlab.ir.node import replace
from relaxlab.ir.target import target_kinds
from relaxlab.ir.types import Type, vdevice_named
from relaxlab.ops.define import TypesOf, attr, define, fail, params, tensor_arg


def device_kind(call: graph.Call) -> str:
    """The kind of target that a call names: `"cuda:0"` is the first GPU. Raises for a device that
    is not known."""
    name = attr(call, "dst_vdevice")
    found = re.fullmatch(r"(\w+)(?::(\d+))?(?::(\w+))?", name) if isinstance(name, str) else None
    kinds = {name: k.name for k in target_kinds() for name in (k.name, *k.devices)}
    if found is None or found[1] not in kinds:
        known = ", ".join(kinds)
        raise fail(call, f"{name!r} is no device", f"write one of {known}, as 'cuda:0'")
    scope = call.attrs.get("memory_scope", "global")
    if found[3] is not None and scope not in ("global", found[3]):
        raise fail(call, f"{name!r} is not in the memory {scope!r}", "leave memory_scope out")
    return kinds[found[1]]


def vdevice_of(call: graph.Call) -> str:
    """The virtual device that a call names, with its number and memory: "cuda:0:global"."""
    name = attr(call, "dst_vdevice")
    kind, number, scope = vdevice_named(name).split(":")
    if name.count(":") < 2:  # otherwise the name says which memory
        scope = call.attrs.get("memory_scope", scope)
    return f"{kind}:{number}:{scope}"


def _first_of_its_kind(call: graph.Call, _: TypesOf) -> None:
    if vdevice_of(call).split(":")[1] != "0":
        name = attr(call, "dst_vdevice")
        raise fail(call, f"{name!r} is a second device; a program runs on one", "write index 0")


def _hinted(call: graph.Call, tys: TypesOf) -> Type:
    device_kind(call)
    return tensor_arg(call, tys, 0)


def _moved(call: graph.Call, tys: TypesOf) -> Type:
    device_kind(call)
    return replace(tensor_arg(call, tys, 0), vdevice=vdevice_of(call))


def _reference(data: Any, **_: Any) -> Any:
    return data


define(
    "hint_on_device",
    params("data", dst_vdevice="cpu", memory_scope="global"),
    _hinted,
    needs=[_first_of_its_kind],
    reference=_reference,
)
define(
    "to_vdevice",
    params("data", dst_vdevice="cpu"),
    _moved,
    needs=[_first_of_its_kind],
    reference=_reference,
)
