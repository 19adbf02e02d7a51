"""Make functions that run a batch of a block at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from relaxlab.ir import expr, graph, loops, types
from relaxlab.ir.module import Module
from relaxlab.ir.node import Attrs, replace
from relaxlab.ir.substitute import substitute
from relaxlab.passes.base import module_pass
from relaxlab.passes.batch_loops import (
    CannotBatch,
    batch_loops,
    gather_rows,
    kept_dims,
    repeat_rows,
)
from relaxlab.passes.bindings import (
    TirCall,
    all_bindings,
    known_shape,
    leaf_paths,
    leaf_type,
    tir_call,
)
from relaxlab.passes.host_values import HostValues, Kind, Kinds, host_values
from relaxlab.passes.make_blocks import BLOCK, RECORDED, entry_of, refuse
from relaxlab.passes.shared_values import SharedValues, Source, shared_values
from relaxlab.tracing import remark

Value: TypeAlias = "graph.Expr | tuple[Value, ...]"
"""An expression, or a tuple of values."""

BATCHED = "batched"
"""The attribute of functions that run a batch of a block: the block's name."""


@dataclass(frozen=True, slots=True)
class BatchBlocks:
    """`fuse_gathers`: kernels read the rows of their operands where they lie; without, these are
    copied together first."""

    fuse_gathers: bool = True


@module_pass(
    "batch_blocks", BatchBlocks, needs=("make_blocks", "legalize_ops"), ends=("legalize_ops",)
)
def batch_blocks(mod: Module, options: BatchBlocks) -> Module:
    """Give each block a function that runs a batch of it, with the attribute `batched`.

    Its parameters are an arena per dtype, which holds the tensors of all instances; for each tensor
    of the block the places in the arena where those of the instances begin; for each scalar an
    array of them; and the weights. A tensor is gathered where kernels read it: `fuse_ops` merges
    `gather` with what reads its result, and nothing is copied. The block itself becomes a call of
    it with a batch of one, so that the program still runs one instance at a time.

    Raises DiagnosticError (E0509) for a block with a loop function that has no form for batches.
    """
    entry = entry_of(mod)
    kinds, shared = host_values(mod, entry), shared_values(mod, entry)
    functions: dict[str, graph.Function | loops.PrimFunc] = {}
    kernels: dict[tuple[str, object], str] = {}
    for caller in kinds.functions:
        for b in all_bindings(mod[caller]):  # type: ignore[arg-type]
            match b.value:
                case graph.Call(graph.GlobalVar(block), args) if (
                    is_unbatched_block(mod, block) and block not in functions
                ):  # twins are called more than once
                    signature = signature_of(mod, block, args, kinds, shared)
                    maker = _Maker(mod, block, signature, options, functions, kernels)
                    made = maker.function()
                    name = mod.with_functions(functions).fresh_name(f"{block}_batched")
                    functions[name] = made
                    functions[block] = batch_of_one(mod, block, signature, name)
                case _:
                    pass
    return mod.with_functions(functions)


def block_function(mod: Module, block: str) -> graph.Function:
    """The function of a block."""
    fn = mod[block]
    assert isinstance(fn, graph.Function)
    return fn


def is_unbatched_block(mod: Module, name: str) -> bool:
    """True for a block that has no function for batches yet."""
    func = mod.get(name)
    return isinstance(func, graph.Function) and BLOCK in func.attrs and RECORDED not in func.attrs


@dataclass(frozen=True, slots=True)
class Operand:
    """A leaf of a block's parameters: parameter, path, and what it is: `tensor`, `scalar`, or
    `shared` by all instances."""

    param: graph.Var
    path: tuple[int, ...]
    kind: str
    ty: types.TensorType
    source: Source | None = None


def signature_of(
    mod: Module,
    block: str,
    args: Sequence[graph.Expr],
    kinds: HostValues,
    shared: SharedValues,
) -> tuple[Operand, ...]:
    """The leaves of a block's parameters, given the arguments of its call."""
    found: list[Operand] = []
    for p, a in zip(block_function(mod, block).params, args, strict=True):
        for path in leaf_paths(p.ty):
            ty, kind = type_at(p.ty, path), kind_at(kinds.of(a), path)
            if ty is None:
                refuse(f"`{p.name}` of `{block}` has type {p.ty}; blocks take tensors", p)
            source = shared.source(block, p, path)
            what = "shared" if source else "scalar" if kind is Kind.HOST else "tensor"
            if what == "tensor" and known_constant(ty) is None:
                refuse(f"`{p.name}` of `{block}` has type {ty}, whose shape may differ between "
                       "instances", p)  # fmt: skip
            remark("batch_blocks", f"{block}.{p.name}", _REASONS[what])
            found.append(Operand(p, path, what, ty, source))
    return tuple(found)


_REASONS = {
    "shared": "is the same for all instances",
    "scalar": "is an integer of each instance",
    "tensor": "differs between instances: gathered",
}


def type_at(ty: types.Type | None, path: tuple[int, ...]) -> types.TensorType | None:
    """The tensor type at a place in a type; None where there is none."""
    for index in path:
        ty = ty.fields[index] if isinstance(ty, types.TupleType) else None
    return ty if isinstance(ty, types.TensorType) else None


def kind_at(kinds: Kinds, path: tuple[int, ...]) -> Kind | None:
    """The kind at a place in a value."""
    for index in path:
        kinds = kinds[index] if isinstance(kinds, tuple) else kinds
    return kinds if isinstance(kinds, Kind) else None


def known_constant(ty: types.TensorType) -> tuple[int, ...] | None:
    """The dimensions of a tensor type that are all constants, else None."""
    shape = known_shape(ty)
    if shape is None or not all(isinstance(d, expr.IntImm) for d in shape):
        return None
    return tuple(d.value for d in shape if isinstance(d, expr.IntImm))


def arenas_of(signature: Sequence[Operand]) -> tuple[str, ...]:
    """The dtypes of the tensors that a block gathers, sorted."""
    return tuple(sorted({str(o.ty.dtype) for o in signature if o.kind == "tensor"}))


@dataclass(slots=True)
class _Maker:
    """Makes the function for batches of one block. `made` are the functions that the pass made so
    far, `kernels` the names of the loop functions among them, by what they were made from."""

    mod: Module
    block: str
    signature: tuple[Operand, ...]
    options: BatchBlocks
    made: dict[str, graph.Function | loops.PrimFunc]
    kernels: dict[tuple[str, object], str]
    size: expr.Var = field(default_factory=lambda: expr.Var("b"))
    bindings: list[graph.VarBinding] = field(default_factory=lambda: [])
    env: dict[graph.Var, Value] = field(default_factory=lambda: {})
    batched: set[graph.Expr] = field(default_factory=lambda: set[graph.Expr]())
    matrices: dict[graph.Expr, tuple[Operand, graph.Var, graph.Var]] = field(
        default_factory=lambda: {}
    )
    """The gathered matrices that a kernel reads, with their arenas and places."""

    def function(self) -> graph.Function:
        fn = block_function(self.mod, self.block)
        arenas = {
            d: graph.Var(f"arena_{d}", types.TensorType((expr.Var(f"n_{d}"),), d))
            for d in arenas_of(self.signature)
        }
        places = {o: self.vector(f"at_{o.param.name}", "int64") for o in self.of_kind("tensor")}
        scalars = {o: self.vector(o.param.name, o.ty.dtype) for o in self.of_kind("scalar")}
        # With the block's name: functions whose weights have equal names would be given the same
        # ones by `lift_transform_params`.
        shared = {
            o: graph.Var(f"{o.param.name}_{self.block}", o.ty) for o in self.of_kind("shared")
        }
        inputs = [*arenas.values(), *places.values(), *scalars.values()]
        if not places and not scalars:
            inputs.append(self.vector("instances", "int64"))
        self.batched.update(scalars.values())
        leaves: dict[Operand, graph.Expr] = {**scalars, **shared}
        for o, at in places.items():
            leaves[o] = self.gathered(o, arenas[str(o.ty.dtype)], at)
        by_place = {(o.param, o.path): e for o, e in leaves.items()}
        for p in fn.params:
            self.env[p] = nested(p.ty, lambda path, p=p: by_place[p, path])
        for b in all_bindings(fn):
            self.binding(b)
        results = [self.rows(e, inputs[-1]) for e in flat(self.value(fn.body.body))]
        attrs = Attrs({"num_input": len(inputs), BATCHED: self.block})
        return self.finished((*inputs, *shared.values()), results, attrs)

    def finished(
        self, params: tuple[graph.Var, ...], results: list[graph.Expr], attrs: Attrs
    ) -> graph.Function:
        """The function, in which the results are no variables of its dataflow block."""
        flows = [r for r in results if isinstance(r, graph.DataflowVar)]
        out: dict[graph.Var, graph.Expr] = {v: graph.Var(v.name, v.ty) for v in flows}
        body = results[0] if len(results) == 1 else graph.Tuple(tuple(results))
        seq = graph.SeqExpr((graph.DataflowBlock(tuple(self.bindings)),), body)
        fn = graph.Function(params, seq, leaf_type(body), attrs=attrs)
        return substitute(fn, values=out)

    def of_kind(self, kind: str) -> list[Operand]:
        return [o for o in self.signature if o.kind == kind]

    def vector(self, name: str, dtype: str | None) -> graph.Var:
        """A parameter with one element per instance."""
        return graph.Var(name, types.TensorType((self.size,), dtype))

    def rows_type(self, ty: types.Type | None) -> types.TensorType:
        """The type of a batch of tensors of a type."""
        shape = known_shape(ty)
        if shape is None or not isinstance(ty, types.TensorType):
            refuse(f"a value in `{self.block}` has type {ty}, whose shape is not known", None)
        return types.TensorType((self.size, *(shape[i] for i in kept_dims(shape))), ty.dtype)

    def bind(self, value: graph.Expr, name: str, ty: types.Type, batched: bool) -> graph.Var:
        var = graph.DataflowVar(name, ty)
        self.bindings.append(graph.VarBinding(value, var))
        if batched:
            self.batched.add(var)
        return var

    def kernel(self, name: str, key: object, make: Callable[[], loops.PrimFunc]) -> str:
        """The name of a loop function, which is made once for a key."""
        if (name, key) not in self.kernels:
            new = self.mod.with_functions(self.made).fresh_name(f"{name}_rows")
            self.kernels[name, key] = new
            self.made[new] = make()
        return self.kernels[name, key]

    def gathered(self, o: Operand, arena: graph.Var, at: graph.Var) -> graph.Var:
        dims, dtype, out = known_constant(o.ty) or (), str(o.ty.dtype), self.rows_type(o.ty)
        shape = tuple(map(expr.const, dims))
        kernel = self.kernel("gather", (dims, dtype), lambda: self.gather(shape, dtype))
        call = TirCall(kernel, (arena, at), (), (out,)).build()
        made = self.bind(call, o.param.name, out, True)
        if len(kept_dims(shape)) > 1:
            self.matrices[made] = o, arena, at
        return made

    def gather(self, shape: tuple[expr.PrimExpr, ...], dtype: str) -> loops.PrimFunc:
        func = gather_rows(shape, dtype)
        if self.options.fuse_gathers:
            return func
        return replace(func, attrs=func.attrs.with_(**{loops.KEPT_APART: 1}))

    def rows(self, e: graph.Expr, like: graph.Var) -> graph.Expr:
        """A result with a row per instance, also where all instances have the same."""
        if e in self.batched:
            return e
        ty, out = leaf_type(e), self.rows_type(leaf_type(e))
        assert isinstance(ty, types.TensorType)
        dims, dtype = known_constant(ty), str(ty.dtype)
        if dims is None:
            refuse(f"a result of `{self.block}` has type {ty}; its shape is no constant", e)
        shape, counted = tuple(map(expr.const, dims)), leaf_type(like)
        assert isinstance(counted, types.TensorType)
        of = str(counted.dtype)
        kernel = self.kernel("repeat", (dims, dtype, of), lambda: repeat_rows(shape, dtype, of))
        return self.bind(TirCall(kernel, (e, like), (), (out,)).build(), "rows", out, True)

    def binding(self, b: graph.Binding) -> None:
        call = tir_call(b.value)
        match b.value:
            case _ if call is not None:
                self.env[b.var] = self.loops(call, b)
            case graph.Call(graph.Op("reshape"), (x, _)):
                self.env[b.var] = self.reshaped(b, self.value(x))
            case graph.Call(op):
                refuse(
                    f"in `{self.block}`: `{b.var.name}` is made by `{op}`, which has no loops",
                    b.value,
                )
            case _:
                self.env[b.var] = self.value(b.value)

    def value(self, e: graph.Expr) -> Value:
        match e:
            case graph.Var():
                return self.env[e]
            case graph.Tuple(fields):
                return tuple(self.value(f) for f in fields)
            case graph.TupleGetItem(whole, index):
                found = self.value(whole)
                assert isinstance(found, tuple)
                return found[index]
            case _:
                return e

    def reshaped(self, b: graph.Binding, x: Value) -> graph.Expr:
        assert isinstance(x, graph.Expr) and b.var.ty is not None
        batched = x in self.batched
        out = self.rows_type(b.var.ty) if batched else b.var.ty
        shape = known_shape(out)
        assert shape is not None
        if known_shape(leaf_type(x)) == shape:
            return x
        value = graph.Call(graph.Op("reshape"), (x, graph.ShapeExpr(shape)))
        return self.bind(value, b.var.name, out, batched)

    def loops(self, call: TirCall, b: graph.Binding) -> Value:
        args = [self.leaf(a) for a in call.args]
        differs = tuple(a in self.batched for a in args)
        callee, outs = call.callee, call.outs
        if any(differs):
            callee = self.batched_kernel(call, differs, b)
            outs = tuple(self.rows_type(o) for o in outs)
        made = TirCall(callee, tuple(args), call.symbols, outs, call.inplace).build()
        ty = outs[0] if len(outs) == 1 else types.TupleType(outs)
        whole = self.bind(replace(made, span=b.value.span), b.var.name, ty, any(differs))
        if not isinstance(b.var.ty, types.TupleType):
            return whole
        return tuple(
            self.bind(graph.TupleGetItem(whole, i), f"{b.var.name}_{i}", o, any(differs))
            for i, o in enumerate(outs)
        )

    def leaf(self, e: graph.Expr) -> graph.Expr:
        """The argument of a kernel. Each kernel gathers matrices for itself: one that several read
        would be copied for them, which for matrices is no small thing."""
        found = self.value(e)
        assert isinstance(found, graph.Expr)
        if found in self.matrices and self.options.fuse_gathers:
            return self.gathered(*self.matrices[found])
        return found

    def batched_kernel(self, call: TirCall, differs: tuple[bool, ...], b: graph.Binding) -> str:
        func = self.mod[call.callee]
        assert isinstance(func, loops.PrimFunc)
        where = f"in `{self.block}`: `{b.var.name}`"
        if any(i >= 0 and not differs[i] for i in call.inplace):
            refuse(f"{where} overwrites what all instances share", b.value)
        mask = (*differs, *(True for i in call.inplace or (-1,) * len(call.outs) if i < 0))
        try:
            return self.kernel(call.callee, mask, lambda: batch_loops(func, mask))
        except CannotBatch as error:
            refuse(f"{where}: `{call.callee}` cannot be batched: {error}", b.value)


def nested(ty: types.Type | None, leaf: Callable[[tuple[int, ...]], Any]) -> Any:
    """The value of a type whose leaves are given by their paths."""

    def at(ty: types.Type | None, path: tuple[int, ...]) -> Any:
        if isinstance(ty, types.TupleType):
            return tuple(at(f, (*path, i)) for i, f in enumerate(ty.fields))
        return leaf(path)

    return at(ty, ())


def flat(value: Value) -> Iterator[graph.Expr]:
    """The leaves of a value."""
    if isinstance(value, tuple):
        for v in value:
            yield from flat(v)
    else:
        yield value


def batch_of_one(
    mod: Module, block: str, signature: Sequence[Operand], callee: str
) -> graph.Function:
    """Return the block as a call of its function for batches, with one instance."""
    fn = block_function(mod, block)
    made: list[graph.VarBinding] = []

    def bind(name: str, value: graph.Expr, ty: types.Type) -> graph.Var:
        made.append(graph.VarBinding(value, graph.Var(name, ty)))
        return made[-1].var

    def reshape(x: graph.Expr, name: str, dims: Sequence[int], dtype: str | None) -> graph.Var:
        shape = tuple(map(expr.const, dims))
        value = graph.Call(graph.Op("reshape"), (x, graph.ShapeExpr(shape)))
        return bind(name, value, types.TensorType(shape, dtype))

    params = {p: graph.Var(p.name, p.ty) for p in fn.params}

    def leaf(o: Operand) -> graph.Expr:
        e, ty = params[o.param], o.param.ty
        for index in o.path:
            assert isinstance(ty, types.TupleType)
            ty = ty.fields[index]
            e = bind(o.param.name, graph.TupleGetItem(e, index), ty)
        return e

    arenas, places = list[graph.Expr](), dict[Operand, graph.Expr]()
    for dtype in arenas_of(signature):
        parts, start = list[graph.Expr](), 0
        for o in signature:
            if o.kind == "tensor" and o.ty.dtype == dtype:
                length = math.prod(known_constant(o.ty) or ())
                parts.append(reshape(leaf(o), o.param.name, (length,), dtype))
                places[o] = graph.Constant(np.array([start], "int64"))
                start += length
        call = graph.Call(graph.Op("concat"), (graph.Tuple(tuple(parts)),), Attrs(axis=0))
        arenas.append(bind("arena", call, types.TensorType((expr.const(start),), dtype)))
    vectors: list[graph.Expr] = [places[o] for o in signature if o.kind == "tensor"]
    vectors += [
        reshape(leaf(o), o.param.name, (1,), o.ty.dtype) for o in signature if o.kind == "scalar"
    ]
    vectors = vectors or [graph.Constant(np.zeros(1, "int64"))]
    shared = [leaf(o) for o in signature if o.kind == "shared"]
    call = graph.Call(graph.GlobalVar(callee), (*arenas, *vectors, *shared))
    rows = [_one_row(t) for t in flat_types(fn.ret_ty)]
    ty = rows[0] if len(rows) == 1 else types.TupleType(tuple(rows))
    whole = bind("rows", call, ty)
    results: list[graph.Expr] = []
    for i, (t, row) in enumerate(zip(flat_types(fn.ret_ty), rows, strict=True)):
        one = whole if len(rows) == 1 else bind("row", graph.TupleGetItem(whole, i), row)
        results.append(reshape(one, "result", known_constant(t) or (), t.dtype))
    given = iter(results)
    body = _packed(nested(fn.ret_ty, lambda _: next(given)))
    seq = graph.SeqExpr((graph.BindingBlock(tuple(made)),), body)
    attrs = fn.attrs.with_(**{RECORDED: True})
    return replace(fn, params=tuple(params.values()), body=seq, attrs=attrs)


def flat_types(ty: types.Type | None) -> list[types.TensorType]:
    """The tensor types that a type is made of."""
    if isinstance(ty, types.TupleType):
        return [t for f in ty.fields for t in flat_types(f)]
    assert isinstance(ty, types.TensorType)
    return [ty]


def _one_row(ty: types.TensorType) -> types.Type:
    assert ty.shape is not None
    return types.TensorType((expr.const(1), *(ty.shape[i] for i in kept_dims(ty.shape))), ty.dtype)


def _packed(value: Value) -> graph.Expr:
    if isinstance(value, tuple):
        return graph.Tuple(tuple(map(_packed, value)))
    return value
