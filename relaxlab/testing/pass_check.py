"""Checking a pass on a program: what it makes, that it stops, and that the meaning stays.

Run times are compared on random arguments; sizes that no vector width divides are among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from relaxlab.analysis.evaluate import evaluate
from relaxlab.analysis.well_formed import check_well_formed
from relaxlab.ir import expr, graph, types
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.dtypes import is_float, numpy_dtype
from relaxlab.ir.equal import assert_structural_equal
from relaxlab.ir.module import Module
from relaxlab.ir.substitute import symbols_in
from relaxlab.passes.base import Pass
from relaxlab.passes.normalize import normalize
from relaxlab.runtime.interpreter import interpret

SIZES = (1, 2, 3, 5, 7, 16, 17)
TOLERANCE = 1e-5


def check_pass(
    one: Pass,
    before: Module,
    expected: Module | None = None,
    *,
    seed: int = 0,
    sizes: Sequence[int] = SIZES,
    compare: bool = True,
) -> Module:
    """Run `one` on the normalised `before` and check the result in four ways: it is `expected`
    (None: the very same module), the pass changes it no further, it is well-formed, and, with
    `compare`, `main` computes the same. Returns the result.
    """
    start = normalize(before)
    after = one(start)
    if expected is None:
        assert after is start, f"{one.name} changed the module:\n{after.script()}"
    else:
        assert_structural_equal(after, normalize(expected), map_free_vars=True)
    check_module(one, start, after)
    if compare:
        compare_runs(start, after, seed=seed, sizes=sizes)
    return after


def check_module(one: Pass, before: Module, after: Module) -> None:
    """The result is well-formed, and the pass leaves it alone, by identity."""
    problems = check_well_formed(after)
    assert not problems, str(DiagnosticError(problems)) + after.script()
    again = one(after)
    assert again is after, f"{one.name} is not idempotent:\n{again.script()}"


def compare_runs(
    a: Module,
    b: Module,
    name: str = "main",
    *,
    seed: int = 0,
    sizes: Sequence[int] = SIZES,
    runs: int = 3,
) -> None:
    """Interpret function `name` of both modules on the same random arguments; compare results and
    what was written to the arguments."""
    fn = a[name]
    assert isinstance(fn, graph.Function)
    rng = np.random.default_rng(seed)
    for _ in range(runs):
        args = random_arguments(fn, rng, sizes)
        theirs = copy_value(args)
        want, got = interpret(a, name, *args), interpret(b, name, *theirs)
        assert_same(got, want, f"the result (seed {seed})")
        assert_same(theirs, args, f"what was written to the arguments (seed {seed})")


def random_arguments(
    fn: graph.Function, rng: np.random.Generator, sizes: Sequence[int] = SIZES
) -> tuple[Any, ...]:
    """Arguments for a function's parameters; symbols get random values from `sizes`, at most their
    declared bounds. Integers are small and not negative, so that they can be indices."""
    bounds = fn.attrs.get("tir_var_upper_bound", {})
    env = {
        s: min(int(rng.choice(sizes)), bounds.get(s.name, 1 << 30)) for s in symbols_in(fn.params)
    }
    return tuple(random_value(p.ty, env, rng) for p in fn.params)


def random_value(ty: types.Type | None, env: dict[expr.Var, int], rng: np.random.Generator) -> Any:
    """A random value of a type, given its symbols' values."""
    match ty:
        case types.TensorType(shape, dtype):
            assert dtype is not None
            dims = shape if shape is not None else (expr.const(3),) * max(ty.ndim, 0)
            size = tuple(evaluate(d, env) for d in dims)
            if is_float(dtype):
                return rng.uniform(-1, 1, size).astype(numpy_dtype(dtype))
            high = 2 if dtype == "bool" else 3
            return rng.integers(0, high, size).astype(numpy_dtype(dtype))
        case types.ShapeType(values) if values is not None:
            return tuple(evaluate(v, env) for v in values)
        case types.PrimType(dtype, value):
            number = evaluate(value, env) if value is not None else int(rng.integers(1, 4))
            return numpy_dtype(dtype).type(number)
        case types.TupleType(fields):
            return tuple(random_value(f, env, rng) for f in fields)
        case _:
            raise TypeError(f"no random value of type {ty}")


def copy_value(value: Any) -> Any:
    """A copy that shares no array."""
    if isinstance(value, tuple):
        return tuple(copy_value(v) for v in value)
    return value.copy() if isinstance(value, np.ndarray) else value


def assert_same(got: Any, want: Any, what: str, tolerance: float = TOLERANCE) -> None:
    """Equal structure, shapes and dtypes; floats within `tolerance`, relative and absolute."""
    if isinstance(want, tuple):
        assert isinstance(got, tuple) and len(got) == len(want), f"{what}: {got!r}"
        for i, (g, w) in enumerate(zip(got, want, strict=True)):
            assert_same(g, w, f"{what}, field {i}", tolerance)
        return
    g, w = np.asarray(got), np.asarray(want)
    assert g.dtype == w.dtype and g.shape == w.shape, (
        f"{what}: {g.dtype} {g.shape}, expected {w.dtype} {w.shape}"
    )
    if is_float(str(w.dtype)):
        np.testing.assert_allclose(
            g.astype("float64"), w.astype("float64"), tolerance, tolerance, err_msg=what
        )
    else:
        np.testing.assert_array_equal(g, w, err_msg=what)
