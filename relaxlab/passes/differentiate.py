"""Add the function that computes the gradient of a function: reverse-mode differentiation."""

from __future__ import annotations

from dataclasses import dataclass

from relaxlab.ir import graph, types
from relaxlab.ir.dtypes import is_float
from relaxlab.ir.module import Module
from relaxlab.ir.names import among
from relaxlab.ir.substitute import substitute
from relaxlab.ops.block_builder import BlockBuilder
from relaxlab.ops.gradients.base import op
from relaxlab.passes.base import module_pass
from relaxlab.passes.bind_symbolic_vars import graph_function
from relaxlab.passes.dead_code_elimination import remove_unread
from relaxlab.passes.normalize import normalize
from relaxlab.passes.pullbacks import Backward, Forward, Pullbacks


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

    The gradients of operators are in their rows; a function `f` that is called gets one of its own,
    `f_pullback`, and of a conditional the branch that was taken is differentiated. Raises
    ValueError for a function, variable or result that is not there, and `NotDifferentiable` naming
    the call that has no gradient.
    """
    # Nothing would flow back through calls inside calls.
    mod = normalize(mod)
    fn = graph_function(mod, options.function, "differentiate")
    name = f"{options.function}_adjoint"
    builder = BlockBuilder(mod)
    by = _variables(fn, options)
    params = tuple(graph.Var(p.name, p.ty) for p in fn.params)
    attrs = fn.attrs.with_(global_symbol=name) if "global_symbol" in fn.attrs else fn.attrs
    with builder.function(name, params, attrs):
        with builder.dataflow():
            forward = Forward(builder, dict(zip(fn.params, params, strict=True)))
            forward.repeat(fn.body)
            result = substitute(fn.body.body, values=forward.copies)
            backward = Backward(builder, Pullbacks(builder, mod))
            _start(builder, backward, result, options.target)
            backward.run(forward)
            gradients = [_output(builder, backward, forward.copies[v]) for v in by]
        builder.emit_func_output(graph.Tuple((result, graph.Tuple(tuple(gradients)))))
    made = builder.get()
    new = {k: remove_unread(f, made) for k, f in made.graph_functions().items() if k not in mod}
    return made.with_functions(new)


def _variables(fn: graph.Function, options: DifferentiateOptions) -> list[graph.Var]:
    if options.by is None:
        return list(fn.params)
    bound = (b.var for blk in fn.body.blocks for b in blk.bindings)
    known = {v.name: v for v in (*fn.params, *bound)}
    for name in options.by:
        if name not in known:
            raise ValueError(
                f"differentiate: `{options.function}` has no variable `{name}`; it has: "
                f"{among(name, known)}"
            )
    return [known[name] for name in options.by]


def _start(builder: BlockBuilder, backward: Backward, result: graph.Expr, target: int) -> None:
    """Give the target the adjoint 1. Raises ValueError where it is not a scalar."""
    ty = builder.type_of(result)
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
        backward.add(result, one)
    elif isinstance(result, graph.Tuple):
        backward.add(result.fields[target], one)
    else:
        backward.add_field(result, target, one)


def _output(builder: BlockBuilder, backward: Backward, var: graph.Expr) -> graph.Var:
    """The adjoint of a variable as an output."""
    assert isinstance(var, graph.Var)
    return builder.emit_output(backward.adjoint_of(var), f"{var.name}_adjoint_out")
