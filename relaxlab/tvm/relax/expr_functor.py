"""Classes that visit and rewrite graph functions, for passes written in TVM's way.

The core has none: its passes dispatch with `match` and rebuild with `rewrite`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relaxlab.ir import graph
from relaxlab.ir.equal import structural_equal
from relaxlab.ir.module import Module
from relaxlab.ir.node import children, map_children, replace
from relaxlab.tvm.relax.block_builder import BlockBuilder
from relaxlab.tvm.script.normal import normalized

METHODS: dict[type, str] = {
    graph.Call: "visit_call_",
    graph.Constant: "visit_constant_",
    graph.DataTypeImm: "visit_data_type_imm_",
    graph.DataflowVar: "visit_dataflow_var_",
    graph.ExternFunc: "visit_extern_func_",
    graph.Function: "visit_function_",
    graph.GlobalVar: "visit_global_var_",
    graph.If: "visit_if_",
    graph.Op: "visit_op_",
    graph.PrimValue: "visit_prim_value_",
    graph.SeqExpr: "visit_seq_expr_",
    graph.ShapeExpr: "visit_shape_expr_",
    graph.StringImm: "visit_string_imm_",
    graph.Tuple: "visit_tuple_",
    graph.TupleGetItem: "visit_tuple_getitem_",
    graph.Var: "visit_var_",
}
"""The method that visits the expressions of a class."""

BINDINGS: dict[type, str] = {
    graph.VarBinding: "visit_var_binding_",
    graph.MatchCast: "visit_match_cast_",
    graph.BindingBlock: "visit_binding_block_",
    graph.DataflowBlock: "visit_dataflow_block_",
}
"""The method that visits a binding or block; that of a variable's definition follows its class."""


class ExprFunctor:
    """Calls for an expression the method of its class; `visit_expr_post_order` does what those
    methods do where they are not overridden."""

    def visit_expr(self, expr: graph.Expr) -> Any:
        """Visit an expression."""
        return getattr(self, METHODS[type(expr)])(expr)

    def visit_binding(self, binding: graph.Binding) -> Any:
        """Visit a binding."""
        return getattr(self, BINDINGS[type(binding)])(binding)

    def visit_binding_block(self, block: graph.BindingBlock) -> Any:
        """Visit a block."""
        return getattr(self, BINDINGS[type(block)])(block)

    def visit_var_def(self, var: graph.Var) -> Any:
        """Visit the definition of a variable."""
        is_local = isinstance(var, graph.DataflowVar)
        return self.visit_dataflow_var_def_(var) if is_local else self.visit_var_def_(var)

    def visit_var_def_(self, var: graph.Var) -> Any:
        """Visit the definition of a variable that is no dataflow variable."""
        return var

    def visit_dataflow_var_def_(self, var: graph.DataflowVar) -> Any:
        """Visit the definition of a dataflow variable."""
        return var

    def visit_expr_post_order(self, expr: graph.Expr) -> Any:
        """Visit the parts of an expression."""
        raise NotImplementedError


def _default(self: ExprFunctor, expr: Any) -> Any:
    return self.visit_expr_post_order(expr)


for _name in METHODS.values():
    setattr(ExprFunctor, _name, _default)


class PyExprVisitor(ExprFunctor):
    """Visits a program; a subclass overrides methods to look at what it wants."""

    def visit_expr_post_order(self, expr: graph.Expr) -> None:
        match expr:
            case graph.Function(params, body):
                for param in params:
                    self.visit_var_def(param)
                self.visit_expr(body)
            case graph.SeqExpr(blocks, body):
                for block in blocks:
                    self.visit_binding_block(block)
                self.visit_expr(body)
            case graph.Var():
                pass
            case _:
                for child in children(expr):
                    if isinstance(child, graph.Expr):
                        self.visit_expr(child)

    def visit_binding_block_(self, block: graph.BindingBlock) -> None:
        """Visit a block that is no dataflow block."""
        for binding in block.bindings:
            self.visit_binding(binding)

    def visit_dataflow_block_(self, block: graph.DataflowBlock) -> None:
        """Visit a dataflow block."""
        PyExprVisitor.visit_binding_block_(self, block)

    def visit_var_binding_(self, binding: graph.VarBinding) -> None:
        """Visit a variable's binding."""
        self.visit_expr(binding.value)
        self.visit_var_def(binding.var)

    def visit_match_cast_(self, binding: graph.MatchCast) -> None:
        """Visit a claim."""
        self.visit_expr(binding.value)
        self.visit_var_def(binding.var)


class PyExprMutator(ExprFunctor):
    """Rewrites a program; what the overridden methods return takes the place of what they visit.

    `builder_` emits bindings before the one that is visited, and holds the module.
    """

    def __init__(self, mod: Module | None = None) -> None:
        self.builder_ = BlockBuilder(mod)
        self._remap: dict[graph.Var, graph.Var] = {}

    def visit_expr(self, expr: graph.Expr) -> Any:
        if isinstance(expr, graph.Function) and not self.builder_._scopes:
            expr = _typed(expr, self.builder_.get())
        return super().visit_expr(expr)

    def visit_expr_post_order(self, expr: graph.Expr) -> Any:
        match expr:
            case graph.Function():
                return self._function(expr)
            case graph.SeqExpr():
                return self._sequence(expr)
            case graph.Var():
                return self._remap.get(expr, expr)
            case graph.If(condition, yes, no):
                parts = (self.visit_expr(condition), *map(self.visit_with_new_scope, (yes, no)))
                same = parts == (condition, yes, no)
                return expr if same else graph.If(*parts, span=expr.span)
            case _:
                return map_children(expr, self._part)

    def _part(self, n: Any) -> Any:
        return self.visit_expr(n) if isinstance(n, graph.Expr) else n

    def _function(self, fn: graph.Function) -> graph.Function:
        params = tuple(self.visit_var_def(p) for p in fn.params)
        body = self.visit_with_new_scope(fn.body, params)
        if params == fn.params and body is fn.body:
            return fn
        return replace(fn, params=params, body=body, ret_ty=self.builder_.type_of(body.body))

    def visit_with_new_scope(
        self, expr: graph.Expr, params: tuple[graph.Var, ...] | None = None
    ) -> graph.SeqExpr:
        """Visit an expression in a scope of its own, whose bindings become those of the result."""
        self.builder_.begin_function("", params or ())
        try:
            return self.visit_expr(expr)
        finally:
            self.builder_.end_scope()

    def _sequence(self, seq: graph.SeqExpr) -> graph.SeqExpr:
        with self.builder_.nested_sequence() as sequence:
            for block in seq.blocks:
                sequence.turn(dataflow=isinstance(block, graph.DataflowBlock))
                self.visit_binding_block(block)
            sequence.turn(dataflow=False)
            body = self.builder_.as_operand(self.visit_expr(seq.body))
            sequence.turn(dataflow=False)
        pairs = zip(sequence.blocks, seq.blocks, strict=False)
        if (
            body is seq.body
            and len(sequence.blocks) == len(seq.blocks)
            and all(a.bindings == b.bindings for a, b in pairs)
        ):
            return seq
        return replace(seq, blocks=tuple(sequence.blocks), body=body)

    def visit_binding_block_(self, block: graph.BindingBlock) -> None:
        """Visit a block that is no dataflow block: emit its bindings anew."""
        for binding in block.bindings:
            self.visit_binding(binding)

    def visit_dataflow_block_(self, block: graph.DataflowBlock) -> None:
        """Visit a dataflow block."""
        PyExprMutator.visit_binding_block_(self, block)

    def visit_var_binding_(self, binding: graph.VarBinding) -> None:
        """Visit a variable's binding: emit it with its new value."""
        value = self.visit_expr(binding.value)
        var = self.visit_var_def(binding.var)
        if value is not binding.value:
            value = self.builder_.as_value(value)
            var = self.with_struct_info(var, self.builder_.type_of(value))
        self._emit(binding, var, value)

    def visit_match_cast_(self, binding: graph.MatchCast) -> None:
        """Visit a claim: emit it of the new value."""
        value = self.builder_.as_operand(self.visit_expr(binding.value))
        self._emit(binding, self.visit_var_def(binding.var), value)

    def _emit(self, binding: Any, var: graph.Var, value: graph.Expr) -> None:
        if var is not binding.var:
            self._remap[binding.var] = var
        if var is not binding.var or value is not binding.value:
            binding = replace(binding, var=var, value=value)
        self.builder_.emit_normalized(binding)

    def with_struct_info(self, var: graph.Var, struct_info: Any) -> graph.Var:
        """The variable with a type; itself where that is its type."""
        same = var.ty is not None and structural_equal(var.ty, struct_info)
        return var if same else replace(var, ty=struct_info)

    with_type = with_struct_info

    def lookup_binding(self, var: graph.Var) -> graph.Expr | None:
        """The value that was bound to a variable of the new program; None for a parameter."""
        return self.builder_.lookup_binding(var)

    def set_var_remap(self, vid: graph.Var, var: graph.Var) -> None:
        """Let a variable take the place of another in what is visited from here on."""
        self._remap[vid] = var

    def get_var_remap(self, vid: graph.Var) -> graph.Var:
        """The variable that takes the place of another."""
        return self._remap[vid]


def _typed(fn: graph.Function, mod: Module) -> graph.Function:
    """A function in normal form, as TVM's parser gives it; itself where it has none."""
    name = mod.fresh_name("visited")
    found = normalized(mod.with_functions({name: fn}))[name]
    return found if isinstance(found, graph.Function) else fn


def _same_class(cls: Callable[..., Any]) -> Callable[..., Any]:
    """The class itself: methods are found by their names."""
    return cls


mutator = visitor = _same_class
"""The decorators of classes that rewrite and that visit."""
