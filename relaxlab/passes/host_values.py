"""Host values: what the control flow of a batched program can be decided by while it is recorded.

A value is *host* if it has rank 0, an integer or bool dtype, and is computed from the inputs of an
instance alone, by operators whose loops store one element: arithmetic, comparisons, `take` at host
places. An *input* is an array of an instance as it was given. Values of *data* types are known by
their constructors and fields while the program is recorded. All else is a *tensor*, which blocks
compute and which nobody knows then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from relaxlab.ir import expr, graph, loops, types
from relaxlab.ir.data import constructors
from relaxlab.ir.dtypes import is_int, is_uint
from relaxlab.ir.module import Module
from relaxlab.ir.node import walk
from relaxlab.ir.op_table import find_op
from relaxlab.passes.bindings import known_shape, leaf_type, tir_call


class Kind(Enum):
    """The kind of a leaf of a value, as the recording sees it."""

    HOST = "host"
    INPUT = "input"
    DATA = "data"
    TENSOR = "tensor"


Kinds: TypeAlias = "Kind | tuple[Kinds, ...] | None"
"""The kinds of a value, nested as its tuples are; None where nothing reached it yet."""


FieldKey: TypeAlias = "tuple[str, int]"
"""A field of a data type: the name of its constructor, and the number of the field."""


@dataclass(frozen=True, slots=True)
class HostValues:
    """The kinds of all variables of the functions that an entry reaches, in the order in which it
    reaches them."""

    functions: tuple[str, ...]
    kinds: Mapping[graph.Var, Kinds]
    fields: Mapping[FieldKey, Kind]
    """The kinds of the fields of data types."""

    def of(self, e: graph.Expr) -> Kinds:
        """The kinds of a leaf expression."""
        return _leaf(e, self.kinds)


def is_block(func: object) -> bool:
    """True for a graph function that is recorded as one node: what `make_blocks` made."""
    return isinstance(func, graph.Function) and "block" in func.attrs


def host_values(mod: Module, entry: str) -> HostValues:
    """The host values of the graph functions that `entry` reaches, by a forward analysis over all
    of their calls: a parameter is host if every call gives it a host value."""
    fn = mod[entry]
    assert isinstance(fn, graph.Function)
    state = _Analysis(mod)
    count = fn.attrs.get("num_input", len(fn.params))
    for i, p in enumerate(fn.params):
        state.join_into(p, _given(p.ty) if i < count else _tensors(p.ty))
    state.reach(entry)
    while state.changed:
        state.changed = False
        for name in list(state.functions):
            state.function(name)
    return HostValues(tuple(state.functions), state.kinds, state.fields)


class _Analysis:
    def __init__(self, mod: Module) -> None:
        self.mod = mod
        self.functions: dict[str, graph.Function] = {}
        self.kinds: dict[graph.Var, Kinds] = {}
        self.results: dict[str, Kinds] = {}
        self.fields = {
            (c.name, i): field_kind(ty)
            for c in constructors(mod).values()
            for i, ty in enumerate(c.fields)
        }
        self.changed = True

    def reach(self, name: str) -> None:
        func = self.mod[name]
        assert isinstance(func, graph.Function)
        if name not in self.functions:
            self.functions[name] = func
            self.changed = True

    def join_into(self, var: graph.Var, kinds: Kinds) -> None:
        new = _join(self.kinds.get(var), kinds)
        if new != self.kinds.get(var):
            self.kinds[var] = new
            self.changed = True

    def function(self, name: str) -> None:
        self.sequence(self.functions[name].body)
        new = _join(self.results.get(name), _leaf(self.functions[name].body.body, self.kinds))
        if new != self.results.get(name):
            self.results[name] = new
            self.changed = True

    def sequence(self, seq: graph.SeqExpr) -> Kinds:
        for block in seq.blocks:
            for b in block.bindings:
                self.join_into(b.var, self.value(b.value, b.var))
        return _leaf(seq.body, self.kinds)

    def value(self, e: graph.Expr, var: graph.Var) -> Kinds:
        match e:
            case graph.If(_, yes, no):
                return _join(self.sequence(yes), self.sequence(no))
            case graph.Call(graph.GlobalVar(name), args) if isinstance(
                self.mod.get(name), graph.Function
            ):
                return self.call(name, args, var)
            case graph.Call():
                return self.operator(e, var)
            case graph.TupleGetItem(whole, index):
                kinds = _leaf(whole, self.kinds)
                return kinds[index] if isinstance(kinds, tuple) else kinds
            case _:
                return _leaf(e, self.kinds)

    def call(self, name: str, args: tuple[graph.Expr, ...], var: graph.Var) -> Kinds:
        func = self.mod[name]
        if is_block(func):
            return _tensors(var.ty)
        self.reach(name)
        for p, a in zip(self.functions[name].params, args, strict=True):
            self.join_into(p, _leaf(a, self.kinds))
        return self.results.get(name)

    def operator(self, e: graph.Call, var: graph.Var) -> Kinds:
        match e.op:
            case graph.Op("adt.construct"):
                for i, a in enumerate(e.args):
                    key = e.attrs["constructor"], i
                    # A block computes tensors: the field is no integer that control flow may use.
                    if _leaf(a, self.kinds) is Kind.TENSOR and self.fields[key] is Kind.HOST:
                        self.fields[key] = Kind.TENSOR
                        self.changed = True
                return Kind.DATA
            case graph.Op("adt.tag"):
                return Kind.HOST
            case graph.Op("adt.field"):
                return self.fields[e.attrs["constructor"], e.attrs["index"]]
            case _:
                pass
        given = [_leaf(a, self.kinds) for a in e.args]
        if any(k is None for a, k in zip(e.args, given, strict=True) if not _is_static(a)):
            return None
        if Kind.TENSOR in _leaves(k for k in given) or scalar_value(e, var, self.mod) is None:
            return _tensors(var.ty)
        return Kind.HOST


def field_kind(ty: types.Type) -> Kind:
    """The kind of a field of a data type that instances give."""
    if isinstance(ty, types.DataType):
        return Kind.DATA
    whole = isinstance(ty, types.TensorType) and ty.ndim == 0 and is_whole(ty.dtype)
    return Kind.HOST if whole else Kind.TENSOR


def is_on_data(call: graph.Call) -> bool:
    """True for an operator on values of data types: nothing is computed, and no block has it."""
    return isinstance(call.op, graph.Op) and call.op.name.startswith("adt.")


def scalar_value(
    call: graph.Call, var: graph.Var, mod: Module
) -> tuple[expr.PrimExpr, dict[loops.Buffer, graph.Expr]] | None:
    """The scalar that a call of an operator, or of a loop function, computes: an expression of
    elements of its arguments, whose buffers are in the table. None unless the result has rank 0
    and an integer or bool dtype, and the loops store one element."""
    ty = var.ty
    if not isinstance(ty, types.TensorType) or ty.ndim != 0 or not is_whole(ty.dtype):
        return None
    found = loops_of(call, var, mod)
    if found is None:
        return None
    func, given = found
    stores = [n for n in walk(func.body) if isinstance(n, loops.BufferStore)]
    if len(stores) != 1 or any(isinstance(n, loops.For | loops.While) for n in walk(func.body)):
        return None
    return stores[0].value, given


def row_index(
    call: graph.Call, var: graph.Var, mod: Module
) -> tuple[expr.PrimExpr, graph.Expr, dict[loops.Buffer, graph.Expr]] | None:
    """The row of an array that a call reads, its leading index being an expression of elements of
    the other arguments: index, array, and the arguments by their buffers. None for a call that does
    anything else."""
    found = loops_of(call, var, mod)
    if found is None or not isinstance(var.ty, types.TensorType) or var.ty.ndim < 1:
        return None
    func, given = found
    stores = [n for n in walk(func.body) if isinstance(n, loops.BufferStore)]
    if len(stores) != 1 or not isinstance(stores[0].value, loops.BufferLoad):
        return None
    value, at = stores[0].value, stores[0].indices
    axes = set(at)
    if value.buffer not in given or value.indices[1:] != at or len(axes) != len(at):
        return None
    if stores[0].buffer.shape != value.buffer.shape[1:]:
        return None  # a part of a row, whose elements need not follow each other
    if any(n in axes for n in walk(value.indices[0])) or value.buffer.dtype != var.ty.dtype:
        return None
    return value.indices[0], given[value.buffer], given


def loops_of(
    call: graph.Call, var: graph.Var, mod: Module
) -> tuple[loops.PrimFunc, dict[loops.Buffer, graph.Expr]] | None:
    """The loop function of a call of a pure operator or of a loop function, and the tensor
    arguments by its buffers; None where there is none or a type is open."""
    direct = tir_call(call)
    if direct is not None:
        func = mod.get(direct.callee)
        if not isinstance(func, loops.PrimFunc) or direct.inplace or direct.symbols:
            return None
        return func, dict(zip(func.buffers, direct.args, strict=False))
    if not isinstance(call.op, graph.Op):
        return None
    row = find_op(call.op.name)
    arg_types = tuple(leaf_type(a) for a in call.args)
    if row is None or row.lower is None or not row.pure or None in arg_types:
        return None
    tensors = [t for a in call.args for t in _tensor_args(a)]
    if any(known_shape(leaf_type(t)) is None for t in (*tensors, var)):
        return None
    func = row.lower(call, arg_types, var.ty)  # type: ignore[arg-type]
    return func, dict(zip(func.buffers, tensors, strict=False))


def is_whole(dtype: str | None) -> bool:
    """True for integers and bools."""
    return dtype is not None and (dtype == "bool" or is_int(dtype) or is_uint(dtype))


def _tensor_args(e: graph.Expr) -> list[graph.Expr]:
    if isinstance(e, graph.Tuple):
        return [t for f in e.fields for t in _tensor_args(f)]
    return [e] if isinstance(leaf_type(e), types.TensorType) else []


def _is_static(e: graph.Expr) -> bool:
    """True for arguments that are part of the program: shapes, numbers, texts."""
    return isinstance(
        e, graph.ShapeExpr | graph.PrimValue | graph.StringImm | graph.DataTypeImm | graph.GlobalVar
    )


def _given(ty: types.Type | None) -> Kinds:
    """The kinds of what an instance gives."""
    if isinstance(ty, types.TupleType):
        return tuple(map(_given, ty.fields))
    if isinstance(ty, types.DataType):
        return Kind.DATA
    if isinstance(ty, types.TensorType) and ty.ndim == 0 and is_whole(ty.dtype):
        return Kind.HOST
    return Kind.INPUT


def _tensors(ty: types.Type | None) -> Kinds:
    if isinstance(ty, types.TupleType):
        return tuple(map(_tensors, ty.fields))
    return Kind.DATA if isinstance(ty, types.DataType) else Kind.TENSOR


def _leaf(e: graph.Expr, kinds: Mapping[graph.Var, Kinds]) -> Kinds:
    match e:
        case graph.Var():
            return kinds.get(e)
        case graph.Constant(data):
            scalar = data.ndim == 0 and is_whole(str(data.dtype))
            return Kind.HOST if scalar else Kind.TENSOR
        case graph.Tuple(fields):
            return tuple(_leaf(f, kinds) for f in fields)
        case graph.TupleGetItem(whole, index):
            found = _leaf(whole, kinds)
            return found[index] if isinstance(found, tuple) else found
        case graph.PrimValue():
            return Kind.HOST
        case _:
            return None


def _leaves(kinds: Iterable[Kinds]) -> Iterable[Kind]:
    for k in kinds:
        if isinstance(k, tuple):
            yield from _leaves(k)
        elif k is not None:
            yield k


def _join(a: Kinds, b: Kinds) -> Kinds:
    if a is None or b is None:
        return a if b is None else b
    if isinstance(a, tuple) and isinstance(b, tuple):
        return tuple(_join(x, y) for x, y in zip(a, b, strict=True))
    return a if a == b else Kind.TENSOR
