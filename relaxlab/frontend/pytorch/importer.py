"""From a graph of ATen calls to a module."""

# pyright: reportMissingImports=false
from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import torch

from relaxlab.frontend.complex import (
    Complex,
    array_of_complex,
    stacked,
    unstacked,
)
from relaxlab.frontend.emitter import Emitter
from relaxlab.frontend.places import span_at
from relaxlab.frontend.pytorch.rows import TABLE, has_row
from relaxlab.frontend.pytorch.rows.complex import called, is_complex
from relaxlab.frontend.pytorch.values import (
    as_array,
    condition_of,
    dim_of,
    dtype_name,
    scalar_of,
    type_of,
)
from relaxlab.frontend.symbols import Symbols
from relaxlab.frontend.table import Problem, Refused, UnsupportedOperators
from relaxlab.ir import expr, graph, types
from relaxlab.ir.dtypes import is_int
from relaxlab.ir.module import Module
from relaxlab.ir.span import Span

Unpack: TypeAlias = Callable[[Sequence[Any]], list[Any]]
"""Makes the values that a graph returns from the results of its module."""

IGNORED = frozenset({
    "aten._assert_tensor_metadata.default",
    "aten.sym_constrain_range_for_size.default", "aten.sym_constrain_range.default",
    "aten._assert_async.msg",
})  # fmt: skip
"""Calls for their effect on PyTorch's tracing."""

ASSERTION = "aten._assert_scalar.default"
ITEM = frozenset({"aten.item.default", "aten._local_scalar_dense.default"})

WITHOUT_MEANING = frozenset(
    {"device", "layout", "pin_memory", "memory_format", "non_blocking", "requires_grad"}
)
"""Arguments about memory, which relaxlab lays out itself."""


class GraphImport:
    """The import of one graph: what it emits so far."""

    def __init__(self, names: Mapping[str, str] | None = None) -> None:
        """names: the user's names of PyTorch's symbols."""
        self.symbols = Symbols(names)
        self.emitter = Emitter("PyTorch", self.symbols)

    def user_input(self, node: Any) -> Any:
        """A parameter for a placeholder; its value where that is no tensor."""
        value = node.meta["val"]
        if hasattr(value, "dtype"):
            return self.whole(self.emitter.input(node.name, type_of(value, self.symbols)), value)
        if hasattr(value, "node"):  # an integer that was marked as dynamic
            size = dim_of(value, self.symbols)
            self.emitter.input(node.name, types.ShapeType((size,)))
            return size
        return value

    def walk(self, graph_module: Any, values: dict[Any, Any]) -> list[Any]:
        """Emit the calls of a graph; its results. `values` are those of its placeholders."""
        for node in graph_module.graph.nodes:
            if node.op == "get_attr":
                values[node] = self.attribute(graph_module, node)
            elif node.op == "call_function":
                values[node] = self.call(node, values)
            elif node.op == "output":
                found = node.args[0]  # one value alone in graphs of control flow
                several = found if isinstance(found, list | tuple) else (found,)
                return [self.argument(a, values) for a in several]
        raise AssertionError("a graph without an output")

    def attribute(self, graph_module: Any, node: Any) -> Any:
        """A tensor that the graph holds, or a graph for control flow."""
        value = operator.attrgetter(node.target)(graph_module)
        if not hasattr(value, "dtype"):
            return value
        return self.whole(self.emitter.const(as_array(value)), value)

    def whole(self, tensor: graph.Expr, value: Any) -> Any:
        """A tensor of the program; complex numbers of one of their parts where PyTorch's `value` is
        complex."""
        return unstacked(self.emitter, tensor) if value.is_complex() else tensor

    def call(self, node: Any, values: Mapping[Any, Any]) -> Any:
        name, stated = str(node.target), node.meta.get("val")
        if isinstance(stated, torch.SymBool):
            return self.condition(node, stated)
        if name == ASSERTION:
            return self.assertion(node)
        if name in ITEM and isinstance(stated, torch.SymInt):
            return self.item(values[node.args[0]], stated)
        if _is_symbolic(stated):
            if node.users and all(_is_symbolic(u.meta.get("val")) for u in node.users):
                return None  # what a size is made of: the expression of the size itself says it all
            try:
                return scalar_of(stated, self.symbols)
            except Refused as error:
                named = getattr(node.target, "__name__", name)  # of a function of Python, `pow`
                self.emitter.refuse(named, error, (), _span(node))
        if name in IGNORED:
            return None
        if node.target is operator.getitem:
            return values[node.args[0]][node.args[1]]
        args = [self.argument(a, values) for a in node.args]
        named = {k: v for k, v in node.kwargs.items() if k not in WITHOUT_MEANING}
        attrs = {k: self.argument(v, values) for k, v in named.items()}
        several = isinstance(stated, list | tuple)
        states = stated if several else [stated]
        out, whole = [self.stated(t) for t in states], any(map(_holds_complex, states))
        if whole or is_complex([*args, *attrs.values()]):
            return called(self.emitter, name, args, attrs, out, whole, _span(node))
        row = TABLE.find(name)
        if row is None:
            error = Refused("it has a row for complex numbers alone")
            return self.emitter.refuse(name, error, out, _span(node))[0]
        result = self.emitter.apply(name, row, args, attrs, out=out, span=_span(node))
        return (result,) if several and not isinstance(result, tuple) else result

    def condition(self, node: Any, stated: Any) -> expr.PrimExpr | None:
        """The expression of a condition on sizes that the program returns. Others are read by
        assertions, and by control flow, which refuses them."""
        if not any(u.op == "output" for u in node.users):
            return None
        try:
            return condition_of(stated.node.expr, self.symbols)
        except Refused as error:
            self.emitter.refuse(str(node.target), error, (), _span(node))
        return None

    def assertion(self, node: Any) -> None:
        """Have calls check an assertion about sizes. Those about floats of data are left out."""
        condition = node.args[0]
        value = condition.meta["val"] if isinstance(condition, torch.fx.Node) else condition
        if isinstance(value, torch.SymBool):
            try:
                self.symbols.require(condition_of(value.node.expr, self.symbols))
            except Refused as error:
                self.emitter.refuse(str(node.target), error, (), _span(node))

    def item(self, x: graph.Expr, stated: Any) -> expr.PrimExpr:
        """The symbol of an integer that is read of a tensor."""
        size, b = dim_of(stated, self.symbols), self.emitter
        shape = b.tensor_to_shape(b.reshape(b.cast(x, "int64"), (1,)))
        b.claim(shape, types.ShapeType((size,)))
        return size

    def stated(self, value: Any) -> types.TensorType | None:
        if not hasattr(value, "dtype"):
            return None
        ty = type_of(value, self.symbols)
        if not value.is_complex():
            return ty
        return types.TensorType((ty.shape or ())[:-1], ty.dtype)

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

    def finish(self, outputs: Sequence[Any]) -> tuple[Module, Unpack]:
        """The module that returns those of the values that are computed, and a function that makes
        all of them from its results."""
        pairs = [isinstance(o, Complex) for o in outputs]
        outputs = [stacked(self.emitter, o) if isinstance(o, Complex) else o for o in outputs]
        computed = [isinstance(o, graph.Expr | expr.PrimExpr) for o in outputs]
        values = [
            self.number(o) if isinstance(o, expr.PrimExpr) else o
            for o, is_result in zip(outputs, computed, strict=True)
            if is_result
        ]
        # A size alone is in a tuple: it is a tuple itself, as several results are.
        alone = len(values) == 1 and not isinstance(values[0], graph.ShapeExpr)
        module = self.emitter.finish(values[0] if alone else values)
        dtypes = [o.dtype if isinstance(o, expr.PrimExpr) else None for o in outputs]
        fixed = [None if c else o for o, c in zip(outputs, computed, strict=True)]

        def unpack(results: Sequence[Any]) -> list[Any]:
            found = iter(results)
            given = [
                _number(next(found), dtype) if c else o
                for o, c, dtype in zip(fixed, computed, dtypes, strict=True)
            ]
            return [_of_parts(g) if p else g for g, p in zip(given, pairs, strict=True)]

        return module, unpack

    def number(self, value: expr.PrimExpr) -> graph.Expr:
        """The result of a module for a number of Python: a shape of one size, a tensor for a
        float or a bool."""
        if not is_int(value.dtype):
            return self.emitter.scalar(value, value.dtype)
        return graph.ShapeExpr((value,))


def _number(value: Any, dtype: str | None) -> Any:
    """A result of the module as the number of Python that it stands for; a tensor, which has no
    `dtype` here, as it is."""
    if dtype is None:
        return value
    return value[0] if is_int(dtype) else value.item()


def _of_parts(value: Any) -> Any:
    """Complex numbers of a result with their parts along the last dimension."""
    if isinstance(value, torch.Tensor):
        return torch.view_as_complex(value)
    return array_of_complex(value)


def _holds_complex(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_complex()


def _is_symbolic(value: Any) -> bool:
    return isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool)


def require_rows(graph_module: Any) -> None:
    """Raise UnsupportedOperators for all calls of operators without a row."""
    problems = list(without_row(graph_module))
    if problems:
        raise UnsupportedOperators("PyTorch", problems)


def without_row(graph_module: Any) -> Iterator[Problem]:
    """The calls of operators without a row, in the graphs of control flow, too."""
    for module in graph_module.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            name = str(node.target)
            symbolic = _is_symbolic(node.meta.get("val"))
            if node.op != "call_function" or symbolic or node.target is operator.getitem:
                continue
            if not has_row(name) and name not in IGNORED and name != ASSERTION:
                yield Problem(name, "it has no row in the table of PyTorch", _span(node))


_FRAME = re.compile(r'File "(.+)", line (\d+), in ')
LIBRARY = str(Path(str(torch.__file__)).parent)


def _span(node: Any) -> Span | None:
    """The innermost line outside of PyTorch that a call comes from."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    own = [f for f in frames if not f[0].startswith((LIBRARY, "<", "torch/"))]
    if not own:
        return None
    file, line = own[-1]
    return span_at(file, int(line))
