"""Features of a scheduled kernel: numbers that its speed depends on, read off its loops.

All but the last are logarithms, as ratios of times are what is predicted. A statement is counted
in vectors: those of the vectorized loop around it, in each copy of the unrolled loops. A load is
counted once for the copies that have the same address, and once for a serial loop in which it
stays where it is. Traffic is estimated as in Ansor's features (Zheng et al., *Ansor*, section 5.2):
the part of an array that loops touch, once for each iteration of the loops around those whose
parts fit the cache together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from relaxlab.analysis.evaluate import CannotEvaluate, evaluate
from relaxlab.codegen.llvm.work import CALL
from relaxlab.codegen.lower_blocks import lower_blocks
from relaxlab.ir import expr, loops
from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import BufferLoad, BufferStore, For, PrimFunc
from relaxlab.ir.node import Node, children, walk
from relaxlab.ir.substitute import symbols_in
from relaxlab.ir.target import Target

FEATURES = (
    "cycles", "vector operations", "scalar operations", "loads", "loads apart", "iterations",
    "traffic of the first cache", "traffic of the second cache", "code", "intermediates",
    "share of a thread", "registers", "least independent sums",
)  # fmt: skip
"""Names of the features, in their order."""
LATENCY = 4.0
"""Cycles from an addition to the next one that needs it."""
PER_CYCLE = 2.0
"""Vector operations that begin in a cycle, and vectors that are loaded."""
OVERHEAD = 1.0
"""Cycles that an iteration of a loop takes beside its body."""
LINE_BYTES = (32.0, 8.0)
"""Bytes a cycle from the second cache, and from what is behind it."""
USUAL = 64
"""The extent of a loop that is not known."""


@dataclass(frozen=True, slots=True)
class _Loop:
    var: Var
    extent: int
    kind: str


@dataclass(slots=True)
class _Counts:
    """Sums over the statements of a kernel."""

    cycles: float = 0.0
    vectors: float = 0.0
    scalars: float = 0.0
    loads: float = 0.0
    apart: float = 0.0
    iterations: float = 0.0
    traffic: tuple[float, float] = (0.0, 0.0)
    code: float = 0.0
    registers: int = 0
    chains: int = 64


def features_of(
    func: PrimFunc, target: Target, sizes: Mapping[str, int], threads: int
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The features of a scheduled kernel for values of its symbols, by name: a vector of as many as
    `FEATURES` has names."""
    body, allocated = lower_blocks(func.body)
    counts, share = _Counts(), _Share(threads)
    for stmt, nest in _statements(body, (), sizes):
        _add(counts, stmt, nest, target, share, sizes)
    stored = sum(_bytes(b, sizes) for b in allocated if b.scope == "global")
    logs = (
        counts.cycles, counts.vectors, counts.scalars, counts.loads, counts.apart,
        counts.iterations, *counts.traffic, counts.code, stored, share.worst,
    )  # fmt: skip
    values = [*(math.log1p(n) for n in logs), math.log1p(counts.registers), float(counts.chains)]
    return np.array(values)


@dataclass(slots=True)
class _Share:
    """The share of a parallel loop that its slowest thread has. worst: the largest so far of loops
    that do most."""

    threads: int
    worst: float = 0.0

    def of(self, nest: Sequence[_Loop]) -> float:
        count = math.prod(loop.extent for loop in nest if loop.kind == "parallel")
        share = -(-count // self.threads) / count if count else 1.0
        self.worst = max(self.worst, share)
        return share


def _statements(
    stmt: Node, nest: tuple[_Loop, ...], sizes: Mapping[str, int]
) -> Iterator[tuple[BufferStore | loops.Evaluate, tuple[_Loop, ...]]]:
    """Yield the stores and calls, each with the loops around it. Of two versions of a statement the
    first one counts."""
    match stmt:
        case For(var, _, extent, kind, body):
            size = _value(extent, sizes, nest)
            yield from _statements(body, (*nest, _Loop(var, max(1, size), kind)), sizes)
        case BufferStore() | loops.Evaluate():
            yield stmt, nest
        case loops.IfThenElse(_, then, other):
            yield from _statements(then, nest, sizes)
            if other is not None and not isinstance(then, loops.SeqStmt):
                yield from _statements(other, nest, sizes)
        case _:
            for child in children(stmt):
                if isinstance(child, loops.Stmt):
                    yield from _statements(child, nest, sizes)


def _value(e: PrimExpr, sizes: Mapping[str, int], nest: Sequence[_Loop]) -> int:
    """The value of an extent, half-way through the loops around it."""
    inside = {loop.var: loop.extent // 2 for loop in nest}
    known = {s: inside.get(s, sizes.get(s.name, USUAL)) for s in symbols_in(e)}
    try:
        return int(evaluate(e, known))
    except CannotEvaluate:
        return USUAL


def _add(
    counts: _Counts, stmt: BufferStore | loops.Evaluate, nest: tuple[_Loop, ...], target: Target,
    share: _Share, sizes: Mapping[str, int],
) -> None:  # fmt: skip
    value = stmt.value
    dtype = stmt.buffer.dtype if isinstance(stmt, BufferStore) else "float32"
    lanes = max(1, target.lanes(dtype))
    copied = [x for x in nest if x.kind in ("unrolled", "vectorized")]
    around = [x for x in nest if x not in copied]
    times = math.prod(x.extent for x in around)
    lane = next((x.var for x in copied if x.kind == "vectorized"), None)
    width = {x.var: -(-x.extent // lanes) if x.var is lane else x.extent for x in copied}
    copies = math.prod(width.values())
    operations = copies * _operations(value)
    target_load = BufferLoad(stmt.buffer, stmt.indices) if isinstance(stmt, BufferStore) else None
    own = {n for n in walk(value) if isinstance(n, BufferLoad)}
    inner = around[-1].var if around and around[-1].kind == "serial" else None
    loads, apart = 0.0, 0.0
    for load in own | ({target_load} if target_load is not None else set()):
        used = set(symbols_in(load.indices))
        # A sum that stays where it is during the innermost loop is a register.
        repeated = inner is not None and inner not in used
        each = math.prod(n for var, n in width.items() if var in used)
        if lane is not None and lane in used and _is_apart(load, lane, nest, sizes):
            apart += each * lanes / (around[-1].extent if repeated else 1)
        loads += each / (around[-1].extent if repeated else 1)
    chains = 64
    if target_load in own and inner is not None and inner not in symbols_in(target_load.indices):  # type: ignore[union-attr]
        chains = copies
        counts.registers = max(counts.registers, copies)
        counts.chains = min(counts.chains, copies)
    pressed = max(1.0, (copies + 3) / target.facts.vector_registers) if chains < 64 else 1.0
    waiting = LATENCY if chains < 64 else 0.0
    busy = max(operations / PER_CYCLE, (loads + apart) / PER_CYCLE * pressed, waiting)
    traffic = _traffic([*own, *([target_load] if target_load else [])], nest, target, sizes)
    moved = sum(n / rate for n, rate in zip(traffic, LINE_BYTES, strict=True))
    counts.cycles += (times * (busy + OVERHEAD) + moved) * share.of(nest)
    counts.iterations += times
    counts.loads += times * loads
    counts.apart += times * apart
    counts.code += copies
    counts.traffic = counts.traffic[0] + traffic[0], counts.traffic[1] + traffic[1]
    if lane is None:
        counts.scalars += times * operations
    else:
        counts.vectors += times * operations


def _is_apart(
    load: BufferLoad, lane: Var, nest: Sequence[_Loop], sizes: Mapping[str, int]
) -> bool:
    """True if the second lane is in another row than the first."""
    first = {s: sizes.get(s.name, 0) for s in symbols_in(load.indices)}
    first |= {x.var: 0 for x in nest}
    rows = BufferLoad(load.buffer, load.indices[:-1])
    return _distance(rows, first, {**first, lane: 1}) > 1


def _operations(e: PrimExpr) -> int:
    """The arithmetic of a value, indices of loads left out."""
    match e:
        case BufferLoad() | Var() | expr.IntImm() | expr.FloatImm():
            return 0
        case expr.Add(a, expr.Mul() as product):  # one multiply-add
            return _operations(a) + _operations(product)
        case _:
            inside = sum(_operations(c) for c in children(e) if isinstance(c, PrimExpr))
            is_function = isinstance(e, expr.Call) and e.op != "if_then_else"
            return inside + (CALL if is_function else 1)


def _traffic(
    accesses: Sequence[BufferLoad], nest: tuple[_Loop, ...], target: Target,
    sizes: Mapping[str, int],
) -> tuple[float, float]:  # fmt: skip
    """The bytes that come from beyond the first cache, and the second."""
    shared = [a for a in accesses if a.buffer.scope == "global"]
    parts = [_parts(a, nest, sizes) for a in shared]
    found: list[float] = []
    for cache in target.facts.caches[:2]:
        # The loops inside, as many as have what they touch in the cache together.
        depth = len(nest)
        while depth > 0 and sum(p[depth - 1] for p in parts) <= cache:
            depth -= 1
        runs = math.prod(x.extent for x in nest[:depth])
        found.append(runs * sum((p[depth] for p in parts), 0.0))
    return found[0], found[1]


def _parts(access: BufferLoad, nest: tuple[_Loop, ...], sizes: Mapping[str, int]) -> list[float]:
    """The bytes of an array that are touched by the loops from each depth on, the last by none."""
    first = {s: sizes.get(s.name, 0) for s in symbols_in(access.indices)}
    first |= {x.var: 0 for x in nest}
    each = [float(bytes_of(access.buffer.dtype))]
    last = dict(first)
    for loop in reversed(nest):
        last[loop.var] = loop.extent - 1
        each.append(bytes_of(access.buffer.dtype) * _distance(access, first, last))
    return each[::-1]


def _distance(access: BufferLoad, first: Mapping[Var, int], last: Mapping[Var, int]) -> float:
    """The elements of the box between two iterations."""
    total = 1.0
    for index in access.indices:
        try:
            total *= abs(int(evaluate(index, last)) - int(evaluate(index, first))) + 1
        except CannotEvaluate:  # data says which
            total *= USUAL
    return total


def _bytes(buffer: loops.Buffer, sizes: Mapping[str, int]) -> float:
    elements = math.prod(_value(d, sizes, ()) for d in buffer.shape)
    return float(bytes_of(buffer.dtype) * elements)
