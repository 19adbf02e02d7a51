"""The backend of `torch.compile`."""

# pyright: reportMissingImports=false
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func

from relaxlab.frontend.pytorch.decompose import decompositions
from relaxlab.frontend.pytorch.importer import GraphImport, Unpack, require_rows
from relaxlab.frontend.pytorch.values import as_array, as_tensor, type_of
from relaxlab.ir.module import Module
from relaxlab.runtime.build import compile as compile_module
from relaxlab.runtime.executable import Executable


def compiled(graph_module: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """A function that computes what a graph of `torch.compile` computes."""
    prepare = aot_autograd(
        fw_compiler=_with_inputs_alone,
        bw_compiler=_with_inputs_alone,
        inference_compiler=_with_weights,
        decompositions=decompositions(),
    )
    return prepare(graph_module, example_inputs)


def _with_inputs_alone(graph_module: Any, example_inputs: Sequence[Any]) -> Any:
    """While a model is trained its weights change: they are inputs like any others."""
    return _compiled(graph_module, frozenset())


def _with_weights(graph_module: Any, example_inputs: Sequence[Any]) -> Any:
    context = torch._guards.TracingContext.try_get()
    found = context.fw_metadata.static_input_indices if context is not None else ()
    return _compiled(graph_module, frozenset(found))


def _compiled(graph_module: Any, static: frozenset[int]) -> Any:
    """A boxed function of a graph of ATen calls; inputs of the numbers `static` are weights."""
    require_rows(graph_module)
    nodes = [n for n in graph_module.graph.nodes if n.op == "placeholder"]
    graph = GraphImport()
    weights = [i for i, n in enumerate(nodes) if i in static and hasattr(n.meta["val"], "dtype")]
    inputs = [i for i in range(len(nodes)) if i not in weights]
    values = {nodes[i]: graph.user_input(nodes[i]) for i in inputs}
    for i in weights:
        ty = type_of(nodes[i].meta["val"], graph.symbols)
        values[nodes[i]] = graph.emitter.weight_param(nodes[i].name, ty)
    module, unpack = graph.finish(graph.walk(graph_module, values))
    return make_boxed_func(_CompiledGraph(module, unpack, inputs, weights))


class _CompiledGraph:
    """A compiled graph, called with all inputs in order. Weights are bound once, and again when
    they have changed."""

    def __init__(
        self, module: Module, unpack: Unpack, inputs: Sequence[int], weights: Sequence[int]
    ) -> None:
        self._exe: Executable = compile_module(module)
        self._unpack, self._inputs, self._weights = unpack, inputs, weights
        self._bound: list[tuple[int, int]] = []

    def __call__(self, *args: Any) -> list[Any]:
        bound = [(args[i].data_ptr(), args[i]._version) for i in self._weights]
        if bound != self._bound:
            self._exe.load([as_array(args[i]) for i in self._weights])
            self._bound = bound
        given = [
            as_array(args[i]) if isinstance(args[i], torch.Tensor) else (args[i],)
            for i in self._inputs
        ]
        result = self._exe["main"](*given)
        results = result if isinstance(result, tuple) else (result,)
        return self._unpack([as_tensor(r) if hasattr(r, "dtype") else r for r in results])
