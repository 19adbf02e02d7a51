"""Plain loops as blocks: the same results, and the loops as they are where stores depend on each
other."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.analysis.well_formed import check_well_formed
from relaxlab.ir.loops import Block, BlockRealize, For, PrimFunc
from relaxlab.ir.node import walk
from relaxlab.passes.schedule_kernels import schedule_kernels
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.form_blocks import form_blocks
from relaxlab.script import parse

TWO, ROWS, COLUMNS = (("(n, m)", to) for to in ("(n, m)", "(n,)", "(m,)"))
"""The shapes of `A`, which is read, and `C`."""

INDEPENDENT = {
    "row sums": (ROWS, """
    for i in range(n):
        C[i] = T.float32(0)
        for j in range(m):
            C[i] = C[i] + A[i, j]""", 1),
    "column sums, rows outside": (COLUMNS, """
    for j in range(m):
        C[j] = T.float32(0)
    for i in range(n):
        for j in range(m):
            C[j] = C[j] + A[i, j]""", 1),
    "largest, onto what is there": (ROWS, """
    for i, j in T.grid(n, m):
        C[i] = T.max(C[i], A[i, j])""", 2),
    "a difference, from what is there": (ROWS, """
    for i, j in T.grid(n, m):
        C[i] = C[i] - A[i, j]""", 2),
    "two statements": (TWO, """
    for i, j in T.grid(n, m):
        C[i, j] = A[i, j] * T.float32(2)
        C[i, j] = C[i, j] + T.float32(1)""", 2),
    "a transposed copy": (("(m, n)", "(n, m)"), """
    for j in range(m):
        for i in range(n):
            C[i, j] = A[j, i]""", 1),
    "one sum": (("(n, m)", "(1,)"), """
    C[0] = T.float32(0)
    for i, j in T.grid(n, m):
        C[0] = C[0] + A[i, j]""", 1),
    "an accumulator": (ROWS, """
    acc = T.alloc_buffer((1,), "float32")
    for i in range(n):
        acc[0] = T.float32(0)
        for j in range(m):
            acc[0] = acc[0] + A[i, j]
        C[i] = acc[0] * T.float32(2)""", 2),
    "softmax": (TWO, """
    most = T.alloc_buffer((1,), "float32")
    total = T.alloc_buffer((n,), "float32")
    row = T.alloc_buffer((m,), "float32")
    for i in range(n):
        most[0] = T.min_value("float32")
        for j in range(m):
            most[0] = T.max(most[0], A[i, j])
        total[i] = T.float32(0)
        for j in range(m):
            row[j] = T.exp(A[i, j] - most[0])
            total[i] = total[i] + row[j]
        for j in range(m):
            C[i, j] = row[j] / total[i]""", 4),
    "a stencil": (TWO, """
    for i in range(1, n - 1):
        for j in range(m):
            x = A[i - 1, j] + A[i + 1, j]
            C[i, j] = x * x""", 1),
    "a sum that begins with 3": (ROWS, """
    for i in range(n):
        C[i] = T.float32(3)
        for j in range(m):
            C[i] = C[i] + A[i, j]""", 1),
    "a mean": (ROWS, """
    acc = T.alloc_buffer((1,), "float32")
    for i in range(n):
        acc[0] = T.float32(1)
        for j in range(1, m):
            acc[0] = T.max(A[i, j], acc[0])
        acc[0] = acc[0] * T.float32(2)
        C[i] = acc[0]""", 3),
}  # fmt: skip

TOGETHER = {
    "prefix sums of rows": (TWO, """
    for i in range(n):
        C[i, 0] = A[i, 0]
        for j in range(1, m):
            C[i, j] = C[i, j - 1] + A[i, j]""", "i"),
    "the last one wins": (ROWS, """
    for i, j in T.grid(n, m):
        C[i] = A[i, j]""", "i"),
    "a triangle": (TWO, """
    for i in range(n):
        for j in range(i + 1):
            C[i, T.min(j, m - 1) // 2] = A[i, 0]""", "i"),
    "a sum of its own values": (ROWS, """
    for i, j in T.grid(n, m):
        C[i] = C[i] + C[i] * A[i, j]""", "i"),
    "argmax": (ROWS, """
    best = T.alloc_buffer((1,), "float32")
    for i in range(n):
        best[0] = A[i, 0]
        C[i] = T.float32(0)
        for j in range(1, m):
            if A[i, j] > best[0]:
                best[0] = A[i, j]
                C[i] = T.Cast("float32", j)""", "i"),
    "a row on the stack, and one in main memory": (TWO, """
    small = T.alloc_buffer((8,), "float32")
    large = T.alloc_buffer((5000,), "float32")
    for i in range(n):
        for j in range(8):
            small[j] = A[i, T.min(j, m - 1)]
        for j in range(m):
            large[j] = small[j % 8]
        for j in range(1, m):
            C[i, j] = C[i, j - 1] + large[j]""", "i"),
    "a condition": (TWO, """
    for i, j in T.grid(n, m):
        if A[i, j] > T.float32(0):
            C[i, j] = A[i, j]""", "ij"),
    "a condition on the place": (TWO, """
    for i, j in T.grid(n, m):
        if i + j > 3:
            C[i, j] = A[i, j]""", "i"),
}  # fmt: skip
"""Loops that are one block, and those of which it has axes."""

STEPS = {
    "prefix sums of columns": (TWO, """
    for i in range(1, n):
        for j in range(m):
            C[i, j] = C[i - 1, j] + A[i, j]""", 1),
    "rows of the row before": (TWO, """
    for i in range(n):
        for j in range(m):
            C[i, j] = C[0, j] + A[i, j]""", 1),
    "the next iteration reads it": (TWO, """
    for i in range(n):
        for j in range(m):
            C[i, j] = A[i, j]
        for j in range(m):
            C[0, j] = C[i, j]""", 2),
    "an elimination": (TWO, """
    for k in range(T.min(n, m)):
        for i in range(n - 1 - k):
            C[k + 1 + i, k] = C[k + 1 + i, k] * C[k, k]
        for i in range(n - 1 - k):
            for j in range(m - 1 - k):
                x = C[k + 1 + i, k] * C[k, k + 1 + j]
                C[k + 1 + i, k + 1 + j] = C[k + 1 + i, k + 1 + j] - x
        for i in range(n - 1 - k):
            for j in range(m - 1 - k):
                C[k + 1 + i, k + 1 + j] = C[k + 1 + i, k + 1 + j] * T.float32(0.125)""", 3),
    "a triangular product in place": (TWO, """
    for i in range(n):
        for j in range(m):
            for k in range(n - 1 - i):
                C[i, j] = C[i, j] + A[k + i + 1, 0] * C[k + i + 1, j]""", 2),
    "steps of a stencil": (TWO, """
    half = T.alloc_buffer((n, m), "float32")
    for t in range(3):
        for i, j in T.grid(n - 2, m):
            half[i + 1, j] = C[i, j] + C[i + 1, j] + C[i + 2, j]
        for i, j in T.grid(n - 2, m):
            C[i + 1, j] = half[i + 1, j] * T.float32(0.25)""", 2),
    "places that steps share": (ROWS, """
    for i in range(n - 1):
        for j in range(T.min(m, 2)):
            C[i + j] = C[i + j] * T.float32(2) + A[i, j]""", 1),
    "a value of each step": (TWO, """
    most = T.alloc_buffer((1,), "float32")
    for i in range(n - 1):
        most[0] = C[i, 0]
        for j in range(m):
            most[0] = T.max(most[0], C[i, j])
        for j in range(m):
            C[i + 1, j] = most[0] - C[i, j]""", 1),
}  # fmt: skip
"""Loops whose outermost one stays around blocks, and how many there are with axes."""

DEPENDENT = {
    "an extent in memory": (ROWS, """
    for i in range(T.Cast("int64", C[0])):
        C[0] = C[0] + A[i, 0]"""),
    "prefix sums": (ROWS, """
    for i in range(n - 1):
        C[i + 1] = C[i] + A[i, 0]"""),
    "indices that meet": (TWO, """
    for i in range(n - 1):
        for j in range(m - 1):
            C[(i + j) % n, (i + j) % m] = A[i, j]"""),
    "a value of the iteration before": (ROWS, """
    last = T.alloc_buffer((1,), "float32")
    last[0] = T.float32(0)
    for i in range(n):
        C[i] = last[0]
        last[0] = A[i, 0]"""),
    "a value that a loop need not write": (ROWS, """
    last = T.alloc_buffer((1,), "float32")
    for i in range(n):
        for j in range(T.min(m, n - 1 - i)):
            last[0] = A[i, j]
        C[i] = last[0]"""),
    "the other branch": (ROWS, """
    last = T.alloc_buffer((1,), "float32")
    for i in range(n):
        if i % 2 == 0:
            last[0] = A[i, 0]
        else:
            C[i] = last[0]"""),
}  # fmt: skip


def function(shapes: tuple[str, ...], body: str, sizes: dict[str, int] | None = None) -> PrimFunc:
    """The loop function, of constant sizes or of symbols `n` and `m`."""
    names = "acde"[: len(shapes)]
    text = f"def f({', '.join(f'{name}: T.handle' for name in names)}):\n"
    text += "" if sizes else "    n = T.int64()\n    m = T.int64()\n"
    for name, shape in zip(names, shapes, strict=True):
        text += f'    {name.upper()} = T.match_buffer({name}, {shape}, "float32")\n'
    text += body
    for name, size in (sizes or {}).items():
        text = re.sub(rf"\b{name}\b", str(size), text)
    return parse("@T.prim_func\n" + text)["f"]


def blocks(func: PrimFunc) -> list[Block]:
    """The blocks, without the root block of allocations."""
    return [n.block for n in walk(func.body) if isinstance(n, BlockRealize) and n is not func.body]


def assert_same_results(
    func: PrimFunc, formed: PrimFunc, shapes: Sequence[str], sizes: Sequence[Sequence[int]],
    rng: np.random.Generator,
) -> None:  # fmt: skip
    """The loops, the blocks formed of them and the machine code compute the same from random
    integers in arrays of the float32 `shapes`, sums of which are exact, for each n and m of
    `sizes`."""
    compiled = rl.compile(func, checks="all")
    for n, m in sizes:
        a, c = (
            rng.integers(-3, 4, eval(shape, {"n": n, "m": m})).astype("float32")  # noqa: S307
            for shape in shapes
        )
        results = [c.copy() for _ in range(3)]
        interpret_prim_func(func, [a, results[0]])
        interpret_prim_func(formed, [a, results[1]])
        compiled(a, results[2])
        np.testing.assert_array_equal(results[1], results[0])
        np.testing.assert_allclose(results[2], results[0], 1e-4, 1e-4)


@pytest.mark.parametrize("sizes", [None, {"n": 37, "m": 300}, {"n": 3, "m": 1}], ids=str)
@pytest.mark.parametrize("name", INDEPENDENT)
def test_independent_stores(
    name: str, sizes: dict[str, int] | None, rng: np.random.Generator
) -> None:
    shapes, body, count = INDEPENDENT[name]
    func = function(shapes, body, sizes)
    formed = form_blocks(func)
    assert len(blocks(formed)) == count
    with pytest.raises(ScheduleError, match="plain serial loops"):
        form_blocks(formed)
    values = [(37, 300), (3, 1), (5, 0)] if sizes is None else [tuple(sizes.values())]
    assert_same_results(func, formed, shapes, values, rng)


@pytest.mark.parametrize("sizes", [None, {"n": 9, "m": 40}], ids=str)
@pytest.mark.parametrize("name", TOGETHER)
def test_loops_that_stay_together(
    name: str, sizes: dict[str, int] | None, rng: np.random.Generator
) -> None:
    shapes, body, axes = TOGETHER[name]
    func = function(shapes, body, sizes)
    formed = form_blocks(func)
    (block,) = blocks(formed) or [n for n in walk(formed.body) if isinstance(n, Block)]
    assert "".join(it.var.name[1:] for it in block.iter_vars) == axes
    values = [(9, 40), (2, 1)] if sizes is None else [(9, 40)]
    assert_same_results(func, formed, shapes, values, rng)


@pytest.mark.parametrize("sizes", [None, {"n": 7, "m": 40}], ids=str)
@pytest.mark.parametrize("name", STEPS)
def test_steps_in_order(name: str, sizes: dict[str, int] | None, rng: np.random.Generator) -> None:
    shapes, body, count = STEPS[name]
    func = function(shapes, body, sizes)
    formed = form_blocks(func)
    assert isinstance(formed.body, BlockRealize | For)
    with_axes = [b for b in blocks(formed) if any(it.kind == "spatial" for it in b.iter_vars)]
    assert len(with_axes) == count
    outermost = next(n for n in walk(formed.body) if isinstance(n, For))
    for n in walk(formed.body):
        if isinstance(n, BlockRealize):
            pairs = zip(n.block.iter_vars, n.iter_values, strict=True)
            assert outermost.loop_var not in [v for it, v in pairs if it.kind == "spatial"]
    values = [(7, 40), (2, 1)] if sizes is None else [(7, 40)]
    assert_same_results(func, formed, shapes, values, rng)


@pytest.mark.parametrize("name", DEPENDENT)
def test_dependent_stores_stay(name: str) -> None:
    func = function(*DEPENDENT[name], {"n": 5, "m": 7})
    with pytest.raises(ScheduleError, match="iterations of a loop are independent"):
        form_blocks(func)


PLACES = ("C[i, j]", "C[i, j]", "C[i - 1, j]", "C[i, j - 1]", "D[i]", "D[j]", "E[i, j]", "E[0, j]",
          "row[j]", "row[j]", "row[j - 1]", "acc[0]", "acc[0]")  # fmt: skip
DRAWN = ("(n, m)", "(n, m)", "(n + m,)", "(n, m)")
PRIVATE = """
    acc = T.alloc_buffer((1,), "float32")
    row = T.alloc_buffer((m,), "float32")
"""
"""Elements that loops from 1 on store to and load from; `row` and `acc` are the function's own."""


def drawn_statement(draw: random.Random, depth: int) -> list[str]:
    """The lines of a store, a condition or a value around one."""
    place, other, third = draw.choices(PLACES, k=3)
    found = draw.random()
    if found < 0.1 and depth:
        inside = drawn_statement(draw, depth - 1)
        return [f"if {other} > {third}:", *("    " + line for line in inside)]
    if found < 0.2:
        name = f"x{draw.randrange(1 << 20)}"
        return [f"{name} = {other} * T.float32(2)", f"{place} = {name} + A[i, j]"]
    if found < 0.5:
        return [f"{place} = {place} + {draw.choice((other, 'A[i, j]'))}"]
    if found < 0.6:
        return [f"{place} = T.max({place}, A[i, j])"]
    return [f"{place} = {draw.choice((other, 'A[i, j]', 'A[i, j]'))}"]


def drawn_loops(draw: random.Random) -> str:
    """Loops around stores: statements before, in and after an inner loop."""
    private = {"acc[0]": "acc[0] = T.float32(1)",
               "row[j]": "for j in range(m):\n    row[j] = A[0, j]"}  # fmt: skip
    first = [name for name in private if draw.random() < 0.3]  # the others for each iteration
    lines = [line for name in first for line in private[name].splitlines()]
    for _ in range(draw.randint(1, 2)):
        outer, inner = draw.choice(("ij", "ji"))
        sizes = {"i": "n", "j": "m"}
        lines.append(f"for {outer} in range(1, {sizes[outer]}):")
        for name in private.keys() - {*first}:
            begin = private[name].replace("j", "k").splitlines()
            lines += ["    " + line for line in begin]
        for _ in range(draw.randint(1, 3)):
            if draw.random() < 0.3:
                place = draw.choice(("acc[0]", f"D[{outer}]"))
                lines.append(f"    {place} = T.float32({draw.randint(0, 2)})")
                continue
            lines.append(f"    for {inner} in range(1, {sizes[inner]}):")
            for _ in range(draw.randint(1, 2)):
                lines += ["        " + line for line in drawn_statement(draw, 1)]
    return "\n".join("    " + line for line in lines)


@pytest.mark.parametrize("sizes", [None, {"n": 5, "m": 4}], ids=["symbols", "constants"])
def test_drawn_loops(sizes: dict[str, int] | None, rng: np.random.Generator) -> None:
    formed_count = 0
    for _ in range(40):
        body = drawn_loops(random.Random(int(rng.integers(1 << 32))))
        func = function(DRAWN, PRIVATE + body, sizes)
        try:
            formed = form_blocks(func)
        except ScheduleError:
            continue
        formed_count += 1
        found = {d.code for d in check_well_formed(rl.Module((("f", formed),)))}
        assert found <= {"E0326"}  # sums onto what is there
        for n, m in [(5, 4), (2, 7), (1, 1)] if sizes is None else [(5, 4)]:
            shapes = ((n, m), (n, m), (n + m,), (n, m))
            arrays = [rng.integers(-3, 4, shape).astype("float32") for shape in shapes]
            plain, blocks = ([x.copy() for x in arrays] for _ in range(2))
            interpret_prim_func(func, plain)
            interpret_prim_func(formed, blocks)
            for x, y in zip(plain, blocks, strict=True):
                np.testing.assert_array_equal(x, y, err_msg=body)
    assert formed_count > 5


RANKS = {"A": 2, "C": 2, "D": 1, "E": 1}
"""The arrays of drawn steps, of 14 elements a side: of int64, whose sums are the same in any order
even where they wrap."""


def drawn_index(draw: random.Random, loops: Sequence[str]) -> str:
    """A loop's variable, perhaps a constant or another one ahead; or a constant."""
    if not loops or draw.random() < 0.2:
        return str(draw.randint(0, 5))
    index = draw.choice(loops)
    found = draw.random()
    if found < 0.35:
        return f"{index} + {draw.randint(1, 3)}"
    others = [name for name in loops if name != index]
    return f"{index} + {draw.choice(others)}" if others and found < 0.45 else index


def drawn_steps(draw: random.Random, sizes: Sequence[str] = ("2", "3", "4", "5")) -> str:
    """Nested loops around stores to arrays that they read as well, some extents of which depend on
    loops around them."""
    lines: list[str] = []
    names = iter("ijklpqrs")

    def access(loops: Sequence[str]) -> str:
        name = draw.choice(list(RANKS))
        return f"{name}[{', '.join(drawn_index(draw, loops) for _ in range(RANKS[name]))}]"

    def store(loops: Sequence[str], indent: str) -> None:
        place, a, b = access(loops), access(loops), access(loops)
        value = draw.choice((a, f"{a} + {b}", f"T.max({a}, {b})", f"{a} - {b}", "T.int64(1)"))
        if draw.random() < 0.5:
            forms = (f"{place} + {value}", f"{place} - {value}", f"T.max({place}, {value})",
                     f"{place} + {a} * {b}")  # fmt: skip
            value = draw.choice(forms)
        lines.append(f"{indent}{place} = {value}")

    def nest(loops: Sequence[str], indent: str, depth: int) -> None:
        for _ in range(draw.choice((1, 1, 2))):
            name = next(names, None) if depth and (not loops or draw.random() < 0.7) else None
            if name is None:
                store(loops, indent)
                continue
            extents = list(sizes)
            if loops and draw.random() < 0.2:
                extents = [f"{draw.choice(loops)} + 1", f"5 - {draw.choice(loops)}"]
            lines.append(f"{indent}for {name} in range({draw.choice(extents)}):")
            nest([*loops, name], indent + "    ", depth - 1)

    for _ in range(draw.choice((1, 1, 2))):
        nest([], "    ", draw.choice((1, 2, 3)))
    return "\n".join(lines)


def test_drawn_steps(rng: np.random.Generator) -> None:
    """Steps of any kind, as blocks and compiled: whatever is taken for independent is so."""
    params = ", ".join(
        f'{name}: T.Buffer(({"14, " * rank}), "int64")' for name, rank in RANKS.items()
    )
    formed_count = 0
    for _ in range(30):
        body = drawn_steps(random.Random(int(rng.integers(1 << 32))))
        func = parse(f"@T.prim_func\ndef f({params}):\n{body}\n")["f"]
        arrays = [rng.integers(-2, 3, (14,) * rank) for rank in RANKS.values()]
        plain, blocks, machine = ([x.copy() for x in arrays] for _ in range(3))
        interpret_prim_func(func, plain)
        rl.compile(func, checks="all", use_cache=False)(*machine)
        scheduled = schedule_kernels(rl.Module((("f", func),)))
        assert {d.code for d in check_well_formed(scheduled)} <= {"E0326"}, body
        try:
            formed = form_blocks(func)
        except ScheduleError:
            blocks = plain
        else:
            formed_count += 1
            interpret_prim_func(formed, blocks)
        for x, y, z in zip(plain, blocks, machine, strict=True):
            np.testing.assert_array_equal(y, x, err_msg=body)
            np.testing.assert_array_equal(z, x, err_msg=body)
    assert formed_count > 5


@pytest.mark.parametrize("sizes", [None, {"n": 37, "m": 20}], ids=str)
def test_private_buffers_that_nobody_reads(
    sizes: dict[str, int] | None, rng: np.random.Generator
) -> None:
    """A block that stores to nothing else stays as it is, beside others that rules schedule."""
    func = function(ROWS, """
    for i in range(n):
        best = T.alloc_buffer((2,), "float32")
        best[0] = T.float32(0)
        if A[i, 0] > best[0]:
            best[0] = A[i, 0]
            best[1] = best[0]
    for i in range(n):
        C[i] = C[i] + T.float32(2)""", sizes)  # fmt: skip
    assert_same_results(func, form_blocks(func), ROWS, [(37, 20)], rng)
