"""Index functions that follow from others, and the loop functions that compute them: the prelude of
a loop function (CoRa, MLSys 2022, section 5.1).

Prefix sums follow from the lengths, the segment of each row from where segments begin, and the
inverse of a permutation from the permutation. A call may leave them out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr, loops
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import Buffer, BufferLoad
from relaxlab.ir.node import replace, walk
from relaxlab.ir.substitute import substitute, symbols_in

ZERO, ONE = expr.const(0), expr.const(1)


@dataclass(frozen=True, slots=True)
class Derived:
    """An index function of a loop function that follows from others of its parameters, `inputs`.
    func: the loop function that computes it, from these, in that order. name: what it is."""

    buffer: Buffer
    inputs: tuple[Buffer, ...]
    func: loops.PrimFunc
    name: str


@lru_cache(maxsize=1024)
def prelude_of(func: loops.PrimFunc) -> tuple[Derived, ...]:
    """The index functions that follow from other parameters, each after those that it is computed
    from."""
    made = [d for b in func.buffers for d in _derived(func, b)]
    found: dict[Buffer, Derived] = {}
    while made:
        pending = {d.buffer for d in made} - found.keys()
        ready = [d for d in made if pending.isdisjoint(d.inputs)]
        if not ready:  # in a circle: each follows from the other, so they are given
            break
        for d in ready:
            found.setdefault(d.buffer, d)
        made = [d for d in made if d.buffer not in found]
    return tuple(found.values())


def given_buffers(func: loops.PrimFunc) -> tuple[Buffer, ...]:
    """The buffers that a call must pass: those that do not follow from others."""
    derived = {d.buffer for d in prelude_of(func)}
    return tuple(b for b in func.buffers if b not in derived)


def is_prelude(func: loops.PrimFunc) -> bool:
    """True if a loop function makes or checks index arrays alone: all of its buffers are
    one-dimensional arrays of integers."""
    return all(b.ndim == 1 and b.dtype in ("int32", "int64") for b in func.buffers)


def without_prelude(func: loops.PrimFunc) -> loops.PrimFunc:
    """The function with the parameters alone that a call must pass, for their shapes."""
    given = given_buffers(func)
    return replace(func, params=tuple(p for p in func.params
                                      if not isinstance(p, Buffer) or p in given))  # fmt: skip


def _derived(func: loops.PrimFunc, b: Buffer) -> Iterator[Derived]:
    """The ways to compute what the facts of a buffer determine: itself or, of a permutation, its
    inverse."""
    for fact in b.facts:
        match fact:
            case loops.PrefixSums():
                yield from _prefix_sums(func, b, fact)
            case loops.SegmentIds():
                yield from _segment_ids(func, b, fact)
            case loops.Permutation():
                yield from _inverse(func, b, fact)
            case _:
                pass


def _prefix_sums(
    func: loops.PrimFunc, b: Buffer, fact: loops.PrefixSums
) -> Iterator[Derived]:
    """Element i + 1 is element i and the step at i, one after the other."""
    i = Var("i")
    step = fact.at(i)
    read = list(dict.fromkeys(n for n in walk(step) if isinstance(n, BufferLoad)))
    count = Analyzer.for_shapes(b.shape).simplify(b.shape[0] - 1)
    inputs = tuple(dict.fromkeys(load.buffer for load in read))
    if not inputs or not _are_parameters(func, inputs) or not _are_inside(read, i, count):
        return
    sizes = symbols_in(tuple(x.shape for x in (*inputs, b)))
    if {n for n in walk(step) if isinstance(n, Var)} - {i, *sizes}:  # sizes of other buffers
        return
    plain = _plain((*inputs, b), {x: _bounds(x) for x in inputs})
    sums = plain[b]
    term = substitute(step if step.dtype == "int64" else expr.Cast("int64", step), buffers=plain)
    first = _store(sums, ZERO, ZERO)
    there = expr.LT(ZERO, sums.shape[0])
    if not Analyzer.for_shapes(sums.shape).prove(there):  # it may have no elements
        first = loops.IfThenElse(there, first)
    body = loops.seq(
        first,
        _loop(i, count, _store(sums, i + 1, loops.element(sums, i) + term)),
    )
    yield Derived(b, inputs, _function(plain, body), "prefix_sums")


def _segment_ids(
    func: loops.PrimFunc, b: Buffer, fact: loops.SegmentIds
) -> Iterator[Derived]:
    """The rows of each segment get its number. The starts end with the number of rows, or a row
    would be outside."""
    starts = fact.starts
    ends = (f for f in starts.facts if isinstance(f, loops.Nondecreasing))
    whole = [f for f in ends if f.first == ZERO and f.last == b.shape[0]]
    if not whole or not _are_parameters(func, (starts,)):
        return
    plain = _plain((starts, b), {starts: (whole[0],)})
    first, (i, j) = plain[starts], (Var("i"), Var("j"))
    count = Analyzer.for_shapes(starts.shape).simplify(starts.shape[0] - 1)
    rows = loops.element(first, i + 1) - loops.element(first, i)
    body = _loop(i, count, _loop(j, rows, _store(plain[b], loops.element(first, i) + j, i)))
    yield Derived(b, (starts,), _function(plain, body), "segment_ids")


def _inverse(
    func: loops.PrimFunc, order: Buffer, fact: loops.Permutation
) -> Iterator[Derived]:
    """Element order[i] is i. What no element is, since `order` is no permutation, is found by the
    check of the fact."""
    match fact.at(ZERO):
        case BufferLoad(inverse) | expr.Cast(_, BufferLoad(inverse)):
            pass
        case _:
            return
    same = Analyzer.for_shapes(order.shape, inverse.shape).prove_equal(
        inverse.shape[0], order.shape[0]
    )
    if not same or not _are_parameters(func, (order, inverse)) or order is inverse:
        return
    plain = _plain((order, inverse), {order: (loops.Within(ZERO, order.shape[0]),)})
    i, target = Var("i"), plain[inverse]
    body = loops.seq(
        _loop(i, inverse.shape[0], _store(target, i, ZERO)),
        _loop(k := Var("i"), order.shape[0], _store(target, loops.element(plain[order], k), k)),
    )
    yield Derived(inverse, (order,), _function(plain, body), "inverse_permutation")


def _are_parameters(func: loops.PrimFunc, buffers: Sequence[Buffer]) -> bool:
    return all(b in func.buffers and b.ndim == 1 for b in buffers)


def _are_inside(read: Iterable[BufferLoad], i: Var, count: PrimExpr) -> bool:
    """True if all loads are of elements that are there, for i from 0 up to a count."""
    for load in read:
        an = Analyzer.for_shapes(load.buffer.shape, (count,))
        an.bind_range(i, loops.Range(ZERO, count))
        (index,), (size,) = load.indices, load.buffer.shape
        if not (an.prove(expr.GE(index, ZERO)) and an.prove(expr.LT(index, size))):
            return False
    return True


def _bounds(b: Buffer) -> tuple[loops.Fact, ...]:
    """The facts that bound the elements by constants: lengths that are not are refused before they
    are added up."""
    return tuple(f for f in b.facts if isinstance(f, loops.Within) and not any(symbols_in(f)))


def _plain(
    buffers: Sequence[Buffer], facts: dict[Buffer, tuple[loops.Fact, ...]]
) -> dict[Buffer, Buffer]:
    """New buffers for some, with the given facts alone."""
    return {b: Buffer(b.name, b.shape, b.dtype, facts=facts.get(b, ())) for b in buffers}


def _store(b: Buffer, index: PrimExpr, value: PrimExpr) -> loops.Stmt:
    value = value if value.dtype == b.dtype else expr.Cast(b.dtype, value)
    return loops.BufferStore(b, value, (index,))


def _loop(i: Var, count: PrimExpr, body: loops.Stmt) -> loops.Stmt:
    return loops.For(i, ZERO, count, "serial", body)


def _function(plain: dict[Buffer, Buffer], body: loops.Stmt) -> loops.PrimFunc:
    """The loop function with the buffers as parameters, the one that it computes last, and symbols
    of its own."""
    func = loops.PrimFunc(tuple(plain.values()), body)
    own = {s: Var(s.name) for s in symbols_in(tuple(plain.values()))}
    return substitute(func, symbols=own)
