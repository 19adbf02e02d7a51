"""The node protocol: children, rewriting, attributes; substitution of what nodes mention."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from relaxlab.ir import expr, graph, loops, types
from relaxlab.ir.equal import assert_structural_equal
from relaxlab.ir.node import Attrs, Node, children, map_children, replace, rewrite, walk
from relaxlab.ir.span import Source, Span
from relaxlab.ir.substitute import free_symbols, substitute, symbols_in
from tests.analysis.fuzz_arith import Generator, Undefined, evaluate
from tests.passes.graph_programs import Programs
from tests.script.programs import LoopPrograms

SPAN = Span(Source("file.py", "n + 1"), 1, 0, 1, 5)
N, M = expr.Var("n"), expr.Var("m")


def programs(rng: np.random.Generator, count: int = 10) -> list[Node]:
    seeds = [int(seed) for seed in rng.integers(1 << 32, size=count)]
    made: list[Node] = [Programs(seed).module() for seed in seeds]
    return [*made, *(LoopPrograms(random.Random(seed)).prim_func() for seed in seeds)]


def test_children_are_in_tuples_and_attributes_too() -> None:
    x = graph.Var("x")
    call = graph.Call(graph.Op("reshape"), (x, graph.ShapeExpr((N, M))), Attrs(size=[N, 4]))
    assert children(call) == (call.op, x, call.args[1], N)
    assert [n for n in walk(call) if isinstance(n, expr.Var)] == [N, M, N]
    assert children(graph.Var("y", types.TensorType((N,), "float32"))) == (), "an atom"


def test_nothing_changed_is_the_same_node(rng: np.random.Generator) -> None:
    for program in programs(rng):
        assert map_children(program, lambda n: n) is program
        assert rewrite(program, lambda n: None) is program
        assert rewrite(program, lambda n: n) is program


def test_rewriting_visits_each_node_once_children_first(rng: np.random.Generator) -> None:
    for program in programs(rng, 3):
        seen: list[Node] = []
        rewrite(program, seen.append)
        order = {id(n): i for i, n in enumerate(seen)}
        assert len(seen) == len(order), "shared ones are not visited again"
        assert order.keys() == set(map(id, walk(program)))
        assert all(order[id(c)] < order[id(n)] for n in seen for c in children(n))


def test_rewriting_sees_rebuilt_nodes_and_keeps_spans() -> None:
    inner = expr.Add(N, expr.const(1), span=SPAN)
    outer = expr.Mul(inner, M, span=SPAN)

    def subtract(n: Node) -> Node | None:
        return expr.Sub(n.a, n.b) if isinstance(n, expr.Add) else None

    new = rewrite(outer, subtract)
    assert str(new) == "(n - 1) * m"
    assert new.span is SPAN and new.a.span is SPAN, "that of the node in its place"
    other = Span(Source("other.py", ""), 1, 0, 1, 1)
    moved = rewrite(outer, lambda n: replace(n, span=other) if n is inner else None)
    assert moved.a.span is other, "its own, if it has one"
    assert rewrite(inner, lambda n: M if n is inner else None) is M and M.span is None


def test_attributes() -> None:
    attrs = Attrs({"b": [1, [2]], "a": {"c": 3}})
    assert list(attrs) == ["a", "b"] and attrs["b"] == (1, (2,)) and attrs["a"] == Attrs(c=3)
    assert attrs == Attrs(a=Attrs(c=3), b=(1, (2,))) and hash(attrs) == hash(Attrs(dict(attrs)))
    assert attrs != Attrs() and attrs != {"a": 1}
    assert attrs.with_(a=None, d=4) == Attrs(b=(1, (2,)), d=4)
    assert repr(Attrs(z=1, y="s")) == "Attrs(y='s', z=1)"
    with pytest.raises(TypeError):
        attrs["a"] = 1  # type: ignore[index]


def test_substitution_of_nothing(rng: np.random.Generator) -> None:
    for program in programs(rng):
        assert substitute(program) is program
        assert substitute(program, {expr.Var("other"): expr.const(3)}) is program


def test_substitution_there_and_back(rng: np.random.Generator) -> None:
    for seed in rng.integers(1 << 32, size=10):
        program = Programs(int(seed)).module()  # without arithmetic that folds
        there = {v: expr.Var("fresh", v.dtype) for v in symbols_in(program)}
        new = substitute(program, there)
        assert not set(symbols_in(new)) & set(there)
        back = substitute(new, {fresh: old for old, fresh in there.items()})
        assert_structural_equal(back, program, map_free_vars=True)
        assert set(symbols_in(back)) == set(there)


def test_substituting_means_evaluating_there(rng: np.random.Generator) -> None:
    """e[v := r] at a point is e at the point where v has the value of r."""
    draw, compared = random.Random(int(rng.integers(1 << 32))), 0
    x, y, z = variables = [expr.Var(name) for name in "xyz"]
    for _ in range(300):
        e = Generator(draw, variables, "int64").integer(3)
        r = Generator(draw, [y, z], "int64").integer(2)
        at: dict[Any, int] = {v: draw.randrange(-9, 10) for v in variables}
        try:
            want = evaluate(e, {**at, x: evaluate(r, at)})
        except Undefined:
            continue
        compared += 1
        assert evaluate(substitute(e, {x: r}), at) == want, f"{e} with x = {r} at {at}"
    assert compared > 100


def test_declarations_follow_their_symbols() -> None:
    """A buffer whose shape mentions a replaced symbol is declared anew, once."""
    buffer = loops.Buffer("A", (N,))
    body = loops.BufferStore(buffer, loops.BufferLoad(buffer, (M,)), (N - 1,))
    new = substitute(body, {N: expr.const(8)})
    assert new.buffer is new.value.buffer is not buffer  # type: ignore[attr-defined]
    assert str(new.buffer.shape[0]) == "8" and str(new.indices[0]) == "7", "folded"
    x = graph.Var("x", types.TensorType((N, M), "float32"))
    one, two = substitute(graph.Tuple((x, x)), {M: N}).fields
    assert one is two and str(one.ty) == "R.Tensor((n, n), 'float32')"


def test_symbols() -> None:
    i = expr.Var("i")
    buffer = loops.Buffer("A", (N,))
    loop = loops.For(i, expr.const(0), M, "serial", loops.BufferStore(buffer, i + M, (i,)))
    assert symbols_in(loop) == (i, M, N) and free_symbols(loop) == (M, N)


def test_dimensions_of_tensor_types_are_integers_or_expressions() -> None:
    n = expr.Var("n")
    mixed = types.TensorType((3, n), "int8")  # type: ignore[arg-type]
    assert mixed.shape == (expr.const(3), n)
    with pytest.raises(TypeError, match="an integer or an expression of symbols, not 'n'"):
        types.TensorType(("n",), "int8")  # type: ignore[arg-type]
