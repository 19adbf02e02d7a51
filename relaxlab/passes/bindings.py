"""Reading and rebuilding the bindings of graph functions: what every graph pass needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr, graph, types
from relaxlab.ir.arguments import names_arguments
from relaxlab.ir.node import (
    NO_ATTRS,
    Atom,
    Attrs,
    Node,
    children,
    field_names,
    map_children,
    replace,
    walk,
)
from relaxlab.ir.substitute import substitute, symbols_in

CALL_TIR = graph.Op("call_tir")
CALL_TIR_INPLACE = graph.Op("call_tir_inplace")


def all_bindings(root: graph.Function | graph.SeqExpr) -> Iterator[graph.Binding]:
    """Every binding in order, those of branches before the binding of their `If`."""
    seq = root.body if isinstance(root, graph.Function) else root
    for block in seq.blocks:
        for b in block.bindings:
            value = b.value
            if isinstance(value, graph.If):
                yield from all_bindings(value.true_branch)
                yield from all_bindings(value.false_branch)
            yield b


@names_arguments
def map_blocks(
    fn: graph.Function, rewrite: Callable[[graph.BindingBlock], graph.BindingBlock | None]
) -> graph.Function:
    """`fn` with each binding block rewritten, inner blocks (of branches) first; None drops it.

    Plain blocks that become neighbours become one.
    """
    return replace_body(fn, map_seq(fn.body, rewrite))


def map_seq(
    seq: graph.SeqExpr, rewrite: Callable[[graph.BindingBlock], graph.BindingBlock | None]
) -> graph.SeqExpr:
    """`map_blocks` for one sequence."""

    def branch(n: graph.Expr) -> graph.Expr:
        return map_seq(n, rewrite) if isinstance(n, graph.SeqExpr) else n

    def inner(b: graph.Binding) -> graph.Binding:
        value = b.value
        if not isinstance(value, graph.If):
            return b
        new = map_children(value, branch)  # type: ignore[arg-type]
        return b if new is value else replace(b, value=new)

    blocks: list[graph.BindingBlock] = []
    for block in seq.blocks:
        new = rewrite(with_bindings(block, [inner(b) for b in block.bindings]))
        if new is None or not new.bindings:
            continue
        if blocks and _is_plain(blocks[-1]) and _is_plain(new):
            merged = (*blocks[-1].bindings, *new.bindings)
            blocks[-1] = replace(blocks[-1], bindings=merged)
        else:
            blocks.append(new)
    if len(blocks) == len(seq.blocks) and all(
        a is b for a, b in zip(blocks, seq.blocks, strict=True)
    ):
        return seq
    return replace(seq, blocks=tuple(blocks))


def _is_plain(block: graph.BindingBlock) -> bool:
    return not isinstance(block, graph.DataflowBlock)


@names_arguments
def with_bindings(block: graph.BindingBlock, new: list[graph.Binding]) -> graph.BindingBlock:
    """`block` with other bindings; itself when they are the same objects."""
    if len(new) == len(block.bindings) and all(
        a is b for a, b in zip(new, block.bindings, strict=True)
    ):
        return block
    return replace(block, bindings=tuple(new))


def parts_of(e: graph.Expr) -> tuple[graph.Expr, ...]:
    """The fields of a tuple that is written out; the expression alone for any other."""
    return e.fields if isinstance(e, graph.Tuple) else (e,)


def replace_body(fn: graph.Function, body: graph.SeqExpr) -> graph.Function:
    """`fn` with another body; itself when it is the same object."""
    return fn if body is fn.body else replace(fn, body=body)


def vars_in(e: graph.Expr) -> list[graph.Var]:
    """Every occurrence of a graph variable in an expression (binders of branches included)."""
    found: list[graph.Var] = []
    stack: list[Node] = [e]
    while stack:
        top = stack.pop()
        if isinstance(top, graph.Var):
            found.append(top)
        elif isinstance(top, graph.Call):  # without looking at types and at scalars
            stack += reversed(top.args)
            stack.append(top.op)
        elif not isinstance(top, graph.ShapeExpr | graph.PrimValue | graph.Constant | Atom):
            stack += reversed(children(top))
    return found


def use_counts(fn: graph.Function | graph.SeqExpr) -> Counter[graph.Var]:
    """Return the number of reads of each variable: by bindings, bodies of branches, and the
    result."""
    uses: Counter[graph.Var] = Counter()

    def leaf(e: graph.Expr) -> None:
        if isinstance(e, graph.If):
            uses.update(vars_in(e.condition))
            sequence(e.true_branch)
            sequence(e.false_branch)
        else:
            uses.update(vars_in(e))

    def sequence(seq: graph.SeqExpr) -> None:
        for block in seq.blocks:
            for b in block.bindings:
                leaf(b.value)
        leaf(seq.body)

    sequence(fn.body if isinstance(fn, graph.Function) else fn)
    return uses


def local_outputs(
    body: graph.SeqExpr, *, unread: bool = False
) -> dict[graph.Var, graph.Expr]:
    """The variables that nothing outside of their dataflow block reads, and new ones for them;
    with `unread`, also those that nothing reads at all."""
    uses = use_counts(body)
    found: dict[graph.Var, graph.Expr] = {}
    for block in all_blocks(body):
        if isinstance(block, graph.DataflowBlock):
            within = Counter(v for b in block.bindings for v in vars_in(b.value))
            for var in (b.var for b in block.bindings):
                local = within[var] == uses[var] and (unread or uses[var] > 0)
                if local and not isinstance(var, graph.DataflowVar):
                    found[var] = graph.DataflowVar(var.name, var.ty, span=var.span)
    return found


def all_blocks(seq: graph.SeqExpr) -> Iterator[graph.BindingBlock]:
    """The blocks of a sequence and of the branches in it."""
    for block in seq.blocks:
        yield block
        for b in block.bindings:
            if isinstance(b.value, graph.If):
                yield from all_blocks(b.value.true_branch)
                yield from all_blocks(b.value.false_branch)


def leaf_type(e: graph.Expr) -> types.Type | None:
    """The type of a variable, constant, shape, scalar, or tuple of those; None when unknown."""
    match e:
        case graph.Var(_, ty):
            return ty
        case graph.Constant(data):
            shape = tuple(expr.IntImm(int(d)) for d in data.shape)
            return types.TensorType(shape, str(data.dtype))
        case graph.ShapeExpr(values):
            return types.ShapeType(values)
        case graph.PrimValue(value):
            return types.PrimType(value.dtype, value)
        case graph.Tuple(fields):
            found = [leaf_type(f) for f in fields]
            known = [t for t in found if t is not None]
            return types.TupleType(tuple(known)) if len(known) == len(found) else None
        case graph.StringImm() | graph.DataTypeImm():
            return types.ObjectType()
        case _:
            return None


def leaf_paths(ty: types.Type | None, path: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """The paths to the leaves of a type: the fields of fields that are no tuples themselves."""
    if not isinstance(ty, types.TupleType):
        yield path
        return
    for i, f in enumerate(ty.fields):
        yield from leaf_paths(f, (*path, i))


def dims_of(e: graph.Expr) -> tuple[expr.PrimExpr, ...] | None:
    """The dimensions of an operand, a tensor of known shape, else None."""
    ty = leaf_type(e)
    return ty.shape if isinstance(ty, types.TensorType) else None


def is_scalar(e: graph.Expr) -> bool:
    """True for a constant without dimensions."""
    return isinstance(e, graph.Constant) and e.data.ndim == 0


def known_shape(ty: types.Type | None) -> tuple[expr.PrimExpr, ...] | None:
    """The dimensions of a tensor type with known shape and dtype, else None."""
    if isinstance(ty, types.TensorType) and ty.dtype is not None:
        return ty.shape
    return None


def same_shape(a: types.Type | None, b: types.Type | None) -> bool:
    """True if two tensor types provably have the same dimensions."""
    if not isinstance(a, types.TensorType) or not isinstance(b, types.TensorType):
        return False
    return a.shape is not None and b.shape is not None and same_dims(a.shape, b.shape)


def same_dims(given: tuple[expr.PrimExpr, ...], wanted: Sequence[expr.PrimExpr | None]) -> bool:
    """True if dimensions provably equal the wanted ones (None: any)."""
    if len(given) != len(wanted):
        return False
    analyzer = Analyzer.for_shapes(given, tuple(w for w in wanted if w is not None))
    return all(
        w is None or g == w or analyzer.prove_equal(g, w) is True
        for g, w in zip(given, wanted, strict=True)
    )


@dataclass(frozen=True, slots=True)
class TirCall:
    """A `call_tir` or `call_tir_inplace`, taken apart. `inplace` has, per output, the index of the
    argument it overwrites or -1."""

    callee: str
    args: tuple[graph.Expr, ...]
    symbols: tuple[expr.PrimExpr, ...]
    outs: tuple[types.Type, ...]
    inplace: tuple[int, ...] = ()

    def with_args(self, args: tuple[graph.Expr, ...]) -> TirCall:
        """The same call with other arguments."""
        return TirCall(self.callee, args, self.symbols, self.outs, self.inplace)

    def build(self) -> graph.Call:
        """The call expression."""
        args: tuple[graph.Expr, ...] = (graph.GlobalVar(self.callee), graph.Tuple(self.args))
        if self.symbols:
            args = (*args, graph.ShapeExpr(self.symbols))
        if self.inplace:
            attrs = Attrs(inplace_indices=self.inplace)
            return graph.Call(CALL_TIR_INPLACE, args, attrs, self.outs)
        return graph.Call(CALL_TIR, args, NO_ATTRS, self.outs)


def tir_call(value: graph.Expr) -> TirCall | None:
    """`value` taken apart if it is a call of a loop function through `call_tir[_inplace]`."""
    match value:
        case graph.Call(graph.Op("call_tir" | "call_tir_inplace"), (graph.GlobalVar(name), *rest)):
            packed = rest[0] if rest else graph.Tuple(())
            args = packed.fields if isinstance(packed, graph.Tuple) else (packed,)
            shape = rest[1] if len(rest) > 1 else None
            symbols = shape.values if isinstance(shape, graph.ShapeExpr) else ()
            inplace = value.attrs.get("inplace_indices", ())
            return TirCall(name, args, symbols, value.ty_args, inplace)
        case _:
            return None


def _array_key(data: np.ndarray[Any, Any]) -> tuple[Any, ...]:
    """Big arrays compare by identity, which is cheap and safe. Small ones, of up to a page, compare
    by value: the same constant is often written twice."""
    if data.nbytes > 4096:
        return ("array", id(data))
    return ("array", str(data.dtype), data.shape, data.tobytes())


def expr_key(value: Any) -> Any:
    """A hashable key: equal for expressions that compute the same from the same variables."""
    match value:
        case Atom() | expr.PrimExpr():
            return value
        case np.ndarray():
            return _array_key(value)  # type: ignore[reportUnknownArgumentType]
        case Node():
            fields: Iterable[Any] = (getattr(value, n) for n in field_names(type(value)))
            return (type(value).__name__, *map(expr_key, fields))
        case tuple():
            return tuple(expr_key(v) for v in value)  # type: ignore[reportUnknownVariableType]
        case Attrs():
            return tuple((k, expr_key(v)) for k, v in value.items())
        case _:
            return value


def copy_function(fn: graph.Function) -> graph.Function:
    """A function of the same meaning with variables and symbols of its own."""
    bound = [n.var for n in walk(fn) if isinstance(n, graph.Binding)]
    params = [p for n in walk(fn) if isinstance(n, graph.Function) for p in n.params]
    values: dict[graph.Var, graph.Expr] = {v: replace(v) for v in (*params, *bound)}
    symbols = {s: expr.Var(s.name, s.var_dtype) for s in symbols_in(fn)}
    return substitute(substitute(fn, values=values), symbols)
