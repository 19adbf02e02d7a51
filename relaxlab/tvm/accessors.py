"""Attributes that nodes of the core have under TVM's names, added when `relaxlab.tvm` is imported.

They read; only `update_func` and its kin change something, as modules of TVM are mutable.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

from relaxlab.analysis.deduce import type_of
from relaxlab.analysis.index_map import IndexMap
from relaxlab.ir import expr, graph, loops, types
from relaxlab.ir.expr import EQ, Cast, FloatImm, IntImm, PrimExpr, binary
from relaxlab.ir.module import BaseFunc, Module
from relaxlab.ir.node import Attrs, Node, replace
from relaxlab.ir.substitute import substitute
from relaxlab.ops import te
from relaxlab.ops.define import builder, expression_of
from relaxlab.schedule.trace import Instruction
from relaxlab.script import print_graph
from relaxlab.script.printer import HEADER as CORE_HEADER
from relaxlab.script.printer import print_module
from relaxlab.script.writer import Writer
from relaxlab.tvm.comparable import Comparable, comparable
from relaxlab.tvm.tir.op import address
from relaxlab.tvm.tir.schedule.trace import InstructionKind


class Functions(tuple[tuple[str, BaseFunc], ...]):
    """The functions of a module, pairs in the core, also as TVM's mapping of `GlobalVar`s; without
    `keys`, by which Python would take it for a dictionary where the core makes one of the pairs."""

    __slots__ = ()

    def values(self) -> list[BaseFunc]:
        return [func for _, func in self]

    def items(self) -> list[tuple[graph.GlobalVar, BaseFunc]]:
        return [(graph.GlobalVar(name), func) for name, func in self]

    def __contains__(self, key: object) -> bool:
        is_name = isinstance(key, graph.GlobalVar | str)
        return name_of(key) in dict(self) if is_name else super().__contains__(key)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, graph.GlobalVar | str):
            return dict(self)[name_of(key)]
        return super().__getitem__(key)


_op_name = graph.Op.name  # the field's descriptor


def _read_name(op: graph.Op) -> str:
    """The name of an operator where it is read: "add" in the core, "relax.add" in a program of
    TVM's, whose tables have such keys. No string has the hash of both."""
    name: str = _op_name.__get__(op)  # type: ignore[attr-defined]
    return f"relax.{name}" if _is_of_tvm(sys._getframe(1).f_globals) else name


def _is_of_tvm(scope: Mapping[str, Any]) -> bool:
    """True of a module outside of relaxlab that has names of `relaxlab.tvm`."""
    if str(scope.get("__name__")).startswith("relaxlab."):
        return False
    homes = (getattr(v, "__module__", v.__name__ if isinstance(v, ModuleType) else None)
             for v in list(scope.values()))
    return any(isinstance(h, str) and f"{h}.".startswith(f"{__package__}.") for h in homes)


def name_of(key: Any) -> str:
    """The name that a string or a `GlobalVar` gives."""
    return key.name if isinstance(key, graph.GlobalVar) else str(key)


# --- Modules --------------------------------------------------------------------------------------

_functions = Module.functions  # the field's descriptor
_get_function = Module.__getitem__


def _read_functions(mod: Module) -> Functions:
    held: Any = _functions.__get__(mod)  # type: ignore[attr-defined]
    return held if type(held) is Functions else Functions(held)


def _write_functions(mod: Module, value: Any) -> None:
    _functions.__set__(mod, Functions(value))  # type: ignore[attr-defined]


def _assign(mod: Module, functions: Mapping[str, BaseFunc]) -> None:
    _write_functions(mod, mod.with_functions(functions).functions)
    if hasattr(mod, "_children"):  # that were read before
        del mod._children  # type: ignore[attr-defined]


def get_global_var(mod: Module, name: str) -> graph.GlobalVar:
    """The reference to a function of the module. Raises KeyError where there is none."""
    mod[name]
    return graph.GlobalVar(name)


def update_func(mod: Module, var: Any, func: BaseFunc) -> None:
    """Put a function into the module, in the place of one of that name."""
    _assign(mod, {name_of(var): func})


def update(mod: Module, other: Any) -> None:
    """Put all functions of another module or dictionary into the module."""
    pairs = other.functions if isinstance(other, Module) else other.items()
    _assign(mod, {name_of(k): f for k, f in pairs})


def remove_func(mod: Module, var: Any) -> None:
    """Take a function out of the module."""
    _write_functions(mod, mod.without(name_of(var)).functions)
    if hasattr(mod, "_children"):
        del mod._children  # type: ignore[attr-defined]


def _global_infos(mod: Module) -> Any:
    return mod.attrs.get("global_infos", Attrs())


# --- Attributes of functions and modules ----------------------------------------------------------


def _plain(value: Any) -> Any:
    """An attribute as Python's value where it is a constant node."""
    is_constant = isinstance(value, graph.StringImm | graph.PrimValue)
    value = value.value if is_constant else value
    return getattr(value, "value", value) if isinstance(value, PrimExpr) else value


def with_attr(func: Any, key: Any, value: Any = None) -> Any:
    """A copy with an attribute set, or those of a dictionary."""
    new = dict(key) if isinstance(key, Mapping) else {key: value}
    return replace(func, attrs=func.attrs.with_(**{k: _plain(v) for k, v in new.items()}))


def without_attr(func: Any, key: str) -> Any:
    """A copy without an attribute."""
    return replace(func, attrs=func.attrs.with_(**{key: None}))


def _by_transform(name: str) -> Callable[..., Any]:
    """A function of `relax.transform`, which is imported when it is called."""
    return lambda *args: getattr(import_module("relaxlab.tvm.relax.transform"), name)(*args)


def specialize(func: loops.PrimFunc, param_map: Mapping[Any, Any]) -> loops.PrimFunc:
    """The function for given values of scalar parameters, and for buffers of given shapes in the
    place of parameters. Raises ValueError where a shape does not fit."""
    values: dict[expr.Var, PrimExpr] = {}
    for param, given in param_map.items():
        pairs = [(param, given)]
        if isinstance(given, loops.Buffer):
            pairs = zip(param.shape, given.shape, strict=True)
        for old, new in pairs:
            new = expr.as_expr(new, old.dtype)
            if values.setdefault(old, new) != new if isinstance(old, expr.Var) else old != new:
                raise ValueError(f"{param} has {old} where {new} is given")
    kept = tuple(p for p in func.params if p not in values)
    return substitute(replace(func, params=kept), symbols=values)


def _attribute(attrs: Attrs, name: str) -> Any:
    if name.startswith("_") or name not in attrs:
        raise AttributeError(f"there is no attribute {name!r}; there are: {', '.join(attrs)}")
    return attrs[name]


# --- Expressions ----------------------------------------------------------------------------------


def _operator(name: str, *, swapped: bool = False) -> Callable[[Any, Any], graph.Call]:
    def call(a: Any, b: Any) -> graph.Call:
        return builder(name)(b, a) if swapped else builder(name)(a, b)

    return call


_ARITHMETIC = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide",
    "floordiv": "floor_divide", "mod": "mod", "pow": "power",
}  # fmt: skip
_COMPARISONS = {"lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}
OPERATORS: dict[str, Any] = {
    **{f"__{k}__": _operator(v) for k, v in {**_ARITHMETIC, **_COMPARISONS}.items()},
    **{f"__r{k}__": _operator(v, swapped=True) for k, v in _ARITHMETIC.items()},
    "__neg__": lambda e: builder("negative")(e),
}
"""Python's operators on graph expressions."""


_BITS = {
    "and": expr.BitAnd, "or": expr.BitOr, "xor": expr.BitXor, "lshift": expr.ShiftLeft,
    "rshift": expr.ShiftRight,
}  # fmt: skip


def _bits(cls: type[expr.BinaryOp], *, swapped: bool = False) -> Callable[[Any, Any], PrimExpr]:
    def combine(a: Any, b: Any) -> PrimExpr:
        return binary(cls, b, a) if swapped else binary(cls, a, b)

    return combine


def _tensor_operator(name: str, *, swapped: bool = False) -> Callable[[Any, Any], Any]:
    """Python's operator on tensor expressions."""

    def apply(a: Any, b: Any) -> Any:
        return expression_of(name, b, a) if swapped else expression_of(name, a, b)

    return apply


@dataclass(frozen=True)
class TensorSlice:
    """A tensor with the first of its indices: `x[i]` of `x[i][j]`."""

    tensor: te.Tensor
    indices: tuple[Any, ...]

    def __getitem__(self, indices: Any) -> Any:
        return self.tensor[(*self.indices, *_as_tuple(indices))]


_load = te.Tensor.__getitem__


def _as_tuple(indices: Any) -> tuple[Any, ...]:
    return tuple(indices) if isinstance(indices, tuple | list) else (indices,)


def _element(tensor: te.Tensor, indices: Any) -> Any:
    given = _as_tuple(indices)
    # By an index of `te.compute`: programs for the core get the core's errors.
    of_compute = any(isinstance(i, Comparable) for i in given)
    if of_compute and len(given) < tensor.ndim:
        return TensorSlice(tensor, given)
    load = _load(tensor, given)  # type: ignore[arg-type]
    return comparable(load) if of_compute else load


def _reduce_axes(stage: te.Stage) -> list[te.Axis]:
    return list(stage.value.axes) if isinstance(stage.value, te.Reduce) else []


def _index(value: Any) -> PrimExpr:
    """An index as an expression; constants of int32 are as wide as all indices are here."""
    wide = isinstance(value, IntImm) and value.dtype == "int32"
    return expr.as_expr(value.value if wide else value)


def _item(e: graph.Expr, index: int) -> graph.Expr:
    if isinstance(e, graph.ShapeExpr):
        return e.values[index]  # type: ignore[return-value]
    if isinstance(e, graph.Tuple):
        return e.fields[index]
    ty = type_of(e, computable=False)
    count = len(ty.fields) if isinstance(ty, types.TupleType) else None
    if count is not None and not -count <= index < count:
        raise IndexError(f"field {index} of a tuple of {count}")  # which ends an iteration
    return graph.TupleGetItem(e, index % count if count else index)


def _call(e: graph.Expr, *args: Any, attrs: Any = None) -> graph.Call:
    return graph.Call(e, tuple(args), Attrs(dict(attrs or {})))


def _same(a: Any, b: Any) -> bool:
    return a is b or (isinstance(a, graph.GlobalVar | graph.Op | graph.ExternFunc) and a == b)


HEADER = """\
# from tvm.script import ir as I
# from tvm.script import relax as R
# from tvm.script import tirx as T
"""
"""The first lines of a printed script. TVM's parser knows the namespaces, and takes no imports."""


def script(
    node: Module | graph.Function | loops.PrimFunc, *, show_meta: bool = True,
    show_all_ty: bool = True, show_all_struct_info: bool = True,
) -> str:  # fmt: skip
    """The script of a module or function, as `tvm.script.from_source` reads it. Constants are part
    of it, with `show_meta` or without."""
    text = print_module(node, types=show_all_ty and show_all_struct_info)
    return HEADER + text.removeprefix(f"{CORE_HEADER}\n\n")


def _text(e: graph.Expr) -> str:
    """An expression as the script language has it; one that holds sequences has no such text."""
    w = Writer()
    w.in_module = False
    try:
        return print_graph.value(w, e, "")
    except TypeError:
        return repr(e)


def show(node: Any, *_: Any, **__: Any) -> None:
    """Print the script of a node."""
    print(node.script() if hasattr(node, "script") else node)


@dataclass(frozen=True)
class ThreadBinding:
    """The axis of threads that a loop is bound to, and the loop's variable and range."""

    var: expr.Var
    dom: loops.Range
    thread_tag: str

    @staticmethod
    def of(loop: loops.For) -> ThreadBinding | None:
        """Return that of a loop; None for a loop that is bound to no axis."""
        if loop.thread is None:
            return None
        return ThreadBinding(loop.loop_var, loops.Range(loop.min, loop.extent), loop.thread)


_name = property(lambda n: n.name)
_type = property(lambda e: type_of(e, computable=False))

ACCESSORS: dict[type, dict[str, Any]] = {
    Node: {"same_as": _same, "is_": _same, "show": show},
    graph.Expr: {
        **OPERATORS,
        "__str__": _text,
        "__getitem__": _item,
        "__call__": _call,
        "ty": _type,
        "struct_info": property(lambda e: e.ty),
        "struct_info_": property(lambda e: e.ty),
        "checked_type": property(lambda e: e.ty),
        "astype": lambda e, dtype: builder("astype")(e, dtype),
    },
    graph.Var: {"name_hint": _name, "vid": property(lambda v: v)},
    graph.GlobalVar: {"name_hint": _name},
    graph.Op: {"name": property(_read_name, _op_name.__set__)},  # type: ignore[attr-defined]
    graph.ExternFunc: {"global_symbol": _name},
    graph.Call: {"sinfo_args": property(lambda c: c.ty_args)},
    graph.If: {"cond": property(lambda e: e.condition)},
    graph.MatchCast: {"struct_info": property(lambda b: b.ty)},
    graph.Function: {
        "script": script,
        "ret_struct_info": property(lambda f: f.ret_ty),
        "bind_params": _by_transform("function_with_params"),
        "bind_symbolic_vars": _by_transform("function_with_symbols"),
        "with_attr": with_attr,
        "with_attrs": with_attr,
        "without_attr": without_attr,
    },
    loops.PrimFunc: {
        "script": script,
        "buffer_map": property(lambda f: {p: p for p in f.params if isinstance(p, loops.Buffer)}),
        "ret_type": property(lambda f: f.ret_dtype and types.PrimType(f.ret_dtype)),
        "specialize": specialize,
        "with_body": lambda f, new_body, span=None: replace(f, body=new_body),
        "with_attr": with_attr,
        "with_attrs": with_attr,
        "without_attr": without_attr,
    },
    loops.Buffer: {"data": property(address)},
    loops.Stmt: {"stmt": property(lambda s: s)},
    loops.For: {"thread_binding": property(ThreadBinding.of)},
    loops.Block: {"name_hint": _name},
    loops.IterVar: {"iter_type": property(lambda v: v.kind)},
    PrimExpr: {
        "ty": property(lambda e: types.PrimType(e.dtype)),
        **{f"__{k}__": _bits(cls) for k, cls in _BITS.items()},
        **{f"__r{k}__": _bits(cls, swapped=True) for k, cls in _BITS.items()},
        "astype": lambda e, dtype: e if e.dtype == dtype else Cast(dtype, e),
        "__invert__": lambda e: expr.Call(e.dtype, "bitwise_not", (e,)),
        "equal": lambda e, other: binary(EQ, e, other),
    },
    Instruction: {"kind": property(InstructionKind.of)},
    IndexMap: {
        "map_indices": lambda m, indices: list(m.apply(map(_index, indices))),
    },
    te.Stage: {
        "axis": property(lambda s: list(s.axes)),
        "reduce_axis": property(_reduce_axes),
        "input_tensors": property(lambda s: list(s.inputs)),
    },
    te.Tensor: {
        **{f"__{k}__": _tensor_operator(v) for k, v in _ARITHMETIC.items()},
        **{f"__r{k}__": _tensor_operator(v, swapped=True) for k, v in _ARITHMETIC.items()},
        "__neg__": lambda t: expression_of("negative", t),
        "__getitem__": _element,
        "__call__": lambda t, *indices: t[indices],
        "op": property(lambda t: t.stage or t),
    },
    IntImm: {"__int__": lambda e: e.value, "__index__": lambda e: e.value},
    FloatImm: {"__float__": lambda e: e.value},
    types.FuncType: {"purity": property(lambda t: t.is_pure)},
    Attrs: {"__getattr__": _attribute},
    Module: {
        "script": script,
        "functions": property(_read_functions, _write_functions),
        "__getitem__": lambda mod, key: _get_function(mod, name_of(key)),
        "__setitem__": update_func,
        "__delitem__": remove_func,
        "get_global_var": get_global_var,
        "get_global_vars": lambda mod: [graph.GlobalVar(name) for name in mod],
        "functions_items": lambda mod: mod.functions.items(),
        "update_func": update_func,
        "update": update,
        "clone": lambda mod: replace(mod),
        "with_attr": with_attr,
        "with_attrs": with_attr,
        "without_attr": without_attr,
        "get_attr": lambda mod, key: mod.attrs.get(key),
        "global_infos": property(_global_infos),
        "from_expr": staticmethod(lambda func: Module.of({name_of_function(func): func})),
    },
}
"""Attributes by class: what TVM's name gives of a node of the core."""


def name_of_function(func: Any) -> str:
    """The name under which a function on its own is put into a module."""
    return str(func.attrs.get("global_symbol") or "main")


def add_accessors() -> None:
    """Give the classes of the core TVM's attributes."""
    for cls, attributes in ACCESSORS.items():
        for name, value in attributes.items():
            setattr(cls, name, value)
