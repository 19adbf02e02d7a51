"""`relaxlab.from_onnx`: models of ONNX as modules with their initialisers."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from relaxlab.frontend.emitter import Emitter
from relaxlab.frontend.known import Array, tensor
from relaxlab.frontend.onnx import (
    boxes,
    control,
    folds,
    math,
    networks,
    quantised,
    recurrent,
    sampling,
    sequences,
    shapes,
    signal,
)
from relaxlab.frontend.onnx.expand import expanded
from relaxlab.frontend.onnx.rows import TABLE
from relaxlab.frontend.onnx.shapes import known
from relaxlab.frontend.onnx.walk import Env, Walk, array_of, missing, type_of
from relaxlab.frontend.packages import package
from relaxlab.frontend.program import ImportedProgram
from relaxlab.frontend.table import Refused, UnsupportedOperators
from relaxlab.ir.arguments import names_arguments

ROWS = (
    boxes, control, folds, math, networks, quantised, recurrent, sampling, sequences, shapes, signal
)  # fmt: skip
"""The modules that fill the table."""


@names_arguments
def from_onnx(
    model: Any, *, constants: Mapping[str, Array] | None = None
) -> ImportedProgram:
    """Import a model of ONNX: a path, or an `onnx.ModelProto`.

        program = rl.from_onnx("model.onnx")
        y = program.compile()(x)

    Dimensions with names are symbols, for all of whose values one compilation serves. Initialisers
    become parameters of `main` under their names, with the model's own memory or, for data in
    other files, those files mapped into memory. `constants` are inputs with fixed values: shapes or
    axes that a model takes as inputs but that decide the types of its values.

    Raises UnsupportedOperators, which lists all operators that cannot be imported; ValueError for
    a file that holds no model, TypeError for what is neither.
    """
    folder = ""
    if isinstance(model, str | os.PathLike):
        folder = os.path.dirname(os.path.abspath(model))
        model = _loaded(model)
    elif not isinstance(model, package("onnx").ModelProto):
        raise TypeError(
            f"expected a path or an onnx.ModelProto, not {type(model).__name__}; bytes are read by "
            "onnx.load_from_string"
        )
    model = expanded(model)
    versions = {o.domain: o.version for o in model.opset_import}
    unsupported = missing(model.graph, versions)
    if unsupported:
        raise UnsupportedOperators(TABLE.source, unsupported)
    b = Emitter(TABLE.source)
    walk = Walk(b, versions, _types(model), folder)
    env: Env = {n: known(b, np.asarray(v)) for n, v in (constants or {}).items()}
    names = _inputs(b, model.graph, env)
    for initializer in model.graph.initializer:
        if initializer.name not in env:
            value = array_of(initializer, folder)
            large = value.size > shapes.MOST_FOLLOWED
            env[initializer.name] = (
                b.weight(initializer.name, value) if large else known(b, value)
            )
    results = [tensor(b, v) for v in walk.graph(model.graph, env)]

    def flatten(args: Sequence[Any], named: Mapping[str, Any]) -> Sequence[Any]:
        free = iter(args)
        given = [named[n] if n in named else next(free, None) for n in names]
        count = len(args) + len(named)
        if count != len(names) or any(v is None for v in given) or not set(named) <= set(names):
            raise TypeError(f"the model has the inputs {', '.join(names)}; got {count} arguments")
        return given

    whole = results[0] if len(results) == 1 else tuple(results)
    return ImportedProgram(b.finish(whole), b.params, flatten)


def _loaded(path: str | os.PathLike[str]) -> Any:
    """The model of a file, without the data in others."""
    onnx, protobuf = package("onnx"), import_module("google.protobuf.message")
    try:
        model = onnx.load(path, load_external_data=False)
    except protobuf.DecodeError as error:
        raise ValueError(f"{os.fspath(path)} holds no model of ONNX: {error}") from None
    if not model.HasField("graph"):  # such as an empty file
        raise ValueError(f"{os.fspath(path)} holds no model of ONNX: it has no graph")
    return model


def _inputs(b: Emitter, graph: Any, env: Env) -> list[str]:
    """A parameter for each input that is neither an initialiser nor a constant."""
    given = {i.name for i in graph.initializer} | set(env)
    names: list[str] = []
    for value in graph.input:
        if value.name in given:
            continue
        try:
            ty = type_of(b.symbols, value)
        except Refused as error:
            b.refuse(f"input {value.name}", error, (), None)
            raise
        env[value.name] = b.input(value.name, ty)
        names.append(value.name)
    return names


def _types(model: Any) -> dict[str, Any]:
    """Return the types of values that ONNX infers, by name."""
    onnx = package("onnx")
    try:
        inferred = onnx.shape_inference.infer_shapes(model).graph
    except onnx.shape_inference.InferenceError:  # our own rules check the model
        inferred = model.graph
    values = (*inferred.value_info, *inferred.output)
    return {v.name: v.type for v in values}
