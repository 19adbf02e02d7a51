"""Slices move to where they are read: splits become slices, and reshapes of slices become slices of
reshapes."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from math import prod

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.deduce import type_of
from relaxlab.ir import expr, graph, types
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace
from relaxlab.ops.define import builder
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.bindings import (
    all_bindings,
    expr_key,
    known_shape,
    leaf_type,
    map_blocks,
    same_shape,
    use_counts,
    with_bindings,
)
from relaxlab.passes.dead_code_elimination import remove_unread
from relaxlab.passes.effects import overwritten_vars
from relaxlab.tracing import may_apply

RULE = "move_slices"
RESHAPE, SLICE, SPLIT = (graph.Op(name) for name in ("reshape", "strided_slice", "split"))
Shape = tuple[expr.PrimExpr, ...]


@module_pass(RULE, needs=("normalize",))
def move_slices(mod: Module, _: NoOptions) -> Module:
    """A kernel reads a slice where it is, which needs no copy (`fuse_ops`); a split has several
    results, and a reshape between a slice and its reader keeps them apart.

    A field of `split`, of constant extents, becomes a slice. A reshape that leaves the dimensions
    before and after the sliced one as they are together, such as one to heads or one that adds a
    dimension of extent 1, is made of the whole tensor, which copies nothing, and the slice is taken
    of that. Functions that are recorded (see `make_blocks`) keep their operators.
    """
    updates: dict[str, graph.Function] = {}
    for name, fn in mod.graph_functions().items():
        if "recorded" in fn.attrs:
            continue
        new = map_blocks(fn, partial(_block, name, overwritten_vars(fn, mod) | _read_whole(fn)))
        if new is not fn:
            updates[name] = new
    changed = mod.with_functions(updates)
    # The splits and slices that others took the place of.
    return mod.with_functions({name: remove_unread(fn, changed) for name, fn in updates.items()})


def _read_whole(fn: graph.Function) -> set[graph.Var]:
    """The splits that are not read field by field alone."""
    splits = {b.var for b in all_bindings(fn) if isinstance(b.value, graph.Call)
              and b.value.op == SPLIT}  # fmt: skip
    reads = Counter(b.value.tuple_value for b in all_bindings(fn)
                    if isinstance(b.value, graph.TupleGetItem))  # fmt: skip
    uses = use_counts(fn)
    return {v for v in splits if uses[v] != reads[v]}


def _block(name: str, kept: set[graph.Var], blk: graph.BindingBlock) -> graph.BindingBlock:
    kind = graph.DataflowVar if isinstance(blk, graph.DataflowBlock) else graph.Var
    state = _Slices(name, kind, kept)
    return with_bindings(blk, [new for b in blk.bindings for new in state.binding(b)])


@dataclass(frozen=True, slots=True)
class _Slice:
    """The elements from `begin` to `end` of a tensor along an axis."""

    of: graph.Expr
    axis: int
    begin: int
    end: int

    def call(self) -> graph.Call:
        """The slice as a call."""
        begin, end = expr.const(self.begin), expr.const(self.end)
        return builder("strided_slice")(
            self.of, axes=[self.axis], begin=[begin], end=[end], assume_inbound=True
        )


@dataclass(slots=True)
class _Slices:
    """Facts about the values of a block. `kept`: splits that stay as they are, and variables whose
    memory is overwritten somewhere, of which slices stay where they are."""

    name: str
    kind: type[graph.Var]
    kept: set[graph.Var]
    splits: dict[graph.Expr, graph.Call] = field(default_factory=dict[graph.Expr, graph.Call])
    slices: dict[graph.Expr, _Slice] = field(default_factory=dict[graph.Expr, _Slice])
    reshaped: dict[object, graph.Var] = field(default_factory=dict[object, graph.Var])
    """The reshapes that were made, by their values."""

    def binding(self, b: graph.Binding) -> Iterator[graph.Binding]:
        """The bindings in place of one."""
        value = b.value
        match value:
            case graph.Call(op, (source, *_)) if op == SPLIT and self.kept.isdisjoint(
                (b.var, source)
            ):
                self.splits[b.var] = value
            case graph.Call(op, (source, *_)) if op == SLICE and source not in self.kept:
                found = _slice_of(value)
                if found is not None:
                    self.slices[b.var] = found
            case graph.TupleGetItem(source, index) if source in self.splits:
                found = _part(self.splits[source], index)
                if found is not None and self._may_apply(b, found, f"field {index} of a split"):
                    self.slices[b.var] = found
                    b = replace(b, value=replace(found.call(), span=value.span))  # type: ignore[call-arg]
            case graph.Call(op, (graph.Var() as source, *_)) if (
                op == RESHAPE and source in self.slices
            ):
                found = _of_reshape(self.slices[source], b.var.ty)
                if found is not None:
                    key = expr_key(found.of)
                    known = self.reshaped.get(key)
                    whole = known or self.kind(f"{b.var.name}_whole", type_of(found.of))
                    read = dataclasses.replace(found, of=whole)
                    if self._may_apply(b, read, f"slices a reshape, in place of `{source.name}`"):
                        if known is None:
                            yield graph.VarBinding(found.of, whole, span=b.span)
                        self.slices[b.var], self.reshaped[key] = read, whole
                        b = replace(b, value=replace(read.call(), span=value.span))  # type: ignore[call-arg]
            case _:
                pass
        yield b

    def _may_apply(self, b: graph.Binding, found: _Slice, reason: str) -> bool:
        """True if a slice is to be the value of a binding."""
        same = same_shape(type_of(found.call()), b.var.ty)
        return same and may_apply(RULE, f"{self.name}.{b.var.name}", reason)


def _slice_of(call: graph.Call) -> _Slice | None:
    """The slice that `strided_slice` takes; None unless it is one of neighbours along an axis of
    constant extent, which all exist."""
    shape = known_shape(leaf_type(call.args[0]))
    axes: tuple[int, ...] = call.attrs["axes"]
    strides: tuple[object, ...] = call.attrs.get("strides") or (1,)
    if shape is None or len(axes) != 1 or [*map(_constant, strides)] != [1]:
        return None
    axis = axes[0] % len(shape)
    begin, end = _constant(call.attrs["begin"][0]), _constant(call.attrs["end"][0])
    extent = _constant(shape[axis])
    if begin is None or end is None or extent is None or not 0 <= begin <= end <= extent:
        return None
    return _Slice(call.args[0], axis, begin, end)


def _part(call: graph.Call, index: int) -> _Slice | None:
    """A field of a split; None where extents are not constant."""
    source, ty = call.args[0], type_of(call)
    shape = known_shape(leaf_type(source))
    if shape is None or not isinstance(ty, types.TupleType):
        return None
    given: int = call.attrs.get("axis", 0)
    axis = given % len(shape)
    extents = [_constant((known_shape(t) or shape)[axis]) for t in ty.fields[: index + 1]]
    if None in extents:
        return None
    *before, own = (e or 0 for e in extents)
    return _Slice(source, axis, sum(before), sum(before) + own)


def _of_reshape(cut: _Slice, ty: types.Type | None) -> _Slice | None:
    """A reshape of a slice, to a type, as a slice of a reshape; None where they do not change
    places."""
    shape, new = known_shape(leaf_type(cut.of)), known_shape(ty)
    if shape is None or new is None:
        return None
    before, after = shape[: cut.axis], shape[cut.axis + 1 :]
    width, extent = cut.end - cut.begin, _constant(shape[cut.axis])
    an = Analyzer.for_shapes(shape, new)

    def same(a: Shape, b: Shape) -> bool:
        return an.prove_equal(prod(a, start=_ONE), prod(b, start=_ONE)) is True

    # Last first: dimensions of extent 1 belong to those before.
    for axis in reversed(range(len(new))):
        for end in range(axis + 1, len(new) + 1):
            count, inner = _constant(new[axis]), [_constant(d) for d in new[axis + 1 : end]]
            size = prod(d or 0 for d in inner)
            # Neither a size of 0 nor one that is not known divides anything.
            if not count or not extent or not size or size * count != width:
                continue
            if any(n % size for n in (cut.begin, extent)):
                continue
            if same(new[:axis], before) and same(new[end:], after):
                whole = (*new[:axis], expr.const(extent // size), *new[axis + 1 :])
                reshaped = graph.Call(RESHAPE, (cut.of, graph.ShapeExpr(whole)))
                return _Slice(reshaped, axis, cut.begin // size, cut.begin // size + count)
    return None


_ONE = expr.const(1)


def _constant(e: object) -> int | None:
    match e:
        case expr.IntImm(value) | int(value):
            return value
        case _:
            return None
