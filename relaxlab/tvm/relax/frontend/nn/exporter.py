"""`export_tvm`: the functions of a module's methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relaxlab.ir import expr, graph, types
from relaxlab.ir.module import Module as IRModule
from relaxlab.tvm.relax.block_builder import BlockBuilder
from relaxlab.tvm.relax.frontend.nn import spec
from relaxlab.tvm.relax.frontend.nn.core import Parameter, Tensor, unwrap
from relaxlab.tvm.relax.frontend.nn.effects import Effect, IOEffect, printing

Effects = Sequence[tuple[str, Effect]]


def export(
    module: Any, given: Any, effects: Effects = (), debug: bool = False
) -> tuple[IRModule, list[tuple[str, Parameter]]]:
    """A module with a function for each method, and the parameters with their names; with effects,
    those of printing where `debug`, a function that makes their first states."""
    methods = spec.ModuleSpec.from_raw(given, module)
    weights = list(module.named_parameters())
    io = IOEffect() if debug else None
    effects = [*([("_io", io)] if io is not None else ()), *effects]
    block = BlockBuilder()
    if effects:
        with block.function("_initialize_effect", []):
            with block.dataflow():
                states = [v for name, e in effects for v in e.emit_init(name, block)]
                output = block.emit_output(graph.Tuple(tuple(states)))
            block.emit_func_output(output)
    with printing(io):
        for name, arguments in methods.items():
            _function(block, module, name, arguments, weights, effects)
    return block.get(), weights


def _function(
    block: BlockBuilder,
    module: Any,
    name: str,
    arguments: spec.MethodSpec,
    weights: list[tuple[str, Parameter]],
    effects: Effects,
) -> None:
    """Build the function of a method. Its parameters are the inputs, the states of effects and the
    weights, the latter two as tuples where the method's specification has them packed."""
    symbols: dict[str, expr.Var] = {}
    inputs = {n: _declared(n, s, symbols) for n, s in arguments.items()}
    params = [p for value in inputs.values() for p in _params(value)]
    with_effects = effects if arguments.effect_mode != "none" else []
    with_weights = weights if arguments.param_mode != "none" else []
    states = [v for n, e in with_effects for v in e.create(n.replace(".", "_"))]
    made = [_weight(path, weight, symbols) for path, weight in with_weights]
    held = [(p, p._expr) for _, p in with_weights]
    state, packed_state = _packed("packed_effects", states, arguments.effect_mode)
    values, packed_values = _packed("packed_params", made, arguments.param_mode)
    count = len(params) + len(state)
    try:
        with block.function(name, [*params, *state, *values], {"num_input": count}):
            with block.dataflow():
                fields = _taken(block, states, packed_state)
                for (_, effect), var in zip(with_effects, fields, strict=True):
                    effect.set_state([var])
                fields = _taken(block, made, packed_values)
                for (_, weight), var in zip(with_weights, fields, strict=True):
                    weight._expr = var
                result = _value(unwrap(getattr(module, name)(*inputs.values())))
                if with_effects:
                    ends = tuple(v for _, e in with_effects for v in e.finalize())
                    result = graph.Tuple((result, graph.Tuple(ends)))
                output = block.emit_output(result)
            block.emit_func_output(output)
    finally:
        for weight, before in held:
            weight._expr = before


def _packed(
    name: str, variables: list[graph.Var], mode: str
) -> tuple[list[graph.Var], graph.Var | None]:
    """The parameters for variables, and the tuple among them that holds these."""
    if mode != "packed":
        return variables, None
    fields = tuple(v.ty for v in variables if v.ty is not None)
    whole = graph.Var(name, types.TupleType(fields))
    return [whole], whole


def _taken(
    block: BlockBuilder, variables: list[graph.Var], whole: graph.Var | None
) -> list[graph.Var]:
    """The variables, or the fields of the tuple that holds them."""
    if whole is None:
        return variables
    return [block.emit(graph.TupleGetItem(whole, i), v.name) for i, v in enumerate(variables)]


def _value(result: Any) -> Any:
    if isinstance(result, list | tuple):
        return graph.Tuple(tuple(_value(r) for r in result))
    return graph.PrimValue(result) if isinstance(result, expr.PrimExpr) else result


def _dims(shape: Any, symbols: dict[str, expr.Var]) -> tuple[expr.PrimExpr, ...]:
    def dim(d: Any) -> expr.PrimExpr:
        if isinstance(d, expr.Var):
            return symbols.setdefault(d.name, d)
        if isinstance(d, str):
            return symbols.setdefault(d, expr.Var(d))
        return expr.as_expr(d)

    return tuple(map(dim, shape))


def _weight(path: str, weight: Parameter, symbols: dict[str, expr.Var]) -> graph.Var:
    name = path.replace(".", "_")
    return graph.Var(name, types.TensorType(_dims(weight.type.shape, symbols), weight.dtype))


def _declared(name: str, what: Any, symbols: dict[str, expr.Var]) -> Any:
    """The value that a method gets for an argument."""
    match what:
        case spec.Tensor(shape, dtype):
            return Tensor(_expr=graph.Var(name, types.TensorType(_dims(shape, symbols), dtype)))
        case spec.Int():
            return symbols.setdefault(name, expr.Var(name))
        case spec.Tuple(elements):
            return tuple(_declared(f"{name}_{i}", e, symbols) for i, e in enumerate(elements))
        case _:
            raise TypeError(f"the specification of `{name}` is {what!r}: use nn.spec")


def _params(value: Any) -> list[graph.Var]:
    if isinstance(value, expr.Var):
        return [graph.Var(value.name, types.ShapeType((value,)))]
    if isinstance(value, tuple):
        return [p for v in value for p in _params(v)]
    return [value._expr]
