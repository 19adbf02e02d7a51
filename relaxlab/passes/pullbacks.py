"""Reverse-mode differentiation of bindings: they are repeated, then followed back by adjoints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from relaxlab.ir import graph, types
from relaxlab.ir.dtypes import is_float
from relaxlab.ir.module import Module
from relaxlab.ir.node import children
from relaxlab.ir.op_table import op_row
from relaxlab.ir.substitute import substitute
from relaxlab.ops.block_builder import BlockBuilder
from relaxlab.ops.gradients.base import NotDifferentiable, Step, op
from relaxlab.passes.bind_symbolic_vars import graph_function
from relaxlab.passes.bindings import all_bindings, use_counts


class Forward:
    """Repeats bindings in the function being built. `copies` has the new value of each variable,
    `bindings` the new variables with what they are bound to."""

    def __init__(self, builder: BlockBuilder, copies: Mapping[graph.Var, graph.Expr]) -> None:
        self._builder, self.copies = builder, dict(copies)
        self.bindings: list[tuple[graph.Var, graph.Expr]] = []

    def repeat(self, seq: graph.SeqExpr) -> None:
        """Emit all bindings of a body or of a branch."""
        for binding in (b for block in seq.blocks for b in block.bindings):
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


class Pullbacks:
    """The functions that differentiate those that are called. `f_pullback` takes the arguments of
    `f` and the adjoint of its result, and returns a tuple of the adjoints of its parameters, of
    those that have one (see `has_adjoint`)."""

    def __init__(self, builder: BlockBuilder, mod: Module) -> None:
        self._builder, self._mod = builder, mod
        self._names: dict[str, str] = {}

    def of(self, name: str) -> graph.GlobalVar:
        """The pullback of a function, made on first use: a function may call
        itself."""
        if name not in self._names:
            fn = graph_function(self._mod, name, "differentiate")
            self._names[name] = self._builder.get().fresh_name(f"{name}_pullback")
            self._make(self._names[name], fn)
        return graph.GlobalVar(self._names[name])

    def params(self, name: str) -> list[int]:
        """The numbers of the parameters of a function that have an adjoint."""
        fn = graph_function(self._mod, name, "differentiate")
        return [i for i, p in enumerate(fn.params) if has_adjoint(p.ty)]

    def _make(self, name: str, fn: graph.Function) -> None:
        params = [graph.Var(p.name, p.ty) for p in fn.params]
        adjoint = graph.Var("adjoint", fn.ret_ty)
        by = [p for p in params if has_adjoint(p.ty)]
        ret_ty = types.TupleType(tuple(p.ty or types.ObjectType() for p in by))
        builder = self._builder
        # The last parameters are no longer weights, and the name is that of the function itself.
        attrs = fn.attrs.with_(num_input=None, global_symbol=None)
        with builder.function(name, (*params, adjoint), attrs, ret_ty=ret_ty, private=True):
            with builder.dataflow():
                copies = dict(zip(fn.params, params, strict=True))
                result = self.derive(fn.body, copies, adjoint, by)
            builder.emit_func_output(result)

    def derive(
        self,
        seq: graph.SeqExpr,
        copies: Mapping[graph.Var, graph.Expr],
        adjoint: graph.Expr,
        by: Sequence[graph.Var],
    ) -> graph.Tuple:
        """Emit a body or a branch and its derivative, given the adjoint of its value; return the
        adjoints of variables of the function being built."""
        forward = Forward(self._builder, copies)
        forward.repeat(seq)
        backward = Backward(self._builder, self)
        backward.add(substitute(seq.body, values=forward.copies), adjoint)
        backward.run(forward)
        return graph.Tuple(tuple(backward.adjoint_of(v) for v in by))


class Backward:
    """Propagates adjoints from results to arguments, and emits them."""

    def __init__(self, builder: BlockBuilder, pullbacks: Pullbacks) -> None:
        self._builder, self._pullbacks = builder, pullbacks
        self._adjoints: dict[graph.Var, graph.Expr] = {}

    def run(self, forward: Forward) -> None:
        """Pass the adjoints of all bindings on, the last first."""
        for var, value in reversed(forward.bindings):
            self._through(var, value)

    def adjoint_of(self, var: graph.Var) -> graph.Expr:
        """The adjoint of a variable; zeros where nothing came back to it."""
        if var not in self._adjoints:
            zeros = self._zeros(self._builder.type_of(var))
            self._adjoints[var] = self._builder.emit(zeros, f"{var.name}_adjoint")
        return self._adjoints[var]

    def _through(self, var: graph.Var, value: graph.Expr) -> None:
        """Pass the adjoint of a bound variable on to what its value reads."""
        adjoint = self._adjoints.get(var)
        if adjoint is None:
            return
        match value:
            case graph.Var() | graph.Tuple():
                self.add(value, adjoint)
            case graph.TupleGetItem(tuple_value, index):
                self.add_field(tuple_value, index, adjoint)
            case graph.Call(graph.Op(name)):
                rule = op_row(name).gradient
                if rule is None:
                    raise NotDifferentiable(
                        f"differentiate: R.{name}, which `{var.name}` is bound to, has no gradient"
                    )
                partials = rule(Step(self._builder, value, var, adjoint))
                for arg, partial in zip(value.args, partials, strict=True):
                    if partial is not None:
                        self.add(arg, partial)
            case graph.Call(graph.GlobalVar(name), args):
                call = graph.Call(self._pullbacks.of(name), (*args, adjoint))
                read = [args[i] for i in self._pullbacks.params(name)]
                self._add_all(read, self._builder.emit(call, f"{var.name}_adjoints"))
            case graph.If():
                self._through_branches(var, value, adjoint)
            case graph.Call(graph.Var(name)) | graph.Function(name_hint=name):
                raise NotDifferentiable(
                    f"differentiate: `{var.name}` is or calls the local function `{name}`: "
                    "make it a function of the module first (lambda_lifting)"
                )
            case _:
                if any(isinstance(v, graph.Var) for v in children(value)):
                    kind = type(value).__name__
                    raise NotDifferentiable(f"differentiate: `{var.name}` is bound to: {kind}")

    def _through_branches(self, var: graph.Var, value: graph.If, adjoint: graph.Expr) -> None:
        """Pass the adjoint on to what the branches read. The branch that was taken is computed
        again: its values cannot be seen from outside."""
        branches = value.true_branch, value.false_branch
        read = dict.fromkeys(v for branch in branches for v in _free(branch))
        by = [v for v in read if has_adjoint(self._builder.type_of(v))]
        if not by:
            return
        true, false = (
            lambda branch=branch: self._pullbacks.derive(branch, {}, adjoint, by)
            for branch in branches
        )
        name = f"{var.name}_adjoints"
        self._add_all(by, self._builder.emit_if(value.condition, true, false, name))

    def _add_all(self, values: Iterable[graph.Expr], adjoints: graph.Var) -> None:
        """Add the fields of a tuple to the adjoints of values."""
        for i, value in enumerate(values):
            self.add(value, graph.TupleGetItem(adjoints, i))

    def add(self, value: graph.Expr, partial: graph.Expr) -> None:
        """Add to the adjoint of a variable, or of those in a tuple; constants have none, nor have
        integers and bools, through which nothing flows back."""
        match value:
            case graph.Var() if _is_discrete(self._builder.type_of(value)):
                pass
            case graph.Var():
                known = self._adjoints.get(value)
                if known is not None:
                    partial = self._sum(known, self._leaf(partial))
                name = f"{value.name}_adjoint"
                self._adjoints[value] = self._builder.emit(partial, name)
            case graph.Tuple(fields):
                partial = self._leaf(partial)
                for i, field in enumerate(fields):
                    self.add(field, _item(partial, i))
            case _:
                pass

    def add_field(self, value: graph.Expr, index: int, partial: graph.Expr) -> None:
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


def _tuple(fields: Iterable[graph.Expr]) -> graph.Tuple:
    return graph.Tuple(tuple(fields))


def has_adjoint(ty: types.Type | None) -> bool:
    """True for tensors, unless they are of integers or bools, and for tuples with such a field.
    What is not known of a tensor does not keep it from having an adjoint."""
    match ty:
        case types.TensorType():
            return not _is_discrete(ty)
        case types.TupleType(fields):
            return any(map(has_adjoint, fields))
        case _:
            return False


def _is_discrete(ty: types.Type | None) -> bool:
    """True for tensors of integers or bools."""
    return isinstance(ty, types.TensorType) and ty.dtype is not None and not is_float(ty.dtype)


def _free(branch: graph.SeqExpr) -> Iterator[graph.Var]:
    """The variables that a branch reads and does not bind."""
    bound = {b.var for b in all_bindings(branch)}
    return (v for v in use_counts(branch) if v not in bound)
