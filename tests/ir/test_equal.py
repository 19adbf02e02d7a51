"""Structural equality and its key: blind to names, sensitive to everything else.

Generated programs are copied with other names, which changes nothing, and changed in one place,
which both must see.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from relaxlab.ir import expr, graph, loops, types
from relaxlab.ir.equal import (
    StructuralMismatch,
    assert_structural_equal,
    structural_equal,
    structural_key,
)
from relaxlab.ir.module import Module
from relaxlab.ir.node import Atom, Attrs, Node, binder_names, field_names
from tests.passes.graph_programs import Programs
from tests.script.programs import GraphPrograms, LoopPrograms

KINDS = {
    "graph": lambda seed: Programs(seed).module(),
    "odd graph": lambda seed: GraphPrograms(random.Random(seed)).module(),
    "loops": lambda seed: LoopPrograms(random.Random(seed)).prim_func(),
}
NAMED = (graph.GlobalVar, graph.ExternFunc, graph.Op)


def renamed(root: Any) -> Any:
    """A copy whose variables and buffers are other ones, with other names."""
    atoms: dict[Atom, Atom] = {}

    def copy(value: Any) -> Any:
        if isinstance(value, NAMED):
            return value
        if isinstance(value, Atom):
            if value not in atoms:
                fields = {n: copy(getattr(value, n)) for n in field_names(type(value))}
                atoms[value] = dataclasses.replace(value, **{**fields, "name": f"r{len(atoms)}"})
            return atoms[value]
        if isinstance(value, Node):
            fields = {n: copy(getattr(value, n)) for n in field_names(type(value))}
            return dataclasses.replace(value, **fields, span=None)
        if isinstance(value, tuple):
            return tuple(map(copy, value))
        if isinstance(value, Attrs):
            return Attrs({k: copy(v) for k, v in value.items()})
        return value

    return copy(root)


Place = tuple[Any, ...]


def places(value: Any, path: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Yield the paths and values that a mutation can change: constants, tuples, variables."""
    if isinstance(value, NAMED) or (isinstance(value, Atom) and path):
        yield path, value
    elif isinstance(value, Node):
        for name in field_names(type(value)):
            if name not in binder_names(type(value)):
                yield from places(getattr(value, name), (*path, name))
    elif isinstance(value, tuple):
        yield path, value
        for i, item in enumerate(value):
            yield from places(item, (*path, i))
    elif isinstance(value, Attrs):
        for key in value:
            yield from places(value[key], (*path, key))
    elif isinstance(value, bool | int | float | str | np.ndarray):
        yield path, value


def other(value: Any, atoms: list[Atom], rng: random.Random) -> Any:
    """Another value in place of `value`; `value` itself where there is none."""
    match value:
        case bool():
            return not value
        case int() | float():
            return 7.25 if value != value or abs(value) == float("inf") else value + 1
        case str():
            return value + "_"
        case np.ndarray():
            bits = value.copy()
            bits.reshape(-1).view("uint8")[:1] ^= 1
            return bits if value.size else value[..., None]
        case tuple():
            return value[:-1]
        case graph.GlobalVar() | graph.ExternFunc() | graph.Op():
            return dataclasses.replace(value, name=value.name + "_")
        case _:
            alike = [a for a in atoms if type(a) is type(value) and a is not value]
            return rng.choice(alike) if alike else value


def changed(root: Any, path: Place, new: Any) -> Any:
    """`root` with `new` at `path`."""
    if not path:
        return new
    head, rest = path[0], path[1:]
    if isinstance(root, Node):
        return dataclasses.replace(root, **{head: changed(getattr(root, head), rest, new)})
    if isinstance(root, tuple):
        return (*root[:head], changed(root[head], rest, new), *root[head + 1 :])
    return Attrs({**root, head: changed(root[head], rest, new)})


def read(root: Any, path: Place) -> Any:
    """Return what is at `path`."""
    for step in path:
        root = getattr(root, step) if isinstance(root, Node) else root[step]
    return root


@pytest.mark.parametrize("kind", KINDS)
def test_names_do_not_matter(kind: str, rng: np.random.Generator) -> None:
    for seed in map(int, rng.integers(1 << 32, size=20)):
        one = KINDS[kind](seed)
        two = renamed(one)
        assert_structural_equal(one, two, map_free_vars=True)
        assert structural_key(one) == structural_key(two), f"program {seed}"


@pytest.mark.parametrize("kind", KINDS)
def test_everything_else_matters(kind: str, rng: np.random.Generator) -> None:
    tried = 0
    for seed in map(int, rng.integers(1 << 32, size=20)):
        choose, one = random.Random(seed), KINDS[kind](seed)
        found = [(path, value) for path, value in places(one) if path]
        # The odd programs use variables that nothing defines; another one there is another name.
        atoms = list(dict.fromkeys(v for _, v in found if isinstance(v, Atom) and kind == "graph"))
        for path, value in choose.sample(found, min(25, len(found))):
            new = other(value, atoms, choose)
            if new is value or (isinstance(new, tuple) and new == value):
                continue
            try:
                two = changed(one, path, new)
            except (TypeError, ValueError, AssertionError):
                continue  # nodes refuse it
            if read(two, path) is not new:
                continue  # nodes derive it from other fields
            tried += 1
            where = f"program {seed} at {path}: {value!r} -> {new!r}"
            assert not structural_equal(one, two, map_free_vars=True), where
            assert structural_key(one) != structural_key(two), where
    assert tried > 100


def test_distinct_programs_have_distinct_keys(rng: np.random.Generator) -> None:
    programs = [Programs(int(seed)).module() for seed in rng.integers(1 << 32, size=15)]
    keys = list(map(structural_key, programs))
    for i, one in enumerate(programs):
        for k, two in enumerate(programs):
            assert structural_equal(one, two) == (keys[i] == keys[k])


def test_the_order_of_functions_does_not_matter() -> None:
    mod = Programs(1).module()
    turned = Module(tuple(reversed(mod.functions)))
    assert structural_equal(mod, turned) and structural_key(mod) == structural_key(turned)


def test_free_variables_are_themselves() -> None:
    n, m = expr.Var("n"), expr.Var("n")
    assert structural_equal(n + 1, n + 1) and not structural_equal(n + 1, m + 1)
    assert structural_equal(n + 1, m + 1, map_free_vars=True)
    assert not structural_equal(n + m, m + m, map_free_vars=True), "one to one"
    assert not structural_equal(m + m, n + m, map_free_vars=True), "in both directions"
    assert not structural_equal(n + n, n + m, map_free_vars=True), "also where both have it"
    assert structural_key(n + m) == structural_key(m + n) != structural_key(n + n)
    wide = expr.Var("n", "int32")
    assert not structural_equal(n, wide, map_free_vars=True), "declarations count"
    assert structural_key(n) != structural_key(wide)


def test_floats_by_their_bits() -> None:
    zero, minus, nan = (expr.FloatImm(v, "float32") for v in (0.0, -0.0, float("nan")))
    assert not structural_equal(zero, minus) and structural_key(zero) != structural_key(minus)
    assert structural_equal(nan, expr.FloatImm(float("nan"), "float32"))
    one, true = expr.IntImm(1, "int32"), expr.IntImm(1, "bool")
    assert not structural_equal(one, true) and structural_key(one) != structural_key(true)


def test_a_variable_may_be_bound_twice() -> None:
    """Each binding stands for itself: the inner one hides the outer one."""
    i, j, k = (expr.Var(name) for name in "ijk")
    buffer = loops.Buffer("A", (expr.const(4),))

    def nest(outer: expr.Var, inner: expr.Var, read: expr.Var) -> loops.Stmt:
        store = loops.BufferStore(buffer, expr.Cast("float32", read), (expr.const(0),))
        body = loops.For(inner, expr.const(0), expr.const(4), "serial", store)
        return loops.For(outer, expr.const(0), expr.const(4), "serial", body)

    assert structural_equal(nest(i, i, i), nest(j, k, k))
    assert not structural_equal(nest(i, i, i), nest(j, k, j))
    assert structural_key(nest(i, i, i)) == structural_key(nest(j, k, k))
    assert structural_key(nest(i, i, i)) != structural_key(nest(j, k, j))


def test_the_mismatch_names_the_place() -> None:
    def function(width: int) -> graph.Function:
        x = graph.Var("x", types.TensorType((expr.const(width),), "float32"))
        return graph.Function((x,), graph.SeqExpr((), x))

    one, two = (Module.of({"main": function(width)}) for width in (4, 5))
    with pytest.raises(StructuralMismatch, match=r"\['main'\].params\[0\].ty.shape\[0\].value"):
        assert_structural_equal(one, two)
    with pytest.raises(StructuralMismatch, match="functions .'main'. against .'other'."):
        assert_structural_equal(one, Module.of({"other": function(4)}))
    with pytest.raises(StructuralMismatch, match="1 items against 2"):
        assert_structural_equal((one,), (one, two))
    assert issubclass(StructuralMismatch, AssertionError)
