"""Index functions: what is checked of them, and what the prover concludes from it."""

import random
from functools import cache

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.facts_check import checked_buffers, facts_check
from relaxlab.analysis.pattern_kind import PatternKind, pattern_kind_with_reason
from relaxlab.analysis.regions import access_regions
from relaxlab.ir import expr, loops
from relaxlab.ir.equal import structural_equal
from relaxlab.ir.node import walk
from relaxlab.ir.substitute import substitute
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.script.parser import parse

ROWS = """
@T.prim_func
def double(s_: T.handle, o_: T.handle, x_: T.handle, y_: T.handle):
    b = T.int64()
    t = T.int64()
    s = T.index_function(s_, (b,), "int64", facts=[T.range(0, 6)])
    o = T.index_function(
        o_, (b + 1,), "int32",
        facts=[T.nondecreasing(first=0, last=t), T.prefix_sums(lambda i: s[i])])
    x = T.match_buffer(x_, (t, 4), "float32")
    y = T.match_buffer(y_, (t, 4), "float32")
    for i in range(b):
        for j in range(s[i]):
            for k in range(4):
                with T.sblock("y"):
                    vi = T.axis.spatial(b, i)
                    vj = T.axis.spatial(s[vi], j)
                    vk = T.axis.spatial(4, k)
                    y[o[vi] + vj, vk] = x[o[vi] + vj, vk] * T.float32(2)
"""


@cache
def double() -> loops.PrimFunc:
    return parse(ROWS)["double"]


def test_facts_print_as_they_are_read() -> None:
    module = parse(ROWS)
    assert structural_equal(parse(module.script()), module)
    other = parse(ROWS.replace("T.range(0, 6)", "T.range(0, 7)"))
    assert not structural_equal(other, module)


def test_facts_follow_a_substitution() -> None:
    func = double()
    b = func.buffers[0].shape[0]
    assert isinstance(b, expr.Var)
    small = substitute(func, {b: expr.const(3)})
    s, o = small.buffers[:2]
    assert [n.buffer for f in o.facts for n in walk(f) if isinstance(n, loops.BufferLoad)] == [s]


def element(b: loops.Buffer, index: expr.ExprLike) -> expr.PrimExpr:
    return expr.Cast("int64", loops.BufferLoad(b, (expr.as_expr(index),)))


def test_what_the_prover_concludes() -> None:
    func = double()
    s, o, x, _ = func.buffers
    b, t = s.shape[0], x.shape[0]
    i, j, k = map(expr.Var, "ijk")
    an = Analyzer.for_shapes(tuple(p.shape for p in func.buffers))
    an.bind(i, 0, b - 1)
    an.bind(j, 0, element(s, i) - 1)
    an.bind(k, i + 1, b - 1)
    here = element(o, i)
    assert an.bounds_of(element(s, i)) == (0, 5)
    assert an.prove_equal(element(o, i + 1) - here, element(s, i))
    assert an.prove_equal(element(o, 0), 0) and an.prove_equal(element(o, b), t)
    assert an.prove(expr.LT(here + j, t)) and an.prove(expr.GE(here + j, expr.const(0)))
    assert an.prove(expr.LT(here + j, element(o, k)))  # rows of different i are disjoint
    assert an.prove(expr.LT(element(s, i), element(s, k))) is None
    assert an.prove(expr.LE(here + j + 1, element(o, i + 1)))


def test_facts_are_forgotten_with_the_range_of_a_variable() -> None:
    func = double()
    s, o = func.buffers[:2]
    i, n = expr.Var("i"), s.shape[0]
    an = Analyzer.for_shapes(tuple(p.shape for p in func.buffers))
    an.bind(i, 0, n - 1)
    assert an.prove_equal(element(o, i + 1) - element(o, i), element(s, i))
    an.bind(i, -5, n - 1)  # o[i] may lie outside of the array
    assert an.prove_equal(element(o, i + 1) - element(o, i), element(s, i)) is None


SEED = int.from_bytes(np.random.default_rng().bytes(4), "little")


def test_proofs_hold_on_random_arrays() -> None:
    """Random claims about sums of elements: what is proved holds for each array, what is refuted
    for none."""
    rng = random.Random(SEED)
    print("seed", SEED)
    func = double()
    s, o, x, _ = func.buffers
    decided = 0
    for _ in range(120):
        b = rng.randint(2, 4)
        i, k = expr.Var("i"), expr.Var("k")
        an = Analyzer.for_shapes(tuple(p.shape for p in func.buffers))
        n = s.shape[0]
        an.bind(i, 0, n - 1)
        an.bind(k, i + rng.randint(0, 1), n - 1)
        terms = [element(o, i), element(o, k), element(o, i + 1), element(s, i), element(s, k)]
        terms += [element(o, k + 1), element(o, n), x.shape[0], element(o, 0), i, k]
        left, right = (
            expr.const(rng.randint(-1, 1)) + rng.choice(terms) + rng.choice((0, 0, *terms))
            for _ in range(2)
        )
        claim = expr.LE(left, right)
        answer = an.prove(claim)
        if answer is None:
            continue
        decided += 1
        for _ in range(8):
            lengths = [rng.choice((0, 0, 1, 5, rng.randint(0, 5))) for _ in range(b)]
            starts = [sum(lengths[:m]) for m in range(b + 1)]
            for first in range(b):
                for then in range(first + 1, b):
                    values = {i: first, k: then, n: b, x.shape[0]: starts[-1]}
                    assert _value(claim, values, {s: lengths, o: starts}) == answer, (claim, SEED)
    assert decided > 5


def _value(
    e: expr.PrimExpr, values: dict[expr.PrimExpr, int], arrays: dict[loops.Buffer, list[int]]
) -> int:
    match e:
        case expr.IntImm(value):
            return value
        case expr.Var():
            return values[e]
        case loops.BufferLoad(buffer, (index,)):
            return arrays[buffer][_value(index, values, arrays)]
        case expr.Cast(_, value):
            return _value(value, values, arrays)
        case expr.BinaryOp(a, b):
            return e.row.exact(_value(a, values, arrays), _value(b, values, arrays))
        case _:
            raise TypeError(type(e).__name__)


def test_rows_of_a_sequence_are_a_box() -> None:
    func = double()
    block = next(n for n in walk(func.body) if isinstance(n, loops.Block) and n.iter_vars)
    (written,) = access_regions(block)[1]
    rows, columns = written.region
    assert "o[vi]" in str(rows.min) and str(rows.extent) == "1" and str(columns.min) == "vk"


def test_a_function_with_facts_is_not_merged() -> None:
    kind, reason = pattern_kind_with_reason(double())
    assert kind is PatternKind.OPAQUE and "checked before it runs" in reason


GOOD = np.array([2, 0, 3], "int64"), np.array([0, 2, 2, 5], "int32")
BAD = {
    "negative": ([2, -1, 3], [0, 2, 2, 5], r"s\[1\] is -1, not in T.range\(0, 6\)"),
    "too long": ([2, 0, 6], [0, 2, 2, 5], r"s\[2\] is 6, not in"),
    "backwards": ([2, 0, 3], [0, 2, 1, 5], r"o\[2\] is 1, less than the element before it"),
    "other differences": ([2, 1, 3], [0, 2, 2, 5], r"o\[2\] is 2, not the element before it"),
    "late start": ([2, 0, 3], [1, 2, 2, 5], "o begins with 1, not 0"),
    "short data": ([2, 0, 3], [0, 2, 2, 6], "o ends with 6, not t = 5"),
    "far too large": ([2, 1 << 60, 3], [0, 2, 2, 5], r"s\[1\] is \d+, too large for an index"),
}


@pytest.fixture(scope="module")
def compiled() -> rl.Executable:
    return rl.compile(parse(ROWS))


def test_arrays_that_keep_their_facts(compiled: rl.Executable) -> None:
    x = np.random.default_rng(0).random((5, 4), "float32")
    for run in (compiled["double"], lambda *a: interpret_prim_func(double(), a)):  # type: ignore
        y = np.zeros_like(x)
        run(*GOOD, x, y)
        assert np.array_equal(y, 2 * x)


@pytest.mark.parametrize("fault", BAD)
def test_arrays_that_break_a_fact_are_refused(compiled: rl.Executable, fault: str) -> None:
    lengths, starts, message = BAD[fault]
    x = np.ones((5, 4), "float32")
    y = np.zeros_like(x)
    arrays = np.array(lengths, "int64"), np.array(starts, "int32"), x, y
    with pytest.raises(ExecutionError, match=message):
        interpret_prim_func(double(), arrays)
    with pytest.raises(rl.CheckFailed, match=message):
        compiled["double"](*arrays)
    assert not y.any()


def test_the_check_reads_nothing_outside_of_its_arrays() -> None:
    text = ROWS.replace("(b,), ", "(c,), ").replace("t = T.int64()", "t, c = T.int64(), T.int64()")
    func = parse(text)["double"]
    check = facts_check(func)
    assert check is not None and len(check.buffers) == len(checked_buffers(func)) == 2
    lengths, starts = np.zeros(1, "int64"), np.zeros(4, "int32")
    with pytest.raises(ExecutionError, match=r"element 1 of s is read, which has 1"):
        interpret_prim_func(check, [lengths, starts, 0])


def test_functions_without_facts_need_no_check() -> None:
    func = parse(ROWS.replace("T.index_function(s_, (b,), \"int64\", facts=[T.range(0, 6)])",
                              "T.match_buffer(s_, (b,), \"int64\")"))["double"]  # fmt: skip
    assert [b.name for b in checked_buffers(func)] == ["s", "o"]
    plain = loops.PrimFunc(double().params[2:], double().body)
    assert facts_check(plain) is None


def test_forked_analyzers_know_the_facts() -> None:
    func = double()
    s, o = func.buffers[:2]
    i, n = expr.Var("i"), s.shape[0]
    an = Analyzer.for_shapes(tuple(p.shape for p in func.buffers)).fork()
    an.bind(i, 0, n - 1)
    assert an.prove_equal(element(o, i + 1) - element(o, i), element(s, i))
    assert an.bounds_of(element(s, i)) == (0, 5)
    other = an.fork()
    other.bind(i, -5, n - 1)
    assert other.prove_equal(element(o, i + 1) - element(o, i), element(s, i)) is None
    assert an.prove_equal(element(o, i + 1) - element(o, i), element(s, i))


SORTED = """
@T.prim_func
def gather(o_: T.handle, r_: T.handle, q_: T.handle, p_: T.handle, y_: T.handle):
    b, t = T.int64(), T.int64()
    o = T.index_function(o_, (b + 1,), "int64", facts=[T.nondecreasing(first=0, last=t)])
    r = T.index_function(r_, (t,), "int32", facts=[T.segment_ids(lambda i: o[i])])
    q = T.match_buffer(q_, (b,), "int64")
    p = T.index_function(p_, (b,), "int64", facts=[T.permutation(lambda i: q[i])])
    y = T.match_buffer(y_, (t,), "int64")
    for f in range(t):
        y[f] = p[r[f]]
"""


@pytest.mark.parametrize(
    ("ids", "inverse", "order", "message"),
    [
        ([0, 0, 2], [1, 2, 0], [2, 0, 1], None),
        ([0, 0, 3], [1, 2, 0], [2, 0, 1], r"r\[2\] is 3, no segment of o"),
        ([0, 1, 2], [1, 2, 0], [2, 0, 1], r"r\[1\] is 1, another segment of o"),
        ([0, 0, 2], [1, 2, 0], [2, 0, 3], r"p\[2\] is 3, not in 0 to b - 1"),
        ([0, 0, 2], [1, 2, 7], [2, 0, 1], r"q\[2\] is 7, not in 0 to b - 1"),
        ([0, 0, 2], [1, 2, 0], [2, 0, 0], r"p\[2\] is 0, and q is not its inverse"),
    ],
)
def test_segments_and_permutations_are_checked(
    ids: list[int], inverse: list[int], order: list[int], message: str | None
) -> None:
    module = parse(SORTED)
    assert structural_equal(parse(module.script()), module)
    y = np.zeros(3, "int64")
    arrays = (np.array([0, 2, 2, 3]), np.array(ids, "int32"), np.array(inverse), np.array(order))
    func, compiled = module["gather"], rl.compile(module)["gather"]
    if message is None:
        compiled(*arrays, y)
        assert y.tolist() == [2, 2, 1]
        return
    with pytest.raises(ExecutionError, match=message):
        interpret_prim_func(func, (*arrays, y))
    with pytest.raises(rl.CheckFailed, match=message):
        compiled(*arrays, y)


def test_segments_and_permutations_bound_elements() -> None:
    func = parse(SORTED)["gather"]
    o, r, _, p = func.buffers[:4]
    f, (b, t) = expr.Var("f"), (p.shape[0], r.shape[0])
    an = Analyzer.for_shapes(tuple(x.shape for x in func.buffers))
    an.bind(f, 0, t - 1)
    mine = element(r, f)
    assert an.prove(expr.GE(mine, 0 * f)) and an.prove(expr.LT(mine, b))
    assert an.prove(expr.LE(element(o, mine), f)) and an.prove(expr.LT(f, element(o, mine + 1)))
    assert an.prove(expr.LT(element(p, mine), b)) and an.prove(expr.LT(element(p, mine), t)) is None
