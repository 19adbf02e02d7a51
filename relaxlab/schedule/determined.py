"""A proof that values of expressions determine a loop: equal values mean the same iteration.

`i*4 + j` with j in [0, 4) determines both i and j, as digits of one number; `f // n` and `f % n`
together determine f; `A[i] + j` with j in [0, A[i + 1] - A[i]) determines i and j where A does not
fall, and an element of a permutation its place. A condition that leaves iterations out cannot make
two of them equal, so none is needed for the proof.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr
from relaxlab.ir.dtypes import bits_of, is_int
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import (
    Buffer,
    BufferLoad,
    For,
    Nondecreasing,
    Permutation,
    PrefixSums,
    Range,
)
from relaxlab.ir.node import Node, rewrite, walk
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.ranges import Env, Span, by_data, span_of, union
from relaxlab.schedule.tree import vars_in

EqualValues = Mapping[PrimExpr, None]
"""Expressions of equal value in the two iterations that are compared, in the order found."""


def determines(values: Iterable[PrimExpr], var: Var, env: Env, an: Analyzer) -> bool:
    """Return True if two iterations in which `values` are the same provably have the same `var`.

    `env` holds the spans of all variables that may differ between the iterations. All others are
    taken to be the same in both.
    """
    equal: dict[PrimExpr, None] = dict.fromkeys(map(an.simplify, values))
    while var not in equal:
        varying = {v: span for v, span in env.items() if v not in equal}
        found = [x for e in equal for x in _addends(e, varying, an)]
        found += _dividends(equal, varying, an)
        found += [x for e in equal for x in _segments(e, varying, an)]
        new = dict.fromkeys(x for x in found if x not in equal)
        if not new:
            return False
        equal |= new
    return True


def are_never_equal(
    a: Sequence[PrimExpr], b: Sequence[PrimExpr], loops: Sequence[For], an: Analyzer
) -> bool:
    """Return True if the indices `a` in one iteration of the loops provably are another place than
    `b` in any other one, or in the same: in one dimension they are always before or behind it."""
    again = {s.loop_var: Var(f"{s.loop_var.name}_2", s.loop_var.dtype) for s in loops}
    with an.scope():
        for s in loops:
            an.bind_range(s.loop_var, Range(s.min, s.extent))
        for s in loops:
            other = Range(substitute(s.min, again), substitute(s.extent, again))
            an.bind_range(again[s.loop_var], other)
        pairs = [(substitute(x, again), y) for x, y in zip(a, b, strict=True)]
        return any(an.prove(expr.LT(x, y)) or an.prove(expr.GT(x, y)) for x, y in pairs)


def _addends(e: PrimExpr, env: Env, an: Analyzer) -> Iterator[PrimExpr]:
    """The parts of a sum `x*c + rest` that its value determines: rest varies by less than c."""
    if isinstance(e, expr.Cast):
        if _keeps_value(e):
            yield e.value
        return
    factors: dict[PrimExpr, PrimExpr] = {}
    for x, factor in _terms(e, expr.const(1, e.dtype), env):
        factors[x] = factors[x] + factor if x in factors else factor
    zero = expr.const(0, e.dtype)
    for x, factor in factors.items():
        rest = zero
        for other, scale in factors.items():
            if other is not x:
                rest = rest + other * scale
        rest = an.simplify(rest)
        span = span_of(rest, env, an) if _is_by_place(rest, env) else None
        if span is not None and _varies_less(span, factor, an):
            yield x
            yield rest


def _keeps_value(e: expr.Cast) -> bool:
    return is_int(e.value.dtype) and is_int(e.to) and bits_of(e.value.dtype) <= bits_of(e.to)


def _varies_less(span: Span, factor: PrimExpr, an: Analyzer) -> bool:
    width = an.simplify(span.hi - span.lo)
    return bool(an.prove(expr.LT(width, factor)) or an.prove(expr.LT(factor, 0 - width)))


def _terms(e: PrimExpr, factor: PrimExpr, env: Env) -> Iterator[tuple[PrimExpr, PrimExpr]]:
    """The terms of a sum that vary, with their factors."""
    if _fixed(e, env):
        return
    match e:
        case expr.Add(a, b):
            yield from _terms(a, factor, env)
            yield from _terms(b, factor, env)
        case expr.Sub(a, b):
            yield from _terms(a, factor, env)
            yield from _terms(b, 0 - factor, env)
        case expr.Mul(a, b) if _fixed(b, env):
            yield from _terms(a, factor * b, env)
        case expr.Mul(a, b) if _fixed(a, env):
            yield from _terms(b, factor * a, env)
        case _:
            yield e, factor


def _segments(e: PrimExpr, env: Env, an: Analyzer) -> Iterator[PrimExpr]:
    """The segment, and the place in it, that `(A[i] + j) * c` determines, as segments of an index
    function do not overlap; the place of an element of a permutation."""
    terms = list(_terms(e, expr.const(1, e.dtype), env))
    for x, factor in terms:
        load = x.value if isinstance(x, expr.Cast) and _keeps_value(x) else x
        if not isinstance(load, BufferLoad) or not is_int(load.dtype):
            continue
        (place, *_), facts = load.indices, load.buffer.facts
        if len(terms) == 1 and any(isinstance(f, Permutation) for f in facts):
            yield place
        if any(isinstance(f, Nondecreasing | PrefixSums) for f in facts):
            after: PrimExpr = BufferLoad(load.buffer, (place + 1,))
            after = after if x is load else expr.Cast(x.dtype, after)
            rest, room = an.simplify(e - x * factor), an.simplify((after - x) * factor)
            zero = expr.const(0, e.dtype)
            if an.prove(expr.GE(rest, zero)) and an.prove(expr.LT(rest, room)):
                yield place
                yield rest


def _fixed(e: PrimExpr, env: Env) -> bool:
    """True if the value is the same in both iterations: elements of index functions, which are only
    read, are where their places are."""
    return not vars_in(e) & env.keys() and _is_by_place(e, env)


def _is_by_place(e: PrimExpr, env: Env) -> bool:
    """True if all that the value loads are elements of index functions at places that do not
    vary."""
    loads = (n for n in walk(e) if isinstance(n, BufferLoad))
    return all(n.buffer.facts and not vars_in(n) & env.keys() for n in loads)


def _dividends(equal: EqualValues, env: Env, an: Analyzer) -> Iterator[PrimExpr]:
    """The `x // l` for which both `x // (l*n)` and `x // l % n` are known; x itself where l = 1."""
    for digit in equal:
        if not isinstance(digit, expr.FloorMod) or not _fixed(digit.b, env):
            continue
        whole = digit.a
        forms = [(whole, digit.b)]
        # Dividing by l and then by n is dividing by l*n unless n is negative.
        nonnegative = expr.GE(digit.b, expr.const(0, digit.dtype))
        if isinstance(whole, expr.FloorDiv) and an.prove(nonnegative):
            forms.append((whole.a, whole.b * digit.b))
        for e in equal:
            if isinstance(e, expr.FloorDiv) and any(
                e.a == x and an.prove_equal(e.b, step) for x, step in forms
            ):
                yield whole


def with_fixed_loads(
    e: PrimExpr, env: Env, changing: Collection[Buffer], loaded: dict[PrimExpr, Var]
) -> PrimExpr:
    """`e` with a variable, kept in `loaded`, for each load whose value is the same in both
    iterations: of an element whose index does not vary, in a buffer that is not among the
    `changing` ones."""

    def visit(n: Node) -> Node | None:
        if not isinstance(n, BufferLoad) or n.buffer in changing:
            return None
        if vars_in(n) & env.keys() or any(map(by_data, n.indices)):
            return None
        return loaded.setdefault(n, Var("loaded", n.dtype))

    return rewrite(e, visit) if by_data(e) else e


def in_common(a: PrimExpr, b: PrimExpr, env: dict[Var, Span | None], an: Analyzer) -> PrimExpr:
    """An expression that both `a` and `b` are instances of (their anti-unification): where they
    differ, it has a variable that is one part or the other, which joins `env`."""
    if a == b:
        return a
    if isinstance(a, expr.BinaryOp) and type(a) is type(b):
        assert isinstance(b, expr.BinaryOp)
        return type(a)(in_common(a.a, b.a, env, an), in_common(a.b, b.b, env, an))
    either = Var("either", a.dtype)
    first, second = (None if by_data(x) else span_of(x, env, an) for x in (a, b))
    if first is None or second is None or a.dtype != b.dtype:
        env[either] = None
    else:
        env[either] = union(first, second, an)
    return either
