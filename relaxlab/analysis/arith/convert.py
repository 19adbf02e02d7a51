"""Integer expressions to polynomials and back.

Arithmetic of int32 and int64 is that of mathematical integers: overflow of sizes and indices is the
program's error. That of data may wrap, and only sums and products take it then (see `exact`).
Factors too large for sizes are those of hashes, which wrap on purpose: such sums and products are
atoms, as is everything else (other integer types, loads, calls, bit operations). The operands of
atoms are simplified.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from relaxlab.analysis.arith import conditions, interval, poly
from relaxlab.analysis.arith.choose import absorb, extreme
from relaxlab.analysis.arith.context import Atom, Context, dtype_limits
from relaxlab.analysis.arith.divide import floordiv, floormod, merge
from relaxlab.analysis.arith.exact import LARGEST_FACTOR, can_be_written, has_data, is_exact
from relaxlab.analysis.arith.interval import FULL, Interval
from relaxlab.analysis.arith.poly import Poly
from relaxlab.analysis.arith.prove import is_nonneg, is_positive
from relaxlab.ir import dtypes, expr
from relaxlab.ir.intrinsics import has_effect
from relaxlab.ir.loops import (
    BufferLoad,
    Nondecreasing,
    Permutation,
    PrefixSums,
    SegmentIds,
    Within,
)
from relaxlab.ir.node import Node, map_children
from relaxlab.ir.substitute import substitute

INTEGERS = frozenset(("int64", "int32"))
# Elements of prefix sums up to so far from a known one are written as sums of it and differences.
_DIFFERENCES = 4
# Products with more terms stay products: multiplied out, nested ones would grow exponentially.
_TERMS = 128


def simplify(ctx: Context, e: expr.PrimExpr) -> expr.PrimExpr:
    """`e` in normal form; `e` itself where it is already."""
    if isinstance(e, (expr.IntImm, expr.FloatImm)):
        return e
    # A variable that nothing is known about.
    if isinstance(e, expr.Var) and e not in ctx.numbers:
        return e
    known = ctx.scope.simple.get(e)
    if known is not None:
        return known
    if e.dtype in INTEGERS:
        out = e if has_effect(e) else _simplify_integer(ctx, e)
    elif e.dtype == "bool":
        out = conditions.simplify_condition(ctx, e)
    else:
        out = simplify_operands(ctx, e)
    # The same object where nothing changed, so that passes see by `is` that they had nothing to do.
    out = e if out == e else out
    ctx.scope.simple[e] = out
    return out


def _simplify_integer(ctx: Context, e: expr.PrimExpr) -> expr.PrimExpr:
    p = poly_of(ctx, e)
    if can_be_written(ctx, p, e.dtype):
        return expr_of(ctx, p, e.dtype)
    return simplify_operands(ctx, e)


def simplify_operands(ctx: Context, e: expr.PrimExpr) -> expr.PrimExpr:
    """`e` with its operands simplified; a branch whose condition is decided is taken."""
    match e:
        case expr.Select(condition, yes, no) | expr.Call(_, "if_then_else", (condition, yes, no)):
            decided = conditions.decide(ctx, condition)
            if decided is not None:
                return simplify(ctx, yes if decided else no)
            if isinstance(e, expr.Call):
                with conditions.assuming(ctx, condition, True):
                    yes = simplify(ctx, yes)
                with conditions.assuming(ctx, condition, False):
                    no = simplify(ctx, no)
                return map_children_to(e, (simplify(ctx, condition), yes, no))
        case _:
            pass

    def visit(n: Node) -> Node:
        return simplify(ctx, n) if isinstance(n, expr.PrimExpr) else n

    return map_children(e, visit)


def map_children_to(e: expr.PrimExpr, operands: tuple[expr.PrimExpr, ...]) -> expr.PrimExpr:
    """`e` with its operands replaced, in order; `e` itself where none changed."""
    it = iter(operands)
    return map_children(e, lambda _: next(it))


def poly_of(ctx: Context, e: expr.PrimExpr) -> Poly:
    """The polynomial of an int32 or int64 scalar expression."""
    if isinstance(e, expr.IntImm):
        return poly.const(e.value)
    if isinstance(e, expr.Var):
        return ctx.poly_of_atom(ctx.var(e))
    known = ctx.scope.polys.get(e)
    if known is None:
        row = _ROWS.get(type(e), _opaque)
        known = ctx.scope.polys[e] = row(ctx, e)
    return known


def combined(ctx: Context, p: Poly) -> Poly:
    """`p` with the parts of quotients, remainders, minima and maxima put together."""
    return absorb(ctx, merge(ctx, p))


def _sum(ctx: Context, e: expr.PrimExpr) -> Poly:
    assert isinstance(e, expr.BinaryOp)
    sign = 1 if isinstance(e, expr.Add) else -1
    total = poly.add(poly_of(ctx, e.a), poly_of(ctx, e.b), sign)
    return _hash(ctx, e) if _wraps(ctx, total, e.dtype) else combined(ctx, total)


def _product(ctx: Context, e: expr.PrimExpr) -> Poly:
    assert isinstance(e, expr.Mul)
    a, b = poly_of(ctx, e.a), poly_of(ctx, e.b)
    if len(a) * len(b) > _TERMS:
        return _opaque(ctx, e)
    product = poly.mul(a, b)
    return _hash(ctx, e) if _wraps(ctx, product, e.dtype) else combined(ctx, product)


def _wraps(ctx: Context, p: Poly, dtype: str) -> bool:
    """True if a polynomial looks like a hash, or calculates with one."""
    bits = dtypes.bits_of(dtype)
    if len(p) > 1 and abs(p.get(poly.ONE, 0)) >= 1 << (bits - 2):
        return True
    largest = min(LARGEST_FACTOR, (1 << (bits - 1)) - 1)
    if any(abs(c) > largest for m, c in p.items() if m):
        return True
    return bool(ctx.hashes) and not ctx.hashes.isdisjoint(poly.atoms_in(p))


def _hash(ctx: Context, e: expr.PrimExpr) -> Poly:
    out = _opaque(ctx, e)
    ctx.hashes.update(poly.atoms_in(out))
    return out


def _operands(ctx: Context, e: expr.BinaryOp) -> tuple[Poly, Poly] | None:
    """The operands' polynomials; None where data in one of them may have wrapped."""
    a, b = poly_of(ctx, e.a), poly_of(ctx, e.b)
    exact = is_exact(ctx, a, e.dtype) and is_exact(ctx, b, e.dtype)
    return (a, b) if exact else None


def _division(ctx: Context, e: expr.PrimExpr) -> Poly:
    assert isinstance(e, expr.BinaryOp)
    operands = _operands(ctx, e)
    if operands is None:
        return _opaque(ctx, e)
    part = floordiv if isinstance(e, expr.FloorDiv) else floormod
    return merge(ctx, part(ctx, *operands))


def _truncated(ctx: Context, e: expr.PrimExpr) -> Poly:
    """Truncating division where the signs are known; an atom elsewhere."""
    assert isinstance(e, expr.BinaryOp)
    operands = _operands(ctx, e)
    if operands is None:
        return _opaque(ctx, e)
    a, b = operands
    sign_b = 1 if is_positive(ctx, b) else -1 if is_positive(ctx, poly.scale(b, -1)) else 0
    if sign_b:
        b = poly.scale(b, sign_b)
        negative = poly.scale(a, -1)
        for sign_a, dividend in ((1, a), (-1, negative)):
            if is_nonneg(ctx, dividend):
                is_div = isinstance(e, expr.Div)
                part = floordiv(ctx, dividend, b) if is_div else floormod(ctx, dividend, b)
                return poly.scale(part, sign_a * sign_b if is_div else sign_a)
    return _opaque(ctx, e)


def _extreme(ctx: Context, e: expr.PrimExpr) -> Poly:
    assert isinstance(e, expr.BinaryOp)
    operands = _operands(ctx, e)
    if operands is None:
        return _opaque(ctx, e)
    return extreme(ctx, "min" if isinstance(e, expr.Min) else "max", *operands)


def _select(ctx: Context, e: expr.PrimExpr) -> Poly:
    match e:
        case expr.Select(condition, yes, no) | expr.Call(_, "if_then_else", (condition, yes, no)):
            pass
        case _:
            return _call(ctx, e)
    decided = conditions.decide(ctx, condition)
    if decided is not None:
        return poly_of(ctx, yes if decided else no)
    if isinstance(e, expr.Call):
        with conditions.assuming(ctx, condition, True):
            a = poly_of(ctx, yes)
            exact = is_exact(ctx, a, e.dtype)
        with conditions.assuming(ctx, condition, False):
            b = poly_of(ctx, no)
            exact = exact and is_exact(ctx, b, e.dtype)
    else:
        a, b = poly_of(ctx, yes), poly_of(ctx, no)
        exact = is_exact(ctx, a, e.dtype) and is_exact(ctx, b, e.dtype)
    if a == b:
        return a
    if not exact:
        return _opaque(ctx, e)
    condition = simplify(ctx, condition)
    cases = tuple(
        (p, tuple(conditions.assumptions_of(ctx, condition, truth)))
        for p, truth in ((a, True), (b, False))
    )
    key = ("select", type(e), condition, poly.key_of(a), poly.key_of(b))
    number = ctx.intern(key, lambda: Atom("select", e, (a, b), cases))
    ctx.exprs.setdefault(("condition", number), condition)
    return ctx.poly_of_atom(number)


def _call(ctx: Context, e: expr.PrimExpr) -> Poly:
    match e:
        case expr.Call(_, "likely", (value,)):
            return poly_of(ctx, value)
        case expr.Call(_, "if_then_else"):
            return _select(ctx, e)
        case _:
            return _opaque(ctx, e)


def _cast(ctx: Context, e: expr.PrimExpr) -> Poly:
    """A cast that keeps every value is not there; a constant is converted."""
    assert isinstance(e, expr.Cast)
    value = e.value
    if dtypes.is_int(value.dtype) and dtypes.lanes_of(value.dtype) == 1 and _widens(value, e.to):
        inner = poly_of(ctx, value) if value.dtype in INTEGERS else _opaque(ctx, value)
        # The facts of an index function are about its elements as numbers, which do not wrap.
        is_element = isinstance(value, BufferLoad) and bool(value.buffer.facts)
        exact = is_element or is_exact(ctx, inner, value.dtype)
        return inner if exact else _opaque(ctx, e)
    if value.dtype in INTEGERS:
        inner = poly_of(ctx, value)
        lo, hi = ctx.interval_of(inner)
        # Narrowing keeps such a value, but the polynomial must be written in int32 again.
        if lo >= -(2**31) and hi < 2**31 and _all_int32(ctx, inner):
            return inner
    return _opaque(ctx, e)


def _widens(value: expr.PrimExpr, to: str) -> bool:
    room = dtypes.bits_of(to) - dtypes.bits_of(value.dtype)
    return room > 0 or (room == 0 and not dtypes.is_uint(value.dtype))


def _all_int32(ctx: Context, p: Poly) -> bool:
    """True if a polynomial can be written with int32 operations."""
    for a in poly.atoms_in(p):
        at = ctx.atoms[a]
        if at.kind in ("var", "opaque"):
            assert at.expr is not None
            if at.expr.dtype != "int32":
                return False
        elif at.kind == "select" or not all(_all_int32(ctx, q) for q in at.args):
            return False
    return True


def _let(ctx: Context, e: expr.PrimExpr) -> Poly:
    assert isinstance(e, expr.Let)
    return poly_of(ctx, substitute(e.body, {e.var: e.value}))


def _opaque(ctx: Context, e: expr.PrimExpr) -> Poly:
    e = simplify_operands(ctx, e)
    if isinstance(e, expr.IntImm):
        return poly.const(e.value)
    return _within(ctx, e, _limits(ctx, e))


def _within(ctx: Context, e: expr.PrimExpr, limits: Interval) -> Poly:
    """An expression of which no more is known than its limits."""
    number = ctx.intern(e, lambda: Atom("opaque", e))
    if limits != FULL:
        ctx.scope.bounds[number] = interval.intersect(ctx.scope.bounds.get(number, FULL), limits)
        ctx.scope.intervals.pop(number, None)
        ctx.scope.terms.pop((number, True), None)
    return ctx.poly_of_atom(number)


def _outer_index(ctx: Context, e: expr.PrimExpr) -> Poly:
    """The index along the outermost dimension, which is less than its count."""
    assert isinstance(e, expr.OuterIndex)
    number = ctx.intern(e, lambda: Atom("opaque", e, limits=(0, inf)))
    if number not in ctx.scope.facts:
        room = poly.add(poly_of(ctx, e.count), poly.atom(number), -1)
        ctx.scope.facts[number] = (poly.add(room, poly.const(-1)),)
    return ctx.poly_of_atom(number)


def _inner_length(ctx: Context, e: expr.PrimExpr) -> Poly:
    """The length of a row of a sequence, which is in the limits of those of all sequences."""
    assert isinstance(e, expr.InnerLength)
    each = poly_of(ctx, e.each)
    if poly.const_of(each) is not None:
        return each
    return _within(ctx, e, ctx.interval_of(each))


def _load(ctx: Context, e: expr.PrimExpr) -> Poly:
    """An element of an array: of an index function, what its facts say of it."""
    assert isinstance(e, BufferLoad)
    if not e.buffer.facts or dtypes.lanes_of(e.dtype) > 1:
        return _opaque(ctx, e)
    place = poly_of(ctx, e.indices[0])
    if not is_exact(ctx, place, e.indices[0].dtype) or not can_be_written(ctx, place, "int64"):
        return _opaque(ctx, e)
    known = _known_element(ctx, e, place)
    if known is not None:
        return known
    e = BufferLoad(e.buffer, (expr_of(ctx, place, "int64"),))
    limits = interval.intersect(_type_range(e.dtype), (-LARGEST_FACTOR, LARGEST_FACTOR))
    number = ctx.intern(e, lambda: Atom("opaque", e, limits=limits, place=place))
    elements = ctx.elements.setdefault(e.buffer, [])
    if number not in elements:
        elements.append(number)
    if number not in ctx.scope.facts:
        ctx.scope.facts[number] = ()  # facts that refer to each other end here
        ctx.scope.facts[number] = _facts_of_element(ctx, e, number, place)
        _learn_segment(ctx, e, place)
    return ctx.poly_of_atom(number)


def _known_element(ctx: Context, e: BufferLoad, place: Poly) -> Poly | None:
    """An element of an index function in terms of others, where the facts give it."""
    for fact in e.buffer.facts:
        match fact:
            case Nondecreasing(first, last):
                if first is not None and not place:
                    return poly_of(ctx, first)
                if last is not None and place == poly_of(ctx, e.buffer.shape[0] - 1):
                    return poly_of(ctx, last)
            case PrefixSums():
                before = poly.add(place, poly.const(-1))
                if not place:
                    return place
                near = 0 < place.get(poly.ONE, 0) <= _DIFFERENCES
                if near and is_nonneg(ctx, before):
                    index = expr_of(ctx, before, "int64")
                    element = poly_of(ctx, BufferLoad(e.buffer, (index,)))
                    return combined(ctx, poly.add(element, poly_of(ctx, fact.at(index))))
            case _:
                pass
    return None


def _learn_segment(ctx: Context, e: BufferLoad, place: Poly) -> None:
    """Let the prover know, of the ends of the segment `e`, that a place lies between them. By then
    it knows that there is such a segment."""
    for fact in e.buffer.facts:
        if not isinstance(fact, SegmentIds):
            continue
        mine = expr.Cast("int64", e)
        first, after = (poly_of(ctx, fact.at(s)) for s in (mine, mine + 1))
        before = poly.add(place, first, -1)
        room = poly.add(poly.add(after, place, -1), poly.const(-1))
        for known in (before, room):
            for number in poly.atoms_in(known):
                if ctx.atoms[number].place is not None:
                    ctx.scope.facts[number] = (*ctx.scope.facts.get(number, ()), known)


def _facts_of_element(ctx: Context, e: BufferLoad, number: int, place: Poly) -> tuple[Poly, ...]:
    """Polynomials that are at least zero by the facts of the index function whose element `e` is.
    Its constant bounds and its difference to the next element become known, too."""
    it, known = poly.atom(number), list[Poly]()
    facts = e.buffer.facts
    step = next((f.at(e.indices[0]) for f in facts if isinstance(f, PrefixSums)), None)
    has_next = is_nonneg(ctx, poly.add(poly_of(ctx, e.buffer.shape[0] - 2), place, -1))
    if step is not None and has_next:
        ctx.scope.steps[number] = poly_of(ctx, step)
    for fact in facts:
        match fact:
            case Within(low, high):
                known.append(poly.add(it, poly_of(ctx, low), -1))
                known.append(poly.add(poly_of(ctx, high - 1), it, -1))
            case Nondecreasing(first, last):
                known += [] if first is None else [poly.add(it, poly_of(ctx, first), -1)]
                if last is not None:
                    room = poly.add(poly_of(ctx, last), it, -1)
                    known.append(room)
                    if number in ctx.scope.steps:
                        known.append(poly.add(room, ctx.scope.steps[number], -1))
            case SegmentIds():
                known += [it, poly.add(poly_of(ctx, fact.starts.shape[0] - 2), it, -1)]
            case Permutation():
                known += [it, poly.add(poly_of(ctx, e.buffer.shape[0] - 1), it, -1)]
            case _:
                pass
    for p in known:
        others = {m: c for m, c in p.items() if m != (number,)}
        limit = ctx.interval_of(others)[1]
        if p.get((number,)) in (1, -1) and limit < inf:
            # As those of other opaque expressions: what else was found under these assumptions
            # stays right.
            bounds = (-limit, inf) if p[(number,)] == 1 else (-inf, limit)
            old = ctx.scope.bounds.get(number, FULL)
            ctx.scope.bounds[number] = interval.intersect(old, bounds)
            ctx.scope.intervals.pop(number, None)
        ctx.scope.terms.pop((number, True), None)
    return tuple(known)


def _limits(ctx: Context, e: expr.PrimExpr) -> Interval:
    """Constant bounds of an opaque expression."""
    # Data of int32 are within its range; the range of int64 bounds nothing that is computed with.
    limits = _type_range("int32") if e.dtype == "int32" else dtype_limits(e.dtype)
    match e:
        case expr.Cast(to, value) if value.dtype == "bool":
            return 0, 1
        case expr.Cast(to, value) if dtypes.is_int(value.dtype):
            return _cast_limits(ctx, to, value, limits)
        case expr.BitAnd(a, b):
            tops = [hi for lo, hi in (_value_limits(ctx, a), _value_limits(ctx, b)) if lo >= 0]
            return interval.intersect(limits, (0, min(tops))) if tops else limits
        case expr.BitXor(a, b) | expr.BitOr(a, b):
            (low, high), (lo, hi) = _value_limits(ctx, a), _value_limits(ctx, b)
            if min(low, lo) < 0 or max(high, hi) == inf:
                return limits
            return interval.intersect(limits, (0, (1 << int(max(high, hi)).bit_length()) - 1))
        case expr.ShiftRight(a, expr.IntImm(count)) if 0 <= count < 64:
            return interval.floordiv(_value_limits(ctx, a), (1 << count, 1 << count))
        case expr.Call(_, "abs", (a,)):
            # The least integer has no positive counterpart: it stays what it is.
            is_index = a.dtype in INTEGERS and not has_data(ctx, poly_of(ctx, a))
            above = _value_limits(ctx, a)[0] > _type_range(a.dtype)[0]
            return interval.intersect(limits, (0, inf)) if is_index or above else limits
        case _:
            return limits


def _cast_limits(ctx: Context, to: str, value: expr.PrimExpr, limits: Interval) -> Interval:
    lo, hi = _value_limits(ctx, value)
    room = _type_range(to)
    return (lo, hi) if room[0] <= lo and hi <= room[1] else limits


def _type_range(dtype: str) -> tuple[int, int]:
    bits = dtypes.bits_of(dtype)
    return (0, 2**bits - 1) if dtypes.is_uint(dtype) else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _value_limits(ctx: Context, e: expr.PrimExpr) -> Interval:
    if e.dtype in INTEGERS:
        p = poly_of(ctx, e)
        return ctx.interval_of(p) if is_exact(ctx, p, e.dtype) else _type_range(e.dtype)
    if isinstance(e, expr.IntImm):
        return e.value, e.value
    return _limits(ctx, e)


_ROWS: dict[type, Callable[[Context, expr.PrimExpr], Poly]] = {
    expr.Add: _sum,
    expr.Sub: _sum,
    expr.Mul: _product,
    expr.FloorDiv: _division,
    expr.FloorMod: _division,
    expr.Div: _truncated,
    expr.Mod: _truncated,
    expr.Min: _extreme,
    expr.Max: _extreme,
    expr.Select: _select,
    expr.Call: _call,
    expr.Cast: _cast,
    expr.Let: _let,
    BufferLoad: _load,
    expr.OuterIndex: _outer_index,
    expr.InnerLength: _inner_length,
}


def expr_of(ctx: Context, p: Poly, dtype: str) -> expr.PrimExpr:
    """The expression of a polynomial: terms of high degree and large coefficient first, positive
    terms before negative ones, the constant last."""
    key = (poly.key_of(p), dtype)
    known = ctx.exprs.get(key)
    if known is not None:
        return known
    terms = sorted(
        ((m, c) for m, c in p.items() if m),
        key=lambda t: (-len(t[0]), -abs(t[1]), name_of(ctx, t[0])),
    )
    first = next((i for i, (_, c) in enumerate(terms) if c > 0), 0)
    terms = [*terms[first : first + 1], *terms[:first], *terms[first + 1 :]]
    constant = p.get((), 0)
    out: expr.PrimExpr | None = None
    if terms and terms[0][1] < 0 and constant:
        out, constant = expr.IntImm(constant, dtype), 0
    for m, c in terms:
        term = _term(ctx, m, c if out is None else abs(c), dtype)
        out = term if out is None else expr.Add(out, term) if c > 0 else expr.Sub(out, term)
    if out is None:
        out = expr.IntImm(constant, dtype)
    elif constant:
        cls = expr.Add if constant > 0 else expr.Sub
        out = cls(out, expr.IntImm(abs(constant), dtype))
    ctx.exprs[key] = out
    return out


def _term(ctx: Context, m: poly.Monomial, c: int, dtype: str) -> expr.PrimExpr:
    factors = [_atom_expr(ctx, a, dtype) for a in sorted(m, key=lambda a: atom_name(ctx, a))]
    out = factors[0]
    for f in factors[1:]:
        out = expr.Mul(out, f)
    return out if c == 1 else expr.Mul(out, expr.IntImm(c, dtype))


_BINARY = {"div": expr.FloorDiv, "mod": expr.FloorMod, "min": expr.Min, "max": expr.Max}


def _atom_expr(ctx: Context, number: int, dtype: str) -> expr.PrimExpr:
    a = ctx.atoms[number]
    if a.kind in ("var", "opaque"):
        assert a.expr is not None
        return a.expr if a.expr.dtype == dtype else expr.Cast(dtype, a.expr)
    args = [expr_of(ctx, p, dtype) for p in a.args]
    if a.kind in ("min", "max"):  # a fixed order, constants last
        args.sort(key=lambda e: (isinstance(e, expr.IntImm), str(e)))
    if a.kind == "select":
        condition = ctx.exprs[("condition", number)]
        if isinstance(a.expr, expr.Call):
            return expr.Call(dtype, "if_then_else", (condition, *args))
        return expr.Select(condition, *args)
    out = args[0]
    for other in args[1:]:
        out = _BINARY[a.kind](out, other)
    return out


def atom_name(ctx: Context, number: int) -> str:
    """The text that orders atoms: variables first."""
    name = ctx.names.get(number)
    if name is None:
        mark = "" if ctx.atoms[number].kind == "var" else "~"
        name = ctx.names[number] = mark + str(_atom_expr(ctx, number, "int64"))
    return name


def name_of(ctx: Context, m: poly.Monomial) -> list[str]:
    """The text that orders monomials."""
    return sorted(atom_name(ctx, a) for a in m)
