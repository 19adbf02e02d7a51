"""Matching of the declared shapes of a loop function with the arguments of a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.unify import solve_for
from relaxlab.ir import expr, loops, types
from relaxlab.ir.diagnostics import Diagnostic, DiagnosticError
from relaxlab.ir.host import kernel_symbols
from relaxlab.ir.node import walk
from relaxlab.ir.substitute import substitute
from relaxlab.passes.bindings import known_shape

Shape = tuple[expr.PrimExpr, ...]
Symbols = Mapping[expr.Var, expr.PrimExpr]


def argument_symbols(
    func: loops.PrimFunc,
    given: Sequence[types.Type | None],
    scalars: Sequence[expr.PrimExpr],
    name: str,
) -> Symbols:
    """Return the value of each symbol of `func` in a call that passes tensors of the types `given`
    (inputs, then outputs) and the scalar arguments `scalars`.

    A dimension that is a symbol by itself defines it, then compound dimensions are solved. Raises
    `DiagnosticError` naming a symbol that stays undetermined.
    """
    known = _solved(func, tuple(map(known_shape, given)), tuple(scalars))
    missing = [s.name for s in kernel_symbols(func) if s not in known]
    if missing:
        raise DiagnosticError([_undetermined(name, missing, func)])
    return known


def unproved_dimensions(
    func: loops.PrimFunc,
    given: Sequence[types.Type | None],
    scalars: Sequence[expr.PrimExpr],
) -> tuple[tuple[int, int, expr.PrimExpr], ...]:
    """Return (argument, axis, expected size) of each dimension that is not proved to be as
    declared."""
    return _unproved(func, tuple(map(known_shape, given)), tuple(scalars))


@lru_cache(maxsize=1024)
def written_buffers(func: loops.PrimFunc) -> frozenset[int]:
    """Positions of the buffers that a loop function stores to, through views too."""
    views = {
        m.buffer: m.source.buffer
        for n in walk(func.body)
        if isinstance(n, loops.Block)
        for m in n.match_buffers
    }
    found: set[loops.Buffer] = set()
    for n in walk(func.body):
        if isinstance(n, loops.BufferStore):
            found.add(n.buffer)
        elif isinstance(n, loops.Block):
            found.update(r.buffer for r in n.writes)
    for b in list(found):
        while b in views:
            b = views[b]
            found.add(b)
    return frozenset(i for i, b in enumerate(func.buffers) if b in found)


# The layers of a model make the same calls over and over: both answers are remembered.


@lru_cache(maxsize=1024)
def _solved(func: loops.PrimFunc, given: tuple[Shape | None, ...], scalars: Shape) -> Symbols:
    params = [p for p in func.params if isinstance(p, expr.Var)]
    known: dict[expr.Var, expr.PrimExpr] = dict(zip(params, scalars, strict=True))
    pairs = [
        pair
        for buffer, shape in zip(func.buffers, given, strict=True)
        if shape is not None
        for pair in zip(buffer.shape, shape, strict=True)
    ]
    for declared, actual in pairs:
        if isinstance(declared, expr.Var):
            known.setdefault(declared, actual)
    progress = True
    while progress:
        progress = False
        for declared, actual in pairs:
            solved = solve_for(declared, actual, known)
            if solved is not None:
                known[solved.symbol] = solved.value
                progress = True
    return known


@lru_cache(maxsize=1024)
def _unproved(
    func: loops.PrimFunc, given: tuple[Shape | None, ...], scalars: Shape
) -> tuple[tuple[int, int, expr.PrimExpr], ...]:
    symbols = _solved(func, given, scalars)
    found: list[tuple[int, int, expr.PrimExpr]] = []
    for at, (buffer, shape) in enumerate(zip(func.buffers, given, strict=True)):
        for axis, declared in enumerate(buffer.shape):
            expected = substitute(declared, symbols=symbols)
            if shape is not None and expected == shape[axis]:
                continue
            analyzer = Analyzer.for_shapes((expected, shape))
            if shape is None or analyzer.prove_equal(expected, shape[axis]) is not True:
                found.append((at, axis, expected))
    return tuple(found)


def _undetermined(name: str, missing: list[str], func: loops.PrimFunc) -> Diagnostic:
    which = ", ".join(missing)
    return Diagnostic(
        "E0501",
        f"the call of loop function {name} does not determine {which}",
        func.span,
        notes=("a symbol is determined by a dimension that is that symbol alone",),
        suggestion=f"make {which} a scalar parameter and pass it with tir_vars=R.shape([…])",
    )
