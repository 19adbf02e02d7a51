"""Steps that share expressions, partition and pipeline loops, lift threads and compute in wider
numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.codegen.steps import (
    divisions,
    loops,
    partition,
    pipelining,
    shared,
    storage,
    threads,
    widen,
)
from relaxlab.ir.equal import structural_equal
from relaxlab.ir.expr import BinaryOp, FloorDiv
from relaxlab.ir.loops import For, LetStmt, PrimFunc, seq
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace, walk
from relaxlab.schedule.tree import all_blocks
from relaxlab.script import parse


def function(text: str) -> PrimFunc:
    return parse(f"@T.prim_func\n{text}")["main"]  # type: ignore[return-value]


def results(func: PrimFunc, *values: object) -> list[np.ndarray]:
    """The arrays, as a call of the function leaves copies of them."""
    given = [v.copy() if isinstance(v, np.ndarray) else v for v in values]
    rl.interpret(Module.of({"main": func}), "main", *given)
    return [v for v in given if isinstance(v, np.ndarray)]


def assert_alike(a: PrimFunc, b: PrimFunc, *values: object) -> None:
    for one, other in zip(results(a, *values), results(b, *values), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


# --- Common subexpressions ------------------------------------------------------------------------

SHARED = """
def main(A: T.Buffer((16,), "int64"), x: T.int64, y: T.int64):
    A[0] = (x + y) * 2
    for i in range(x + y):
        A[i] = A[i] + (x + y) * 2 + i * y
        A[i + 1] = i * y
    if x < y:
        A[x * y] = x * y
"""


def test_a_repeated_expression_is_computed_once_where_all_its_uses_are() -> None:
    func = function(SHARED)
    made = shared.expressions_shared(func)
    lets = [str(n.value) for n in walk(made.body) if isinstance(n, LetStmt)]
    assert lets == ["x + y", "cse_v1 * 2", "i * y", "x * y"]
    assert_alike(func, made, np.arange(16), 2, 3)
    assert shared.expressions_shared(made) is made


def test_loops_that_bind_the_same_variable_share_nothing() -> None:
    func = function(
        """
def main(A: T.Buffer((16,), "int64"), x: T.int64, y: T.int64):
    for i in range(x):
        A[i] = i * y
"""
    )
    twice = replace(func, body=seq(func.body, func.body))
    made = shared.expressions_shared(twice)
    assert not [n for n in walk(made.body) if isinstance(n, LetStmt)]
    assert_alike(twice, made, np.arange(16), 2, 3)


@pytest.mark.parametrize(
    ("body", "lets"),
    [
        ("A[0] = A[x] + 1\n    A[1] = A[x] + 1", 0),  # it may read something else
        ("if x < y:\n        A[0] = 1\n    if x < y:\n        A[1] = 2", 0),
        ("if x < 0:\n        A[0] = y // x\n    if x > 0:\n        A[1] = y // x", 0),
        ("A[0] = y // x\n    if x > 0:\n        A[1] = y // x", 1),
        ("A[0] = T.if_then_else(x > 0, y // x, y // x + 1)", 0),
        ("A[0] = T.if_then_else(x > 0, y * x, y * x + 1)", 1),
        ("if x < 0:\n        A[0] = y // 4\n    if x > 0:\n        A[1] = y // 4", 1),
    ],
)
def test_what_may_fail_or_change_is_not_computed_before(body: str, lets: int) -> None:
    func = function(f'def main(A: T.Buffer((8,), "int64"), x: T.int64, y: T.int64):\n    {body}\n')
    made = shared.expressions_shared(func)
    assert sum(isinstance(n, LetStmt) for n in walk(made.body)) == lets, made.script()
    assert_alike(func, made, np.arange(8), 3, 7)


def test_a_block_with_an_initialisation_has_to_be_lowered_before() -> None:
    func = function("""
def main(A: T.Buffer((4,), "float32"), B: T.Buffer((1,), "float32")):
    for i in range(4):
        with T.sblock("sum"):
            k = T.axis.reduce(4, i)
            with T.init():
                B[0] = T.float32(0)
            B[0] = B[0] + A[k]
""")
    with pytest.raises(ValueError, match="block 'sum' .* LowerInitBlock"):
        shared.expressions_shared(func)


# --- Partitions -----------------------------------------------------------------------------------


def partitioned(body: str, extent: str = "n") -> tuple[PrimFunc, PrimFunc]:
    func = function(f"""
def main(A: T.Buffer((64,), "int64"), n: T.int64):
    for i in range({extent}):
        {body}
""")
    return func, partition.loops_partitioned(func, constant=True)


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ("if i >= 2 and i < 50:\n            A[i] = i", 3),
        ("if T.likely(i >= 2 and i < 50):\n            A[i] = i", 3),
        ("if 50 > i:\n            A[i] = 1\n        else:\n            A[i] = 2", 2),
        ("A[i] = T.if_then_else(3 <= i, A[T.max(i - 3, 0)], 7)", 2),
        ("if 100 - 2 * i > 31:\n            A[i] = i", 2),
        ("if i < 20 and A[i] < 30:\n            A[i] = i", 2),
        ("if i < 5:\n            A[i] = 1\n        if i > 20:\n            A[i] = 2", 2),
        ("if i != 3:\n            A[i] = i", 1),
        ("if i * i < 30:\n            A[i] = i", 1),
        ("if A[i] < 30:\n            A[i] = i", 1),
    ],
)
def test_a_loop_is_parted_where_its_conditions_begin_and_end(body: str, count: int) -> None:
    func, made = partitioned(body, "60")
    assert sum(isinstance(n, For) for n in walk(made.body)) == count, made.script()
    assert_alike(func, made, np.arange(64) * 3, 0)


@pytest.mark.parametrize("size", [0, 1, 3, 8, 13, 16])
def test_parts_end_where_symbols_say(size: int) -> None:
    func, made = partitioned("""for j in range(4):
            if i * 4 + j < n and i > 0:
                A[i * 4 + j] = j""")
    assert sum(isinstance(n, For) for n in walk(made.body)) > 2
    assert_alike(func, made, np.arange(64) * 3, size)


def test_loops_of_constant_extent_stay_without_a_hint() -> None:
    text = """
def main(A: T.Buffer((64,), "int64")):
    for i in T.serial(64, annotations={"note": 1}):
        if i < 9:
            A[i] = i
"""
    func = function(text)
    assert structural_equal(partition.loops_partitioned(func), func)
    made = partition.loops_partitioned(function(text.replace("note", partition.HINT)))
    assert [str(n.extent) for n in walk(made.body) if isinstance(n, For)] == ["9", "55"]
    assert partition.HINT not in made.script()
    with pytest.raises(ValueError, match="LowerOpaqueBlock"):
        partition.loops_partitioned(
            function("""
def main(A: T.Buffer((4,), "int64")):
    for i in range(4):
        with T.sblock("a"):
            v = T.axis.spatial(4, i)
            A[v] = v
""")
        )


# --- Quotients, threads, wider numbers ------------------------------------------------------------


def test_quotients_come_before_remainders(rng: np.random.Generator) -> None:
    func = function("""
def main(A: T.Buffer((8,), "int64"), n: T.int64, m: T.int32):
    A[0] = n % 32 // 4
    A[1] = (n * 2 + 1) % 12 // 2
    A[2] = n % 30 // 4
    A[3] = (n + 5) % 4 // 4
    A[4] = T.Cast("int64", m % T.int32(32) // T.int32(4))
""")
    made = divisions.quotients_first(func)
    assert "A[0] = n // 4 % 8" in made.script() and "m // T.int32(4) % T.int32(8)" in made.script()
    assert sum(isinstance(n, FloorDiv) for n in walk(made.body)) == 3
    for n in rng.integers(-100, 100, 20):
        assert_alike(func, made, np.zeros(8, "int64"), int(n), int(n))


def test_threads_are_lifted_to_the_loop_that_has_them_all() -> None:
    text = """
def main(A: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32")):
    for b in T.thread_binding(4, thread="blockIdx.x"):
        for i in range(2):
            for t in T.thread_binding(8, thread="threadIdx.x"):
                C[b * 16 + i * 8 + t] = A[b * 16 + i * 8 + t]
        for t in T.thread_binding(8, thread="threadIdx.x"):
            C[b * 16 + t] = C[b * 16 + t] + T.float32(1)
"""
    func = function(text)
    made = threads.threads_lifted(func)
    found = [n.thread for n in walk(made.body) if isinstance(n, For)]
    assert found == ["blockIdx.x", "threadIdx.x", None]
    assert_alike(func, made, np.arange(64, dtype="float32"), np.zeros(64, "float32"))
    once = text + "        C[b] = C[b] + T.float32(1)\n"  # which each thread would do
    assert structural_equal(threads.threads_lifted(function(once)), function(once))
    with pytest.raises(ValueError, match=r"threadIdx\.x have the extents 8 and 4"):
        threads.threads_lifted(function(text[::-1].replace("(8, "[::-1], "(4, "[::-1], 1)[::-1]))


def test_half_precision_is_computed_in_single() -> None:
    func = function("""
def main(A: T.Buffer((8,), "float16"), B: T.Buffer((8,), "float16")):
    for i in range(8):
        x: T.let = A[i] * A[i] * T.float16(3)
        if x > T.float16(0.5):
            B[i] = T.exp(x) + T.Cast("float16", i)
        else:
            B[i] = A[i]
""")
    made = widen.computed_in(func, "float16", "float32")
    kinds = {n.dtype for n in walk(made.body) if isinstance(n, BinaryOp)}
    assert "float16" not in kinds
    a = np.linspace(-1, 1, 8).astype("float16")
    _, b = results(made, a, a * 0)
    x = a.astype("float32") ** 2 * 3
    want = np.where(x > 0.5, np.exp(x) + np.arange(8), a).astype("float16")
    np.testing.assert_array_equal(b, want)


# --- Pipelines ------------------------------------------------------------------------------------

PIPELINED = """
def main(A: T.Buffer((9, 4), "float32"), C: T.Buffer((9, 4), "float32"), n: T.int64):
    for i in T.serial(0, EXTENT, annotations={NOTES}):
        with T.sblock(""):
            B = T.sblock_alloc_buffer((4,), scope="shared")
            D = T.sblock_alloc_buffer((4,), scope="shared")
            for j in range(4):
                B[j] = A[i, j] + T.float32(1)
            for j in range(4):
                D[j] = B[3 - j] * T.float32(2)
            for j in range(4):
                C[i, j] = D[3 - j] + B[j]
"""


def staged(extent: str, stages: str, order: str = "[0, 1, 2]", text: str = PIPELINED) -> PrimFunc:
    notes = f'"{pipelining.STAGE}": {stages}, "{pipelining.ORDER}": {order}'
    return function(text.replace("EXTENT", extent).replace("{NOTES}", f"{{{notes}}}"))


@pytest.mark.parametrize("size", [0, 1, 2, 3, 9])
@pytest.mark.parametrize("extent", ["n", "const"])
@pytest.mark.parametrize(
    ("stages", "order", "copies"),
    [
        ("[0, 1, 1]", "[0, 1, 2]", (2, 1)),
        ("[0, 1, 2]", "[2, 1, 0]", (3, 2)),
        ("[0, 0, 3]", "[1, 2, 0]", (4, 4)),
        ("[0, 0, 0]", "[0, 1, 2]", (1, 1)),
    ],
)
def test_stages_work_on_different_iterations(
    size: int, extent: str, stages: str, order: str, copies: tuple[int, int]
) -> None:
    func = staged("n" if extent == "n" else str(size), stages, order)
    made = pipelining.loops_pipelined(func)
    (block,) = [b for b in all_blocks(made) if b.alloc_buffers]
    counts = [int(str(b.shape[0])) if b.ndim > 1 else 1 for b in block.alloc_buffers]
    assert tuple(counts) == copies
    assert pipelining.loops_pipelined(made) is made
    a = np.arange(36, dtype="float32").reshape(9, 4)
    assert_alike(func, made, a, a * 0, size)
    exe = rl.compile(Module.of({"main": made}))
    c = a * 0
    exe["main"](a, c, size)
    np.testing.assert_array_equal(c, results(func, a, a * 0, size)[1])


@pytest.mark.parametrize(
    ("stages", "order", "message"),
    [
        ("[0, 1]", "[0, 1, 2]", "software_pipeline_stage.* not one number for each of the 3"),
        ("[0, 1, 1]", "[0, 1, 1]", "software_pipeline_order.* not one number"),
        ("[1, 0, 1]", "[0, 1, 2]", "loop i .* the stages 1 and 0 access 'B'"),
        ("[0, 0, 0]", "[1, 0, 2]", "the stages 0 and 0 access 'B'"),
    ],
)
def test_stages_that_would_read_something_else(stages: str, order: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pipelining.loops_pipelined(staged("n", stages, order))


def test_what_lies_outside_of_a_pipeline_is_there_once() -> None:
    outside = PIPELINED.replace("C[i, j] = D", "A[i, j] = D")  # which the first stage reads
    with pytest.raises(ValueError, match=r"stages 0 and 1 access 'A'.*or allocate it in the loop"):
        pipelining.loops_pipelined(staged("n", "[0, 1, 1]", text=outside))


# --- Storage --------------------------------------------------------------------------------------

CHAIN = """
def main(A: T.Buffer(("n", 4), "float32"), F: T.Buffer(("n", 4), "float32"), n: T.int64):
    B = T.sblock_alloc_buffer((n, 4))
    C = T.sblock_alloc_buffer((n, 4))
    D = T.sblock_alloc_buffer((n, 4))
    E = T.sblock_alloc_buffer((n, 4), "float32", scope="local")
    unused = T.sblock_alloc_buffer((n, 4))
    for i, j in T.grid(n, 4):
        B[i, j] = A[i, j] + T.float32(1)
    for i, j in T.grid(n, 4):
        C[i, j] = B[i, 3 - j] * T.float32(2)
    for i, j in T.grid(n, 4):
        D[i, j] = C[i, 3 - j] - T.float32(3)
    for i, j in T.grid(n, 4):
        E[i, j] = D[i, 3 - j] + D[i, j]
    for i, j in T.grid(n, 4):
        F[i, j] = E[i, 3 - j] + LAST[i, j]
"""


@pytest.mark.parametrize(
    ("last", "change", "names"),
    [
        ("A", {}, ["B", "C", "E"]),
        ("C", {}, ["B", "C", "E"]),  # which D, in the memory of B, does not overwrite
        ("B", {}, ["B", "C", "D", "E"]),
        ("A", {"D = T.sblock_alloc_buffer((n, 4))": "D = T.sblock_alloc_buffer((4 + n, 4))"},
         ["B", "C", "D", "E"]),
        ("A", {"F[i, j] = ": "T.evaluate(T.address_of(B[i, j]))\n        F[i, j] = "},
         ["B", "C", "D", "E"]),
    ],
)  # fmt: skip
def test_buffers_lie_where_those_lay_that_are_read_no_more(
    last: str, change: dict[str, str], names: list[str]
) -> None:
    text = CHAIN.replace("LAST", last)
    for old, new in change.items():
        text = text.replace(old, new)
    func = function(text)
    made = storage.storage_reused(func)
    (block,) = [b for b in all_blocks(made) if b.alloc_buffers]
    assert [b.name for b in block.alloc_buffers] == names
    assert storage.storage_reused(made) is made
    a = np.arange(12, dtype="float32").reshape(3, 4)
    if not change:
        assert_alike(func, made, a, a * 0, 3)


@pytest.mark.parametrize(("sizes", "count"), [((16, 8, 12), 2), ((16, 8, 20), 3)])
def test_one_dimension_needs_enough_elements(sizes: tuple[int, int, int], count: int) -> None:
    b, c, d = sizes
    func = function(f"""
def main(A: T.Buffer((32,), "int64")):
    B = T.sblock_alloc_buffer(({b},), "int64")
    C = T.sblock_alloc_buffer(({c},), "int64")
    D = T.sblock_alloc_buffer(({d},), "int64")
    for i in range({b}):
        B[i] = A[i] + 1
    for i in range({c}):
        C[i] = B[i * 2]
    for i in range({d}):
        D[i] = C[i % {c}] + i
    for i in range({d}):
        A[i] = D[{d - 1} - i]
""")
    made = storage.storage_reused(func)
    (block,) = [b for b in all_blocks(made) if b.alloc_buffers]
    assert len(block.alloc_buffers) == count
    assert_alike(func, made, np.arange(32))


# --- Unrolling ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({}, ["i", "j", "k"]),
        ({"most_steps": 6}, ["i"]),
        ({"most_steps": 36}, []),
        ({"longest": 3}, ["i", "k"]),
        ({"most_steps": 36, "expands": False}, ["i", "j", "k"]),
    ],
)
def test_short_loops_are_unrolled_when_asked(options: dict[str, Any], left: list[str]) -> None:
    func = function("""
def main(A: T.Buffer((64,), "int64")):
    for i in range(6):
        for j in range(3):
            A[i * 3 + j] = j
            A[i * 3 + j + 1] = i
    for k in range(5):
        if A[k] > 2:
            A[k] = k
""")
    made = loops.unrolled(func, **options)
    found = [n for n in walk(made.body) if isinstance(n, For)]
    assert [n.loop_var.name for n in found] == left
    kinds = {n.kind for n in found}
    assert kinds <= ({"serial"} if options.get("expands", True) else {"unrolled"})
    assert_alike(func, made, np.arange(64))
