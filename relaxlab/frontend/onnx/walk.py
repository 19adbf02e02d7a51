"""Walking the graph of an ONNX model: its values, types, attributes, and each node by its row."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from relaxlab.frontend.emitter import Emitter
from relaxlab.frontend.known import Array, Known, tensor, wrapped
from relaxlab.frontend.onnx.rows import FOLDS, TABLE, operands
from relaxlab.frontend.onnx.shapes import MOST_FOLLOWED, known
from relaxlab.frontend.packages import package
from relaxlab.frontend.symbols import Symbols, names_in, parsed
from relaxlab.frontend.table import Problem, Refused
from relaxlab.ir import expr
from relaxlab.ir.dtypes import bits_of, is_compiled
from relaxlab.ir.node import walk
from relaxlab.ir.types import TensorType

Env = dict[str, Any]
"""The values of a graph by name: variables, `Known` values; a graph inside a node starts with a
copy of the outer one's."""

# --- Types and attributes ---------------------------------------------------------------------


def dtype_name(number: int) -> str:
    """The name of an element type. Raises Refused for strings and other types without numbers."""
    onnx = package("onnx")
    if number == onnx.TensorProto.STRING:
        raise Refused("strings")
    if number in (onnx.TensorProto.COMPLEX64, onnx.TensorProto.COMPLEX128):
        raise Refused("complex numbers")
    name = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(number)).name
    if not is_compiled(name) or bits_of(name) < 8:
        raise Refused(f"values of type {name}")
    return name


def type_of(symbols: Symbols, value: Any) -> TensorType:
    """The type of an input: its dimensions are numbers, names, or unknown, which makes each a
    symbol of its own. Raises Refused for sequences and the like."""
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        raise Refused(f"values of type {(kind or 'nothing').removesuffix('_type')}")
    tensor_type = value.type.tensor_type
    dtype = dtype_name(tensor_type.elem_type)
    if not tensor_type.HasField("shape"):
        return TensorType(None, dtype)
    dims: list[expr.PrimExpr] = []
    for i, d in enumerate(tensor_type.shape.dim):
        match d.WhichOneof("value"):
            case "dim_value":
                dims.append(expr.const(d.dim_value))
            case "dim_param":
                dims.append(symbols(_identifier(d.dim_param)))
            case _:
                dims.append(symbols(_identifier(f"{value.name}_dim_{i}")))
    return TensorType(tuple(dims), dtype)


def _stated_dim(symbols: Symbols, dim: Any) -> expr.PrimExpr | None:
    """A dimension that a model states: a number, a symbol or an expression of some, which PyTorch
    writes as Python does; None for others."""
    if dim.WhichOneof("value") == "dim_value":
        return expr.const(dim.dim_value)
    name = _identifier(dim.dim_param) if dim.dim_param else ""
    if name in symbols.names:
        return symbols(name)
    names = names_in(dim.dim_param)
    if not names or not names <= set(symbols.names):
        return None
    try:
        return parsed(symbols, dim.dim_param)
    except Refused:
        return None


def _divides_by_size(dim: expr.PrimExpr) -> bool:
    """True for what a reshape to -1 leaves beside symbolic dimensions."""
    return any(
        isinstance(e, expr.FloorDiv) and not isinstance(e.b, expr.IntImm) for e in walk(dim)
    )


def _identifier(text: str) -> str:
    name = "".join(c if c.isalnum() else "_" for c in text)
    return name if name[:1].isalpha() else f"d{name}"


def attributes_of(node: Any) -> dict[str, Any]:
    """The attributes of a node: numbers, strings, tuples of them, arrays, graphs; element types by
    name."""
    onnx = package("onnx")
    found: dict[str, Any] = {}
    for a in node.attribute:
        value = onnx.helper.get_attribute_value(a)
        match value:
            case bytes():
                value = value.decode("utf-8", "replace")
            case list():
                value = tuple(v.decode() if isinstance(v, bytes) else v for v in value)
            case onnx.TensorProto():
                dtype_name(value.data_type)
                value = onnx.numpy_helper.to_array(value)
            case _:
                pass
        if a.name in ("to", "dtype", "output_dtype") and isinstance(value, int) and value:
            value = dtype_name(value)
        found[a.name] = value
    return found


def array_of(initializer: Any, folder: str) -> Array:
    """The values of an initialiser: its own bytes, or those of another file, mapped to memory."""
    onnx = package("onnx")
    dtype_name(initializer.data_type)
    if initializer.data_location != onnx.TensorProto.EXTERNAL:
        return onnx.numpy_helper.to_array(initializer)
    entries = {e.key: e.value for e in initializer.external_data}
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(initializer.data_type))
    path = os.path.join(folder, entries["location"])
    offset = int(entries.get("offset", 0))
    return np.memmap(path, dtype, "r", offset, tuple(initializer.dims)).view(np.ndarray)


# --- Nodes ------------------------------------------------------------------------------------


def row_name(node: Any) -> str:
    """The name of a node's operator in the table."""
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"


def graphs_of(node: Any) -> Iterator[Any]:
    """The graphs among the attributes of a node."""
    for a in node.attribute:
        if a.HasField("g"):
            yield a.g
        yield from a.graphs


def every_node(graph: Any) -> Iterator[Any]:
    """The nodes of a graph and of those inside them."""
    for node in graph.node:
        yield node
        for inner in graphs_of(node):
            yield from every_node(inner)


def missing(graph: Any, versions: Mapping[str, int]) -> list[Problem]:
    """Every node whose operator has no row for the version of its operator set."""
    reason = "it has no row in the table of ONNX"
    return [
        Problem(row_name(n), reason)
        for n in every_node(graph)
        if TABLE.find(row_name(n), versions.get(n.domain, 0)) is None
    ]


def free_names(graph: Any) -> list[str]:
    """The values that a graph reads of those around it, in order."""
    made = {v.name for v in (*graph.input, *graph.initializer)}
    found: dict[str, None] = {}
    for node in graph.node:
        inner = (n for g in graphs_of(node) for n in free_names(g))
        found.update(dict.fromkeys(n for n in (*node.input, *inner) if n and n not in made))
        made.update(node.output)
    found.update(dict.fromkeys(v.name for v in graph.output if v.name not in made))
    return list(found)


class Walk:
    """A model being imported: its emitter, the versions of its operator sets, what ONNX's own
    inference says of the types of its values."""

    def __init__(
        self, b: Emitter, versions: Mapping[str, int], types: Mapping[str, Any], folder: str
    ) -> None:
        self.b, self.versions, self.types, self.folder = b, versions, types, folder

    def graph(self, graph: Any, env: Env) -> list[Any]:
        """The results of a graph whose inputs are in `env`."""
        for initializer in graph.initializer:
            if initializer.name not in env:
                env[initializer.name] = known(self.b, array_of(initializer, self.folder))
        for node in graph.node:
            self._node(node, env)
        return [env[v.name] for v in graph.output]

    def subgraph(self, graph: Any, env: Env, inputs: Sequence[Any]) -> list[Any]:
        """The results of a graph inside a node, by the values around it and its inputs."""
        inner = {**env, **dict(zip((v.name for v in graph.input), inputs, strict=True))}
        return self.graph(graph, inner)

    def _node(self, node: Any, env: Env) -> None:
        name, b = row_name(node), self.b
        inputs = [env[i] if i else None for i in node.input]
        while inputs and inputs[-1] is None:
            inputs.pop()
        try:
            attrs = attributes_of(node)
        except Refused as error:
            b.refuse(name, error, (), None)
            raise
        value = _folded(name, inputs, attrs)
        if value is not None:
            env[node.output[0]] = value
            return
        row = TABLE.find(name, self.versions.get(node.domain, 0))
        assert row is not None
        given = operands(b, row, inputs)
        options: dict[str, Any] = {"outputs": len(node.output), "version": self.versions.get("", 0)}
        if any(True for _ in graphs_of(node)):
            options |= {"walk": self, "env": env}
        out = self._stated(node)
        result = b.apply(name, row, given, {**options, **attrs}, out=out)
        results = result if isinstance(result, tuple | list) else (result,)
        found = zip(node.output, results, strict=False)
        env.update({o: self._of_stated_shape(o, r) for o, r in found if o})

    def _of_stated_shape(self, name: str, value: Any) -> Any:
        """A tensor of which only the rank is known, or a dimension as a quotient by a size, with
        the shape that the model states, which calls check, where all dimensions of it are known."""
        ty, stated = getattr(value, "ty", None), self.types.get(name)
        if not isinstance(ty, TensorType) or stated is None:
            return value
        if ty.shape is not None and not any(map(_divides_by_size, ty.shape)):
            return value
        if stated.WhichOneof("value") != "tensor_type":
            return value
        dims = [_stated_dim(self.b.symbols, d) for d in stated.tensor_type.shape.dim]
        if len(dims) != ty.ndim or any(d is None or not self.b.has_value(d) for d in dims):
            return value
        return self.b.claim(value, TensorType(tuple(d for d in dims if d is not None), ty.dtype))

    def _stated(self, node: Any) -> list[TensorType]:
        """The types that ONNX states for the results; none where one is not known."""
        found: list[TensorType] = []
        if node.op_type in MAYBE_KNOWN:
            return []
        for o in node.output:
            ty = self.types.get(o)
            if ty is None or ty.WhichOneof("value") != "tensor_type":
                return []
            try:
                dtype = dtype_name(ty.tensor_type.elem_type)
            except Refused:
                return []
            if not ty.tensor_type.HasField("shape"):
                return []
            found.append(TensorType(None, dtype, len(ty.tensor_type.shape.dim)))
        return found


MAYBE_KNOWN = frozenset(
    "Shape Size Constant If Loop Scan Split SequenceLength OptionalHasElement".split()
)
"""Operators whose results may be known values."""
TESTS = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Not")
"""Operators that give bools."""


def _folded(name: str, inputs: list[Any], attrs: dict[str, Any]) -> Known | None:
    """The result of an operator whose inputs are known."""
    fn = FOLDS.get(name)
    if fn is None or not all(isinstance(x, Known | None) for x in inputs):
        return None
    dtypes = [x.dtype for x in inputs if x is not None]
    dtype = "bool" if name in TESTS else dtypes[1 if name in ("Where", "CastLike") else 0]
    dtype = attrs.get("to", dtype)
    if name == "ConstantOfShape":
        value = attrs.get("value")
        dtype = "float32" if value is None else value.dtype.name
    options = {**attrs, "dtype": dtype} if name in ("Cast", "CastLike") else attrs
    values = fn(*(None if x is None else x.values for x in inputs), **options)
    if values is None or np.size(values) > MOST_FOLLOWED:
        return None
    plain = np.asarray(values, dtype=object)
    flat = [wrapped(v, dtype) for v in plain.reshape(-1)]
    exact = np.empty(len(flat), dtype=object)
    exact[:] = flat
    return Known(exact.reshape(plain.shape), dtype)


def tensors(b: Emitter, values: Iterable[Any]) -> list[Any]:
    """Known values as tensors, others as they are."""
    return [tensor(b, v) for v in values]
