"""`tvm.relax.op`: builders of calls, one per row of the operator table."""

from __future__ import annotations

import sys
from functools import cache
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from relaxlab.analysis.index_map import IndexMap
from relaxlab.ir import expr, graph
from relaxlab.ir.op_table import find_op, op_names
from relaxlab.ops.define import builder
from relaxlab.script.captured import name_object
from relaxlab.script.type_values import as_type
from relaxlab.script.values import Ref
from relaxlab.tvm.relax.expr import PrimValue, get_shape_of

TYPES_LAST = {
    "call_tir": "out_sinfo",
    "call_tir_inplace": "out_sinfo",
    "call_tir_with_grad": "out_sinfo",
    "call_dps_packed": "out_sinfo",
    "call_py_func": "out_sinfo",
    "call_pure_packed": "sinfo_args",
    "call_inplace_packed": "sinfo_args",
    "call_builtin_with_ctx": "sinfo_args",
    "invoke_closure": "sinfo_args",
    "invoke_pure_closure": "sinfo_args",
}
"""The calls that state the types of their results, and the older name of that parameter."""


def _stating_types(name: str) -> Any:
    """The builder of a call that is given the types of its results."""
    older = TYPES_LAST[name]
    newer = "out_ty" if older == "out_sinfo" else "ty_args"
    make = builder(name)

    def call(func: Any, *args: Any, **kwargs: Any) -> graph.Call:
        tys = kwargs.pop(older, kwargs.pop(newer, None))
        rest = list(args)
        if tys is None and older == "out_sinfo":
            # The operands, the in-place indices where there are some, then the types.
            tys = rest.pop(2 if name == "call_tir_inplace" else 1)
        if isinstance(kwargs.get("inplace_indices"), int):
            kwargs["inplace_indices"] = [kwargs["inplace_indices"]]
        if isinstance(func, str):
            func = graph.ExternFunc(func)
        if (
            "args" in [p.name for p in make.row.params]
            and rest
            and not isinstance(rest[0], graph.Tuple)
        ):
            operands = rest[0] if isinstance(rest[0], list | tuple) else [rest[0]]
            rest[0] = graph.Tuple(tuple(_operand(a) for a in operands))
        given = tys if isinstance(tys, list | tuple) else [] if tys is None else [tys]
        return make(func, *rest, ty_args=tuple(as_type(t) for t in given), **kwargs)

    call.__name__ = name
    return call


def _operand(value: Any) -> graph.Expr:
    return PrimValue(value) if isinstance(value, int | float | expr.PrimExpr) else value


def _taking_functions(name: str) -> Any:
    """The builder of a call whose index map may be a function of the indices."""
    make = builder(name)

    def call(x: graph.Expr, index_map: Any, *args: Any, **kwargs: Any) -> graph.Call:
        if callable(index_map):
            index_map = IndexMap.of(index_map, index_map.__code__.co_argcount)
        return make(x, index_map, *args, **kwargs)

    call.__name__ = name
    return call


def _taking_sizes(name: str) -> Any:
    """The builder of a call on images whose size may be one number for all dimensions."""
    make = builder(name)
    dims = 3 if name == "image.resize3d" else 2

    def call(data: graph.Expr, size: Any, *args: Any, **kwargs: Any) -> graph.Call:
        items = size if isinstance(size, tuple | list) else (size,)
        if len(items) == 1 and not isinstance(size, graph.Expr):
            size = tuple(items) * dims
        return make(data, size, *args, **kwargs)

    call.__name__ = name.rpartition(".")[2]
    return call


def _taking_devices(name: str) -> Any:
    """The builder of a call that is given a device of `tvm.cpu()` or its name."""
    make = builder(name)

    def call(data: graph.Expr, dst_vdevice: Any, *args: Any, **kwargs: Any) -> graph.Call:
        return make(data, str(dst_vdevice), *args, **kwargs)

    call.__name__ = name
    return call


def _taking_views(name: str) -> Any:
    """The builder of a view, whose shape is that of the tensor if no other is given."""
    make = builder(name)

    def call(
        data: graph.Expr, shape: Any = None, dtype: str | graph.DataTypeImm | None = None,
        relative_byte_offset: Any = None,
    ) -> graph.Call:  # fmt: skip
        given: list[Any] = [data, get_shape_of(data) if shape is None else shape]
        if dtype is not None or relative_byte_offset is not None:
            ty = data.ty if isinstance(data, graph.Var) else None
            known = dtype or getattr(ty, "dtype", "")
            given.append(graph.DataTypeImm(known) if isinstance(known, str) else known)
        if relative_byte_offset is not None:
            given.append(_operand(relative_byte_offset))
        return make(*given)

    call.__name__ = name
    return call


def _taking_numbers(name: str) -> Any:
    """The builder of a call whose second and third arguments may be numbers."""
    make = builder(name)

    def call(indices: graph.Expr, on_value: Any, off_value: Any, *args: Any, **kwargs: Any) -> Any:
        return make(indices, _operand(on_value), _operand(off_value), *args, **kwargs)

    call.__name__ = name
    return call


def _taking_indices(name: str) -> Any:
    """The builder of a call whose indices may be one tensor, of the first dimension."""
    make = builder(name)

    def call(data: graph.Expr, indices: Any, *args: Any, **kwargs: Any) -> graph.Call:
        several = isinstance(indices, graph.Tuple | tuple | list)
        return make(data, indices if several else graph.Tuple((indices,)), *args, **kwargs)

    call.__name__ = name
    return call


_OTHERWISE = {
    "index_put": _taking_indices,
    "memory.view": _taking_views,
    "one_hot": _taking_numbers,
    "hint_on_device": _taking_devices,
    "to_vdevice": _taking_devices,
    "layout_transform": _taking_functions,
    "image.resize2d": _taking_sizes,
    "image.resize3d": _taking_sizes,
    "image.affine_grid": _taking_sizes,
    **dict.fromkeys(TYPES_LAST, _stating_types),
}
"""The operators whose builders take more than the core's."""


def _function(name: str) -> Any:
    value = _OTHERWISE.get(name, builder)(name)
    name_object(value, Ref("R", name))
    return value


@cache
def _group(path: str) -> ModuleType:
    module = ModuleType(f"{__name__}.{path}", f"The operators `relax.{path}.*`.")
    vars(module)["__getattr__"] = lambda name: _member(f"{path}.{name}")  # pyright: ignore
    vars(module)["__dir__"] = lambda: _names(f"{path}.")
    module.__spec__ = ModuleSpec(module.__name__, None)
    name_object(module, Ref("R", path))
    return module


@cache
def _member(path: str) -> Any:
    path = _core_path(path)
    if find_op(path) is not None:
        return _function(path)
    if any(n.startswith(f"{path}.") for n in op_names()):
        return _group(path)
    raise AttributeError(f"there is no operator relax.{path}", name=path)


def _core_path(path: str) -> str:
    """The core's name: operators on boxes have one without `vision`, too."""
    if path.startswith("distributed"):
        return path.replace("distributed", "dist", 1)
    return f"vision.{path}" if find_op(f"vision.{path}") is not None else path


def _names(prefix: str) -> list[str]:
    found = {n.removeprefix(prefix).partition(".")[0] for n in op_names() if n.startswith(prefix)}
    return sorted(found)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return _member(name)


def __dir__() -> list[str]:
    return _names("")


name_object(sys.modules[__name__], Ref("R"))
__path__: list[str] = []  # which lets `import tvm.relax.op.nn` look for it in `sys.modules`
for _path in ("nn", "image", "vision", "ccl", "memory", "grad", "vm", "builtin", "distributed"):
    sys.modules[f"{__name__}.{_path}"] = _member(_path)
