"""The loop function that checks what a loop function's index functions state.

Analyses take facts for granted, and an index that is out of range would write anywhere. Whoever
runs a loop function with index functions runs this one first.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from relaxlab.analysis.arith.exact import LARGEST_FACTOR
from relaxlab.ir import expr, loops
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.node import walk
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.ir.types import LengthsType

ZERO = expr.const(0)


@lru_cache(maxsize=1024)
def facts_check(func: loops.PrimFunc) -> loops.PrimFunc | None:
    """Return a loop function that stops at the first element for which a fact of an index function
    of `func` does not hold; None where `func` has no index functions.

    Its buffers are `checked_buffers`, its scalars symbols of `func`. It reads nothing outside of
    its buffers, whatever their elements are.
    """
    checked = checked_buffers(func)
    if not checked:
        return None
    stmts = [s for b in checked if b.facts for s in _small(b)]
    stmts += [s for b in checked for fact in b.facts for s in _assertions(b, fact)]
    # Without the facts, or the assertions would be proved by what they are to show.
    plain = {b: loops.Buffer(b.name, b.shape, b.dtype, b.strides) for b in checked}
    body = substitute(loops.seq(*stmts), buffers=plain)
    sizes = symbols_in(tuple(plain.values()))
    inner = [n.loop_var for n in walk(body) if isinstance(n, loops.For)]
    scalars = [v for v in symbols_in(body) if v not in sizes and v not in inner]
    return loops.PrimFunc((*plain.values(), *scalars), body)


def lengths_check(name: str, ty: LengthsType) -> loops.PrimFunc:
    """Return a loop function that stops where a parameter of that name, which has lengths of
    sequences, has one below the least or above the most, or where they do not add up to the number
    of rows."""
    assert ty.shape is not None and ty.dtype is not None and ty.total is not None
    most = LARGEST_FACTOR if ty.most is None else ty.most
    inside = loops.Within(expr.const(ty.least), expr.const(most + 1))
    lengths = loops.Buffer(name, ty.shape, ty.dtype, facts=(inside,))
    small = facts_check(loops.PrimFunc((lengths,), loops.Evaluate(ZERO)))
    assert small is not None
    (plain,), i = small.buffers, expr.Var("i")
    total = loops.Buffer("total", (expr.const(1),), "int64", scope="local")
    sum_ = loops.BufferLoad(total, (ZERO,))
    text = "{}" if isinstance(ty.total, expr.IntImm) else f"{ty.total} = {{}}"
    message = f"the lengths in {name} add up to {{}}, not {text}"
    added = loops.seq(
        loops.BufferStore(total, ZERO, (ZERO,)),
        _loop(i, plain.shape[0], loops.BufferStore(total, sum_ + loops.element(plain, i), (ZERO,))),
        loops.AssertStmt(expr.EQ(sum_, ty.total), message, (sum_, ty.total)),
    )
    # One loop: a thread adds up and compares, where separate statements are steps of a team.
    body = loops.seq(small.body, _loop(expr.Var("once"), expr.const(1), added))
    root = loops.Block("root", (), (), (), body, alloc_buffers=(total,))
    sizes = symbols_in(plain)
    scalars = tuple(v for v in symbols_in(ty.total) if v not in sizes)
    return loops.PrimFunc((plain, *scalars), loops.BlockRealize((), expr.const(True), root))


def checked_buffers(func: loops.PrimFunc) -> tuple[loops.Buffer, ...]:
    """The index functions of a loop function and the buffers that their facts mention, in the order
    of its parameters."""
    stated = [n for b in func.buffers for fact in b.facts for n in walk(fact)]
    mentioned = {n.buffer for n in stated if isinstance(n, loops.BufferLoad)}
    return tuple(b for b in func.buffers if b.facts or b in mentioned)


def _small(b: loops.Buffer) -> Iterator[loops.Stmt]:
    """No integer of an index function is beyond what may be a size: sums of two do not wrap."""
    if b.dtype != "int32":
        most = expr.const(LARGEST_FACTOR)
        i = expr.Var("i")
        value = loops.element(b, i)
        small = expr.And(expr.LE(ZERO - most, value), expr.LE(value, most))
        yield _loop(i, b.shape[0], _claim(b, i, small, "too large for an index"))


def _assertions(b: loops.Buffer, fact: loops.Fact) -> Iterator[loops.Stmt]:
    """The assertions that together are a fact of `b`."""
    i, count = expr.Var("i"), b.shape[0]
    match fact:
        case loops.Within(low, high):
            inside = _between(low, loops.element(b, i), high)
            text = f"not in T.range({low}, {high})"
            yield _loop(i, count, _claim(b, i, inside, text))
        case loops.Nondecreasing(first, last):
            ordered = expr.LE(loops.element(b, i), loops.element(b, i + 1))
            text = "less than the element before it: T.nondecreasing"
            yield _loop(i, count - 1, _claim(b, i + 1, ordered, text))
            yield from () if first is None else _end(b, ZERO, first, "begins")
            yield from () if last is None else _end(b, count - 1, last, "ends")
        case loops.PrefixSums():
            yield from _end(b, ZERO, ZERO, "begins")
            step = fact.at(i)
            follows = expr.EQ(loops.element(b, i + 1), loops.element(b, i) + step)
            text = f"not the element before it, at i, plus {step}: T.prefix_sums"
            yield _loop(i, count - 1, loops.seq(*_reads(step), _claim(b, i + 1, follows, text)))
        case loops.SegmentIds():
            mine, starts = loops.element(b, i), fact.starts
            exists = _between(ZERO, mine, starts.shape[0] - 1)
            inside = _between(fact.at(mine), i, fact.at(mine + 1))
            text = f"no segment of {starts.name}: T.segment_ids"
            yield _loop(i, count, loops.seq(
                _claim(b, i, exists, text),
                _claim(b, i, inside, f"another segment of {starts.name}: T.segment_ids"),
            ))  # fmt: skip
        case loops.Permutation():
            back = fact.at(i)
            name = next(n.buffer.name for n in walk(back) if isinstance(n, loops.BufferLoad))
            text = f"not in 0 to {count - 1}: T.permutation"
            yield _loop(i, count, _claim(b, i, _between(ZERO, loops.element(b, i), count), text))
            outside = f"{name}[{{}}] is {{}}, not in 0 to {count - 1}: T.permutation of {b.name}"
            same, other = expr.EQ(loops.element(b, back), i), f"and {name} is not its inverse"
            yield _loop(i, count, loops.seq(
                *_reads(back),
                loops.AssertStmt(_between(ZERO, back, count), outside, (i, back)),
                _claim(b, back, same, f"{other}: T.permutation"),
            ))  # fmt: skip
        case _:
            raise TypeError(f"{type(fact).__name__} is no fact")


def _claim(b: loops.Buffer, index: PrimExpr, condition: PrimExpr, text: str) -> loops.Stmt:
    message = f"{b.name}[{{}}] is {{}}, {text}"
    return loops.AssertStmt(condition, message, (index, loops.element(b, index)))


def _end(
    b: loops.Buffer, index: PrimExpr, wanted: PrimExpr, verb: str
) -> Iterator[loops.Stmt]:
    """The first or last element is `wanted`, if there are elements."""
    found = loops.element(b, index)
    text = "{}" if isinstance(wanted, expr.IntImm) else f"{wanted} = {{}}"
    message = f"{b.name} {verb} with {{}}, not {text}"
    equal = loops.AssertStmt(expr.EQ(found, wanted), message, (found, wanted))
    yield loops.IfThenElse(expr.LT(ZERO, b.shape[0]), equal)


def _between(low: PrimExpr, e: PrimExpr, high: PrimExpr) -> PrimExpr:
    return expr.And(expr.LE(low, e), expr.LT(e, high))


def _reads(e: PrimExpr) -> list[loops.Stmt]:
    """Assertions that the arrays in `e` have the elements that it reads."""
    return [_inside(n) for n in walk(e) if isinstance(n, loops.BufferLoad)]


def _inside(load: loops.BufferLoad) -> loops.Stmt:
    (index,), (count,) = load.indices, load.buffer.shape
    inside = _between(ZERO, index, count)
    message = f"element {{}} of {load.buffer.name} is read, which has {{}}"
    return loops.AssertStmt(inside, message, (index, count))


def _loop(i: expr.Var, count: PrimExpr, body: loops.Stmt) -> loops.Stmt:
    return loops.For(i, ZERO, count, "serial", body)
