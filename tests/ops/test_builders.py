"""`ops.name(…)` builds calls from the rows."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from relaxlab import ops
from relaxlab.ir import expr, graph
from relaxlab.ir.node import Attrs
from relaxlab.ir.op_table import op_names
from relaxlab.ir.types import TensorType

X = graph.Var("x", TensorType((expr.Var("n"), expr.const(4)), "float16"))


def test_attributes_get_their_defaults_and_absent_ones_are_left_out() -> None:
    assert ops.nn.softmax(X).attrs == Attrs(axis=-1)
    assert ops.sum(X, axis=0).attrs == Attrs(axis=0, keepdims=False)
    assert ops.sum(X).attrs == Attrs(keepdims=False)


def test_scalars_of_the_graph_are_attributes_as_scalars() -> None:
    three, n = graph.PrimValue(expr.const(3)), graph.PrimValue(expr.Var("n"))
    assert ops.arange(three).attrs == ops.arange(3).attrs
    assert ops.repeat(X, repeats=three).attrs == ops.repeat(X, repeats=3).attrs
    assert ops.arange(0, n).attrs["end"] is n.value


def test_numbers_take_the_dtype_of_the_tensor() -> None:
    constant = ops.add(X, 1.5).args[1]
    assert isinstance(constant, graph.Constant)
    assert (constant.data.dtype, constant.data.shape) == (np.float16, ())


def test_tuples_become_shapes_or_tuples() -> None:
    assert isinstance(ops.reshape(X, (2, -1)).args[1], graph.ShapeExpr)
    assert isinstance(ops.concat((X, X)).args[0], graph.Tuple)


def test_optional_and_variadic_arguments() -> None:
    assert len(ops.linear(X, X).args) == 2
    assert len(ops.linear(X, X, X).args) == 3
    assert len(ops.call_pure_packed(graph.ExternFunc("f"), X, X).args) == 3


def test_signatures_come_from_the_rows() -> None:
    assert str(inspect.signature(ops.nn.rms_norm)) == "(data, weight, axes=-1, epsilon=1e-05)"
    with pytest.raises(TypeError, match="missing a required argument: 'x2'"):
        ops.add(X)
    with pytest.raises(TypeError, match="unexpected keyword argument 'axes'"):
        ops.sum(X, axes=0)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="there is no operator 'ad'"):
        _ = ops.ad
    with pytest.raises(AttributeError, match="there is no operator 'nn.sofmax'"):
        _ = ops.nn.sofmax
    with pytest.raises(TypeError, match="cannot be an argument"):
        ops.exp(object())


def test_every_operator_can_be_reached() -> None:
    for name in op_names():
        room, _, last = name.rpartition(".")
        if room in ("", "nn"):
            assert getattr(ops.nn if room else ops, last).row.name == name
