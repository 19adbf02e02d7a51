"""Add the function that computes a loss of what a function returns."""

from __future__ import annotations

from dataclasses import dataclass

from relaxlab.ir import expr, graph, types
from relaxlab.ir.module import Module
from relaxlab.ir.substitute import substitute
from relaxlab.passes.base import module_pass
from relaxlab.passes.bind_symbolic_vars import graph_function
from relaxlab.passes.bindings import copy_function, parts_of, same_dims
from relaxlab.passes.patterns.rewrite import normalized

RULE = "append_loss"


@dataclass(frozen=True, slots=True)
class LossOptions:
    """`function`: the name of the function whose results are predictions. `loss`: the function of
    these and of targets. `outputs`: how many of the results are predictions, those first; the
    others are returned behind the loss. `name`: that of the new function."""

    function: str = "main"
    loss: graph.Function | None = None
    outputs: int = 1
    name: str = ""


@module_pass(RULE, LossOptions, needs=("normalize",))
def append_loss(mod: Module, options: LossOptions) -> Module:
    """Add `<function>_loss`, or `name`: the function, and then the loss of its first results. Its
    parameters are those of the function and the targets of the loss.

    Raises ValueError for a name that is taken, for functions with other bodies than one dataflow
    block, and for predictions that are too few or have other types than the loss takes.
    """
    fn = graph_function(mod, options.function, RULE)
    if options.loss is None:
        return mod
    fn, loss = copy_function(fn), copy_function(options.loss)
    loss = _for_predictions(loss, parts_of(fn.body.body))
    name = options.name or f"{options.function}_loss"
    if name in mod:
        raise ValueError(f"{RULE}: the module has a function {name!r} already")
    results = parts_of(fn.body.body)
    predictions = results[: options.outputs]
    if len(predictions) < options.outputs or len(loss.params) < options.outputs:
        raise ValueError(
            f"{RULE}: `{options.function}` returns {len(results)} values, the loss takes "
            f"{len(loss.params)}, and {options.outputs} are to be predictions"
        )
    given: dict[graph.Var, graph.Expr] = {}
    for p, value in zip(loss.params, predictions, strict=False):
        if not isinstance(value, graph.Var) or not _alike(p.ty, value.ty):
            raise ValueError(f"{RULE}: a prediction is {value}, the loss takes `{p.name}`: {p.ty}")
        given[p] = value
    first, second = _only_block(options.function, fn), _only_block("loss", loss)
    bindings = (*first.bindings, *substitute(second, values=given).bindings)
    value, rest = loss.body.body, results[options.outputs :]
    result = graph.Tuple((value, *rest)) if rest else value
    body = _with_outputs(graph.SeqExpr((graph.DataflowBlock(bindings),), result))
    params = (*fn.params, *loss.params[options.outputs :])
    attrs = fn.attrs.with_(global_symbol=name) if "global_symbol" in fn.attrs else fn.attrs
    made = graph.Function(params, body, attrs=attrs)
    return normalized(mod.with_functions({name: made}))


def _for_predictions(loss: graph.Function, results: tuple[graph.Expr, ...]) -> graph.Function:
    """The loss with the dimensions of results in the place of the symbols of its parameters."""
    symbols: dict[expr.Var, expr.PrimExpr] = {}
    for p, value in zip(loss.params, results, strict=False):
        ty = value.ty if isinstance(value, graph.Var) else None
        if isinstance(p.ty, types.TensorType) and isinstance(ty, types.TensorType):
            for mine, given in zip(p.ty.shape or (), ty.shape or (), strict=False):
                if isinstance(mine, expr.Var):
                    symbols.setdefault(mine, given)
    return substitute(loss, symbols)


def _only_block(name: str, fn: graph.Function) -> graph.DataflowBlock:
    blocks = fn.body.blocks
    if len(blocks) != 1 or not isinstance(blocks[0], graph.DataflowBlock):
        raise ValueError(f"{RULE}: the body of `{name}` has to be one dataflow block")
    return blocks[0]


def _alike(a: types.Type | None, b: types.Type | None) -> bool:
    """True for types of tensors with equal shapes and one dtype."""
    if not (isinstance(a, types.TensorType) and isinstance(b, types.TensorType)):
        return False
    if a.shape is None or b.shape is None:
        return False
    return same_dims(a.shape, b.shape) and a.dtype == b.dtype


def _with_outputs(body: graph.SeqExpr) -> graph.SeqExpr:
    """The body whose dataflow block gives out what it returns, and nothing else."""
    read = {f for f in parts_of(body.body) if isinstance(f, graph.Var)}
    inside: dict[graph.Var, graph.Expr] = {
        b.var: graph.DataflowVar(b.var.name, b.var.ty)
        for b in body.blocks[0].bindings
        if b.var not in read and not isinstance(b.var, graph.DataflowVar)
    }
    return substitute(body, values=inside) if inside else body
