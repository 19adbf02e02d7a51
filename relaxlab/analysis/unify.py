"""Solving declared dimensions for their symbols.

A declared dimension is any expression over symbols. One that is linear in a single unknown symbol
(`n`, `2 * n`, `n + 1`) determines it; the others become checks once their symbols are known.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.evaluate import CannotEvaluate, evaluate, unknowns
from relaxlab.analysis.subtype import equal_dims
from relaxlab.ir import expr
from relaxlab.ir.expr import IntImm, PrimExpr, Var
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.ir.types import Length
from relaxlab.tracing.deduction import Matched, Unified, emit, is_recording


@dataclass(frozen=True, slots=True)
class Solution:
    """`symbol` must equal `value`; exact only where `divisor` divides `dividend`."""

    symbol: Var
    value: PrimExpr
    dividend: PrimExpr
    divisor: int


def linear_in(e: PrimExpr, symbol: Var) -> tuple[int, PrimExpr] | None:
    """`(c, d)` with `e == c * symbol + d`, c a known integer and d without `symbol`; or None."""
    match e:
        case Var() if e is symbol:
            return 1, expr.const(0)
        case expr.Add(a, b) | expr.Sub(a, b):
            x, y = linear_in(a, symbol), linear_in(b, symbol)
            if x is None or y is None:
                return None
            if isinstance(e, expr.Sub):
                return x[0] - y[0], x[1] - y[1]
            return x[0] + y[0], x[1] + y[1]
        case expr.Mul(a, IntImm(k)) | expr.Mul(IntImm(k), a):
            x = linear_in(a, symbol)
            return None if x is None else (x[0] * k, x[1] * k)
        case _:
            return (0, e) if symbol not in unknowns(e, {}) else None


def solve_for(e: PrimExpr, value: PrimExpr, known: Mapping[Var, PrimExpr]) -> Solution | None:
    """Solve `e == value` for the only symbol of `e` that is not in `known`.

    None when there is not exactly one, or `e` is not linear in it with an integer factor.
    """
    missing = unknowns(e, known)
    if len(missing) != 1:
        return None
    linear = linear_in(substitute(e, known) if known else e, missing[0])
    if linear is None or linear[0] == 0:
        return None
    factor, rest = linear
    dividend = value - rest
    if factor < 0:
        factor, dividend = -factor, rest - value
    # Where the factor does not divide, the value is wrong; comparing the dimension with it, as
    # callers do afterwards, finds that.
    return Solution(missing[0], dividend // factor, dividend, factor)


def determined_symbols(dims: Sequence[PrimExpr], known: Collection[Var]) -> set[Var]:
    """`known` and the symbols that sizes of the declared `dims` would determine."""
    found: dict[Var, PrimExpr] = {s: s for s in known}
    progress = True
    while progress:
        progress = False
        for dim in dims:
            solved = solve_for(dim, expr.const(0, dim.dtype), found)
            if solved is not None and solved.symbol not in found:
                found[solved.symbol] = solved.symbol
                progress = True
    return set(found)


def bind_values(
    dims: Sequence[tuple[PrimExpr, int]], env: MutableMapping[Var, int]
) -> list[tuple[int, str]]:
    """Bind the symbols of declared dimensions from actual sizes, then check every dimension.

    `env` gets the symbols found (bare symbols first, then compound expressions solved as far as
    they can be). Returns the positions in `dims` that do not hold, each with what was expected:
    `"n = 4"`, `"2 * n + 1 = 9"`; `"n + 5 with n not negative"` where a symbol would have to be.
    """
    for dim, size in dims:
        if isinstance(dim, Var):
            # The first place defines a symbol, the others are compared with it.
            env.setdefault(dim, size)
    wrong: list[tuple[int, str]] = []
    progress = True
    while progress:
        progress = False
        for at, (dim, size) in enumerate(dims):
            known = {v: expr.const(k, v.dtype) for v, k in env.items()}
            # A symbol that one dimension determines may leave another with a single unknown.
            solved = solve_for(dim, expr.const(size, dim.dtype), known)
            if solved is not None:
                env[solved.symbol] = int(evaluate(solved.value, env))
                if env[solved.symbol] < 0:
                    wrong.append((at, f"{dim} with {solved.symbol.name} not negative"))
                progress = True
    for at, (dim, size) in enumerate(dims):
        try:
            expected = evaluate(dim, env)
        except CannotEvaluate as error:
            wrong.append((at, f"{dim} (not determined: {error})"))
            continue
        if expected != size:
            text = str(expected)
            wrong.append((at, text if isinstance(dim, IntImm) else f"{dim} = {text}"))
    return wrong


@dataclass(frozen=True, slots=True)
class DimPair:
    """A declared dimension, the actual one (None: not known before run time), and its place."""

    declared: PrimExpr
    actual: PrimExpr | None
    place: str


@dataclass(slots=True)
class Unification:
    """The result of `unify`: the values of symbols, where each was bound, messages on dimensions
    that provably do not fit, and those left to check at run time: pairs with the expected dimension
    (None: it mentions symbols that nothing binds)."""

    bindings: dict[Var, PrimExpr] = field(default_factory=dict[Var, PrimExpr])
    origins: dict[Var, str] = field(default_factory=dict[Var, str])
    conflicts: list[str] = field(default_factory=list[str])
    unproved: list[tuple[DimPair, PrimExpr | None]] = field(
        default_factory=list[tuple[DimPair, PrimExpr | None]]
    )


def unify(pairs: Sequence[DimPair], analyzer: Analyzer) -> Unification:
    """Find the symbols of declared dimensions so that they equal the actual ones.

    The declared dimensions' symbols must be distinct objects from the actual ones'. Bare symbols
    bind first, then expressions linear in one unknown are solved; every pair is then compared.
    """
    result = Unification()
    for pair in pairs:
        if isinstance(pair.declared, Var) and pair.actual is not None:
            _bind(result, pair.declared, pair.actual, pair.place)
    progress = True
    while progress:
        progress = False
        for pair in pairs:
            if pair.actual is None:
                continue
            solved = solve_for(pair.declared, pair.actual, result.bindings)
            if solved is not None:
                _bind(result, solved.symbol, analyzer.simplify(solved.value), pair.place)
                progress = True
    if is_recording():
        for symbol, value in result.bindings.items():
            emit(Unified(symbol, value, result.origins[symbol]))
    for pair in pairs:
        _compare(pair, result, analyzer)
    return result


def _bind(result: Unification, symbol: Var, value: PrimExpr, place: str) -> None:
    if symbol not in result.bindings:
        result.bindings[symbol] = value
        result.origins[symbol] = place


def _compare(pair: DimPair, result: Unification, analyzer: Analyzer) -> None:
    if unknowns(pair.declared, result.bindings):
        emit(Matched(pair.declared, None, pair.actual, pair.place, None))
        result.unproved.append((pair, None))
        return
    expected = substitute(pair.declared, result.bindings)
    if isinstance(pair.declared, Length) and not isinstance(expected, Length):
        text = f"{pair.place} is {expected}, expected the lengths of sequences"
        result.conflicts.append(text)
        return
    if pair.actual is None:
        emit(Matched(pair.declared, expected, None, pair.place, None))
        result.unproved.append((pair, expected))
        return
    equal = equal_dims(expected, pair.actual, analyzer)
    if is_recording():
        emit(Matched(pair.declared, expected, pair.actual, pair.place, equal))
    if equal:
        return
    if equal is None:
        result.unproved.append((pair, expected))
    else:
        result.conflicts.append(_conflict(pair, expected, result))


def _conflict(pair: DimPair, expected: PrimExpr, result: Unification) -> str:
    declared = pair.declared
    if isinstance(declared, Var):
        origin = result.origins[declared]
        return (
            f"`{declared}` is {result.bindings[declared]} in {origin} "
            f"and {pair.actual} in {pair.place}"
        )
    text = f"{pair.place} is {pair.actual}, expected {expected}"
    symbols = symbols_in(declared)
    if symbols:
        where = ", ".join(f"`{s}` is {result.bindings[s]} in {result.origins[s]}" for s in symbols)
        text = f"{pair.place} is {pair.actual}, expected {declared} = {expected}, because {where}"
    return text
