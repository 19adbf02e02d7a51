"""Computation with another form of values: another dtype, another layout.

A *shadow* of a variable is the same value in the other form. Calls that can work on shadows make
one for their result, and bind the variable itself to its conversion back, which is removed if it is
not read. So every other binding stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from relaxlab.ir import graph, types
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace
from relaxlab.passes.bindings import map_blocks, with_bindings
from relaxlab.passes.effects import overwritten_vars
from relaxlab.passes.patterns.rewrite import drop_unread, normalized


@dataclass(slots=True)
class Shadows:
    """The shadows of one block's variables. `convert` makes one, `back` the value of one; they
    get the type of the value in its own form."""

    convert: Callable[[graph.Expr, types.TensorType], graph.Expr]
    back: Callable[[graph.Expr, types.TensorType], graph.Expr]
    suffix: str
    kind: type[graph.Var]
    unstable: set[graph.Var]
    known: dict[graph.Var, graph.Var] = field(default_factory=dict[graph.Var, graph.Var])
    new: list[graph.Binding] = field(default_factory=list[graph.Binding])

    def has(self, e: graph.Expr) -> bool:
        """True if a value has a shadow already."""
        return isinstance(e, graph.Var) and e in self.known

    def of(self, e: graph.Expr, ty: types.TensorType) -> graph.Expr:
        """The shadow of a value, made if there is none."""
        if isinstance(e, graph.Var) and e in self.known:
            return self.known[e]
        name = e.name if isinstance(e, graph.Var) else "const"
        var = self.kind(name + self.suffix)
        self.new.append(graph.VarBinding(self.convert(e, ty), var))
        if isinstance(e, graph.Var) and e not in self.unstable:
            self.known[e] = var
        return var

    def bind_field(self, b: graph.VarBinding) -> bool:
        """Bind the shadow of a tuple's field; returns whether `b` is one and the tuple has a
        shadow."""
        match b.value:
            case graph.TupleGetItem(graph.Var() as whole) if whole in self.known:
                self.bind(b, replace(b.value, tuple_value=self.known[whole]))
                return True
            case _:
                return False

    def bind(self, b: graph.Binding, value: graph.Expr) -> None:
        """Bind the shadow of `b.var` to `value`, and `b.var` to its conversion back."""
        shadow = self.kind(b.var.name + self.suffix)
        self.new.append(graph.VarBinding(value, shadow, span=b.span))
        if b.var not in self.unstable:
            self.known[b.var] = shadow
        restored = _restored(shadow, b.var.ty, self.back)
        self.new.append(replace(b, value=restored))  # type: ignore[call-arg]


def _restored(
    e: graph.Expr,
    ty: types.Type | None,
    back: Callable[[graph.Expr, types.TensorType], graph.Expr],
) -> graph.Expr:
    if isinstance(ty, types.TupleType):
        fields = (_restored(graph.TupleGetItem(e, i), t, back) for i, t in enumerate(ty.fields))
        return graph.Tuple(tuple(fields))
    assert isinstance(ty, types.TensorType)
    return back(e, ty)


def with_shadows(
    mod: Module,
    convert: Callable[[graph.Expr, types.TensorType], graph.Expr],
    back: Callable[[graph.Expr, types.TensorType], graph.Expr],
    suffix: str,
    rewrite: Callable[[str, graph.VarBinding, graph.Call, Shadows], bool],
) -> Module:
    """Offer each call of an operator to `rewrite(function, binding, call, shadows)`, which returns
    whether it bound the variable through `shadows`; fields of tuples follow their tuples. Bindings
    without readers are removed afterwards."""
    updates: dict[str, graph.Function] = {}
    for name, fn in mod.graph_functions().items():
        unstable = overwritten_vars(fn, mod)
        made: set[graph.Var] = set()

        def block(
            blk: graph.BindingBlock, name: str = name, unstable: set[graph.Var] = unstable,
            made: set[graph.Var] = made,
        ) -> graph.BindingBlock:  # fmt: skip
            kind = graph.DataflowVar if isinstance(blk, graph.DataflowBlock) else graph.Var
            shadows = Shadows(convert, back, suffix, kind, unstable)
            for b in blk.bindings:
                match b:
                    case graph.VarBinding(graph.Call(graph.Op()) as call):
                        done = rewrite(name, b, call, shadows)
                    case graph.VarBinding():
                        done = shadows.bind_field(b)
                    case _:
                        done = False
                if not done:
                    shadows.new.append(b)
            made.update(b.var for b in shadows.new)
            return with_bindings(blk, shadows.new)

        new = map_blocks(fn, block)
        if new is not fn:
            updates[name] = drop_unread(new, made, mod)
    return normalized(mod.with_functions(updates)) if updates else mod
