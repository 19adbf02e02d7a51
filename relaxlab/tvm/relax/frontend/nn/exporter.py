"""`export_tvm`: the functions of a module's methods."""

from __future__ import annotations

from typing import Any

from relaxlab.ir import expr, graph, types
from relaxlab.ir.module import Module as IRModule
from relaxlab.tvm.relax.block_builder import BlockBuilder
from relaxlab.tvm.relax.frontend.nn import spec
from relaxlab.tvm.relax.frontend.nn.core import Parameter, Tensor, unwrap


def export(module: Any, given: Any) -> tuple[IRModule, list[tuple[str, Parameter]]]:
    """A module with a function for each method, and the parameters with their names."""
    methods = spec.ModuleSpec.from_raw(given, module)
    weights = list(module.named_parameters())
    block = BlockBuilder()
    for name, arguments in methods.items():
        symbols: dict[str, expr.Var] = {}
        inputs = {n: _declared(n, s, symbols) for n, s in arguments.items()}
        params = [p for value in inputs.values() for p in _params(value)]
        held = [(p, p._expr) for _, p in weights]
        for path, weight in weights:
            weight._expr = _weight(path, weight, symbols)
        try:
            taken = [*params, *(w._expr for _, w in weights)]
            with block.function(name, taken, {"num_input": len(params)}):
                with block.dataflow():
                    result = getattr(module, name)(*(v for v in inputs.values()))
                    output = block.emit_output(_value(unwrap(result)))
                block.emit_func_output(output)
        finally:
            for weight, before in held:
                weight._expr = before
    return block.get(), weights


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
