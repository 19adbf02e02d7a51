"""From an exported graph of ATen calls to a module."""

# pyright: reportMissingImports=false
from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.export.graph_signature import (
    ConstantArgument,
    InputKind,
    OutputKind,
    SymIntArgument,
)
from torch.utils import _pytree as pytree

from relaxlab.frontend.emitter import Emitter
from relaxlab.frontend.places import span_at
from relaxlab.frontend.program import ImportedProgram
from relaxlab.frontend.pytorch.decompose import decomposed
from relaxlab.frontend.pytorch.rows import TABLE
from relaxlab.frontend.pytorch.values import (
    as_array,
    dim_of,
    dtype_name,
    scalar_of,
    type_of,
)
from relaxlab.frontend.symbols import Symbols
from relaxlab.frontend.table import Problem, UnsupportedOperators
from relaxlab.ir import expr, graph, types
from relaxlab.ir.span import Span

IGNORED = frozenset({
    "aten._assert_tensor_metadata.default", "aten._assert_scalar.default",
    "aten.sym_constrain_range_for_size.default", "aten.sym_constrain_range.default",
    "aten._assert_async.msg",
})  # fmt: skip
"""Calls for their effect on PyTorch's tracing."""

WITHOUT_MEANING = frozenset(
    {"device", "layout", "pin_memory", "memory_format", "non_blocking", "requires_grad"}
)
"""Arguments about memory, which relaxlab lays out itself."""


def imported(program: Any) -> ImportedProgram:
    """The module of an `ExportedProgram`.

    Raises UnsupportedOperators.
    """
    return _Import(decomposed(program, TABLE)).run()


class _Import:
    """The import of one program."""

    def __init__(self, program: Any) -> None:
        self.program = program
        self.signature = program.graph_signature
        self.symbols = Symbols()
        self.emitter = Emitter("PyTorch", self.symbols)

    def run(self) -> ImportedProgram:
        graph_module = self.program.graph_module
        problems = [*_without_row(graph_module), *_mutations(self.signature)]
        if problems:
            raise UnsupportedOperators("PyTorch", problems)
        self.constrain()
        values = self.parameters(graph_module.graph)
        results = self.walk(graph_module, values)
        return self.finish(results)

    def constrain(self) -> None:
        """Hand over what PyTorch knows about the symbols."""
        for symbol, range_ in self.program.range_constraints.items():
            lower, upper = (int(v) if v.is_Integer else None for v in (range_.lower, range_.upper))
            self.symbols.constrain(symbol.name, lower, upper)

    def parameters(self, fx_graph: Any) -> dict[Any, Any]:
        """Values of the placeholders: the inputs first, then weights, under their names."""
        nodes = [n for n in fx_graph.nodes if n.op == "placeholder"]
        pairs = list(zip(nodes, self.signature.input_specs, strict=True))
        values: dict[Any, Any] = {}
        for node, spec in pairs:
            if spec.kind == InputKind.USER_INPUT:
                values[node] = self.user_input(node)
        for node, spec in pairs:
            if spec.kind != InputKind.USER_INPUT:
                values[node] = self.weight(node, spec)
        return values

    def user_input(self, node: Any) -> Any:
        value = node.meta["val"]
        if hasattr(value, "dtype"):
            return self.emitter.input(node.name, type_of(value, self.symbols))
        if hasattr(value, "node"):  # an integer that was marked as dynamic
            size = dim_of(value, self.symbols)
            self.emitter.input(node.name, types.ShapeType((size,)))
            return size
        return value

    def weight(self, node: Any, spec: Any) -> Any:
        if spec.kind not in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
            raise UnsupportedOperators(
                "PyTorch", [Problem(str(spec.kind), f"the input {spec.target} is no tensor")]
            )
        program = self.program
        held = program.state_dict if spec.target in program.state_dict else program.constants
        array = as_array(held[spec.target])
        if array.ndim == 0 and spec.kind == InputKind.CONSTANT_TENSOR:
            return self.emitter.const(array)
        return self.emitter.weight(spec.target, array)

    def walk(self, graph_module: Any, values: dict[Any, Any]) -> list[Any]:
        """Emit the calls of a graph; its results. `values` are those of its placeholders."""
        for node in graph_module.graph.nodes:
            if node.op == "get_attr":
                values[node] = self.attribute(graph_module, node)
            elif node.op == "call_function":
                values[node] = self.call(node, values)
            elif node.op == "output":
                return [self.argument(a, values) for a in node.args[0]]
        raise AssertionError("a graph without an output")

    def attribute(self, graph_module: Any, node: Any) -> Any:
        """A tensor that the graph holds, or a graph for control flow."""
        value = operator.attrgetter(node.target)(graph_module)
        return self.emitter.const(as_array(value)) if hasattr(value, "dtype") else value

    def call(self, node: Any, values: Mapping[Any, Any]) -> Any:
        stated = node.meta.get("val")
        if _is_symbolic(stated):
            return scalar_of(stated, self.symbols)
        name = str(node.target)
        if name in IGNORED:
            return None
        if node.target is operator.getitem:
            return values[node.args[0]][node.args[1]]
        row = TABLE.find(name)
        assert row is not None
        args = [self.argument(a, values) for a in node.args]
        named = {k: v for k, v in node.kwargs.items() if k not in WITHOUT_MEANING}
        attrs = {k: self.argument(v, values) for k, v in named.items()}
        several = isinstance(stated, list | tuple)
        out = [self.stated(t) for t in (stated if several else [stated])]
        result = self.emitter.apply(name, row, args, attrs, out=out, span=_span(node))
        return (result,) if several and not isinstance(result, tuple) else result

    def stated(self, value: Any) -> types.TensorType | None:
        return type_of(value, self.symbols) if hasattr(value, "dtype") else None

    def argument(self, value: Any, values: Mapping[Any, Any]) -> Any:
        """An argument of a call in relaxlab's terms."""
        match value:
            case list() | tuple():
                return [self.argument(v, values) for v in value]
            case torch.fx.Node():
                found = values[value]
                if isinstance(found, torch.nn.Module):
                    return lambda *operands: self.branch(found, operands)
                return found
            case torch.dtype():
                return dtype_name(value)
            case torch.SymInt() | torch.SymFloat() | torch.SymBool():
                return scalar_of(value, self.symbols)
            case _:
                return value

    def branch(self, graph_module: Any, operands: Sequence[Any]) -> tuple[Any, ...]:
        """Emit a graph of control flow at the present place; its results."""
        nodes = [n for n in graph_module.graph.nodes if n.op == "placeholder"]
        return tuple(self.walk(graph_module, dict(zip(nodes, operands, strict=True))))

    def finish(self, outputs: Sequence[Any]) -> ImportedProgram:
        computed = [isinstance(o, graph.Var | expr.PrimExpr) for o in outputs]
        values = [
            graph.ShapeExpr((o,)) if isinstance(o, expr.PrimExpr) else o
            for o, is_result in zip(outputs, computed, strict=True)
            if is_result
        ]
        module = self.emitter.finish(values[0] if len(values) == 1 else values)
        sizes = [isinstance(o, expr.PrimExpr) for o in outputs]
        fixed = [None if c else o for o, c in zip(outputs, computed, strict=True)]
        spec = self.program.call_spec.out_spec

        def unflatten(results: Sequence[Any]) -> Any:
            found = iter(results)
            leaves = [
                (next(found)[0] if s else next(found)) if c else o
                for o, c, s in zip(fixed, computed, sizes, strict=True)
            ]
            return pytree.tree_unflatten(leaves, spec)

        return ImportedProgram(module, self.emitter.params, self.flattening(), unflatten)

    def flattening(self) -> Callable[[Sequence[Any], Mapping[str, Any]], Sequence[Any]]:
        """A function that makes the inputs of `main` of the arguments of the source program."""
        wanted = self.program.call_spec.in_spec
        inputs = [s.arg for s in self.signature.input_specs if s.kind == InputKind.USER_INPUT]

        def flatten(args: Sequence[Any], named: Mapping[str, Any]) -> Sequence[Any]:
            order = wanted.children()[1].context
            if set(named) == set(order):
                named = {name: named[name] for name in order}
            leaves, spec = pytree.tree_flatten((tuple(args), dict(named)))
            if spec != wanted:
                raise TypeError(
                    f"the program was exported for arguments of the structure {wanted}, "
                    f"and is called with {spec}"
                )
            given: list[Any] = []
            for value, arg in zip(leaves, inputs, strict=True):
                if not isinstance(arg, ConstantArgument):
                    given.append((value,) if isinstance(arg, SymIntArgument) else value)
                elif value != arg.value:
                    raise ValueError(
                        f"the program was exported for {arg.name}={arg.value!r}, not {value!r}"
                    )
            return given

        return flatten


def _is_symbolic(value: Any) -> bool:
    return isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool)


def _mutations(signature: Any) -> Iterator[Problem]:
    """What the program changes beside its results."""
    for spec in signature.output_specs:
        if spec.kind != OutputKind.USER_OUTPUT:
            kind = spec.kind.name.lower().replace("_", " ")
            advice = "in training mode? call model.eval() first" if "buffer" in kind else ""
            yield Problem(str(spec.target), f"{kind}: programs only compute results; {advice}")


def _without_row(graph_module: Any) -> Iterator[Problem]:
    """The calls of operators without a row, in the graphs of control flow, too."""
    for module in graph_module.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            name = str(node.target)
            symbolic = _is_symbolic(node.meta.get("val"))
            if node.op != "call_function" or symbolic or node.target is operator.getitem:
                continue
            if name not in TABLE and name not in IGNORED:
                yield Problem(name, "it has no row in the table of PyTorch", _span(node))


_FRAME = re.compile(r'File "(.+)", line (\d+), in ')
_LIBRARY = str(Path(str(torch.__file__)).parent)


def _span(node: Any) -> Span | None:
    """The innermost line outside of PyTorch that a call comes from."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    own = [f for f in frames if not f[0].startswith((_LIBRARY, "<", "torch/"))]
    if not own:
        return None
    file, line = own[-1]
    return span_at(file, int(line))
