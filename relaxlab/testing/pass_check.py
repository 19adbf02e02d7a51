"""Checking a pass on a program: its result, that a second run changes nothing, and that the meaning
stays.

Run times are compared on random arguments; sizes that no vector width divides are among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from relaxlab.analysis.well_formed import check_well_formed
from relaxlab.ir import graph
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.dtypes import is_float
from relaxlab.ir.equal import assert_structural_equal
from relaxlab.ir.module import Module
from relaxlab.passes.base import Pass, Pipeline
from relaxlab.passes.normalize import normalize
from relaxlab.runtime.check.inputs import SIZES, copy_value, random_arguments
from relaxlab.runtime.interpreter.interpreter import interpret

__all__ = ["assert_same", "check_module", "check_pass", "compare_runs", "copy_value",
           "random_arguments", "remarks_of"]  # fmt: skip

TOLERANCE = 1e-5
"""Relative and absolute, of floats: passes reorder sums, which are short for drawn extents."""


def check_pass(
    one: Pass,
    before: Module,
    expected: Module | None = None,
    *,
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
        compare_runs(start, after)
    return after


def remarks_of(one: Pass, mod: Module) -> list[tuple[str, str, bool]]:
    """The remarks of a pass on a module: subject, reason, and whether it was applied."""
    (record,) = Pipeline((one,)).run(mod).passes
    return [(w.subject, w.reason, w.applied) for w in record.remarks]


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
