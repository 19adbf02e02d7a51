"""Give every temporary tensor a place in one arena (the paper's section 4.3).

Sizes are symbolic. Each is a constant times a product of symbolic factors, and tensors with the
same factors are packed by their constants: one set of offsets is right for every value of the
symbols. A count that is rounded up, such as that of rows in whole vectors, has the factors of the
plain one, and a constant is added. Constants too small to be aligned are packed apart from the
others. A tensor all of whose symbols have declared upper bounds has a constant size; such tensors
share one region.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr, graph, types
from relaxlab.ir.arguments import names_arguments
from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.errors import expect
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace
from relaxlab.passes.base import module_pass
from relaxlab.passes.bindings import map_blocks, replace_body, with_bindings
from relaxlab.passes.expand_calls import DEVICE, SCOPE
from relaxlab.passes.liveness import (
    PER_THREAD,
    Interval,
    is_per_thread,
    liveness_of,
)
from relaxlab.tracing import may_apply, remark

ALIGN = 64
"""Bytes; every tensor starts at a multiple of a cache line and of the widest vector."""

Factors = tuple[tuple[expr.PrimExpr, int], ...]
"""Symbolic factors of a size with their powers; none for a constant size."""


class Size(NamedTuple):
    """A number of bytes: at most `constant` times the product of the factors, and `slack` more."""

    constant: int
    factors: Factors
    slack: int = 0


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """`use_bounds`: take the size of a tensor at the declared upper bounds when all its symbols
    have one. The arena is then as large as the longest input needs, whatever the input.
    `mark_dead`: write `memory.kill_tensor` after the last use of each tensor in an arena, by which
    the virtual machine and debug builds find reads of dead memory."""

    use_bounds: bool = True
    mark_dead: bool = False


@dataclass(frozen=True, slots=True)
class Placement:
    """The place of a tensor: `offset` bytes into the arena, in use between two positions. `last`
    and `holder` are those of its `Interval`."""

    var: graph.Var
    start: int
    end: int
    size: expr.PrimExpr
    offset: expr.PrimExpr
    reuses: tuple[str, ...]
    last: graph.Binding | None
    holder: graph.Var | None


@dataclass(frozen=True, slots=True)
class Arena:
    """One storage: allocated at entry (`after` None) or after the `match_cast` that binds the last
    symbol that its size needs. `apart` is the size of its tensors without reuse. With the scope
    `local` there is one for each thread."""

    after: graph.MatchCast | None
    scope: graph.Expr
    size: expr.PrimExpr
    apart: expr.PrimExpr
    placements: tuple[Placement, ...]


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The arenas of a function, and the allocations left to run time with the reasons."""

    arenas: tuple[Arena, ...]
    unplanned: tuple[tuple[graph.Var, str], ...]


@module_pass("plan_memory", PlanOptions, needs=("expand_calls",))
def plan_memory(mod: Module, options: PlanOptions) -> Module:
    """Turn `builtin.alloc_tensor`s into tensors at offsets of a storage, reusing dead memory.

    Returned tensors, and tensors that they may share memory with, are left alone. Tensors of the
    two branches of an `If` may have the same offset, as only one branch is taken. Needs
    `expand_calls`.
    """
    updates: dict[str, graph.Function] = {}
    for name, fn in mod.graph_functions().items():
        plan = memory_plan_of(fn, mod, use_bounds=options.use_bounds)
        updates[name] = _apply(fn, plan, _chosen(name, plan), options.mark_dead)
    return mod.with_functions(updates)


@names_arguments
def memory_plan_of(fn: graph.Function, mod: Module, *, use_bounds: bool = True) -> MemoryPlan:
    """The plan for the allocations of an expanded function."""
    expect(fn, graph.Function, "memory is planned for a graph function")
    live = liveness_of(fn, mod)
    bounds: Mapping[str, int] = fn.attrs.get("tir_var_upper_bound", {}) if use_bounds else {}
    # Keyed by scope, too: memory that every thread has a copy of cannot overlap memory that all
    # share.
    groups: dict[tuple[graph.MatchCast | None, graph.Expr], list[Interval]] = {}
    unplanned: list[tuple[graph.Var, str]] = []
    for interval in live.intervals.values():
        # An arena is reused by the next call, while the caller still holds what was returned.
        if interval.escapes is not None:
            unplanned.append((interval.var, interval.escapes))
        else:
            scope = PER_THREAD if is_per_thread(interval.binding.value) else SCOPE
            # A storage is allocated once its size is known: tensors that wait for the same
            # `match_cast` share one.
            groups.setdefault((interval.after, scope), []).append(interval)
    signed = fn.attrs.get("signed_scalars", ())
    arenas = tuple(
        _arena(after, scope, items, bounds, signed) for (after, scope), items in groups.items()
    )
    return MemoryPlan(arenas, tuple(unplanned))


# --- Packing ----------------------------------------------------------------------------------


def _arena(
    after: graph.MatchCast | None,
    scope: graph.Expr,
    items: list[Interval],
    bounds: Mapping[str, int],
    signed: Sequence[str],
) -> Arena:
    sizes = _sizes(items, bounds, signed)
    base: expr.PrimExpr = expr.const(0)
    apart: expr.PrimExpr = expr.const(0)
    placed: dict[graph.Var, Placement] = {}
    # Tensors of a few bytes per product of symbols are packed apart from larger ones.
    # Rounding a few bytes per row up to a cache line would multiply their size.
    groups = dict.fromkeys((size.factors, size.constant < ALIGN) for size in sizes)
    # Constant sizes come first: the offsets after them are constants as far as possible.
    for factors, few in sorted(groups, key=lambda group: len(group[0])):
        here = [k for k, s in enumerate(sizes)
                if s.factors == factors and (s.constant < ALIGN) == few]  # fmt: skip
        unit, members = _in_units([(items[k], sizes[k].constant) for k in here], factors)
        slack = [sizes[k].slack for k in here]
        apart_by_branch = _excluded([i for i, _ in members])
        blocks = [(i.start, i.end, units) for i, units in members]
        offsets, total = pack(blocks, apart_by_branch)
        shifts, shift = _shifts(blocks, offsets, slack, apart_by_branch)
        for at, (i, units) in enumerate(members):
            offset = base + unit * offsets[at] + shifts[at]
            reuses = tuple(m.var.name for m, _ in _under(members, offsets, at))
            size = unit * units + slack[at]
            placed[i.var] = Placement(
                i.var, i.start, i.end, size, offset, reuses, i.last, i.holder
            )
        # Groups of different factors follow each other: which is larger is not known.
        base = base + unit * total + shift
        apart = apart + unit * sum(units for _, units in members) + sum(slack)
    return Arena(after, scope, base, apart, tuple(placed[i.var] for i in items))


def _sizes(
    items: list[Interval], bounds: Mapping[str, int], signed: Sequence[str]
) -> list[Size]:
    known: dict[object, Size] = {}
    found: list[Size] = []
    for i in items:
        assert isinstance(i.var.ty, types.TensorType)
        # The layers of a model ask for the same few shapes, and bounds are proofs.
        key = (i.var.ty.shape, i.var.ty.dtype)
        if key not in known:
            size = size_of(i.var.ty, bounds, signed)
            # Beside a symbol without a bound, another's bound would make every call as large as
            # the largest without letting more tensors share.
            known[key] = size_of(i.var.ty, {}, signed) if size.factors else size
        found.append(known[key])
    return found


def size_of(
    ty: types.Type | None, bounds: Mapping[str, int], signed: Sequence[str] = ()
) -> Size:
    """Return the bytes of a tensor; with `bounds` on all its symbols, a constant upper bound. The
    constant is rounded up to `ALIGN`, except where it is smaller than that and has factors. No
    factor is negative: tensors of a branch that is not taken free no space for others, nor do those
    whose sizes depend on `signed` scalars, which may be negative."""
    assert isinstance(ty, types.TensorType) and ty.shape is not None and ty.dtype is not None
    analyzer = Analyzer.for_shapes(ty.shape, upper=bounds, signed=signed)
    constant, powers = bytes_of(ty.dtype), Counter[expr.PrimExpr]()
    for d in ty.shape:
        upper = analyzer.upper_bound(d) if bounds else None
        dim = expr.const(upper) if upper is not None else analyzer.simplify(d)
        # A product of factors may be positive where some are negative: `min(a, b) * -1`.
        parts = _factors(dim)
        unsure = [f for f in parts if analyzer.prove(expr.GE(f, expr.const(0))) is not True]
        # Kept as one factor, which is not negative as a whole; as separate factors the sizes would
        # be a product whose sign is not known.
        if unsure:
            positive = analyzer.prove(expr.GE(dim, expr.const(0))) is True
            parts = [dim if positive else expr.binary(expr.Max, dim, expr.const(0))]
        for factor in parts:
            if isinstance(factor, expr.IntImm):
                constant *= factor.value
            else:
                powers[factor] += 1
    rounded = _rounded_up(constant, powers)
    if rounded is not None:
        return rounded
    # In one order, so that n * m and m * n are the same factors.
    factors = tuple(sorted(powers.items(), key=lambda item: str(item[0])))
    if factors and constant < ALIGN:
        return Size(constant, factors)
    return Size(_aligned(constant), factors)


def _rounded_up(constant: int, powers: Mapping[expr.PrimExpr, int]) -> Size | None:
    """The size of a count rounded up, `(e + k - 1) // k` times a constant: it is at most that of
    `e` divided by k, and of k - 1 more. None for other sizes."""
    match [*powers.items()]:
        case [(expr.FloorDiv(over, expr.IntImm(k)), 1)] if constant % (k * ALIGN) == 0:
            each = constant // k
            e = Analyzer.for_shapes((over,)).simplify(over - (k - 1))
            if isinstance(e, expr.Var):
                return Size(each, ((e, 1),), each * (k - 1))
        case _:
            pass
    return None


def _aligned(size: int) -> int:
    return -(-size // ALIGN) * ALIGN


def _in_units(
    members: list[tuple[Interval, int]], factors: Factors
) -> tuple[expr.PrimExpr, list[tuple[Interval, int]]]:
    """A symbolic number of bytes that is a multiple of `ALIGN`, and the sizes as multiples of it.

    Constants that are multiples of `ALIGN` count the product of the factors; of smaller ones it is
    the product times their common divisor that is rounded up, not each constant.
    """
    product = _product(factors)
    common = math.gcd(*(constant for _, constant in members))
    # Sizes and offsets stay plain multiples of the symbols: nothing is rounded at run time.
    if common % ALIGN == 0:
        return product, members
    unit = (product * common + (ALIGN - 1)) // ALIGN * ALIGN
    return unit, [(i, constant // common) for i, constant in members]


def _factors(e: expr.PrimExpr) -> list[expr.PrimExpr]:
    return [*_factors(e.a), *_factors(e.b)] if isinstance(e, expr.Mul) else [e]


def _product(factors: Factors) -> expr.PrimExpr:
    result: expr.PrimExpr = expr.const(1)
    for factor, power in factors:
        for _ in range(power):
            result = result * factor
    return result


def _excluded(items: list[Interval]) -> list[frozenset[int]]:
    """Return, for each allocation, the numbers of those that no run has beside it."""
    if not any(i.arms for i in items):
        return [frozenset()] * len(items)
    return [frozenset(k for k, o in enumerate(items) if i.excludes(o)) for i in items]


def pack(
    blocks: list[tuple[int, int, int]], excluded: list[frozenset[int]]
) -> tuple[list[int], int]:
    """Return offsets for blocks (first use, last use, size) such that blocks in use at the same
    time do not overlap, and the total size. The largest is placed first, each into the smallest gap
    that holds it (best fit). Block k may overlap those whose numbers are in `excluded[k]`, and
    takes the offset of one of them if that is free: the results of two branches then need one
    place."""
    offsets = [0] * len(blocks)
    done: list[int] = []
    # A large block placed late would find only gaps that are too small, and make the arena longer.
    for at in sorted(range(len(blocks)), key=lambda k: (-blocks[k][2], blocks[k][0])):
        start, end, size = blocks[at]
        beside = [k for k in done if k not in excluded[at]]
        # Ends included: a kernel reads its inputs while it writes its results.
        others = [k for k in beside if blocks[k][0] <= end and start <= blocks[k][1]]
        taken = sorted((offsets[k], offsets[k] + blocks[k][2]) for k in others)
        places = (offsets[k] for k in done if k in excluded[at] and blocks[k][1] >= start)
        free = (p for p in places if all(p + size <= low or high <= p for low, high in taken))
        offsets[at] = next(free, _best_gap(taken, size))
        done.append(at)
    total = max((offsets[k] + blocks[k][2] for k in done), default=0)
    return offsets, total


def _shifts(
    blocks: list[tuple[int, int, int]], offsets: list[int], slack: list[int],
    excluded: list[frozenset[int]],
) -> tuple[list[int], int]:  # fmt: skip
    """The bytes that packed blocks are moved by, since those below them take `slack` bytes more
    than their units, and the bytes that the whole is longer by."""
    shifts = [0] * len(blocks)
    for at in sorted(range(len(blocks)), key=offsets.__getitem__):
        start, end, _ = blocks[at]
        below = [
            k for k, (first, last, size) in enumerate(blocks)
            if first <= end and start <= last and k not in excluded[at]
            and offsets[k] + size <= offsets[at] and k != at
        ]  # fmt: skip
        shifts[at] = max((shifts[k] + slack[k] for k in below), default=0)
    return shifts, max((a + b for a, b in zip(shifts, slack, strict=True)), default=0)


def _best_gap(taken: list[tuple[int, int]], size: int) -> int:
    best: tuple[int, int] | None = None
    top = 0
    for low, high in taken:
        if low - top >= size and (best is None or low - top < best[0]):
            best = (low - top, top)
        top = max(top, high)
    return top if best is None else best[1]


def _under(
    members: list[tuple[Interval, int]], offsets: list[int], at: int
) -> list[tuple[Interval, int]]:
    """The blocks that lay there before block `at`."""
    low, high = offsets[at], offsets[at] + members[at][1]
    found = [
        (i, units)
        for k, (i, units) in enumerate(members)
        if i.end < members[at][0].start and offsets[k] < high and low < offsets[k] + units
    ]
    # Two names are enough for the remark that this is for.
    return sorted(found, key=lambda m: -m[0].end)[:2]


# --- Rewriting --------------------------------------------------------------------------------


def _apply(
    fn: graph.Function, plan: MemoryPlan, chosen: set[graph.Var], mark_dead: bool
) -> graph.Function:
    if not chosen:
        return fn
    storages: dict[graph.MatchCast | None, list[graph.Binding]] = {}
    tensors: dict[graph.Var, graph.Call] = {}
    dead: dict[graph.Var, dict[graph.Var, None]] = {}  # by the variable of the last use
    for k, arena in enumerate(plan.arenas):
        var = graph.Var(f"storage{k}" if k else "storage", types.ObjectType())
        size = graph.ShapeExpr((arena.size,))
        args = (size, DEVICE, arena.scope, graph.DataTypeImm("uint8"))
        call = graph.Call(graph.Op("memory.alloc_storage"), args)
        storages.setdefault(arena.after, []).append(graph.VarBinding(call, var))
        for p in arena.placements:
            if p.var in chosen:
                tensors[p.var] = _tensor_at(var, p)
                if mark_dead and p.last is not None and p.holder is not None:
                    # The tensors of two branches have one holder.
                    dead.setdefault(p.last.var, {})[p.holder] = None

    def block(blk: graph.BindingBlock) -> graph.BindingBlock:
        new: list[graph.Binding] = []
        for b in blk.bindings:
            call = tensors.get(b.var)
            new.append(b if call is None else replace(b, value=call))  # type: ignore[call-arg]
            if isinstance(b, graph.MatchCast) and b in storages:
                new += storages[b]
            new += map(_kill, dead.get(b.var, ()))
        return with_bindings(blk, new)

    planned = map_blocks(fn, block)
    if None not in storages:
        return planned
    first, *rest = planned.body.blocks
    # Ahead of everything, where the symbols of the signature are already known.
    first = replace(first, bindings=(*storages[None], *first.bindings))
    return replace_body(planned, replace(planned.body, blocks=(first, *rest)))


def _tensor_at(storage: graph.Var, p: Placement) -> graph.Call:
    assert isinstance(p.var.ty, types.TensorType) and p.var.ty.shape is not None
    shape, dtype = graph.ShapeExpr(p.var.ty.shape), graph.DataTypeImm(p.var.ty.dtype or "")
    args = (storage, graph.PrimValue(p.offset), shape, dtype, DEVICE)
    return graph.Call(graph.Op("memory.alloc_tensor"), args)


def _kill(var: graph.Var) -> graph.Binding:
    nothing = graph.Var("_", types.TupleType(()))
    return graph.VarBinding(graph.Call(graph.Op("memory.kill_tensor"), (var,)), nothing)


def _chosen(name: str, plan: MemoryPlan) -> set[graph.Var]:
    """Return the tensors that get their place in an arena, with a remark on each decision."""
    chosen: set[graph.Var] = set()
    for arena in plan.arenas:
        for p in arena.placements:
            over = f", where {' and '.join(p.reuses)} lay" if p.reuses else ""
            reason = f"{p.size} bytes at {p.offset}{over}"
            if may_apply("plan_memory", f"{name}.{p.var.name}", reason):
                chosen.add(p.var)
        each = " for each thread" if arena.scope == PER_THREAD else ""
        reason = f"an arena of {arena.size} bytes{each}; without reuse {arena.apart}"
        remark("plan_memory", name, reason)
    for var, reason in plan.unplanned:
        remark("plan_memory", f"{name}.{var.name}", f"allocated apart: {reason}", applied=False)
    return chosen
