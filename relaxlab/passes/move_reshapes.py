"""Reshapes move out from between operators that could be one kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from relaxlab.ir import expr, graph, types
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace
from relaxlab.ir.op_table import has_trait
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.bindings import dims_of, map_blocks, same_dims, with_bindings
from relaxlab.passes.patterns.rewrite import normalized
from relaxlab.tracing import may_apply, remark

RULE = "move_reshapes"
RESHAPE = graph.Op("reshape")
Shape = Sequence[expr.PrimExpr]
OUTSIDE = -1
"""The place of what no binding of a block makes."""


@module_pass(RULE, needs=("normalize",))
def move_reshapes(mod: Module, _: NoOptions) -> Module:
    """`fuse_ops` joins neighbours; a reshape, which itself costs nothing, keeps them apart.

    Elementwise operators are applied before it: relu(reshape(y)) becomes reshape(relu(y)), and
    x + reshape(y), reshape(reshape(x) + y). Where operands are reshaped in different ways, the one
    that is computed last decides: a kernel that includes the operator has the others at hand. They
    are of the result's shape, scalars, or vectors along a last dimension that the reshape keeps.
    """
    updates: dict[str, graph.Function] = {}
    for name, fn in mod.graph_functions().items():
        whole = map_blocks(fn, lambda b: b)  # neighbouring plain blocks as one
        new = map_blocks(whole, partial(_block, name))
        if new is not whole:
            updates[name] = new
    return normalized(mod.with_functions(updates)) if updates else mod


def _block(name: str, blk: graph.BindingBlock) -> graph.BindingBlock:
    kind = graph.DataflowVar if isinstance(blk, graph.DataflowBlock) else graph.Var
    state = _Reshapes(name, kind)
    return with_bindings(blk, [new for b in blk.bindings for new in state.binding(b)])


@dataclass(slots=True)
class _Reshapes:
    """Facts about the values of a block. `sources`: what reshaped values are reshapes of; `made`:
    the number of the binding that begins the kernel which a value could be part of, the last one
    that it depends on through elementwise operators and reshapes alone."""

    name: str
    kind: type[graph.Var]
    sources: dict[graph.Expr, graph.Var] = field(default_factory=dict[graph.Expr, graph.Var])
    made: dict[graph.Expr, int] = field(default_factory=dict[graph.Expr, int])

    def binding(self, b: graph.Binding) -> list[graph.Binding]:
        """The bindings in place of one."""
        call = b.value
        self.made[b.var] = len(self.made)
        if isinstance(call, graph.Var):
            self.made[b.var] = self._made(call)
            if call in self.sources:
                self.sources[b.var] = self.sources[call]
        if not isinstance(b, graph.VarBinding) or not isinstance(call, graph.Call):
            return [b]
        if call.op == RESHAPE:
            return [self._reshape(b, call)]
        if not isinstance(call.op, graph.Op) or not has_trait(call.op.name, "elementwise"):
            return [b]
        variables = [a for a in call.args if isinstance(a, graph.Var)]
        made = max(map(self._made, variables), default=OUTSIDE)
        if made == OUTSIDE:  # it begins a kernel
            return [b]
        self.made[b.var] = made
        latest = [a for a in variables if self._made(a) == made]
        if any(a not in self.sources for a in latest):
            return [b]
        last = latest[0]
        inner, shape = self.sources[last], dims_of(b.var)
        args = [self._operand(a, shape, dims_of(inner)) for a in call.args]
        if shape is None or any(a is None for a in args):
            text = f"an operand is broadcast in another way than `{last.name}` is reshaped"
            remark(RULE, f"{self.name}.{b.var.name}", text, applied=False)
            return [b]
        if not may_apply(RULE, f"{self.name}.{b.var.name}", f"computed before `{last.name}`"):
            return [b]
        ty = b.var.ty
        assert isinstance(ty, types.TensorType)
        before = self.kind(f"{b.var.name}_flat", replace(ty, shape=dims_of(inner)))
        # Its type is known where operators that follow ask for it.
        self.sources[b.var], self.made[before] = before, self.made[b.var]
        return [
            graph.VarBinding(replace(call, args=tuple(args)), before),  # type: ignore[arg-type]
            replace(b, value=_reshaped(before, shape)),
        ]

    def _made(self, v: graph.Expr) -> int:
        return self.made.get(v, OUTSIDE)

    def _reshape(self, b: graph.VarBinding, call: graph.Call) -> graph.Binding:
        given = call.args[0]
        self.made[b.var] = self._made(given)
        if not isinstance(given, graph.Var):
            return b
        self.sources[b.var] = source = self.sources.get(given, given)
        if source is given or not may_apply(
            RULE, f"{self.name}.{b.var.name}", f"made of `{source.name}` itself"
        ):
            return b
        shape, wanted = dims_of(source), dims_of(b.var)
        if shape is not None and wanted is not None and same_dims(shape, wanted):
            return replace(b, value=source)
        return replace(b, value=replace(call, args=(source, *call.args[1:])))

    def _operand(
        self, a: graph.Expr, shape: Shape | None, wanted: Shape | None
    ) -> graph.Expr | None:
        """An operand of a result of a shape for one of another shape; None where it is broadcast
        in a way that the other shape does not allow."""
        if shape is None or wanted is None:
            return None
        own = dims_of(a)
        if own == () or isinstance(a, graph.PrimValue):
            return a
        if own is None:
            return None
        source = self.sources.get(a)
        if source is not None and same_dims(dims_of(source) or (), wanted):
            return source
        if same_dims(own, shape):
            return _reshaped(source or a, wanted)
        keeps_last = bool(wanted) and same_dims(tuple(shape[-1:]), tuple(wanted[-1:]))
        return a if len(own) == 1 and keeps_last else None


def _reshaped(x: graph.Expr, shape: Shape) -> graph.Call:
    return graph.Call(RESHAPE, (x, graph.ShapeExpr(tuple(shape))))
