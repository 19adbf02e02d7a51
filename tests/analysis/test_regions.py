"""Access regions: exact for affine accesses, never too small."""

import random
from typing import Any

import pytest

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.regions import (
    access_regions,
    full_region,
    region_union,
    relax_index,
)
from relaxlab.ir import expr, loops
from relaxlab.ir.loops import Buffer, BufferLoad, BufferRegion, Range
from tests.analysis.fuzz_arith import function_of

V, C = expr.Var, expr.const
n, m, i, j, k, vi, vj, vk = (V(s) for s in "n m i j k vi vj vk".split())
A = Buffer("A", (n, m))
B = Buffer("B", (m, n))
OUT = Buffer("OUT", (n, n))
ONE_D = Buffer("X", (n,))


def load(buffer: Buffer, *indices: Any) -> BufferLoad:
    return BufferLoad(buffer, tuple(expr.as_expr(e) for e in indices))


def loop(var: expr.Var, extent: Any, body: loops.Stmt) -> loops.For:
    return loops.For(var, C(0), expr.as_expr(extent), "serial", body)


def store(buffer: Buffer, value: Any, *indices: Any) -> loops.BufferStore:
    return loops.BufferStore(
        buffer, expr.as_expr(value, buffer.dtype), tuple(expr.as_expr(e) for e in indices)
    )


def axis(var: expr.Var, extent: Any, kind: Any = "spatial") -> loops.IterVar:
    return loops.IterVar(var, Range(C(0), expr.as_expr(extent)), kind)


def text(regions: tuple[BufferRegion, ...]) -> list[str]:
    return [
        f"{r.buffer.name}[{', '.join(f'{d.min}:+{d.extent}' for d in r.region)}]" for r in regions
    ]


def matmul_block() -> loops.Block:
    value = load(OUT, vi, vj) + load(A, vi, vk) * load(B, vk, vj)
    axes = (axis(vi, n), axis(vj, n), axis(vk, m, "reduce"))
    return loops.Block("C", axes, (), (), store(OUT, value, vi, vj), store(OUT, 0.0, vi, vj))


def test_block_without_its_running_value() -> None:
    reads, writes = access_regions(matmul_block())
    assert text(reads) == ["A[vi:+1, vk:+1]", "B[vk:+1, vj:+1]"]
    assert text(writes) == ["OUT[vi:+1, vj:+1]"]


def test_nested_block_is_relaxed_over_loops() -> None:
    realize = loops.BlockRealize((i, j * 4 + k, V("q")), expr.const(True), matmul_block())
    reads, writes = access_regions(loop(k, 4, realize))
    assert text(reads) == ["A[i:+1, q:+1]", "B[q:+1, j * 4:+4]"]
    assert text(writes) == ["OUT[i:+1, j * 4:+4]"]


def test_predicate_clamps() -> None:
    block = loops.Block("b", (axis(vi, n),), (), (), store(ONE_D, 1.0, vi))
    inside = loops.BlockRealize((i * 16 + k,), expr.LT(i * 16 + k, n), block)
    an = Analyzer.for_shapes((n,))
    an.bind(i, 0, (n + 15) // 16 - 1)
    _, writes = access_regions(loop(k, 16, inside), an)
    assert text(writes) == ["X[i * 16:+min(n - i * 16, 16)]"]


def test_guarded_padding_reads_stay_inside() -> None:
    guard = expr.And(expr.binary(expr.GE, vi, 1), expr.LT(vi, n + 1))
    value = expr.Call("float32", "if_then_else", (guard, load(ONE_D, vi - 1), C(0.0)))
    out = Buffer("P", (n + 2,))
    reads, _ = access_regions(loop(vi, n + 2, store(out, value, vi)))
    assert text(reads) == ["X[0:+n]"]


def test_divisions_and_fused_loops() -> None:
    fused = loop(k, n * m, store(A, load(B, k % m, k // m), k // m, k % m))
    reads, writes = access_regions(fused)
    assert text(reads) == ["B[0:+m, 0:+n]"]
    assert text(writes) == ["A[0:+n, 0:+m]"]
    packed = loop(k, 8, store(ONE_D, load(Buffer("W", (n,)), (i * 8 + k) // 4), i * 8 + k))
    assert text(access_regions(packed)[0]) == ["W[i * 2:+2]"]


def test_gather_takes_the_whole_dimension() -> None:
    where = Buffer("I", (n,), "int64")
    body = store(ONE_D, load(A, load(where, i), 3), i)
    reads, _ = access_regions(loop(i, n, body))
    assert text(reads) == ["I[0:+n]", "A[0:+n, 3:+1]"]
    flat, _ = access_regions(body)
    assert text(flat) == ["I[i:+1]", "A[I[i]:+1, 3:+1]"]


def test_variables_stand_for_places() -> None:
    at = V("at")
    body = loops.LetStmt(at, i + 1, store(ONE_D, load(A, at, 3), at))
    reads, writes = access_regions(loop(i, n - 1, body))
    assert text(reads) == ["A[1:+n - 1, 3:+1]"]
    assert text(writes) == ["X[1:+n - 1]"]


@pytest.mark.parametrize("statements", [False, True])
def test_a_chain_of_variables_does_not_double_at_every_step(statements: bool) -> None:
    chain = [V(f"x{step}", "float32") for step in range(60)]
    value: expr.PrimExpr = chain[-1]
    body: loops.Stmt = store(ONE_D, value, i)
    for before, var in reversed([*zip(chain, chain[1:], strict=False)]):
        value = expr.Let(var, before * before, value)
        body = loops.LetStmt(var, before * before, body)
    first = load(ONE_D, i + 2)
    whole = store(ONE_D, expr.Let(chain[0], first, value), i)
    reads, _ = access_regions(loops.LetStmt(chain[0], first, body) if statements else whole)
    assert text(reads) == ["X[i + 2:+1]"]


def test_several_accesses_make_a_box() -> None:
    body = store(ONE_D, load(A, i, 0) + load(A, i + 2, 1), i)
    assert text(access_regions(body)[0]) == ["A[i:+3, 0:+2]"]
    assert text(access_regions(loop(i, 4, body))[0]) == ["A[0:+6, 0:+2]"]


def test_vector_index() -> None:
    body = store(ONE_D, expr.Broadcast(C(1.0), 8), expr.Ramp(i * 8, C(1), 8))
    assert text(access_regions(body)[1]) == ["X[i * 8:+8]"]


def test_scratch_memory_is_hidden_and_views_count_as_their_source() -> None:
    scratch = Buffer("S", (C(4),))
    view = Buffer("view", (C(1), m))
    source = BufferRegion(A, (Range(vi, C(1)), Range(C(0), m)))
    body = loops.seq(store(scratch, load(view, 0, 1), 0), store(ONE_D, load(scratch, 0), vi))
    block = loops.Block(
        "b", (axis(vi, n),), (), (), body, None, (scratch,),
        (loops.MatchBufferRegion(view, source),),
    )  # fmt: skip
    reads, writes = access_regions(block)
    assert text(reads) == ["A[vi:+1, 0:+m]"]
    assert text(writes) == ["X[vi:+1]"]


def test_address_is_read_and_written_whole() -> None:
    address = expr.Call("handle", "address_of", (load(A, i, j),))
    call = expr.Call("int32", "call_extern", (expr.StringImm("f"), address))
    reads, writes = access_regions(loops.Evaluate(call))
    assert text(reads) == text(writes) == ["A[0:+n, 0:+m]"]


def test_union() -> None:
    an = Analyzer.for_shapes((n, m))
    an.bind(i, 0, n - 1)
    row = BufferRegion(A, (Range(i, C(1)), Range(C(0), m)))
    assert text((region_union(row, full_region(A), an),)) == ["A[0:+n, 0:+m]"]
    with pytest.raises(ValueError, match="A and B"):
        region_union(row, full_region(B), an)
    narrow, wide = (BufferRegion(ONE_D, (Range(V(d, d), C(1, d)),)) for d in ("int32", "int64"))
    assert text((region_union(narrow, wide, an),))[0].startswith("X[min(int64, int64(int32)):+")


def random_index(rng: random.Random, variables: list[expr.Var], depth: int) -> expr.PrimExpr:
    if depth == 0:
        return rng.choice([*variables, C(rng.randint(-3, 9))])
    a = random_index(rng, variables, depth - 1)
    kind = rng.randrange(6)
    if kind < 2:
        return rng.choice([expr.Add, expr.Sub])(a, random_index(rng, variables, depth - 1))
    if kind == 2:
        return a * rng.choice([-2, 2, 3, 4])
    if kind == 5:
        return rng.choice([expr.Min, expr.Max])(a, random_index(rng, variables, depth - 1))
    return expr.binary(rng.choice([expr.FloorDiv, expr.FloorMod]), a, rng.choice([2, 3, 4, 8]))


def test_relaxed_bounds_hold_everywhere() -> None:
    seed = random.randrange(10**9)
    print("seed", seed)
    rng = random.Random(seed)
    exact = 0
    for _ in range(400):
        sizes = (rng.randint(1, 6), rng.randint(1, 6))
        an = Analyzer()
        an.bind_shape(n)
        for v, size in zip((i, j), sizes, strict=True):
            an.bind(v, 0, size - 1)
        e = random_index(rng, [i, j, n], rng.randint(1, 3))
        ranges = {i: (C(0), C(sizes[0] - 1)), j: (n, n + sizes[1] - 1)}
        an.bind(j, n, n + sizes[1] - 1)
        found = relax_index(e, ranges, an)
        if found is None:
            continue
        index, *ends = (function_of(value) for value in (e, *found))
        for value in (0, 1, 5):
            points = [
                {n: value, i: a, j: value + b} for a in range(sizes[0]) for b in range(sizes[1])
            ]
            values = [index(at) for at in points]
            low, high = (end({n: value}) for end in ends)
            assert low <= min(values) and max(values) <= high, (str(e), sizes, value)
            exact += (low, high) == (min(values), max(values))
    assert exact > 300
