"""Add the function that computes the gradient of a function: reverse-mode differentiation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from relaxlab.ir import graph, types
from relaxlab.ir.dtypes import is_float
from relaxlab.ir.module import Module
from relaxlab.ir.node import children
from relaxlab.ir.op_table import op_row
from relaxlab.ir.substitute import substitute
from relaxlab.ops.block_builder import BlockBuilder
from relaxlab.ops.gradients.base import NotDifferentiable, Step, op
from relaxlab.passes.base import module_pass
from relaxlab.passes.bind_symbolic_vars import graph_function
from relaxlab.passes.bindings import all_bindings
from relaxlab.passes.dead_code_elimination import remove_unread


@dataclass(frozen=True, slots=True)
class DifferentiateOptions:
    """`function`: the one whose gradient is wanted. `by`: the names of the variables by which it is
    differentiated, parameters or others, all parameters where there are none. `target`: which of
    the results is differentiated, if the function returns several."""

    function: str = "main"
    by: tuple[str, ...] | None = None
    target: int = 0


@module_pass("differentiate", DifferentiateOptions, needs=("normalize",))
def differentiate(mod: Module, options: DifferentiateOptions) -> Module:
    """Add `<function>_adjoint`, which returns what the function returns, and the derivatives of one
    result, a scalar, by the variables that are asked for.

    The gradients of operators are in their rows; functions that are called are to be inlined
    before. Raises ValueError for a function, variable or result that is not there, and
    `NotDifferentiable` naming the call that has no gradient.
    """
    fn = graph_function(mod, options.function, "differentiate")
    name = f"{options.function}_adjoint"
    builder = BlockBuilder(mod)
    by = _variables(fn, options)
    params = tuple(graph.Var(p.name, p.ty) for p in fn.params)
    with builder.function(name, params, fn.attrs):
        with builder.dataflow():
            forward = _Forward(builder, dict(zip(fn.params, params, strict=True)))
            forward.repeat(fn)
            result = substitute(fn.body.body, values=forward.copies)
            backward = _Backward(builder)
            backward.start(result, options.target)
            for var, value in reversed(forward.bindings):
                backward.through(var, value)
            gradients = [backward.output(forward.copies[v]) for v in by]
        builder.emit_func_output(graph.Tuple((result, graph.Tuple(tuple(gradients)))))
    made = builder.get()
    return made.with_functions({name: remove_unread(made.graph_functions()[name], made)})


def _variables(fn: graph.Function, options: DifferentiateOptions) -> list[graph.Var]:
    if options.by is None:
        return list(fn.params)
    known = {v.name: v for v in (*fn.params, *(b.var for b in all_bindings(fn)))}
    for name in options.by:
        if name not in known:
            raise ValueError(f"differentiate: `{options.function}` has no variable `{name}`")
    return [known[name] for name in options.by]


class _Forward:
    """Repeats the bindings of a function in the function being built."""

    def __init__(self, builder: BlockBuilder, copies: dict[graph.Var, graph.Expr]) -> None:
        self._builder, self.copies = builder, copies
        self.bindings: list[tuple[graph.Var, graph.Expr]] = []

    def repeat(self, fn: graph.Function) -> None:
        """Emit all bindings, and keep which variable has which value."""
        for binding in all_bindings(fn):
            value = substitute(binding.value, values=self.copies)
            emit = self._builder.emit
            if not isinstance(binding.var, graph.DataflowVar):
                emit = self._builder.emit_output
            with self._builder.at(binding.span):
                if isinstance(binding, graph.MatchCast):
                    var = self._builder.match_cast(value, binding.ty, binding.var.name)
                else:
                    var = emit(value, binding.var.name)
            self.copies[binding.var] = var
            self.bindings.append((var, value))


class _Backward:
    """Propagates adjoints from results to arguments, and emits them."""

    def __init__(self, builder: BlockBuilder) -> None:
        self._builder = builder
        self._adjoints: dict[graph.Var, graph.Expr] = {}

    def start(self, result: graph.Expr, target: int) -> None:
        """Give the target the adjoint 1. Raises ValueError where it is not a scalar."""
        ty = self._builder.type_of(result)
        several = isinstance(ty, types.TupleType)
        count = len(ty.fields) if isinstance(ty, types.TupleType) else 1
        if not 0 <= target < count:
            raise ValueError(f"differentiate: there is no result {target}, there are {count}")
        target_ty = ty.fields[target] if isinstance(ty, types.TupleType) else ty
        if (
            not isinstance(target_ty, types.TensorType)
            or target_ty.shape != ()
            or not is_float(target_ty.dtype or "")
        ):
            raise ValueError(
                f"differentiate: the result to differentiate must be a scalar tensor of floats, "
                f"is {target_ty}; R.sum or R.mean make one"
            )
        one = op("ones", graph.ShapeExpr(()), target_ty.dtype)
        if not several:
            self._add(result, one)
        elif isinstance(result, graph.Tuple):
            self._add(result.fields[target], one)
        else:
            self._add_field(result, target, one)

    def output(self, var: graph.Expr) -> graph.Var:
        """The adjoint of a variable as an output; zeros where nothing came back to it."""
        assert isinstance(var, graph.Var)
        adjoint = self._adjoints.get(var)
        if adjoint is None:
            zeros = self._zeros(self._builder.type_of(var))
            adjoint = self._builder.emit(zeros, f"{var.name}_adjoint")
        return self._builder.emit_output(adjoint, f"{var.name}_adjoint_out")

    def through(self, var: graph.Var, value: graph.Expr) -> None:
        """Pass the adjoint of a bound variable on to what its value reads."""
        adjoint = self._adjoints.get(var)
        if adjoint is None:
            return
        match value:
            case graph.Var() | graph.Tuple():
                self._add(value, adjoint)
            case graph.TupleGetItem(tuple_value, index):
                self._add_field(tuple_value, index, adjoint)
            case graph.Call(graph.Op(name)):
                rule = op_row(name).gradient
                if rule is None:
                    raise NotDifferentiable(
                        f"differentiate: R.{name}, which `{var.name}` is bound to, has no gradient"
                    )
                partials = rule(Step(self._builder, value, var, adjoint))
                for arg, partial in zip(value.args, partials, strict=True):
                    if partial is not None:
                        self._add(arg, partial)
            case graph.Call(graph.GlobalVar(name)):
                raise NotDifferentiable(
                    f"differentiate: `{var.name}` is the result of a call of `{name}`: "
                    "inline it first (inline_functions)"
                )
            case _:
                if any(isinstance(v, graph.Var) for v in children(value)):
                    kind = type(value).__name__
                    raise NotDifferentiable(f"differentiate: `{var.name}` is bound to: {kind}")

    def _add(self, value: graph.Expr, partial: graph.Expr) -> None:
        """Add to the adjoint of a variable, or of those in a tuple; constants have none."""
        match value:
            case graph.Var():
                known = self._adjoints.get(value)
                if known is not None:
                    partial = self._sum(known, self._leaf(partial))
                name = f"{value.name}_adjoint"
                self._adjoints[value] = self._builder.emit(partial, name)
            case graph.Tuple(fields):
                partial = self._leaf(partial)
                for i, field in enumerate(fields):
                    self._add(field, _item(partial, i))
            case _:
                pass

    def _add_field(self, value: graph.Expr, index: int, partial: graph.Expr) -> None:
        """Add to the adjoint of a field of a tuple."""
        ty = self._builder.type_of(value)
        assert isinstance(value, graph.Var) and isinstance(ty, types.TupleType)
        known = self._adjoints.get(value)
        fields: list[graph.Expr] = []
        for i, field in enumerate(ty.fields):
            if known is None:
                new = partial if i == index else self._zeros(field)
            else:
                new = self._builder.emit(graph.TupleGetItem(known, i))
                new = self._sum(new, partial) if i == index else new
            fields.append(self._leaf(new))
        adjoint = graph.Tuple(tuple(fields))
        self._adjoints[value] = self._builder.emit(adjoint, f"{value.name}_adjoint")

    def _leaf(self, value: graph.Expr) -> graph.Expr:
        return value if isinstance(value, graph.Var | graph.Tuple) else self._builder.emit(value)

    def _sum(self, a: graph.Expr, b: graph.Expr) -> graph.Expr:
        ty = self._builder.type_of(a)
        if not isinstance(ty, types.TupleType):
            return op("add", a, b)
        count = range(len(ty.fields))
        return _tuple(self._sum(self._leaf(_item(a, i)), self._leaf(_item(b, i))) for i in count)

    def _zeros(self, ty: types.Type) -> graph.Expr:
        match ty:
            case types.TensorType(shape, dtype) if shape is not None and dtype is not None:
                return op("zeros", graph.ShapeExpr(shape), dtype)
            case types.TupleType(fields):
                return _tuple(self._zeros(f) for f in fields)
            case _:
                raise NotDifferentiable(f"differentiate: there are no zeros of type {ty}")


def _item(value: graph.Expr, index: int) -> graph.Expr:
    return (
        value.fields[index] if isinstance(value, graph.Tuple) else graph.TupleGetItem(value, index)
    )


def _tuple(fields: Any) -> graph.Tuple:
    made: Sequence[graph.Expr] = tuple(fields)
    return graph.Tuple(tuple(made))
