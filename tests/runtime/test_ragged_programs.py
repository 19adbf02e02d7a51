"""Programs over sequences and matrices of different sizes against NumPy, one matrix at a time."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.equal import structural_equal
from relaxlab.ir.loops import PrimFunc
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.schedule import Schedule
from relaxlab.script import parse
from relaxlab.testing.ragged_programs import SCORES, TRIANGULAR_ADD, TRMM, VGEMM
from tests.schedule.programs import assert_well_formed

Array = np.ndarray[Any, Any]
SEED = int(os.environ.get("RELAXLAB_SEED", "1"))
SIZES = [[0], [1, 1], [5, 5, 5], [0, 17, 1, 0, 6], [33, 2]]


def func_of(text: str) -> PrimFunc:
    return parse(text)[text.split("def ")[1].split("(")[0]]


def sums(*factors: Array) -> Array:
    return np.concatenate([[0], np.cumsum(np.prod(factors, axis=0))]).astype("int64")


def run(program: PrimFunc | Schedule, native: Any, args: list[Array], out: Array) -> list[Array]:
    """The result of the interpreter, and that of compiled code."""
    func = program.func if isinstance(program, Schedule) else program
    results = [out.copy(), out.copy()]
    interpret_prim_func(func, [*args, results[0]])
    native(*args, results[1])
    return results


def compiled(program: PrimFunc | Schedule, name: str) -> Callable[..., Any]:
    return rl.compile(program, use_cache=False)[name]


def plain(sch: Schedule) -> None:
    """No step."""


def whole_tiles(sch: Schedule) -> None:
    """Rows in tiles of four and a rest, matrices on all threads."""
    i, r, *_ = sch.get_loops(sch.get_block("C"))
    sch.parallel(i)
    main, _ = sch.partition(r, 4)
    sch.split(main, factors=[None, 4])


def padded_tiles(sch: Schedule) -> None:
    """Columns in guarded tiles."""
    _, r, c, _ = sch.get_loops(sch.get_block("C"))
    sch.pad_loop(c, 8)
    sch.split(c, factors=[None, 8])
    sch.pad_loop(r, 2)


@pytest.mark.parametrize("steps", [plain, whole_tiles, padded_tiles])
def test_products_of_matrices_of_different_sizes(steps: Callable[[Schedule], None]) -> None:
    print(f"RELAXLAB_SEED={SEED}")
    rng = np.random.default_rng(SEED)
    sch = Schedule(func_of(VGEMM))
    steps(sch)
    assert_well_formed(sch.func)
    native = compiled(sch, sch.name)
    for sizes in SIZES:
        m, n, k = (np.array(rng.permutation(sizes), "int64") for _ in range(3))
        parts = [
            (rng.random((r, d), dtype="float32"), rng.random((d, c), dtype="float32"))
            for r, c, d in zip(m, n, k, strict=True)
        ]
        a, b = (np.concatenate([p[side].ravel() for p in parts]) for side in (0, 1))
        want = np.concatenate([(p @ q).ravel() for p, q in parts])
        args = [m, n, k, sums(m, k), sums(k, n), sums(m, n), a, b]
        for got in run(sch, native, args, np.full_like(want, 7)):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5, err_msg=str((m, n, k)))


def test_scores_of_each_sequence() -> None:
    print(f"RELAXLAB_SEED={SEED}")
    rng = np.random.default_rng(SEED)
    func = func_of(SCORES)
    assert structural_equal(parse(parse(SCORES).script()), parse(SCORES))
    native = compiled(func, "scores")
    for sizes in SIZES:
        s = np.array(sizes, "int64")
        q, k = (rng.random((int(s.sum()), 2, 4), dtype="float32") for _ in range(2))
        o = sums(s)
        want = np.concatenate([
            np.einsum("jhe,lhe->hjl", q[x:y], k[x:y]).ravel()
            for x, y in zip(o[:-1], o[1:], strict=True)
        ])  # fmt: skip
        for got in run(func, native, [s, o, sums(s, s), q, k], np.full_like(want, 7)):
            np.testing.assert_allclose(got, want, rtol=1e-5, err_msg=str(sizes))


def rows_on_threads(sch: Schedule) -> None:
    """Terms in tiles of eight and a rest, rows dealt out to two threads."""
    block = sch.get_block("C")
    i, _, k = sch.get_loops(block)
    sch.decompose_reduction(block, k)
    sch.partition(k, 8)
    turns, thread = sch.split(i, factors=[None, 2])
    sch.reorder(thread, turns)


@pytest.mark.parametrize("steps", [plain, rows_on_threads])
def test_a_triangular_matrix_times_another_one(steps: Callable[[Schedule], None]) -> None:
    rng = np.random.default_rng(SEED)
    sch = Schedule(func_of(TRMM))
    steps(sch)
    assert_well_formed(sch.func)
    native = compiled(sch, sch.name)
    for n, m in ((1, 3), (7, 5), (20, 9)):
        a = np.tril(rng.random((n, n), dtype="float32"))
        above = a + np.triu(np.full_like(a, np.nan), 1)  # is not read
        b = rng.random((n, m), dtype="float32")
        for got in run(sch, native, [above, b], np.full((n, m), 7, "float32")):
            np.testing.assert_allclose(got, a @ b, rtol=1e-5)


def test_sums_of_triangles_leave_the_rest_alone() -> None:
    rng = np.random.default_rng(SEED)
    func = func_of(TRIANGULAR_ADD)
    native = compiled(func, "triangular_add")
    for n in (1, 6, 19):
        a, b = (rng.random((n, n), dtype="float32") for _ in range(2))
        for got in run(func, native, [a, b], np.full((n, n), 7, "float32")):
            np.testing.assert_array_equal(got, np.where(np.tri(n, dtype=bool), a + b, 7))


def test_offsets_that_do_not_fit_are_refused_before_anything_is_written() -> None:
    func = func_of(SCORES)
    s, o, a = np.array([2, 1], "int64"), np.array([0, 2, 3]), np.array([0, 4, 6])
    q, out = np.zeros((3, 2, 4), "float32"), np.full(12, 7, "float32")
    with pytest.raises(rl.CheckFailed, match=r"a\[2\] is 6, not the element before it"):
        compiled(func, "scores")(s, o, a, q, q, out)
    assert (out == 7).all()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("starts=a", "starts=o", "starts that are not the prefix sums of its slices"),
        ('"l": "s[i]"}', '"l": "s[i]", "m": "s[x]"}', "undefined name 'x'"),
        ('{"i": b, "h": 2, "j": "s[i]", "l": "s[i]"}', '{"i": b, "h": 2}', "no dimension whose"),
        ("(first=0, last=u)", "(first=0)", "starts without an end"),
        ('{"i": b, "h": 2,', '{"i": b + 1, "h": 2,', r"b \+ 1 slices, and b \+ 1 starts"),
        ("S[vi, vh, vj, vl] = ", "S[vi, vh, vj] = ", "4 dimensions"),
    ],
)
def test_ragged_buffers_that_cannot_be(old: str, new: str, message: str) -> None:
    assert old in SCORES
    with pytest.raises(DiagnosticError, match=message):
        parse(SCORES.replace(old, new))
