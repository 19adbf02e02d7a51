"""Small loop functions to schedule, and ways to compare what two of them compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from relaxlab.analysis.evaluate import evaluate
from relaxlab.analysis.loops_check import check_loops
from relaxlab.analysis.prelude import prelude_of
from relaxlab.ir import expr
from relaxlab.ir.dtypes import is_float
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import (
    Buffer,
    For,
    Nondecreasing,
    Permutation,
    PrimFunc,
    Within,
)
from relaxlab.ir.node import Node, replace, rewrite
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.ops import te
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.schedule import Schedule
from relaxlab.schedule.state import LoopRV
from relaxlab.script import parse

F32 = "float32"


def f32(value: float) -> PrimExpr:
    """A float32 constant."""
    return expr.const(value, F32)


def exp(value: PrimExpr) -> PrimExpr:
    """The exponential."""
    return expr.Call(value.dtype, "exp", (value,))


def guarded(condition: PrimExpr, value: PrimExpr, otherwise: PrimExpr) -> PrimExpr:
    """`value` where the condition holds."""
    return expr.Call(value.dtype, "if_then_else", (condition, value, otherwise))


def matmul(n: PrimExpr, k: PrimExpr, m: PrimExpr) -> PrimFunc:
    """E = max(A @ B + bias, 0)"""
    a, b = te.placeholder((n, k), F32, "A"), te.placeholder((k, m), F32, "B")
    bias = te.placeholder((m,), F32, "bias")
    r = te.reduce_axis(k, "k")
    c = te.compute((n, m), lambda i, j: te.te_sum(a[i, r.var] * b[r.var, j], r), "C")
    d = te.compute((n, m), lambda i, j: c[i, j] + bias[j], "D")
    e = te.compute((n, m), lambda i, j: expr.Max(d[i, j], f32(0)), "E")
    return te.create_prim_func([a, b, bias, e])


def chain(n: PrimExpr, m: PrimExpr) -> PrimFunc:
    """D = (2 A^T + 1)^2, by way of a transpose."""
    a = te.placeholder((n, m), F32, "A")
    b = te.compute((m, n), lambda i, j: a[j, i] * f32(2), "B")
    c = te.compute((m, n), lambda i, j: b[i, j] + f32(1), "C")
    d = te.compute((m, n), lambda i, j: c[i, j] * c[i, j], "D")
    return te.create_prim_func([a, d])


def softmax(n: PrimExpr, m: PrimExpr) -> PrimFunc:
    """Row-wise softmax, in four blocks."""
    a = te.placeholder((n, m), F32, "A")
    r, s = te.reduce_axis(m, "k"), te.reduce_axis(m, "l")
    high = te.compute((n,), lambda i: te.te_max(a[i, r.var], r), "M")
    e = te.compute((n, m), lambda i, j: exp(a[i, j] - high[i]), "X")
    total = te.compute((n,), lambda i: te.te_sum(e[i, s.var], s), "S")
    out = te.compute((n, m), lambda i, j: e[i, j] / total[i], "Y")
    return te.create_prim_func([a, out])


def stencil(n: PrimExpr) -> PrimFunc:
    """C[i] = P[i] + P[i+1] + P[i+2], where P is A with a zero at either end, squared."""
    a = te.placeholder((n,), F32, "A")
    padded = te.compute(
        (n + 2,),
        lambda i: guarded(expr.And(expr.GE(i, 1 + 0 * i), expr.LT(i, n + 1)), a[i - 1], f32(0)),
        "P",
    )
    q = te.compute((n + 2,), lambda i: padded[i] * padded[i], "Q")
    c = te.compute((n,), lambda i: q[i] + q[i + 1] + q[i + 2], "C")
    return te.create_prim_func([a, c])


def reshape(n: PrimExpr) -> PrimFunc:
    """C = A.reshape(4 n).reshape(2 n, 2) + 1"""
    a = te.placeholder((n, expr.const(4)), F32, "A")
    b = te.compute((n * 4,), lambda i: a[i // 4, i % 4], "B")
    c = te.compute((n * 2, expr.const(2)), lambda i, j: b[i * 2 + j] + f32(1), "C")
    return te.create_prim_func([a, c])


def total(n: PrimExpr, m: PrimExpr) -> PrimFunc:
    """One number: the sum of squares of a matrix."""
    a = te.placeholder((n, m), F32, "A")
    r, s = te.reduce_axis(n, "k"), te.reduce_axis(m, "l")
    b = te.compute((n, m), lambda i, j: a[i, j] * a[i, j], "B")
    c = te.compute((expr.const(1),), lambda _: te.te_sum(b[r.var, s.var], r, s), "C")
    return te.create_prim_func([a, c])


def sized(fn: Callable[..., PrimFunc], *sizes: int | str) -> PrimFunc:
    """The function of extents that are numbers or names of symbols."""
    return fn(*(Var(s) if isinstance(s, str) else expr.const(s) for s in sizes))


def pairs() -> PrimFunc:
    """Several terms a step, of which one depends on rows alone."""
    return parse("""
@T.prim_func
def main(A: T.Buffer((6, 5), "float32"), S: T.Buffer((6,), "float32"),
         B: T.Buffer((5, 9), "float32"), C: T.Buffer((6, 9), "float32")):
    for i, j, k in T.grid(6, 9, 5):
        with T.sblock("C"):
            y, x, z = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[y, x] = T.float32(0)
            C[y, x] = C[y, x] + (A[y, z] - S[y]) * B[z, x] + B[z, x]
""")["main"]


PROGRAMS: dict[str, Callable[[], PrimFunc]] = {
    "matmul": lambda: sized(matmul, "n", "k", "m"),
    "matmul_odd": lambda: sized(matmul, "n", 7, 17),
    "matmul_even": lambda: sized(matmul, 8, 4, 16),
    "chain": lambda: sized(chain, "n", 12),
    "softmax": lambda: sized(softmax, "n", "m"),
    "softmax_odd": lambda: sized(softmax, 5, 9),
    "stencil": lambda: sized(stencil, "n"),
    "stencil_even": lambda: sized(stencil, 16),
    "reshape": lambda: sized(reshape, "n"),
    "total": lambda: sized(total, "n", 6),
    "pairs": pairs,
}


def backwards(func: PrimFunc) -> PrimFunc:
    """`func` with its parallel and vectorized loops run one by one, from the last iteration."""

    def visit(n: Node) -> Node | None:
        if isinstance(n, For) and n.kind in ("parallel", "vectorized"):
            body = substitute(n.body, {n.loop_var: n.min + n.min + n.extent - 1 - n.loop_var})
            return replace(n, kind="serial", body=body)
        return None

    return replace(func, body=rewrite(func.body, visit))


Arguments = list[np.ndarray | int]
"""Arrays and numbers for all parameters of a loop function but the last buffer, in order."""


def run(func: PrimFunc, inputs: Sequence[np.ndarray | int], shape: tuple[int, ...]) -> np.ndarray:
    """The function's last buffer, computed; it starts as NaN, or -1 where there is none."""
    out = unwritten(func, shape)
    interpret_prim_func(func, with_result(func, inputs, out))
    return out


def with_result(
    func: PrimFunc, inputs: Sequence[np.ndarray | int], out: np.ndarray
) -> Arguments:
    """All arguments, of which `out` is the last buffer; numbers may follow it."""
    args, at = [*inputs], func.params.index(func.buffers[-1])
    return [*args[:at], out, *args[at:]]


def unwritten(func: PrimFunc, shape: tuple[int, ...]) -> np.ndarray:
    """An array for the function's last parameter, of NaN, or -1 where there is none (unsigned: the
    largest number)."""
    dtype = func.buffers[-1].dtype
    return np.full(shape, np.nan if is_float(dtype) else -1).astype(dtype)


def random_inputs(
    func: PrimFunc, rng: np.random.Generator, size: int
) -> tuple[Arguments, tuple[int, ...]]:
    """Random arguments but for the last buffer, and its shape. Symbols are `size` and what follows
    it, unless facts of index functions say what they are: lengths are random, and the rest is
    computed from them."""
    ends = [f.last for b in func.buffers for f in b.facts if isinstance(f, Nondecreasing)]
    symbols = {d: None for b in func.buffers for d in b.shape if isinstance(d, Var)}
    free = [v for v in symbols if v not in ends]
    values: dict[Var, int] = {v: size + i for i, v in enumerate(free)}
    arrays: dict[Buffer, np.ndarray] = {}
    derived = {d.buffer: d for d in prelude_of(func)}
    pending = [b for b in func.buffers if b.facts or b in derived]
    while pending:  # lengths of inner sequences are as many as the outer ones add up to
        b = next(b for b in pending if values.keys() >= set(symbols_in(b.shape))
                 and (b not in derived or arrays.keys() >= set(derived[b].inputs)))  # fmt: skip
        pending.remove(b)
        shape = tuple(evaluate(n, values) for n in b.shape)
        if b in derived:
            arrays[b] = np.empty(shape, b.dtype)
            made_of = [arrays[x] for x in derived[b].inputs]
            interpret_prim_func(derived[b].func, [*made_of, arrays[b]])
        else:
            arrays[b] = _lengths(b, rng, shape[0])
        last = next((f.last for f in b.facts if isinstance(f, Nondecreasing)), None)
        if isinstance(last, Var):
            values[last] = int(arrays[b][-1])
    for b in func.buffers[:-1]:
        if b not in arrays:
            arrays[b] = random_array(rng, tuple(evaluate(n, values) for n in b.shape), b.dtype)
    out = func.buffers[-1]
    args = [values[p] if isinstance(p, Var) else arrays[p] for p in func.params if p is not out]
    return args, tuple(evaluate(n, values) for n in out.shape)


def _lengths(b: Buffer, rng: np.random.Generator, count: int) -> np.ndarray:
    """Random elements of an index function: a permutation, or lengths of which some are 0."""
    if any(isinstance(f, Permutation) for f in b.facts):
        return rng.permutation(count).astype(b.dtype)
    (within,) = (f for f in b.facts if isinstance(f, Within))
    low, high = evaluate(within.low, {}), evaluate(within.high, {})
    found = rng.integers(low, min(high, low + rng.choice([1, 2, 9, 21])), count)
    return np.where(rng.random(count) < 0.2, low, found).astype(b.dtype)


def assert_same(
    before: PrimFunc, after: PrimFunc, rng: np.random.Generator, sizes: list[int]
) -> None:
    """Both compute the same from random inputs; each size in turn for all symbols, shifted."""
    symbolic = any(isinstance(d, Var) for b in before.buffers for d in b.shape)
    for size in sizes if symbolic else sizes[:1]:
        inputs, shape = random_inputs(before, rng, size)
        expected = run(before, inputs, shape)
        np.testing.assert_allclose(run(after, inputs, shape), expected, rtol=1e-4, atol=1e-5)
        turned = run(backwards(after), inputs, shape)
        np.testing.assert_allclose(turned, expected, rtol=1e-4, atol=1e-5)


def random_array(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Random values of a dtype, small ones of integers."""
    if is_float(dtype):
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, 2 if dtype == "bool" else 8, shape).astype(dtype)


def loop_of(sch: Schedule, block: str, number: int = 0) -> LoopRV:
    """A loop around a block, by its number from outside."""
    return sch.get_loops(sch.get_block(block))[number]


def assert_well_formed(func: PrimFunc, except_for: tuple[str, ...] = ()) -> None:
    """The checker of loop functions finds nothing, except for some codes."""
    found = [d for d in check_loops("main", func) if d.code not in except_for]
    assert not found, "\n".join(d.render() for d in found)
