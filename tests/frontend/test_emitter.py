"""The emitter: parameters, rows, what the source states, loops."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.frontend.emitter import Emitter, dtype_of, shape_of
from relaxlab.frontend.places import span_at
from relaxlab.frontend.program import ImportedProgram
from relaxlab.frontend.table import Refused, UnsupportedOperators
from relaxlab.ir import expr, graph, types


def tensor(*dims: expr.ExprLike, dtype: str = "float32") -> types.TensorType:
    return types.TensorType(tuple(map(expr.as_expr, dims)), dtype)


def program() -> ImportedProgram:
    """`x @ w`, ten times; x has twice as many rows as m has elements, at least 2 of these."""
    b = Emitter("Test")
    n = b.symbols("n")
    b.symbols.constrain("n", 2, 64)
    b.symbols.constrain("unused", 2, 64)
    x, _ = b.input("x", tensor(n * 2, 4)), b.input("m", tensor(n))
    w = b.weight("layer.w", np.full((4, 4), 0.5, "float32"))
    out = [tensor(n * 2, 4)]
    y = b.apply("t.mm", lambda b, x, w: b.matmul(x, w), (x, w), out=out, span=span_at(__file__, 1))
    count, y = b.while_loop(
        lambda i, y, w: b.less(i, 9),
        lambda i, y, w: (b.add(i, 1), b.multiply(b.matmul(y, w), 0.5)),
        (b.scalar(0, "int64"), y),
        (w,),
    )
    return ImportedProgram(b.finish((y, b.scalar(n + 1, "int64"), count)), b.params)


def test_parameters_loops_and_bounds() -> None:
    imported = program()
    main = imported.module["main"]
    assert [p.name for p in main.params] == ["x", "m", "layer_w"]
    assert dict(main.attrs["tir_var_upper_bound"]) == {"n": 64}
    compiled = imported.compile()
    x = np.linspace(-1, 1, 24, dtype="float32").reshape(6, 4)
    y, size, count = compiled(x, np.zeros(3, "float32"))
    expected = x @ imported.params["layer.w"]
    for _ in range(9):
        expected = expected @ imported.params["layer.w"] * 0.5
    np.testing.assert_allclose(y, expected, rtol=1e-5)
    assert (size, count) == (4, 9)
    with pytest.raises(rl.CheckFailed, match="needs n >= 2"):
        compiled(x[:2], np.zeros(1, "float32"))
    with pytest.raises(TypeError, match="no arguments by name: m"):
        compiled(x, m=np.zeros(3, "float32"))


def test_places_reach_the_bindings() -> None:
    main = program().module["main"]
    spans = [b.span for block in main.body.blocks for b in block.bindings]
    (product,) = [s for s in spans if s is not None]
    assert str(product) == f"{__file__}:1:1"
    assert product.source.line(1).startswith('"""The emitter')


def test_all_refusals_are_reported() -> None:
    b = Emitter("Test")
    x = b.input("x", tensor(2, 3))

    def refusing(b: Emitter, x: graph.Var) -> graph.Var:
        raise Refused("no such mode")

    span = span_at(__file__, 1)
    y = b.apply("t.a", refusing, (x,), out=[tensor(2, 3)], span=span)
    b.apply("t.b", lambda b, x: b.exp(x), (y,), out=[tensor(2, 4)])
    b.apply("t.b", lambda b, x: b.exp(x), (y,), out=[tensor(2, 3, dtype="int32")])
    z = b.apply("t.c", lambda b, x: b.matmul(x, x), (y,), out=[tensor(2, 2)])
    with pytest.raises(UnsupportedOperators) as caught:
        b.finish(z)
    text = str(caught.value)
    assert text.startswith("3 operators of this Test program cannot be imported:\n")
    assert f"t.a: no such mode (1 call)\n    {__file__}:1: " in text
    assert 't.b: its row computes R.Tensor((2, 3), "float32"), and Test states' in text.replace(
        "'", '"'
    )
    assert "R.matmul" in text
    assert [p.name for p in caught.value.problems] == ["t.a", "t.b", "t.b", "t.c"]


def test_what_is_not_proved_is_checked() -> None:
    b = Emitter("Test")
    n, m = b.symbols("n"), b.symbols("m")
    x, y = b.input("x", tensor(n)), b.input("y", tensor(m))
    z = b.apply("t.exp", lambda b, x: b.exp(x), (x,), out=[tensor(m)])
    compiled = ImportedProgram(b.finish(b.add(z, y)), b.params).compile()
    assert compiled(np.zeros(3, "float32"), np.ones(3, "float32")).tolist() == [2, 2, 2]
    with pytest.raises(rl.CheckFailed):
        compiled(np.zeros(3, "float32"), np.ones(4, "float32"))


def test_values() -> None:
    b = Emitter("Test")
    x = b.input("x", tensor(2, dtype="int32"))
    assert b.cast(x, "int32") is x and dtype_of(b.cast(x, "float32")) == "float32"
    assert [shape_of(f) for f in b.fields(b.split(x, 2))] == [(expr.const(1),)] * 2
    with pytest.raises(Refused, match="shape is known"):
        shape_of(graph.Var("v", types.TensorType(None, "float32", 2)))
    with pytest.raises(Refused, match="needs a tensor"):
        dtype_of(graph.Var("v", types.ObjectType()))
    with pytest.raises(AttributeError, match="operator 'nonsense'"):
        b.nonsense  # noqa: B018
    b.weight("w", np.zeros(2, "float32"))
    with pytest.raises(ValueError, match="before the weights"):
        b.input("y", tensor(2))
