"""The rules for loops that are not equally long: their schedules, and results on random lengths."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.codegen.hoist_guards import hoist_guards
from relaxlab.codegen.lower_blocks import lower_blocks
from relaxlab.codegen.tighten_bounds import tighten_bounds
from relaxlab.ir.expr import Add, Var
from relaxlab.ir.loops import BufferStore, For, IfThenElse, PrimFunc
from relaxlab.ir.node import walk
from relaxlab.ir.target import Target
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.runtime.simt.simt import simt_prim_func
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.rules.table import schedule_kernel
from relaxlab.script import parse
from relaxlab.testing.ragged_programs import (
    MIX,
    SCORES,
    SCORES_OF,
    SOFTMAX,
    TRIANGULAR_ADD,
    TRMM,
    VGEMM,
)
from relaxlab.testing.replay import replay_remarks
from relaxlab.tracing import recording
from tests.schedule.programs import assert_well_formed

Array = np.ndarray[Any, Any]
Case = tuple[list[Array], Array]
SEED = int(os.environ.get("RELAXLAB_SEED", "1"))
LENGTHS = [
    [], [0], [1], [0, 0, 0], [1, 1, 1, 1], [9, 9, 9], [70], [1, 75, 2, 0], [8, 0, 33, 5, 17, 1],
]  # fmt: skip

TRIANGULAR_SUM = '''
@T.prim_func
def triangular_sum(A: T.Buffer(("n", "n"), "float32"), C: T.Buffer(("n",), "float32")):
    for i in range(n):
        for j in range(i + 1):
            with T.sblock("C"):
                vi = T.axis.spatial(n, i)
                vj = T.axis.reduce(vi + 1, j)
                with T.init():
                    C[vi] = T.float32(0)
                C[vi] = C[vi] + A[vi, vj]
'''
"""The sum of each row of a lower triangular matrix."""

ADDED = '''
@T.prim_func
def added(s_: T.handle, o_: T.handle, x: T.Buffer(("t", "d"), "float32"),
          c: T.Buffer(("b", "d"), "float32"), y: T.Buffer(("t", "d"), "float32")):
    s = T.index_function(s_, (b,), "int64", facts=[T.range(0, 513)])
    o = T.index_function(
        o_, (b + 1,), "int64",
        facts=[T.nondecreasing(first=0, last=t), T.prefix_sums(lambda i: s[i])])
    for i in range(b):
        for j in range(s[i]):
            for k in range(d):
                with T.sblock("y"):
                    vi = T.axis.spatial(b, i)
                    vj = T.axis.spatial(s[vi], j)
                    vk = T.axis.spatial(d, k)
                    y[o[vi] + vj, vk] = x[o[vi] + vj, vk] + c[vi, vk]
'''
"""A row for each sequence added to its rows."""


PLAIN = """
@T.prim_func
def plain(s_: T.handle, o_: T.handle, x: T.Buffer(("t", "d"), "float32"),
          y: T.Buffer(("t", "d"), "float32")):
    b = T.int64()
    s = T.index_function(s_, (b,), "int32", facts=[T.range(0, 513)])
    o = T.index_function(
        o_, (b + 1,), "int32",
        facts=[T.nondecreasing(first=0, last=t), T.prefix_sums(lambda i: s[i])])
    for i in range(b):
        for j in range(s[i]):
            for k in range(d):
                y[o[i] + j, k] = x[o[i] + j, k] * T.float32(2)
"""
"""All rows doubled, without blocks and with lengths of int32."""

PLAIN_MAX = """
@T.prim_func
def plain_max(s_: T.handle, o_: T.handle, x: T.Buffer(("t", "d"), "float32"),
              y: T.Buffer(("b", "d"), "float32")):
    s = T.index_function(s_, (b,), "int32", facts=[T.range(0, 513)])
    o = T.index_function(
        o_, (b + 1,), "int32",
        facts=[T.nondecreasing(first=0, last=t), T.prefix_sums(lambda i: s[i])])
    for i in range(b):
        for k in range(d):
            y[i, k] = T.float32(-1)
            for j in range(s[i]):
                y[i, k] = T.max(y[i, k], x[o[i] + j, k])
"""
"""The largest of the rows of each sequence, or -1."""

PLAIN_SOFTMAX = """
@T.prim_func
def plain_softmax(s_: T.handle, o_: T.handle, x: T.Buffer(("t",), "float32"),
                  y: T.Buffer(("t",), "float32")):
    b = T.int64()
    s = T.index_function(s_, (b,), "int32", facts=[T.range(0, 513)])
    o = T.index_function(
        o_, (b + 1,), "int32",
        facts=[T.nondecreasing(first=0, last=t), T.prefix_sums(lambda i: s[i])])
    m = T.alloc_buffer((1,), "float32")
    z = T.alloc_buffer((1,), "float32")
    for i in range(b):
        m[0] = T.float32("-inf")
        for j in range(s[i]):
            m[0] = T.max(m[0], x[o[i] + j])
        z[0] = T.float32(0)
        for j in range(s[i]):
            z[0] = z[0] + T.exp(x[o[i] + j] - m[0])
        for j in range(s[i]):
            y[o[i] + j] = T.exp(x[o[i] + j] - m[0]) / z[0]
"""
"""The softmax of each sequence."""

PLAIN_SCAN = """
@T.prim_func
def plain_scan(s_: T.handle, o_: T.handle, x: T.Buffer(("t",), "float32"),
               y: T.Buffer(("t",), "float32")):
    b = T.int64()
    s = T.index_function(s_, (b,), "int32", facts=[T.range(0, 513)])
    o = T.index_function(
        o_, (b + 1,), "int32",
        facts=[T.nondecreasing(first=0, last=t), T.prefix_sums(lambda i: s[i])])
    for i in range(b):
        for j in range(s[i]):
            y[o[i] + j] = x[o[i] + j]
        for j in range(1, s[i]):
            y[o[i] + j] = y[o[i] + j] + y[o[i] + j - 1]
"""
"""Running sums along each sequence, which depend on each other within it alone."""

PLAIN_PRODUCT = """
@T.prim_func
def plain_product(A: T.Buffer(("n", "n"), "float32"), B: T.Buffer(("n", "m"), "float32"),
                  C: T.Buffer(("n", "m"), "float32")):
    for i in range(n):
        for j in range(m):
            C[i, j] = T.float32(0)
            for k in range(i + 1):
                C[i, j] = C[i, j] + A[i, k] * B[k, j]
"""
"""A triangular matrix times another one, without blocks."""


def sums(*factors: Array) -> Array:
    return np.concatenate([[0], np.cumsum(np.prod(factors, axis=0))]).astype(factors[0].dtype)


def products(lengths: list[int], rng: np.random.Generator) -> Case:
    m, n, k = (np.array(rng.permutation(lengths), "int64") for _ in range(3))
    parts = [
        (rng.random((r, d), dtype="float32"), rng.random((d, c), dtype="float32"))
        for r, c, d in zip(m, n, k, strict=True)
    ]
    none = [np.zeros(0, "float32")]
    a, b = (np.concatenate(none + [p[side].ravel() for p in parts]) for side in (0, 1))
    want = np.concatenate(none + [(p @ q).ravel() for p, q in parts])
    return [m, n, k, sums(m, k), sums(k, n), sums(m, n), a, b], want


def scores(lengths: list[int], rng: np.random.Generator) -> Case:
    s = np.array(lengths, "int64")
    o = sums(s)
    q, k = (rng.random((int(o[-1]), 2, 4), dtype="float32") for _ in range(2))
    parts = [np.einsum("jhe,lhe->hjl", q[x:y], k[x:y]).ravel()
             for x, y in zip(o[:-1], o[1:], strict=True)]  # fmt: skip
    return [s, o, sums(s, s), q, k], np.concatenate([np.zeros(0, "float32"), *parts])


def mix(lengths: list[int], rng: np.random.Generator) -> Case:
    s = np.array(lengths, "int64")
    o, a = sums(s), sums(s, s)
    w = rng.random(int(a[-1]) * 2, dtype="float32")
    v = rng.random((int(o[-1]), 2, 4), dtype="float32")
    want = np.zeros_like(v)
    for i, n in enumerate(lengths):
        part = w[2 * a[i] : 2 * a[i + 1]].reshape(2, n, n)
        want[o[i] : o[i + 1]] = np.einsum("hjl,lhe->jhe", part, v[o[i] : o[i + 1]])
    return [s, o, a, w, v], want


def weights(lengths: list[int], rng: np.random.Generator) -> Case:
    s = np.array(lengths, "int64")
    a = sums(s, s)
    x = rng.random(int(a[-1]) * 2, dtype="float32")
    parts = [np.zeros(0, "float32")]
    for i, n in enumerate(lengths):
        e = np.exp(x[2 * a[i] : 2 * a[i + 1]].reshape(2 * n, n))
        parts.append((e / e.sum(1, keepdims=True)).ravel())
    return [s, sums(s), a, x], np.concatenate(parts)


def triangle(lengths: list[int], rng: np.random.Generator) -> tuple[Array, int]:
    """A lower triangular matrix, and NaN that nobody may read above."""
    n = sum(lengths)
    a = rng.random((n, n), dtype="float32")
    return np.where(np.tri(n, dtype=bool), a, np.float32(np.nan)), n


def triangular_product(lengths: list[int], rng: np.random.Generator) -> Case:
    a, n = triangle(lengths, rng)
    b = rng.random((n, 1 + len(lengths) * 11), dtype="float32")
    return [a, b], np.nan_to_num(a) @ b


def triangular_sum(lengths: list[int], rng: np.random.Generator) -> Case:
    a, _ = triangle(lengths, rng)
    return [a], np.nan_to_num(a).sum(1)


def triangular_add(lengths: list[int], rng: np.random.Generator) -> Case:
    (a, n), (b, _) = triangle(lengths, rng), triangle(lengths, rng)
    return [a, b], np.where(np.tri(n, dtype=bool), a + b, np.float32(7))


def added(lengths: list[int], rng: np.random.Generator) -> Case:
    s = np.array(lengths, "int64")
    x = rng.random((sum(lengths), 19), dtype="float32")
    c = rng.random((len(s), 19), dtype="float32")
    return [s, sums(s), x, c], x + np.repeat(c, s, axis=0)


def plain(lengths: list[int], rng: np.random.Generator) -> Case:
    s = np.array(lengths, "int32")
    x = rng.random((sum(lengths), 19), dtype="float32")
    return [s, sums(s), x], 2 * x


def plain_max(lengths: list[int], rng: np.random.Generator) -> Case:
    (s, o, x), _ = plain(lengths, rng)
    parts = [x[a:b].max(0, initial=-1) for a, b in zip(o[:-1], o[1:], strict=True)]
    return [s, o, x], np.array(parts, "float32").reshape(len(s), 19)


def plain_softmax(lengths: list[int], rng: np.random.Generator) -> Case:
    s = np.array(lengths, "int32")
    x = rng.random(sum(lengths), dtype="float32")
    parts = [np.exp(p) / np.exp(p).sum() for p in np.split(x, np.cumsum(s)[:-1])] if lengths else []
    return [s, sums(s), x], np.concatenate([np.zeros(0, "float32"), *parts])


def plain_scan(lengths: list[int], rng: np.random.Generator) -> Case:
    (s, o, x), _ = plain_softmax(lengths, rng)
    parts = [np.cumsum(p) for p in np.split(x, np.cumsum(s)[:-1])] if lengths else []
    return [s, o, x], np.concatenate([np.zeros(0, "float32"), *parts])


PROGRAMS: dict[str, Callable[[list[int], np.random.Generator], Case]] = {
    VGEMM: products, SCORES: scores, SOFTMAX: weights, MIX: mix, TRMM: triangular_product,
    TRIANGULAR_SUM: triangular_sum,
    TRIANGULAR_ADD: triangular_add, ADDED: added, PLAIN: plain, PLAIN_MAX: plain_max,
    PLAIN_PRODUCT: triangular_product, PLAIN_SOFTMAX: plain_softmax,
}  # fmt: skip
NAMES = [text.split("def ")[1].split("(")[0] for text in PROGRAMS]


def program(name: str) -> tuple[PrimFunc, Callable[[list[int], np.random.Generator], Case]]:
    text, case = list(PROGRAMS.items())[NAMES.index(name)]
    func = parse(text)[name]
    return func, case


def scheduled(name: str, func: PrimFunc, target: Target) -> PrimFunc:
    """The function as the rule makes it; its trace makes it again."""
    with recording() as remarks:
        made = schedule_kernel(name, func, Context(target))
    reasons = [r.reason for r in remarks]
    assert "scheduled by the rule ragged" in reasons, reasons
    assert_well_formed(made)
    replay_remarks(remarks, {name: made})
    return made


@pytest.mark.parametrize("name", NAMES)
def test_threads_agree_with_numpy_on_all_lengths(name: str) -> None:
    print(f"RELAXLAB_SEED={SEED}")
    func, case = program(name)
    made = scheduled(name, func, Target.host())
    exe = rl.compile(func)
    for lengths in LENGTHS:
        args, want = case(lengths, np.random.default_rng(SEED))
        results = [np.full_like(want, 7) for _ in range(4)]
        scalars = [sum(lengths) for p in func.params if isinstance(p, Var)]
        for exe.threads, out in zip((1, 2, 5), results, strict=False):
            exe[name](*args, out, *scalars)
            np.testing.assert_array_equal(out, results[0], err_msg=f"{lengths}: threads matter")
        interpreted = lengths == LENGTHS[7]  # whole tiles of guarded iterations take seconds
        if interpreted:
            interpret_prim_func(made, [*args, results[3], *scalars])
        for got in results[:: 3 if interpreted else 4]:
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5, err_msg=str(lengths))


@pytest.mark.parametrize("name", NAMES)
def test_a_gpu_agrees_with_numpy(name: str) -> None:
    print(f"RELAXLAB_SEED={SEED}")
    func, case = program(name)
    made = scheduled(name, func, Target.cuda())
    for lengths in ([0], [3, 0, 37, 1]):
        args, want = case(lengths, np.random.default_rng(SEED))
        out = np.full_like(want, 7)
        scalars = [sum(lengths) for p in func.params if isinstance(p, Var)]
        simt_prim_func(made, [*args, out, *scalars], name=name).check()
        np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-5, err_msg=str(lengths))


def test_a_scan_of_each_sequence_is_shared_out_by_sequences() -> None:
    func = parse(PLAIN_SCAN)["plain_scan"]
    made = schedule_kernel("plain_scan", func, Context(Target.host()))
    assert 'for i in T.parallel(b, annotations={"balanced": 1})' in made.script()
    exe = rl.compile(func, threads=3)["plain_scan"]
    for lengths in LENGTHS:
        args, want = plain_scan(lengths, np.random.default_rng(SEED))
        got = [np.full_like(want, 7) for _ in range(2)]
        interpret_prim_func(made, [*args, got[0]])
        exe(*args, got[1])
        for x in got:
            np.testing.assert_allclose(x, want, rtol=1e-4, atol=1e-5, err_msg=str(lengths))


PRODUCTS = {"vgemm": VGEMM, "scores": SCORES_OF.substitute(heads=2, features=64), "mix": MIX,
            "trmm": TRMM}  # fmt: skip


@pytest.mark.parametrize("name", PRODUCTS)
def test_whole_tiles_of_products_are_tested_once(name: str) -> None:
    """Their terms are a loop of rows by vectors in registers without a condition; a triangle's loop
    ends before its diagonal, whose tiles are a loop of their own."""
    func = parse(PRODUCTS[name])[name]
    made = schedule_kernel(name, func, Context(Target.host()))
    lowered = hoist_guards(tighten_bounds(lower_blocks(made.body)[0]))
    terms = [
        n for n in walk(lowered) if isinstance(n, For) and n.kind == "serial"
        and isinstance(n.body, For) and n.body.kind == "unrolled"
        and any(isinstance(m, BufferStore) and m.buffer.name.endswith("_private")
                and isinstance(m.value, Add) for m in walk(n.body))
    ]  # fmt: skip
    whole = [n for n in terms if not any(isinstance(m, IfThenElse) for m in walk(n))]
    assert whole and len(whole) < len(terms)
    if name == "trmm":
        (rows,) = {n.body.extent for n in whole if isinstance(n.body, For)}
        assert all(f"i_1 * {rows}" in str(n.extent) for n in whole)
        assert any(n.loop_var.name.endswith("_rest") for n in terms)
