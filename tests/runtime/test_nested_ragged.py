"""Loops and buffers whose extents depend on two outer indices: words of sentences of documents."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.module import Module
from relaxlab.ir.target import Target
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.runtime.native.loaded import CheckFailed
from relaxlab.runtime.simt.simt import simt_prim_func
from relaxlab.schedule import Schedule, ScheduleError, apply_trace
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.rules.table import schedule_kernel
from relaxlab.script import parse
from relaxlab.testing.ragged_programs import NESTED
from tests.schedule.programs import assert_well_formed

DOCUMENTS = [[], [[]], [[3]], [[2, 0], [], [4, 1, 7]], [[1], [0, 0], [20, 3], []]]
"""Documents: the numbers of words of each of their sentences."""


def func_of(text: str = NESTED) -> PrimFunc:
    return parse(text)["nested"]


def sums(x: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(x)]).astype("int64")


def given(documents: list[list[int]]) -> tuple[list[np.ndarray], np.ndarray]:
    """All arguments but the last, and what the products are."""
    s = np.array([len(d) for d in documents], "int64")
    t = np.array([n for d in documents for n in d], "int64")
    x = np.random.default_rng(len(t)).random((int(t.sum()), 4), dtype="float32")
    parts = np.split(x, np.cumsum(t))[: len(t)]
    want = np.concatenate([(r @ r.T).ravel() for r in parts] or [np.zeros(0, "float32")])
    return [s, sums(s), t, sums(t), sums(t * t), x], want


def check(run, documents=DOCUMENTS) -> None:  # type: ignore[reportMissingParameterType]
    for d in documents:
        args, want = given(d)
        got = np.full_like(want, 7)
        run(*args, got)
        np.testing.assert_allclose(got, want, 1e-5, 1e-6, err_msg=str(d))


def test_the_script_is_that_of_packed_memory_and_reads_back() -> None:
    func = func_of()
    assert_well_formed(func)
    mod = Module.of({"nested": func})
    text = mod.script()
    assert "for k, l, d in T.grid(t[o[i] + j], t[o[i] + j], 4)" in text
    assert "X[p[o[vi] + vj] + vk, vd]" in text
    assert rl.structural_equal(rl.parse(text), mod)


def test_interpreted_and_compiled() -> None:
    func = func_of()
    check(lambda *a: interpret_prim_func(func, a))
    check(rl.compile(func, checks="all", use_cache=False)["nested"])


def test_on_simulated_threads_of_a_gpu() -> None:
    func = schedule_kernel("nested", func_of(), Context(Target("cuda")))
    check(lambda *a: simt_prim_func(func, a, name="nested").check(), DOCUMENTS[2:])


def test_tables_are_made_by_the_program() -> None:
    """Starts of sentences, of words and of products, each from the lengths alone."""
    mod = rl.parse(NESTED + '''
@R.function
def main(s: R.Tensor(("b",), "int64"), t: R.Tensor(("n",), "int64"),
         x: R.Tensor(("m", 4), "float32"), size: R.Shape(["u"])):
    return R.call_tir(cls.nested, (s, t, x), out_ty=R.Tensor(("u",), "float32"))
''')
    exe = rl.compile(mod, use_cache=False)
    for d in DOCUMENTS[2:]:
        (s, _, t, _, _, x), want = given(d)
        size = (len(want),)
        np.testing.assert_allclose(rl.interpret(mod, "main", s, t, x, size), want, 1e-5, 1e-6)
        np.testing.assert_allclose(exe["main"](s, t, x, size), want, 1e-5, 1e-6)
    (s, _, t, _, _, x), want = given(DOCUMENTS[3])
    with pytest.raises(CheckFailed, match=r"\[1\] is -1, not in T.range\(0, 513\)"):
        exe["main"](s, np.array([2, -1, 4, 1, 8]), x, (len(want),))
    with pytest.raises(CheckFailed, match="o ends with 6, not n = 5"):
        exe["main"](np.array([3, 0, 3]), t, x, (len(want),))


def test_both_levels_become_one_loop() -> None:
    sch = Schedule(func_of())
    i, j, *_ = sch.get_loops(sch.get_block("Y"))
    sch.parallel(sch.fuse(i, j))
    assert "Y[vk * t[vi_vj] + a[vi_vj] + vl]" in sch.func.script()
    assert "o[" not in sch.func.script().split("for ")[1]
    again = apply_trace(sch.original, sch.trace_json()).func
    assert rl.structural_equal(Module.of({"f": again}), Module.of({"f": sch.func}))
    check(lambda *a: interpret_prim_func(sch.func, a))
    check(rl.compile(sch, use_cache=False)["nested"])


@pytest.mark.parametrize("at", range(4))
def test_loops_of_either_level_are_independent(at: int) -> None:
    """Words of different sentences have places of their own, and products of the same one."""
    sch = Schedule(func_of())
    sch.parallel(sch.get_loops(sch.get_block("Y"))[at])
    check(rl.compile(sch, use_cache=False, threads=3)["nested"])


def test_tiles_padding_parts_and_shares() -> None:
    sch = Schedule(func_of())
    i, j, k, other, _ = sch.get_loops(sch.get_block("Y"))
    sch.balance(i, j)
    sch.partition(k, 4)
    sch.pad_loop(other, 8)
    sch.split(other, factors=[None, 8])
    check(rl.compile(sch, use_cache=False, threads=2)["nested"])
    with pytest.raises(ScheduleError, match="does not depend on the loops outside"):
        sch2 = Schedule(func_of())
        _, j, k, *_ = sch2.get_loops(sch2.get_block("Y"))
        sch2.fuse(j, k)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"t[i, j]", "d": 4}', '"s[i]", "d": 4}', "the number of the slice i, j does not tell"),
        ("starts=(o, p)", "starts=(o, a)", "not the prefix sums of its slices"),
        ("starts=(o, p)", "starts=o", "the number of the slice i does not tell"),
        ('"t[i, j]", "l": "t[i, j]"', "3", "whose extent depends on j"),
        ('{"i": b, "j": "s[i]"}, "int64"', '{"i": b, "j": "s[i]", "e": 2}, "int64"',
         "a one-dimensional array"),
        ("lambda f: t[f])])", "lambda f: t[f, f, f])])", "is indexed with 3"),
    ],
)  # fmt: skip
def test_nested_buffers_that_cannot_be(old: str, new: str, message: str) -> None:
    assert NESTED.replace(old, new) != NESTED
    with pytest.raises(DiagnosticError, match=message):
        func_of(NESTED.replace(old, new))
