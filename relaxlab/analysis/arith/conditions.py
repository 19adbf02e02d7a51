"""Conditions: deciding, simplifying and assuming them."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

from relaxlab.analysis.arith import convert, poly
from relaxlab.analysis.arith.context import Context, finite
from relaxlab.analysis.arith.divide import expand
from relaxlab.analysis.arith.exact import can_be_written, is_exact
from relaxlab.analysis.arith.poly import Poly
from relaxlab.analysis.arith.prove import assume_nonneg, is_nonneg, is_positive
from relaxlab.ir import dtypes, expr
from relaxlab.ir.substitute import symbols_in

TRUE = expr.IntImm(1, "bool")
FALSE = expr.IntImm(0, "bool")

_NEGATED: dict[type, type[expr.CmpOp]] = {
    expr.LT: expr.GE,
    expr.LE: expr.GT,
    expr.GT: expr.LE,
    expr.GE: expr.LT,
    expr.EQ: expr.NE,
    expr.NE: expr.EQ,
}
# a OP b as c >= 0: the sign of (b - a) and the constant to add.
_AS_NONNEG: dict[type, tuple[int, int]] = {
    expr.LT: (1, -1),
    expr.LE: (1, 0),
    expr.GT: (-1, -1),
    expr.GE: (-1, 0),
}
_WITH_EQUALITY = (expr.EQ, expr.LE, expr.GE)
# A variable with at most so many values is tried value by value, and so are the parts of a
# conjunction against the others: the questions grow with the number and its square.
_SMALL = 8


_UNASKED: Any = object()


def decide(ctx: Context, e: expr.PrimExpr) -> bool | None:
    """True or False where the condition is proved or refuted, else None."""
    known = ctx.scope.decided.get(e, _UNASKED)
    if known is _UNASKED:
        known = ctx.scope.decided[e] = _decide(ctx, e)
    return known


def _decide(ctx: Context, e: expr.PrimExpr) -> bool | None:
    match e:
        case expr.IntImm(value):
            return bool(value)
        case expr.Not(a):
            inner = decide(ctx, a)
            return None if inner is None else not inner
        case expr.And(a, b) | expr.Or(a, b):
            return _decide_both(ctx, a, b, isinstance(e, expr.And))
        case expr.Call(_, "likely", (a,)):
            return decide(ctx, a)
        case expr.Var():
            known = ctx.poly_of_atom(ctx.var(e)) if e in ctx.numbers else None
            value = None if known is None else poly.const_of(known)
            return None if value is None else bool(value)
        case expr.CmpOp(a, b) if a.dtype in convert.INTEGERS:
            d = _difference(ctx, a, b)
            if _is_exact(ctx, a, b):
                return decide_comparison(ctx, type(e), d)
            return type(e) in _WITH_EQUALITY if not d else None
        case _:
            return None


def _decide_both(ctx: Context, a: expr.PrimExpr, b: expr.PrimExpr, both: bool) -> bool | None:
    """`a and b`, or `a or b`: the second is looked at where the first does not settle it."""
    first = decide(ctx, a)
    if first is (not both):
        return first
    with assuming(ctx, a, both):
        second = decide(ctx, b)
    if first is both or second is None:
        return second
    if second is both:  # b follows from a, so the whole is a
        return first
    return (not both) if decide(ctx, b) is (not both) or first is None else None


def _is_exact(ctx: Context, *sides: expr.PrimExpr) -> bool:
    return all(is_exact(ctx, convert.poly_of(ctx, e), e.dtype) for e in sides)


def _difference(ctx: Context, a: expr.PrimExpr, b: expr.PrimExpr) -> Poly:
    return convert.combined(ctx, poly.add(convert.poly_of(ctx, b), convert.poly_of(ctx, a), -1))


def decide_comparison(ctx: Context, cls: type, d: Poly) -> bool | None:
    """Return True if `a cls b` always holds, False if it never does, else None; d = b - a."""
    if cls in (expr.EQ, expr.NE):
        equal = _is_zero(ctx, d)
        return equal if equal is None or cls is expr.EQ else not equal
    sign, offset = _AS_NONNEG[cls]
    p = poly.add(poly.scale(d, sign), poly.const(offset))
    if _nonneg(ctx, p):
        return True
    return False if _nonneg(ctx, poly.add(poly.const(-1), p, -1)) else None


def _nonneg(ctx: Context, p: Poly) -> bool:
    if is_nonneg(ctx, p):
        return True
    expanded = expand(ctx, p)
    return expanded is not p and is_nonneg(ctx, expanded)


def _is_zero(ctx: Context, d: Poly) -> bool | None:
    if not d:
        return True
    value = poly.const_of(d)
    if value is not None:
        return value == 0
    if d.get((), 0) % poly.content(d):
        return False
    expanded = expand(ctx, d)
    if not expanded:
        return True
    for p in (d, poly.scale(d, -1)):
        if is_positive(ctx, p):
            return False
    if is_nonneg(ctx, d) and is_nonneg(ctx, poly.scale(d, -1)):
        return True
    return None


def prove(ctx: Context, e: expr.PrimExpr) -> bool | None:
    """`decide`, then by trying the values of a variable that has few."""
    known = ctx.scope.proved.get(e, _UNASKED)
    if known is _UNASKED:
        known = ctx.scope.proved[e] = _prove(ctx, e)
    return known


def _prove(ctx: Context, e: expr.PrimExpr) -> bool | None:
    known = decide(ctx, e)
    if known is not None:
        return known
    for number in _split_candidates(ctx, e):
        lo, hi = ctx.interval(number)
        results: set[bool | None] = set()
        for value in range(int(lo), int(hi) + 1):
            ctx.push()
            try:
                ctx.proceed(("value", number, value), partial(_set_value, ctx, number, value))
                results.add(decide(ctx, e))
            finally:
                ctx.pop()
            if None in results or len(results) > 1:
                break
        if len(results) == 1 and None not in results:
            return results.pop()
    return None


def _set_value(ctx: Context, number: int, value: int) -> None:
    ctx.scope.values[number] = poly.const(value)


def _split_candidates(ctx: Context, e: expr.PrimExpr) -> list[int]:
    """Variables with few values that stand inside a quotient, remainder or choice of `e`."""
    if not isinstance(e, expr.CmpOp) or e.a.dtype not in convert.INTEGERS:
        return []
    found: dict[int, float] = {}

    def collect(p: Poly, inside: bool) -> None:
        for a in poly.atoms_in(p):
            at = ctx.atoms[a]
            if at.kind == "var" and (inside or poly.degree(p) > 1):
                lo, hi = ctx.interval(a)
                if finite(lo) and finite(hi) and 1 <= hi - lo < _SMALL:
                    found[a] = hi - lo
            for q in at.args:
                collect(q, True)

    collect(_difference(ctx, e.a, e.b), False)
    # Each candidate costs up to eight questions: the two with fewest values are tried.
    return sorted(found, key=lambda a: found[a])[:2]


def simplify_condition(ctx: Context, e: expr.PrimExpr) -> expr.PrimExpr:
    """A bool expression in normal form."""
    decided = decide(ctx, e)
    if decided is not None:
        return TRUE if decided else FALSE
    match e:
        case expr.Not(a):
            return _negation(ctx, convert.simplify(ctx, a))
        case expr.And() | expr.Or():
            return _junction(ctx, e)
        case expr.CmpOp(a, b) if a.dtype in convert.INTEGERS and _is_exact(ctx, a, b):
            return _comparison(ctx, e)
        case _:
            return convert.simplify_operands(ctx, e)


def _negation(ctx: Context, a: expr.PrimExpr) -> expr.PrimExpr:
    match a:
        case expr.Not(inner):
            return inner
        case expr.CmpOp(x, y) if not dtypes.is_float(x.dtype):
            return convert.simplify(ctx, _NEGATED[type(a)](x, y))
        case expr.And(x, y):
            return expr.Or(_negation(ctx, x), _negation(ctx, y))
        case expr.Or(x, y):
            return expr.And(_negation(ctx, x), _negation(ctx, y))
        case _:
            return expr.Not(a)


def _junction(ctx: Context, e: expr.PrimExpr) -> expr.PrimExpr:
    """Return a conjunction or disjunction without the parts that follow from the rest."""
    cls = type(e)
    both = cls is expr.And
    parts = list(dict.fromkeys(convert.simplify(ctx, p) for p in _flatten(e, cls)))
    parts = [p for p in parts if decide(ctx, p) is not both]
    if len(parts) <= _SMALL:
        index = 0
        while index < len(parts) and len(parts) > 1:
            if _follows(ctx, parts[index], parts[:index] + parts[index + 1 :], both):
                del parts[index]
            else:
                index += 1
    out = parts[0] if parts else (TRUE if both else FALSE)
    for p in parts[1:]:
        out = cls(out, p)  # type: ignore[call-arg]
    return out


def _follows(ctx: Context, part: expr.PrimExpr, others: list[expr.PrimExpr], both: bool) -> bool:
    if not isinstance(part, expr.CmpOp) or part.a.dtype not in convert.INTEGERS:
        return False
    ctx.push()
    try:
        for other in others:
            assume(ctx, other, both)
        return decide(ctx, part) is both
    finally:
        ctx.pop()


def _flatten(e: expr.PrimExpr, cls: type) -> list[expr.PrimExpr]:
    if type(e) is cls:
        assert isinstance(e, expr.BinaryOp)
        return _flatten(e.a, cls) + _flatten(e.b, cls)
    return [e]


def _comparison(ctx: Context, e: expr.CmpOp) -> expr.PrimExpr:
    """The comparison with the negative terms on the left and the positive ones on the right; with
    its own sides where data on the new ones could wrap."""
    dtype = e.a.dtype
    cls, left, right = _sides_of(ctx, type(e), _difference(ctx, e.a, e.b), dtype)
    if all(is_exact(ctx, s, dtype) and can_be_written(ctx, s, dtype) for s in (left, right)):
        return cls(convert.expr_of(ctx, left, dtype), convert.expr_of(ctx, right, dtype))
    return convert.simplify_operands(ctx, e)


def _sides_of(
    ctx: Context, cls: type[expr.CmpOp], d: Poly, dtype: str
) -> tuple[type[expr.CmpOp], Poly, Poly]:
    """The normal form of a comparison of 0 with `d`: its kind, left and right side."""
    g = poly.content(d)
    if cls in (expr.EQ, expr.NE):
        d = {m: c // g for m, c in d.items()}
        flipped = poly.scale(d, -1)
        if str(convert.expr_of(ctx, d, dtype)) > str(convert.expr_of(ctx, flipped, dtype)):
            d = flipped
        left, right = _sides(d)
        c = d.get((), 0)
        left, right = poly.add(left, poly.const(max(-c, 0))), poly.add(right, poly.const(max(c, 0)))
        return cls, left, right
    sign, offset = _AS_NONNEG[cls]
    p = poly.add(poly.scale(d, sign), poly.const(offset))
    p = {m: c // g for m, c in p.items() if c // g}
    left, right = _sides(p)
    c = p.get((), 0)
    if not left:  # right + c >= 0
        return expr.GE, right, poly.const(-c)
    if c == 0 and right:
        return expr.LE, left, right
    if c < 0 and right:
        left, c = poly.add(left, poly.const(-c - 1)), -1
    return expr.LT, left, poly.add(right, poly.const(c + 1))


def _sides(p: Poly) -> tuple[Poly, Poly]:
    """The negative terms, negated, and the positive ones; the constant is in neither."""
    left = {m: -c for m, c in p.items() if m and c < 0}
    right = {m: c for m, c in p.items() if m and c > 0}
    return left, right


@contextmanager
def assuming(ctx: Context, condition: expr.PrimExpr, truth: bool) -> Generator[None]:
    """Assume the condition to be `truth` inside the block."""
    ctx.push()
    try:
        assume(ctx, condition, truth)
        yield
    finally:
        ctx.pop()


def assume(ctx: Context, e: expr.PrimExpr, truth: bool) -> None:
    """Take the condition to be `truth` from here on."""
    ctx.proceed((truth, e), lambda: _assume(ctx, e, truth))


def _assume(ctx: Context, e: expr.PrimExpr, truth: bool) -> None:
    match e:
        case expr.Not(a):
            _assume(ctx, a, not truth)
        case expr.Call(_, "likely", (a,)):
            _assume(ctx, a, truth)
        case expr.And(a, b) | expr.Or(a, b):
            _assume_both(ctx, a, b, isinstance(e, expr.And), truth)
        case expr.Var():
            ctx.tighten(ctx.var(e), (int(truth), int(truth)))
        case expr.CmpOp(a, b) if a.dtype in convert.INTEGERS and _is_exact(ctx, a, b):
            cls = type(e) if truth else _NEGATED[type(e)]
            _assume_comparison(ctx, cls, _difference(ctx, a, b))
        case _:
            pass


def _assume_both(ctx: Context, a: expr.PrimExpr, b: expr.PrimExpr, both: bool, truth: bool) -> None:
    if both is truth:
        _assume(ctx, a, truth)
        _assume(ctx, b, truth)
    elif decide(ctx, a) is both:
        _assume(ctx, b, truth)
    elif decide(ctx, b) is both:
        _assume(ctx, a, truth)


def assumptions_of(ctx: Context, e: expr.PrimExpr, truth: bool) -> list[Poly]:
    """Polynomials that are at least zero when the condition is `truth`."""
    match e:
        case expr.Not(a):
            return assumptions_of(ctx, a, not truth)
        case expr.And(a, b) | expr.Or(a, b):
            if isinstance(e, expr.And) is truth:
                return assumptions_of(ctx, a, truth) + assumptions_of(ctx, b, truth)
            return []
        case expr.CmpOp(a, b) if a.dtype in convert.INTEGERS and _is_exact(ctx, a, b):
            cls = type(e) if truth else _NEGATED[type(e)]
            d = _difference(ctx, a, b)
            if cls is expr.EQ:
                return [d, poly.scale(d, -1)]
            if cls is expr.NE:
                return _apart(ctx, d)
            sign, offset = _AS_NONNEG[cls]
            return [poly.add(poly.scale(d, sign), poly.const(offset))]
        case _:
            return []


def _apart(ctx: Context, d: Poly) -> list[Poly]:
    """Return d >= 1 or -d >= 1 for d != 0, if the sign of d is known."""
    for p in (d, poly.scale(d, -1)):
        if is_nonneg(ctx, p):
            return [poly.add(p, poly.const(-1))]
    return []


def _assume_comparison(ctx: Context, cls: type, d: Poly) -> None:
    if cls is expr.NE:
        for consequence in _apart(ctx, d):
            assume_nonneg(ctx, consequence)
    elif cls is expr.EQ:
        _assume_equal(ctx, d)
    else:
        sign, offset = _AS_NONNEG[cls]
        assume_nonneg(ctx, poly.add(poly.scale(d, sign), poly.const(offset)))


def _assume_equal(ctx: Context, d: Poly) -> None:
    """d = 0: a remainder of zero is a multiple, a variable is replaced by its value."""
    term = poly.single_term(d)
    if term is not None and len(term[0]) == 1 and ctx.atoms[term[0][0]].kind == "mod":
        u, b = ctx.atoms[term[0][0]].args
        variable, factor = poly.single_term(u), poly.const_of(b)
        if variable is not None and variable[1] == 1 and factor and len(variable[0]) == 1:
            ctx.scope.multiples[variable[0][0]] = factor
    for m, k in d.items():
        if len(m) == 1 and abs(k) == 1 and ctx.atoms[m[0]].kind == "var":
            rest = {n: c for n, c in d.items() if n != m}
            if not _mentions(ctx, rest, m[0]):
                ctx.scope.values[m[0]] = poly.scale(rest, -k)
                ctx.scope.forget()
                break
    assume_nonneg(ctx, d)
    assume_nonneg(ctx, poly.scale(d, -1))


def _mentions(ctx: Context, p: Poly, number: int) -> bool:
    return ctx.atoms[number].expr in symbols_in(convert.expr_of(ctx, p, "int64"))
