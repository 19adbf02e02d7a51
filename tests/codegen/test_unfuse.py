"""Parts of fused loops as nests without divisions, against the loops themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

import numpy as np
import pytest

from relaxlab.analysis.evaluate import evaluate
from relaxlab.codegen.positive import is_positive
from relaxlab.codegen.unfuse import unfuse
from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import Buffer, BufferLoad, BufferStore, For, IfThenElse, Stmt
from relaxlab.ir.node import walk

F, N, M, K, FIRST, PAST = (Var(name) for name in ("f", "n", "m", "k", "first", "past"))
FUSED: list[tuple[PrimExpr, tuple[PrimExpr, ...]]] = [
    (N * M, (F // M, F % M)),
    (N * M * K, (F // (M * K), F // K % M, F % K)),
    (N * M * K, (F // K // M, F // K % M, F % K)),
    (
        (N + 2) * (M * K + K),
        (F // (M * K + K), F // K % (M + 1), F % K),
    ),
    (N * ((M + 3) // 4), (F // ((M + 3) // 4), F % ((M + 3) // 4) * 4)),
    (N * 12, (F // 12, F % 12)),
    (N * 12 * 3, (F // 36, F // 3 % 12, F % 3)),
    (N * 4, (F // 4, F % 4)),
]
WITHIN: list[tuple[PrimExpr, tuple[PrimExpr, ...]]] = [
    (N * M * 4, (F // (M * 4), F // 4 % M, F % 4)),
    (N * M * 4, (F // 4 // M, F // 4 % M, F % 4)),
    (N * M * K * 2, (F // 2 // K // M, F // 2 // K % M, F // 2 % K, F % 2)),
]
"""Loops whose innermost extent is a constant."""


def stored(stmt: Stmt | None, at: Mapping[Var, int]) -> Iterator[tuple[int, ...]]:
    """Yield the indices of stores in order."""
    match stmt:
        case For(var, start, extent, _, body):
            begin = evaluate(start, at)
            for i in range(begin, begin + evaluate(extent, at)):
                yield from stored(body, {**at, var: i})
        case IfThenElse(condition, then, None):
            if evaluate(condition, at):
                yield from stored(then, at)
        case BufferStore(_, _, indices):
            yield tuple(evaluate(i, at) for i in indices)
        case _:
            raise AssertionError(stmt)


@pytest.mark.parametrize(("extent", "indices"), FUSED + WITHIN)
def test_unfused(extent: PrimExpr, indices: tuple[PrimExpr, ...], rng: np.random.Generator) -> None:
    """Every part makes the same stores in the same order, and divides by nothing but constants in
    its innermost loop."""
    store = BufferStore(Buffer("B", (N,) * len(indices)), expr.const(0.0, "float32"), indices)
    loop = For(F, expr.const(0), extent, "parallel", store)
    nest = unfuse(loop, FIRST, PAST, lambda e: True)
    if extent == N * 4:
        assert nest is None
        return
    assert nest is not None
    divisors = [
        x.b
        for n in walk(nest) if isinstance(n, BufferStore)
        for i in n.indices for x in walk(i) if isinstance(x, expr.FloorDiv | expr.FloorMod)
    ]  # fmt: skip
    assert all(isinstance(d, expr.IntImm) for d in divisors)
    for sizes in product((1, 2, 5), repeat=3):
        at = dict(zip((N, M, K), sizes, strict=True))
        count = evaluate(extent, at)
        first, past = sorted(int(x) for x in rng.integers(0, count + 1, 2))
        part = For(F, expr.const(first), expr.const(past - first), "serial", store)
        got = list(stored(nest, {**at, FIRST: first, PAST: past}))
        assert got == list(stored(part, at)), (at, first, past)


def test_divisions_of_data_are_left_alone() -> None:
    a, b = (Buffer(name, (N, M), "uint16") for name in "AB")
    at = (F // M, F % M)
    value = expr.FloorDiv(BufferLoad(a, at), BufferLoad(b, at))
    loop = For(F, expr.const(0), N * M, "parallel", BufferStore(a, value, at))
    nest = unfuse(loop, FIRST, PAST, lambda e: True)
    assert any(isinstance(n, expr.FloorDiv) and n.dtype == "uint16" for n in walk(nest))


def test_a_divisor_that_may_be_zero_stays() -> None:
    store = BufferStore(Buffer("B", (N,)), expr.const(0.0, "float32"), (F % M,))
    assert unfuse(For(F, expr.const(0), N, "parallel", store), FIRST, PAST, lambda e: False) is None


def test_only_integers_of_one_type_divide_an_extent() -> None:
    """A divisor of floats is no factor of an extent, whatever its form."""
    extent = {N * M - M}
    assert is_positive(N - 1, extent, {N, M})
    for dtype in ("float32", "int32"):
        x = Var("x", dtype)
        assert not is_positive(x - expr.const(1, dtype), extent, {N, M})


def test_factors_of_an_extent_that_was_multiplied_out_are_positive() -> None:
    """Such as the numbers of images, rows and tiles of columns of a convolution without padding."""
    sizes, tiles = {N, M, K}, (K + 29) // 32
    extent = {N * M * tiles - N * tiles * 2}
    for factor in (N, M - 2, tiles):
        assert is_positive(factor, extent, sizes)
    assert not is_positive(K - 2, extent, sizes)
    assert not is_positive(M - 2, extent, sizes - {M})
