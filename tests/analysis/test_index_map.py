"""Index maps and iterator maps: chosen cases, and random ones against enumeration."""

import itertools
import random
from typing import Any

import pytest

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.index_map import (
    IndexMap,
    NotAnIterMap,
    NotInvertible,
    detect_iter_map,
)
from relaxlab.ir import expr
from relaxlab.ir.loops import Range
from tests.analysis.fuzz_arith import evaluate, function_of

V, C = expr.Var, expr.const
n, m = V("n"), V("m")
TEXT = lambda items: ", ".join(map(str, items))  # noqa: E731


INVERSES = [
    (lambda i, j: (j, i // 4, i % 4), (16, 8), "i1 * 4 + i2, i0", "8, 4, 4"),
    (lambda i, j: (i * m + j,), (n, m), "i0 // m, i0 % m", "m * n"),
    (lambda i, j: ((i * 8 + j) // 4, j % 4), (16, 8), "i0 // 2, i0 % 2 * 4 + i1", "32, 4"),
    (lambda i, j: ((i * 6 + j) // 4, (i * 6 + j) % 4), (16, 6),
     "(i0 * 4 + i1) // 6, (i0 * 4 + i1) % 6", "24, 4"),
    (lambda i: (i // 32, i % 4, i // 4 % 8), (128,), "i0 * 32 + i2 * 4 + i1", "4, 4, 8"),
    (lambda a, c, h, w: (a, c // 16, h, w, c % 16), (n, 64, m, 7),
     "i0, i1 * 16 + i4, i2, i3", "n, 4, m, 7, 16"),
    (lambda i, j: (j, i), (n, m), "i1, i0", "m, n"),
]  # fmt: skip


@pytest.mark.parametrize(("fn", "shape", "back", "new_shape"), INVERSES)
def test_inverse(fn: Any, shape: Any, back: str, new_shape: str) -> None:
    index_map = IndexMap.of(fn)
    dims = tuple(expr.as_expr(d) for d in shape)
    inverse = index_map.inverse(dims)
    assert TEXT(inverse.final_indices) == back
    assert TEXT(index_map.map_shape(dims)) == new_shape
    an = Analyzer.for_shapes(dims)
    points = [V(f"p{k}") for k in range(len(dims))]
    for p, d in zip(points, dims, strict=True):
        an.bind(p, 0, d - 1)
    assert inverse.apply(index_map.apply(points, an), an) == tuple(points)


PADDED = [
    (lambda i, j: (j, i // 4, i % 4), (15, 8), "8, 4, 4", "i1 * 4 + i2 >= 15"),
    (lambda i: (i // 16, i % 16), (n,), "(n + 15) // 16, 16", "n <= i0 * 16 + i1"),
    (lambda i, j: (i // 4, j // 4, i % 4, j % 4), (6, 7), "2, 2, 4, 4",
     "i0 * 4 + i2 >= 6 or i1 * 4 + i3 >= 7"),
    (lambda i: (i // 16, i % 16), (5,), "1, 16", "i1 >= 5"),
    (lambda i, j: (j // 4, i, j % 4), (n, 0), "0, n, 4", "True"),
    (lambda i, j: ((i * 7 + j) // 8, (i * 7 + j) % 8), (3, 7), "3, 8", "(i0 * 8 + i1) // 7 >= 3"),
    (lambda i, j: ((i * 7 + j) // 8, (i * 7 + j) % 8), (n, 7), "(n * 7 + 7) // 8, 8",
     "n <= (i0 * 8 + i1) // 7"),
]  # fmt: skip


@pytest.mark.parametrize(("fn", "shape", "new_shape", "padding"), PADDED)
def test_padding(fn: Any, shape: Any, new_shape: str, padding: str) -> None:
    dims = tuple(expr.as_expr(d) for d in shape)
    _, found_shape, condition = IndexMap.of(fn).inverse_with_padding(dims)
    assert (TEXT(found_shape), str(condition)) == (new_shape, padding)
    with pytest.raises(NotInvertible, match="unused"):
        IndexMap.of(fn).inverse(dims)


@pytest.mark.parametrize("fn", [
    lambda i, j: (i // 16, j, i % 16), lambda i, j: (j // 4, i, j % 4), lambda i, j: (i * 6 + j,),
    lambda i, j: (i // 32, j, i // 4 % 8, i % 4),
])  # fmt: skip
def test_shapes_depend_on_no_extent_being_a_constant(fn: Any) -> None:
    """Layouts of programs with symbolic shapes are those of the same programs for constants."""
    index_map = IndexMap.of(fn)
    _, symbolic, _ = index_map.inverse_with_padding((n, expr.const(6)))
    assert symbolic == index_map.map_shape((n, expr.const(6)))
    for size in (0, 1, 3, 4, 5, 16, 17, 33):
        dims = (expr.const(size), expr.const(6))
        want = [evaluate(d, {n: size}) for d in symbolic]
        for found in (index_map.map_shape(dims), index_map.inverse_with_padding(dims)[1]):
            assert [evaluate(d, {}) for d in found] == want


REFUSED = [
    (lambda i, j: (i + j,), (5, 6), "gaps or overlap"),
    (lambda i, j: (i,), (5, 6), "several indices to one"),
    (lambda i: (i // 32, i // 4 % 8), (128,), "several indices to one"),
    (lambda i: (3 - i,), (4,), "backwards"),
    (lambda i: (i * 2,), (4,), "gaps"),
    (lambda i: (i // 4, i % 2), (16,), "several indices to one"),
    (lambda i, j: (i, i), (4, 4), "overlap"),
    (lambda i, j: (i * j,), (4, 4), "multiplies"),
    (lambda i: (i % 16,), (n,), "not divided"),
    (lambda i: (i // 4 % 4, i % 4), (n,), "not divided"),
    (lambda i: (i % 2,), ((n + 127) // 128 * 2,), "several indices"),
    (lambda i: (i + 1,), (4,), "start at 0"),
    (lambda i: (i // n,), (m,), "not divided|several indices"),
    (lambda i: (i % 4 // 3, i % 4 % 3), (6,), "3 does not divide 4"),
]


@pytest.mark.parametrize(("fn", "shape", "why"), REFUSED)
def test_refused(fn: Any, shape: Any, why: str) -> None:
    dims = tuple(expr.as_expr(d) for d in shape)
    with pytest.raises(NotInvertible, match=why):
        IndexMap.of(fn).inverse(dims)


def test_wrong_number_of_indices() -> None:
    with pytest.raises(ValueError, match="takes 2 indices, the buffer has 3"):
        IndexMap.of(lambda i, j: (i, j), ndim=3)
    with pytest.raises(ValueError, match="takes 2 indices, not 1"):
        IndexMap.of(lambda i, j: (i, j)).apply([n])
    assert str(IndexMap.of(lambda *ijk: ijk[::-1], ndim=3)).endswith("-> (ijk2, ijk1, ijk0)")


def test_predicate_limits_a_sum() -> None:
    io, ii = V("io"), V("ii")
    ranges = {io: Range(C(0), (n + 15) // 16), ii: Range(C(0), C(16))}
    found = detect_iter_map([io * 16 + ii], ranges, expr.LT(io * 16 + ii, n))
    assert found.bijective and TEXT(found.extents) == "n"
    whole = detect_iter_map([io * 16 + ii], ranges)
    assert TEXT(whole.extents) == "(n + 15) // 16 * 16"
    with pytest.raises(NotAnIterMap, match="cuts through"):
        detect_iter_map([io, ii], ranges, expr.LT(io * 16 + ii, n))
    with pytest.raises(NotAnIterMap, match="no upper bound"):
        detect_iter_map([io * 16 + ii], ranges, expr.NE(io, ii))


@pytest.mark.parametrize("limit", range(1, 25))
def test_predicates_whose_lowest_digits_are_indices_of_their_own(limit: int) -> None:
    """i * 8 + j * 2 + k < 14 says i * 4 + j < 7, of i < 3, j < 4 and k < 2."""
    i, j, k = V("i"), V("j"), V("k")
    ranges = {i: Range(C(0), C(3)), j: Range(C(0), C(4)), k: Range(C(0), C(2))}
    indices = [i * 4 + j, k]
    predicate = expr.LT(i * 8 + j * 2 + k, C(limit))
    points = {(a * 4 + b, c) for a in range(3) for b in range(4) for c in range(2)
              if a * 8 + b * 2 + c < limit}  # fmt: skip
    rows, columns = (max(p[n] for p in points) + 1 for n in (0, 1))
    if len(points) < rows * columns or columns == 1:
        with pytest.raises(NotAnIterMap, match="cuts through"):
            detect_iter_map(indices, ranges, predicate)
        return
    found = detect_iter_map(indices, ranges, predicate)
    assert found.bijective and TEXT(found.extents) == f"{rows}, {columns}"


def test_loops_that_start_elsewhere() -> None:
    i, j = V("i"), V("j")
    ranges = {i: Range(C(3), C(5)), j: Range(n, m)}
    found = detect_iter_map([i * 2 + 1, j], {i: Range(C(3), C(1)), j: ranges[j]})
    assert TEXT(found.bases) == "7, n"
    found = detect_iter_map([j, i], ranges)
    assert found.bijective and TEXT(found.bases) == "n, 3" and TEXT(found.extents) == "m, 5"


def random_map(rng: random.Random) -> tuple[IndexMap, tuple[int, ...]]:
    """Splits and fusions of a small box, in random order, not always invertible."""
    shape = tuple(rng.choice([1, 2, 3, 4, 6, 8, 12]) for _ in range(rng.randint(1, 3)))
    variables = tuple(V(f"v{k}") for k in range(len(shape)))
    parts: list[tuple[expr.PrimExpr, int]] = list(zip(variables, shape, strict=True))
    for _ in range(rng.randint(0, 4)):
        e, extent = parts.pop(rng.randrange(len(parts)))
        if rng.random() < 0.6:
            f = rng.choice([2, 3, 4])
            parts += [(e // f, -(-extent // f)), (e % f, f)]
        elif parts:
            other, size = parts.pop(rng.randrange(len(parts)))
            stride = size if rng.random() < 0.9 else size + rng.choice([-1, 1])
            parts.append((e * stride + other, extent * size))
        else:
            parts.append((e, extent))
    if rng.random() < 0.1 and len(parts) > 1:
        parts.pop()
    rng.shuffle(parts)
    return IndexMap(variables, tuple(e for e, _ in parts)), shape


def test_against_enumeration() -> None:
    seed = random.randrange(10**9)
    print("seed", seed)
    rng = random.Random(seed)
    outcomes: dict[str, int] = {}
    for _ in range(300):
        index_map, shape = random_map(rng)
        outcome = check_map(index_map, shape)
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    assert outcomes["inverse"] > 50 and outcomes["padded"] > 5 and outcomes["refused"] > 5


def test_symbolic_extents_against_enumeration() -> None:
    """The inverse, shape and padding that are found for a symbolic extent hold for its values."""
    seed = random.randrange(10**9)
    print("seed", seed)
    rng = random.Random(seed)
    accepted = 0
    for _ in range(150):
        index_map, shape = random_map(rng)
        at = rng.randrange(len(shape))
        dims = tuple(n if d == at else C(size) for d, size in enumerate(shape))
        try:
            found = index_map.inverse_with_padding(dims)
        except NotInvertible:
            continue
        accepted += 1
        for value in (1, 2, 3, shape[at], shape[at] + 1, 3 * shape[at]):
            sizes = (*shape[:at], value, *shape[at + 1 :])
            check_inverse(index_map, sizes, found, {n: value})
    assert accepted > 20


def check_map(index_map: IndexMap, shape: tuple[int, ...]) -> str:
    try:
        found = index_map.inverse_with_padding(tuple(C(d) for d in shape))
    except NotInvertible:
        return "refused"
    check_inverse(index_map, shape, found, {})
    return "inverse" if found[2] is None else "padded"


def check_inverse(
    index_map: IndexMap, shape: tuple[int, ...],
    found: tuple[IndexMap, tuple[expr.PrimExpr, ...], expr.PrimExpr | None],
    symbols: dict[expr.Var, int],
) -> None:  # fmt: skip
    back, new_shape, padding = found
    label = f"{index_map} on {shape}"
    images: dict[tuple[int, ...], tuple[int, ...]] = {}
    image = [function_of(e) for e in index_map.final_indices]
    for point in itertools.product(*map(range, shape)):
        at = dict(zip(index_map.initial_indices, point, strict=True))
        images.setdefault(tuple(f(at) for f in image), point)
    assert len(images) == len(list(itertools.product(*map(range, shape)))), label
    origin = [function_of(e) for e in back.final_indices]
    pads = None if padding is None else function_of(padding)
    for point in itertools.product(*(range(evaluate(d, symbols)) for d in new_shape)):
        at = symbols | dict(zip(back.initial_indices, point, strict=True))
        unused = pads is not None and pads(at)
        assert unused is (point not in images), (label, point)
        if not unused:
            assert tuple(f(at) for f in origin) == images[point], label
