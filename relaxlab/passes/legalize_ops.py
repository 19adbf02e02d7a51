"""Lower operators to calls of loop functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from relaxlab.analysis.deduce import deduce_call
from relaxlab.ir import expr, graph, loops, types
from relaxlab.ir.equal import structural_key
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace, rewrite
from relaxlab.ir.op_table import OpRow, find_op
from relaxlab.ir.provenance import stamp
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.passes.base import module_pass
from relaxlab.passes.bindings import (
    TirCall,
    is_scalar,
    known_shape,
    leaf_type,
    map_blocks,
    with_bindings,
)
from relaxlab.passes.inplace_updates import inplace_updates
from relaxlab.passes.new_functions import NewFunctions
from relaxlab.tracing import may_apply, remark

OPERATOR_LEVEL = (
    "adjust_matmul_order",
    "combine_parallel_matmul",
    "convert_layout",
    "convert_to_mixed_precision",
    "expand_matmul_of_sum",
    "fold_batch_norm",
    "lower_to_libraries",
)
"""Passes on calls of operators; they find none after this one."""


@dataclass(frozen=True, slots=True)
class LegalizeOptions:
    """`skip`: the names of the operators that stay as they are."""

    skip: tuple[str, ...] = ()


@module_pass("legalize_ops", LegalizeOptions, needs=("normalize",), ends=OPERATOR_LEVEL)
def legalize_ops(mod: Module, options: LegalizeOptions) -> Module:
    """Replace each call of an operator that has a loop lowering by a `call_tir`.

    Calls that lower to the same loops share one loop function, under the operator's name. Scalar
    constants are written into the loops. Views become `reshape`, which copies nothing.
    An operator that changes part of a tensor, such as `slice_scatter`, does so in place where the
    tensor is the function's own and is not read again. An operator with arguments of unknown shape
    stays as it is, and the trace says so. Functions that are recorded (see `make_blocks`) keep
    their operators. Raises DiagnosticError (E0203) for a call that has a type and cannot be
    computed.
    """
    state = _Legalizer(mod, options.skip)
    updates: dict[str, graph.Function] = {}
    for name, fn in mod.graph_functions().items():
        if "recorded" in fn.attrs:
            continue
        state.inplace = inplace_updates(fn, mod)
        updates[name] = map_blocks(fn, lambda b, n=name: state.block(n, b))
    return mod.with_functions({**updates, **state.functions.made})


@dataclass(frozen=True, slots=True)
class _Lowered:
    """A lowered call: the loop function, which tensor arguments it takes, and in which order the
    symbols of the call it was lowered from occurred."""

    callee: str
    kept: tuple[int, ...]
    scalars: tuple[expr.PrimExpr, ...]
    symbols: tuple[expr.Var, ...]


class _Legalizer:
    def __init__(self, mod: Module, skip: tuple[str, ...]) -> None:
        self.mod, self.skip = mod, skip
        self.functions = NewFunctions[loops.PrimFunc](mod)
        self.by_call: dict[str, _Lowered] = {}
        self.inplace: set[graph.Var] = set()
        """The variables whose values may overwrite an operand."""

    def block(self, name: str, blk: graph.BindingBlock) -> graph.BindingBlock:
        var = graph.DataflowVar if isinstance(blk, graph.DataflowBlock) else graph.Var
        flat = [x for b in blk.bindings for x in spread_tuples(b, var)]
        lowered = [self.binding(name, b) for b in flat]
        return with_bindings(blk, [x for b in lowered for x in _named_single(b, var)])

    def binding(self, name: str, b: graph.Binding) -> graph.Binding:
        if not isinstance(b, graph.VarBinding) or not isinstance(b.value, graph.Call):
            return b
        if not isinstance(b.value.op, graph.Op):
            return b
        row = find_op(b.value.op.name)
        if row is None or row.name in self.skip:
            return b
        subject = f"{name}.{b.var.name}: {row.name}"
        value = _SPELLED[row.name](b.value) if row.name in _SPELLED else None
        if "view" in row.traits:
            value = _view(b.value, b.var.ty)
        if value is b.value:
            return b
        if value is not None:
            reason = "is a view" if "view" in row.traits else "is known"
            if not may_apply("legalize_ops", subject, reason):
                return b
        elif row.lower is not None:
            value = self.lower(row, b.value, b.var.ty, subject, b.var in self.inplace)
        if value is None:
            return b
        return replace(b, value=replace(value, span=b.value.span))

    def lower(
        self, row: OpRow, call: graph.Call, out: types.Type | None, subject: str, inplace: bool
    ) -> graph.Expr | None:
        arg_types = tuple(leaf_type(a) for a in call.args)
        outs = out.fields if isinstance(out, types.TupleType) else (out,)
        tensors = [t for a in call.args for t in _tensors(a)]
        unknown = [t for t in (*map(leaf_type, tensors), *outs) if known_shape(t) is None]
        if unknown or None in arg_types:
            reason = f"not lowered: the shape or dtype of a value of type {unknown[0]} is unknown"
            remark("legalize_ops", subject, reason, applied=False)
            return None
        if any(isinstance(t, types.PrimType) and t.value is None for t in arg_types):
            reason = "not lowered: the value of a scalar is not an expression of symbols"
            remark("legalize_ops", subject, reason, applied=False)
            return None
        scalars = [i for i, t in enumerate(tensors) if is_scalar(t)]
        written = [tensors[i] for i in scalars]
        identity = _tuples((call.op, call.attrs, arg_types, out, _baked(call), written, inplace))
        key, symbols = structural_key(identity), symbols_in(identity)
        found = self.by_call.get(key)
        if found is None:
            make = row.update if inplace else row.lower
            assert make is not None
            deduce_call(call, arg_types, self.mod)  # type: ignore[arg-type]  # asks the needs
            func = make(call, arg_types, out)  # type: ignore[arg-type]
            func = stamp(func, call.span, "legalize_ops")
            name = row.name.rpartition(".")[2] + ("_inplace" if inplace else "")
            found = self.register(name, func, tensors, scalars, symbols)
            self.by_call[key] = found
        here = dict(zip(found.symbols, symbols, strict=True))
        place = f", in place of {_name(call.args[0])}" if inplace else ""
        if not may_apply("legalize_ops", subject, f"lowered to {found.callee}{place}"):
            return None
        return TirCall(
            found.callee,
            tuple(tensors[i] for i in found.kept),
            tuple(substitute(s, here) for s in found.scalars),
            outs,  # type: ignore[arg-type]
            (0,) if inplace else (),
        ).build()

    def register(
        self,
        hint: str,
        func: loops.PrimFunc,
        tensors: list[graph.Expr],
        scalars: list[int],
        symbols: tuple[expr.Var, ...],
    ) -> _Lowered:
        constants = {i: tensors[i] for i in scalars}
        values = {i: c.data for i, c in constants.items() if isinstance(c, graph.Constant)}
        func = specialize_scalars(func, values)
        kept = tuple(i for i in range(len(tensors)) if i not in scalars)
        extra = tuple(p for p in func.params if isinstance(p, expr.Var))
        return _Lowered(self.functions.name_of(func, hint), kept, extra, symbols)


def _name(e: graph.Expr) -> str:
    return e.name if isinstance(e, graph.Var) else "a value"


def spread_tuples(b: graph.Binding, var: type[graph.Var]) -> list[graph.Binding]:
    """`b` with the fields of a tuple variable as arguments of an operator, after their reads."""
    call = b.value
    if not isinstance(call, graph.Call) or not isinstance(call.op, graph.Op):
        return [b]
    row = find_op(call.op.name)
    if row is None or row.lower is None:
        return [b]
    reads: list[graph.Binding] = []
    args: list[graph.Expr] = []
    for a in call.args:
        if isinstance(a, graph.Var) and isinstance(a.ty, types.TupleType):
            fields = [var(f"{a.name}_{i}", t) for i, t in enumerate(a.ty.fields)]
            gets = (graph.TupleGetItem(a, i) for i in range(len(fields)))
            reads += [graph.VarBinding(g, f) for g, f in zip(gets, fields, strict=True)]
            a = graph.Tuple(tuple(fields))
        args.append(a)
    if not reads:
        return [b]
    return [*reads, replace(b, value=replace(call, args=tuple(args)))]


def _named_single(b: graph.Binding, var: type[graph.Var]) -> list[graph.Binding]:
    """A lowered call with one output is that tensor: where a tuple of one is wanted (`split` into
    one part), it is built from it."""
    call, out = b.value, b.var.ty
    one = isinstance(out, types.TupleType) and len(out.fields) == 1
    if not one or not isinstance(call, graph.Call) or call.op != graph.Op("call_tir"):
        return [b]
    field = var(f"{b.var.name}_0", call.ty_args[0])
    return [graph.VarBinding(call, field), replace(b, value=graph.Tuple((field,)))]


def _view(call: graph.Call, out: types.Type | None) -> graph.Expr | None:
    """Return a view as a `reshape` to a stated shape."""
    shape = known_shape(out)
    if shape is None or known_shape(leaf_type(call.args[0])) is None:
        return None
    stated = graph.ShapeExpr(shape)
    if call.op == graph.Op("reshape") and getattr(call.args[1], "values", None) == shape:
        return call
    return graph.Call(graph.Op("reshape"), (call.args[0], stated))


def _shape_value(call: graph.Call) -> graph.Expr | None:
    shape = known_shape(leaf_type(call.args[0]))
    return None if shape is None else graph.ShapeExpr(shape)


def _without_gradient(call: graph.Call) -> graph.Expr:
    return graph.Call(graph.Op("call_tir"), call.args, ty_args=call.ty_args)


def _packed(call: graph.Call) -> graph.Expr:
    callee, given = call.args
    args = given.fields if isinstance(given, graph.Tuple) else (given,)
    ty_args = call.ty_args if len(call.ty_args) == 1 else (types.TupleType(call.ty_args),)
    return graph.Call(graph.Op("call_pure_packed"), (callee, *args), ty_args=ty_args)


_SPELLED: Mapping[str, Callable[[graph.Call], graph.Expr | None]] = {
    "shape_of": _shape_value,
    "call_tir_with_grad": _without_gradient,
    "call_py_func": _packed,
}
"""Operators that are expressed by another."""


def _tensors(e: graph.Expr) -> list[graph.Expr]:
    """The tensors among an argument, tuples flattened."""
    if isinstance(e, graph.Tuple):
        return [t for f in e.fields for t in _tensors(f)]
    ty = leaf_type(e)
    return [e] if isinstance(ty, types.TensorType) else []


def _baked(call: graph.Call) -> list[graph.Expr]:
    """The arguments whose values the lowering may look at."""
    return [a for a in call.args if isinstance(a, graph.ShapeExpr | graph.PrimValue)]


def _tuples(value: Any) -> Any:
    """Lists and tuples as tuples, which structural hashing reads."""
    if isinstance(value, list | tuple):
        return tuple(_tuples(v) for v in value)  # type: ignore[reportUnknownVariableType]
    return value


def specialize_scalars(
    func: loops.PrimFunc, values: Mapping[int, np.ndarray[Any, Any]]
) -> loops.PrimFunc:
    """`func` without the zero-dimensional buffer parameters at the given positions: their loads
    become constants."""
    if not values:
        return func
    gone = {func.params[i]: array for i, array in values.items()}

    def visit(n: Any) -> Any:
        match n:
            case loops.BufferLoad(buffer) if buffer in gone:
                return expr.const(gone[buffer].item(), buffer.dtype)
            case loops.Block(_, _, reads, _, _) if any(r.buffer in gone for r in reads):
                return replace(n, reads=tuple(r for r in reads if r.buffer not in gone))
            case _:
                return None

    body = rewrite(func.body, visit)
    params = tuple(p for p in func.params if p not in gone)
    return replace(func, params=params, body=body)
