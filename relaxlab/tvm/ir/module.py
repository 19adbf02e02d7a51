"""`tvm.IRModule`, and what modules share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from relaxlab.ir.module import Module
from relaxlab.ir.node import Attrs
from relaxlab.tvm.accessors import name_of, name_of_function
from relaxlab.tvm.script.normal import from_source
from relaxlab.tvm.spelling import Spelling


class IRModule(metaclass=Spelling, core=Module):
    """A module of functions by name or `GlobalVar`."""

    def __new__(
        cls,
        functions: Mapping[Any, Any] | None = None,
        attrs: Mapping[str, Any] | None = None,
        global_infos: Mapping[str, Any] | None = None,
    ) -> Module:
        held = dict(attrs or {}) | ({"global_infos": Attrs(global_infos)} if global_infos else {})
        return Module.of({name_of(k): f for k, f in (functions or {}).items()}, Attrs(held))

    @staticmethod
    def from_expr(func: Any) -> Module:
        """A module of one function, under its global symbol or "main"."""
        return Module.of({name_of_function(func): func})


def save_json(node: Any) -> str:
    """A module or function as JSON: its script."""
    return json.dumps({"script": node.script()})


def load_json(json_str: str) -> Any:
    """The module or function of a text that `save_json` gave."""
    return from_source(json.loads(json_str)["script"])


def make_node(type_key: str, **fields: Any) -> Attrs:
    """Attributes, the one kind of node that programs make by a key."""
    if not type_key.endswith("Attrs"):
        raise TypeError(f"make_node makes attributes here, not {type_key!r}")
    return Attrs(fields)


def VDevice(target: Any = None, vdevice_id: int = 0, memory_scope: str = "global") -> str:  # noqa: N802
    """A virtual device as types have it: "cuda:0:global"."""
    kind = getattr(target, "kind", target) or ""
    return f"{kind}:{vdevice_id}:{memory_scope}"
