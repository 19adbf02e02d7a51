"""Index functions that calls leave out: computed once for all kernels that need them."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.analysis.prelude import prelude_of
from relaxlab.ir import graph, host
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.module import Module
from relaxlab.ir.node import walk
from relaxlab.passes.build_prelude import build_prelude
from relaxlab.passes.lower_shapes import lower_shapes
from relaxlab.passes.normalize import normalize
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.script.parser import parse
from relaxlab.testing.pass_check import check_module

SEED = int(os.environ.get("RELAXLAB_SEED", "1"))
LENGTHS: list[list[int]] = [[], [0], [1], [0, 3, 0], [7, 7, 7], [40], [1, 33, 2, 0, 9]]

ROWS = """
@T.prim_func
def scaled(s_: T.handle, o_: T.handle, x: T.Buffer(("t", 4), "float32"),
           c: T.Buffer(("b",), "float32"), y: T.Buffer(("t", 4), "float32")):
    s = T.index_function(s_, (b,), "int32", facts=[T.range(0, 513)])
    o = T.index_function(o_, (b + 1,), "int64", facts=[
        T.nondecreasing(first=0, last=t), T.prefix_sums(lambda i: s[i])])
    for i in range(b):
        for j in range(s[i]):
            for k in range(4):
                y[o[i] + j, k] = x[o[i] + j, k] * c[i]

@T.prim_func
def shifted(s_: T.handle, o_: T.handle, r_: T.handle, q: T.Buffer(("b",), "int64"), p_: T.handle,
            x: T.Buffer(("t", 4), "float32"), c: T.Buffer(("b",), "float32"),
            y: T.Buffer(("t", 4), "float32")):
    s = T.index_function(s_, (b,), "int32", facts=[T.range(0, 513)])
    o = T.index_function(o_, (b + 1,), "int64", facts=[
        T.nondecreasing(first=0, last=t), T.prefix_sums(lambda i: s[i])])
    r = T.index_function(r_, (t,), "int64", facts=[T.segment_ids(lambda i: o[i])])
    p = T.index_function(p_, (b,), "int64", facts=[T.permutation(lambda i: q[i])])
    for f in range(t):
        for k in range(4):
            y[f, k] = x[f, k] + c[q[p[r[f]]]]

@R.function
def main(s: R.Tensor(("b",), "int32"), p: R.Tensor(("b",), "int64"),
         x: R.Tensor(("t", 4), "float32"), c: R.Tensor(("b",), "float32")):
    with R.dataflow():
        y = R.call_tir(cls.scaled, (s, x, c), out_ty=R.Tensor((t, 4), "float32"))
        z = R.call_tir(cls.shifted, (s, p, y, c), out_ty=R.Tensor((t, 4), "float32"))
        w = R.call_tir(cls.scaled, (s, z, c), out_ty=R.Tensor((t, 4), "float32"))
        R.output(w)
    return w
"""


def kernels(mod: Module) -> list[str]:
    program = lower_shapes(rl.trace(mod).result)
    instrs = host.walk_instrs(program.functions["main"].instrs)
    return [i.function for i in instrs if isinstance(i, host.CallKernel)]


def arguments(lengths: list[int], rng: np.random.Generator) -> list[Any]:
    s = np.array(lengths, "int32")
    x = rng.random((sum(lengths), 4), dtype="float32")
    return [s, np.argsort(-s, kind="stable"), x, rng.random(len(s), dtype="float32")]


def test_what_follows_from_the_lengths_is_made_once_for_all_kernels() -> None:
    names = kernels(parse(ROWS))
    made = ("prefix_sums", "segment_ids", "inverse_permutation")
    assert [sum(n.startswith(m) and not n.endswith("_facts") for n in names) for m in made] == [
        1, 1, 1,
    ]  # fmt: skip
    assert names.index("prefix_sums") < names.index("scaled")


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_results_are_those_of_numpy(lengths: list[int], compiled: rl.Executable) -> None:
    print(f"RELAXLAB_SEED={SEED}")
    s, p, x, c = arguments(lengths, np.random.default_rng(SEED))
    of_row = np.repeat(c, s)[:, None]
    want = (x * of_row + of_row) * of_row
    np.testing.assert_allclose(compiled["main"](s, p, x, c), want, rtol=1e-6)
    np.testing.assert_allclose(rl.interpret(parse(ROWS), "main", s, p, x, c), want, rtol=1e-6)


@pytest.fixture(scope="module")
def compiled() -> rl.Executable:
    return rl.compile(parse(ROWS), threads=2)


def test_the_pass_has_all_parts() -> None:
    before = normalize(parse(ROWS))
    after = build_prelude(before)
    calls = [n for n in walk(after["main"]) if isinstance(n, graph.Call)]
    assert all(len(c.args[1].fields) in (1, 4, 7) for c in calls)  # type: ignore[union-attr]
    check_module(build_prelude, before, after)


def test_bytes_are_in_the_trace() -> None:
    reasons = [r.reason for r in rl.trace(parse(ROWS)).find("build_prelude").remarks]
    assert "o is made by prefix_sums: (b + 1) * 8 bytes" in reasons, reasons
    assert "r is made by segment_ids: t * 8 bytes" in reasons, reasons


def test_lengths_that_are_wrong_are_refused_before_any_row_is_written(
    compiled: rl.Executable,
) -> None:
    s, p, x, c = arguments([2, 3], np.random.default_rng(SEED))
    for wrong, message in (([2, -1], r"s\[1\] is -1"), ([2, 4], "o ends with 6, not t = 5")):
        with pytest.raises(rl.CheckFailed, match=message):
            compiled["main"](np.array(wrong, "int32"), p, x, c)
    with pytest.raises(rl.CheckFailed, match=r"p\[1\] is 2, not in T.range\(0, b\)"):
        compiled["main"](s, np.array([0, 2]), x, c)
    with pytest.raises(rl.CheckFailed, match="q is not its inverse"):
        compiled["main"](s, np.array([1, 1]), x, c)


def test_other_numbers_of_arguments_are_refused() -> None:
    with pytest.raises(DiagnosticError, match="scaled takes 5 buffers, given 1 inputs and 1 out"):
        normalize(parse(ROWS.replace("(s, x, c)", "(s,)")))


def test_what_is_not_determined_is_given() -> None:
    loops_alone = ROWS.split("@R.function")[0]
    func = parse(loops_alone.replace("T.prefix_sums(lambda i: s[i])", "T.range(0, 7)"))["scaled"]
    assert prelude_of(func) == ()  # type: ignore[arg-type]
    text = loops_alone.replace("lambda i: s[i])", "lambda i: s[i] * t)")
    assert prelude_of(parse(text)["scaled"]) == ()  # type: ignore[arg-type]


def test_no_prefix_sum_is_stored_where_there_is_no_element() -> None:
    text = ROWS.split("@R.function")[0].replace("(b + 1,)", "(b,)")
    text = text.replace("T.nondecreasing(first=0, last=t), ", "")
    (derived,) = prelude_of(parse(text)["scaled"])  # type: ignore[arg-type]
    interpret_prim_func(derived.func, [np.zeros(0, "int32"), np.zeros(0, "int64")])


RAGGED = ROWS.split("@R.function")[0] + """
@R.function
def main(s: R.Lengths("b", "t", at_most=512),
         x: R.Ragged({"i": "b", "j": "s[i]", "d": 4}, "float32"),
         c: R.Tensor(("b",), "float32")):
    y = R.call_tir(cls.scaled, (s, x, c),
                   out_ty=R.Ragged({"i": "b", "j": "s[i]", "d": 4}, "float32"))
    z = R.add(y, y)
    return z
"""


def test_calls_on_ragged_tensors_leave_out_what_follows_from_the_lengths() -> None:
    print(f"RELAXLAB_SEED={SEED}")
    s, _, x, c = arguments([2, 0, 3], np.random.default_rng(SEED))
    want, mod = 2 * x * np.repeat(c, s)[:, None], parse(RAGGED)
    for run in (rl.compile(mod)["main"], lambda *a: rl.interpret(mod, "main", *a)):
        np.testing.assert_allclose(run(s, x, c), want, rtol=1e-6)
