"""Functions of a model in the place of their calls: its own, and those by which ONNX defines
operators that have no row."""

from __future__ import annotations

from typing import Any

from relaxlab.frontend.onnx.rows import TABLE
from relaxlab.frontend.onnx.walk import every_node, graphs_of, row_name
from relaxlab.frontend.packages import package

ROUNDS = 4
"""The greatest depth of functions that are made of functions."""
DOMAIN = "relaxlab.expanded"


def expanded(model: Any) -> Any:
    """The model without calls of functions that have no row."""
    onnx, inliner = package("onnx"), package("onnx.inliner")
    if model.functions:
        model = inliner.inline_local_functions(model)
    for _ in range(ROUNDS):
        found = _without_rows(onnx, model)
        if not found:
            return model
        # The bodies of some functions depend on types.
        model = onnx.shape_inference.infer_shapes(_copied(onnx, model))
        for graph in (model.graph, *(g for n in every_node(model.graph) for g in graphs_of(n))):
            _with_types_of_weights(onnx, graph)
            for node in graph.node:
                if (node.domain, node.op_type) in found:
                    _with_defaults(onnx, node, _version(model, node))
        if _defined_for_types(onnx, model, found):
            model = inliner.inline_local_functions(model)
        rest = sorted(_without_rows(onnx, model))
        if rest:
            model = inliner.inline_selected_functions(model, rest, inline_schema_functions=True)
    return model


def _version(model: Any, node: Any) -> int:
    return next((o.version for o in model.opset_import if o.domain == node.domain), 1)


def _without_rows(onnx: Any, model: Any) -> set[tuple[str, str]]:
    """The operators that have no row, but a definition by others."""
    found: set[tuple[str, str]] = set()
    for node in every_node(model.graph):
        version = _version(model, node)
        if TABLE.find(row_name(node), version) is None:
            schema = _schema(onnx, node, version)
            if schema is not None and (
                schema.has_function or schema.has_context_dependent_function
            ):
                found.add((node.domain, node.op_type))
    return found


def _schema(onnx: Any, node: Any, version: int) -> Any:
    try:
        return onnx.defs.get_schema(node.op_type, version, node.domain)
    except onnx.defs.SchemaError:
        return None


def _copied(onnx: Any, model: Any) -> Any:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def _with_types_of_weights(onnx: Any, graph: Any) -> None:
    """State the types of initialisers, which the inliner of onnx asks for."""
    stated = {v.name for v in (*graph.input, *graph.value_info, *graph.output)}
    for i in graph.initializer:
        if i.name not in stated:
            info = onnx.helper.make_tensor_value_info(i.name, i.data_type, i.dims)
            graph.value_info.append(info)


def _with_defaults(onnx: Any, node: Any, version: int) -> None:
    """State the attributes of a node that it leaves to their defaults: what is put in its place
    refers to them."""
    stated = {a.name for a in node.attribute}
    for name, a in onnx.defs.get_schema(node.op_type, version, node.domain).attributes.items():
        if name not in stated and a.default_value.type:
            node.attribute.append(a.default_value)


def _defined_for_types(onnx: Any, model: Any, found: set[tuple[str, str]]) -> bool:
    """Make functions of the model of the definitions of calls that leave inputs out, which the
    inliner of onnx cannot take; True if there are any."""
    graph = model.graph
    types = {v.name: v.type for v in (*graph.input, *graph.value_info, *graph.output)}
    for i in graph.initializer:
        types.setdefault(i.name, onnx.helper.make_tensor_type_proto(i.data_type, i.dims))
    count = 0
    for node in graph.node:
        if (node.domain, node.op_type) not in found or "" not in node.input:
            continue
        schema = _schema(onnx, node, _version(model, node))
        known = all(not i or i in types for i in node.input)
        if not schema.has_context_dependent_function or not known:
            continue
        given = [types[i].SerializeToString() if i else b"" for i in node.input]
        function = onnx.FunctionProto()
        text = schema.get_context_dependent_function(node.SerializeToString(), given)
        function.ParseFromString(text)
        function.domain, function.name = DOMAIN, f"{node.op_type}_{count}"
        node.domain, node.op_type = function.domain, function.name
        model.functions.append(function)
        count += 1
    if count:
        model.opset_import.append(onnx.helper.make_opsetid(DOMAIN, 1))
    return count > 0
