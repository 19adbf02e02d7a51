"""Rules of fusion: whether calls of loop functions may share a kernel, and the reason if not.

The kinds are the paper's (Algorithm 1). A kernel keeps the loops of at most one *anchor*, a
reduction or matrix product. Producers of the anchor are inlined where it reads them; consumers of
it work on exactly the anchor's elements. An anchor that goes through rows (a norm, softmax) may
have a product before it whose rows are short sums: a row is then read where it is made, on a
thread's stack.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.facts_check import checked_buffers
from relaxlab.analysis.pattern_kind import PatternKind
from relaxlab.ir import expr, graph, loops, types
from relaxlab.ir.dtypes import bytes_of, is_float
from relaxlab.ir.facts import FusionLimits
from relaxlab.ir.intrinsics import INTRINSICS
from relaxlab.ir.module import Module
from relaxlab.ir.node import Node, children, walk
from relaxlab.ir.row_major import product
from relaxlab.ir.substitute import symbols_in
from relaxlab.passes.bindings import TirCall, known_shape, leaf_type, same_shape, tir_call
from relaxlab.passes.kernel_calls import argument_symbols, unproved_dimensions
from relaxlab.schedule.cascade import loads_in
from relaxlab.schedule.rules.base import follows_axis, is_spatial, sum_of_products
from relaxlab.schedule.rules.reductions import NEIGHBOURS, way_of_vectors
from relaxlab.schedule.rules.rows import row_rank

ANCHORS = (PatternKind.REDUCTION, PatternKind.OUT_EWISE_FUSIBLE)


@dataclass(frozen=True, slots=True)
class KernelSummary:
    """The properties of a loop function that decide about fusion.

    kind:     how its writes relate to its reads; gathers (`take`) count as injective.
    costly:   whether an element takes more than a few machine instructions.
    moves:    whether it only moves elements (transpose, slice, broadcast).
    repeats:  per buffer, whether elements may be read more than once.
    terms:    of a sum of products that vectors along the last axis can make, how many make an
              element; None for all else.
    rows:     per buffer, how many leading axes it shares with all loops, which reduce over others:
              it is used row by row. 0 where it is not.
    movable:  per buffer, whether tensors of the same elements elsewhere may be read in its place
              by a kernel that is opaque because it has index functions.
    turned:   per buffer, how many axes of the result come behind the one whose neighbours are
              neighbours in the buffer: 0 where vectors of results are made of vectors of what is
              read. At least 1 where neighbours are elsewhere, as in a flip.
    in_order: whether each index of what it reads is one axis, so that a reduction may go through
              memory in another order. Windows have sums of axes.
    passes:   per buffer, how many blocks read it.
    loads:    how many floats of one buffer an element is made of: four by interpolation in two
              dimensions.
    crosses:  whether neighbours along another axis than the last are neighbours in what it reads: a
              permutation.
    branches: whether a condition or an index from data decides what an element is made of.
    """

    kind: PatternKind
    costly: bool
    moves: bool
    repeats: tuple[bool, ...]
    terms: expr.PrimExpr | None
    rows: tuple[int, ...]
    movable: tuple[bool, ...]
    turned: tuple[int, ...]
    in_order: bool
    passes: tuple[int, ...]
    loads: int
    crosses: bool
    branches: bool


def summary_of(func: loops.PrimFunc) -> KernelSummary:
    """Return the summary of a loop function that has the attribute `op_pattern`."""
    blocks = [n for n in walk(func.body) if isinstance(n, loops.Block) and n.iter_vars]
    kind = PatternKind(func.attrs["op_pattern"])
    # Indices from data make it opaque; for inlining it only matters that each element is made from
    # single elements. A schedule made by hand makes it opaque, too, and would be lost.
    apart = func.attrs.get(loops.IS_SCHEDULED) or func.attrs.get(loops.KEPT_APART)
    checked = checked_buffers(func)  # before the kernel runs
    stated = bool(checked)
    if kind is PatternKind.OPAQUE and not apart and not stated and _is_gather(blocks):
        kind = PatternKind.INJECTIVE
    stores = [n for n in walk(func.body) if isinstance(n, loops.BufferStore)]
    return KernelSummary(
        kind,
        any(isinstance(n, expr.Call) and _is_costly(n) for n in walk(func.body)),
        all(isinstance(s.value, loops.BufferLoad) for s in stores),
        tuple(_repeats(func, blocks, b) for b in func.buffers),
        _terms(blocks),
        tuple(_rows(blocks, b) for b in func.buffers),
        tuple(
            stated and not apart and b not in checked and _is_movable(blocks, b)
            for b in func.buffers
        ),
        tuple(_turned(blocks, b) for b in func.buffers),
        all(map(_in_order, blocks)),
        tuple(sum(any(r.buffer is b for r in x.reads) for x in blocks) for b in func.buffers),
        max((n for s in stores for n in Counter(x.buffer for x in _floats(s.value)).values()),
            default=0),
        any(_crosses(block) for block in blocks),
        any(_branches(s.value) for s in stores),
    )  # fmt: skip


def _is_movable(blocks: list[loops.Block], buffer: loops.Buffer) -> bool:
    """True for what is read an element for each instance of a block."""
    readers = [b for b in blocks if any(r.buffer is buffer for r in b.reads)]
    return bool(readers) and all(isinstance(b.body, loops.BufferStore) for b in readers)


def _turned(blocks: list[loops.Block], buffer: loops.Buffer) -> int:
    """Return by how many axes a kernel of one block turns what it reads of a buffer."""
    axes = [v.var for v in blocks[0].iter_vars] if len(blocks) == 1 else []
    read = [n.indices for n in loads_in(blocks[0].body) if n.buffer is buffer] if axes else []
    moved = [at for at in read if way_of_vectors(at, axes[-1]) > NEIGHBOURS]
    return max((_behind_neighbours(at, axes) or 1 for at in moved), default=0)


def _behind_neighbours(indices: tuple[expr.PrimExpr, ...], axes: list[expr.Var]) -> int:
    """The number of axes behind the one along which elements are neighbours; 0 without any."""
    along = [v for v in axes if v in symbols_in(indices[-1:])]
    if len(along) != 1 or not follows_axis(indices[-1], along[0], axes):
        return 0
    return len(axes) - 1 - axes.index(along[0])


def _crosses(block: loops.Block) -> bool:
    axes = [v.var for v in block.iter_vars]
    read = [n.indices for n in loads_in(block.body)] if axes and is_spatial(block) else []
    return any(axes[-1] in symbols_in(at) and _behind_neighbours(at, axes) > 0 for at in read)


def _branches(value: Node) -> bool:
    gathers = any(loads_in(index) for n in loads_in(value) for index in n.indices)
    return gathers or any(isinstance(n, expr.Call) and n.op == "if_then_else" for n in walk(value))


def _in_order(block: loops.Block) -> bool:
    axes = [v.var for v in block.iter_vars]
    for index in (i for n in loads_in(block.body) for i in n.indices):
        along = [v for v in axes if v in symbols_in(index)]
        if len(along) > 1 or not all(follows_axis(index, v, axes) for v in along):
            return False
    return True


def _floats(e: Node) -> frozenset[loops.BufferLoad]:
    """The floats that a value is made of; of two sides of a condition, those of the one with more.
    """
    if isinstance(e, loops.BufferLoad):
        return frozenset([e] if is_float(e.dtype) else [])
    if isinstance(e, expr.Call) and e.op == "if_then_else":
        condition, value, other = map(_floats, e.args)
        return condition | max(value, other, key=len)
    return frozenset[loops.BufferLoad]().union(*map(_floats, children(e)))


def _is_costly(call: expr.Call) -> bool:
    return call.op in INTRINSICS and INTRINSICS[call.op].costly


def _is_gather(blocks: list[loops.Block]) -> bool:
    """True if each element is computed from single elements of the inputs, at any indices."""
    if len(blocks) != 1 or any(v.kind != "spatial" for v in blocks[0].iter_vars):
        return False
    store = blocks[0].body
    if not isinstance(store, loops.BufferStore) or blocks[0].init is not None:
        return False
    axes = [v.var for v in blocks[0].iter_vars]
    own = [n for n in walk(store.value) if isinstance(n, loops.BufferLoad)]
    return list(store.indices) == axes and all(n.buffer is not store.buffer for n in own)


def _repeats(func: loops.PrimFunc, blocks: list[loops.Block], buffer: loops.Buffer) -> bool:
    # Several blocks may each read the buffer; nothing is known without following them.
    if len(blocks) != 1:
        return True
    runs = product(v.dom.extent for v in blocks[0].iter_vars)
    size = product(buffer.shape)
    return Analyzer.for_shapes((runs, size)).prove(expr.LE(runs, size)) is not True


def _terms(blocks: list[loops.Block]) -> expr.PrimExpr | None:
    reductions = [b for b in blocks if not is_spatial(b)]
    factors = sum_of_products(reductions[0]) if len(reductions) == 1 else None
    if factors is None or factors[0] == factors[1]:  # a sum of squares
        return None
    axes = reductions[0].iter_vars
    last = [v.var for v in axes if v.kind == "spatial"][-1:]
    for f in factors:
        # Lanes are neighbours along the last axis: an operand that moves with it elsewhere would be
        # gathered.
        if any(v in symbols_in(f.indices) and f.indices[-1] != v for v in last):
            return None
    return product(v.dom.extent for v in axes if v.kind != "spatial")


def _rows(blocks: list[loops.Block], buffer: loops.Buffer) -> int:
    rank = row_rank(blocks) or 0
    for block in blocks:
        axes = tuple(v.var for v in block.iter_vars if v.kind == "spatial")[:rank]
        for n in walk(block.body):
            if isinstance(n, loops.BufferLoad) and n.buffer is buffer:
                inside = symbols_in(n.indices[rank:])
                if n.indices[:rank] != axes or not set(axes).isdisjoint(inside):
                    return 0
    return rank


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A binding of a block, at `index`. `tir` and `summary` are None when it cannot be fused."""

    index: int
    binding: graph.Binding
    tir: TirCall | None = None
    summary: KernelSummary | None = field(default=None, repr=False)

    @property
    def var(self) -> graph.Var:
        """The variable it defines."""
        return self.binding.var

    @property
    def callee(self) -> str:
        """The loop function's name."""
        assert self.tir is not None
        return self.tir.callee

    @property
    def kind(self) -> PatternKind:
        """The kind of the loop function, OPAQUE when it cannot be fused."""
        return PatternKind.OPAQUE if self.summary is None else self.summary.kind


def call_of(index: int, b: graph.Binding, mod: Module, known: dict[str, KernelSummary]) -> Call:
    """Return the binding with its call and the summary of its kernel; `known` caches summaries by
    loop function."""
    call = tir_call(b.value) if isinstance(b, graph.VarBinding) else None
    # In-place calls have an effect beside their result, and several outputs no single place to be
    # read.
    if call is None or call.inplace or len(call.outs) != 1:
        return Call(index, b)
    func = mod.get(call.callee)
    if not isinstance(func, loops.PrimFunc) or "op_pattern" not in func.attrs:
        return Call(index, b)
    # Views depend on how the caller lays out memory, which a merged function no longer shows.
    if any(buf.strides or buf.elem_offset is not None for buf in func.buffers):
        return Call(index, b)
    given = (*map(leaf_type, call.args), *call.outs)
    if any(known_shape(t) is None for t in given):
        return Call(index, b)
    argument_symbols(func, given, call.symbols, call.callee)  # refuses what does not fit
    if unproved_dimensions(func, given, call.symbols):  # checked at run time, at the call
        return Call(index, b)
    if call.callee not in known:
        known[call.callee] = summary_of(func)
    return Call(index, b, call, known[call.callee])


def describe(members: Sequence[Call]) -> str:
    """A phrase saying what holds a kernel together."""
    kernel = _Kernel(members)
    if not kernel.anchors:
        return "each element is made from single elements, so nothing need be stored between"
    first, anchor = kernel.anchors[0], kernel.anchors[-1]
    if first is not anchor:
        assert first.summary is not None
        made = f"{anchor.callee} reads each row of {first.callee} where it is made: sums of"
        return f"{made} {first.summary.terms} products cost less than to store and load a row"
    before = [m.callee for m in members if m not in kernel.after and m is not anchor]
    after = [m.callee for m in members if m in kernel.after and m is not anchor]
    parts: list[str] = []
    if before:
        parts.append(f"{', '.join(before)} computed where {anchor.callee} reads")
    if after:
        parts.append(f"{', '.join(after)} applied to each result of {anchor.callee}")
    return "; ".join(parts)


def shape_of_group(members: Sequence[Call]) -> object:
    """Return a key that is equal for groups about which `why_not` decides alike: the same functions
    called with the same shapes, connected in the same way."""
    number = {m.var: i for i, m in enumerate(members)}

    def key(m: Call) -> object:
        if m.tir is None:
            return m.var
        args = tuple(number[a] if a in number else known_shape(leaf_type(a)) for a in m.tir.args)  # type: ignore[index]
        same = tuple(m.tir.args.index(a) for a in m.tir.args)
        return (m.callee, args, same, known_shape(m.tir.outs[0]))

    return tuple(map(key, members))


def why_not(members: Sequence[Call], limits: FusionLimits) -> str | None:
    """Return the reason that keeps calls (in program order, the last one's value leaving) apart;
    None if they make a good kernel."""
    kernel = _Kernel(members)
    for m in members:
        if m.kind > PatternKind.OUT_EWISE_FUSIBLE and not (m is members[-1] and kernel.moves_to(m)):
            if m.tir is None:
                return f"{m.var.name} is not made by a loop function that can be fused"
            return f"{m.callee} is opaque: how its writes relate to its reads is not known"
    reason = kernel.too_many_anchors(limits)
    if reason is not None:
        return reason
    for v in members:
        for u, at in kernel.edges.get(v, ()):
            reason = kernel.refusal(u, v, at)
            if reason is not None:
                return reason
    return None


class _Kernel:
    """The calls of a would-be kernel: `edges[v]` lists (u, argument index) where v reads u, and
    `after` holds the anchors and what depends on them."""

    def __init__(self, members: Sequence[Call]) -> None:
        by_var = {m.var: m for m in members}
        self.anchors = [m for m in members if m.kind in ANCHORS or _has_movable(m)]
        self.edges: dict[Call, list[tuple[Call, int]]] = {}
        self.after: set[Call] = set()
        self.local = set(by_var)
        for m in members:
            given = () if m.tir is None else m.tir.args
            read = [(by_var[a], i) for i, a in enumerate(given) if a in by_var]  # type: ignore
            self.edges[m] = read
            if m in self.anchors or any(u in self.after for u, _ in read):
                self.after.add(m)

    def too_many_anchors(self, limits: FusionLimits) -> str | None:
        """Return the reason why one kernel cannot have all the anchors. It can have two, if a
        product makes the rows that the other reads."""
        if len(self.anchors) < 2:
            return None
        one = f"a kernel keeps the loops of one of {' and '.join(m.callee for m in self.anchors)}"
        first, second = self.anchors[:2]
        assert first.summary is not None and second.summary is not None
        read = [(u, at) for u, at in self.edges[second] if u in self.after]
        products = (first.summary.terms is not None, second.summary.terms is not None)
        if len(self.anchors) > 2 or products != (True, False) or not read:
            return one
        # The product runs once per row of the reader, and so would its producers.
        if self.edges[first]:
            return f"{one}: {self.edges[first][0][0].callee} would be repeated for every row"
        reasons = (_why_no_rows(first.summary.terms, u, second, at, limits) for u, at in read)
        reason = next((r for r in reasons if r is not None), None)
        return None if reason is None else f"{one}: {reason}"

    def moves_to(self, v: Call) -> bool:
        """True if `v` has index functions, and the others only move elements of what else it
        reads."""
        others = [m for m in self.edges if m is not v]
        return (
            v.summary is not None
            and _has_movable(v)
            and all(m.summary is not None and m.summary.moves for m in others)
            and all(v.summary.movable[at] for _, at in self.edges[v])
        )

    def refusal(self, u: Call, v: Call, at: int) -> str | None:
        """Return the reason why `v` cannot compute its argument number `at`, the value of `u`,
        itself."""
        assert u.tir is not None and v.tir is not None and v.summary is not None
        # A consumer of the anchor is computed where results are stored, so elements must be one to
        # one.
        if u in self.after:
            if v in self.anchors:
                return None  # rows of a product, or there would be too many anchors
            if v.kind > PatternKind.BROADCAST:
                return f"{v.callee} does more than map each element of {u.callee}"
            if not same_shape(u.tir.outs[0], v.tir.outs[0]):
                return f"{v.callee} reads elements of {u.callee} more than once"
            return None
        chain = self.chain(u)
        # Squares of elements are turned in registers where each is read for certain: a slice of two
        # tensors side by side with their axes permuted took 389 us, 45 with one of these in memory.
        both = [m.summary for m in (*chain, v) if m.summary is not None]
        if v not in self.anchors and any(m.crosses for m in both) and any(m.branches for m in both):
            return f"{v.callee} and {u.callee} together would gather elements of permuted tensors"
        costly = [c.callee for c in chain if c.summary is not None and c.summary.costly]
        # Loads of a stored value cost less than repeating an exponential.
        if costly and v.summary.repeats[at]:
            return f"{v.callee} reads elements more than once and {costly[0]} is costly to repeat"
        several = [c.callee for c in chain if c.summary is not None and c.summary.loads > 1]
        if several and v.summary.repeats[at]:
            return f"{v.callee} reads elements more than once, {several[0]} several for each"
        turned = [(max(c.summary.turned), c) for c in chain if c.summary is not None]
        most, turning = max(turned, key=lambda pair: pair[0])
        # Each pass, and windows, would gather: a softmax over the rows of 48 x 96 x 64 with its
        # axes reversed took 17 ms, 0.14 with a copy before it. One pass goes in memory's order.
        is_product = v.kind is PatternKind.OUT_EWISE_FUSIBLE
        gathers = v.summary.passes[at] > 1 or not v.summary.in_order
        # Products take matrices in any order, unless the innermost axis is one of the batch.
        allowed = 0 if gathers else 1 if is_product else most
        if v in self.anchors and most > allowed and not v.summary.movable[at]:
            return f"{v.callee} would gather what {turning.callee} does not leave side by side"
        # A product reads an operand once per tile of its result: computing it there pays only if
        # that reads fewer bytes, as decoding does.
        if v.kind is PatternKind.OUT_EWISE_FUSIBLE and not self.shrinks(u, chain):
            return f"{v.callee} rereads tiles, and the value of {u.callee} is no larger to read"
        return None

    def chain(self, u: Call) -> list[Call]:
        """`u` and the members that it needs."""
        seen: dict[Call, None] = {u: None}
        pending = [u]
        while pending:
            for w, _ in self.edges[pending.pop()]:
                if w not in seen:
                    seen[w] = None
                    pending.append(w)
        return list(seen)

    def shrinks(self, u: Call, chain: list[Call]) -> bool:
        """True if computing `u` where it is read saves traffic: it only moves elements, or it is
        made from fewer bytes than it has: provably never from more, nor always from as many."""
        if all(c.summary is not None and c.summary.moves for c in chain):
            return True
        given = {
            a: _bytes_read(c, leaf_type(a))
            for c in chain if c.tir is not None for a in c.tir.args if a not in self.local
        }  # fmt: skip
        assert u.tir is not None
        total = expr.const(0)
        for read in given.values():
            total = total + read
        made = bytes_in(u.tir.outs[0])
        analyzer = Analyzer.for_shapes((total, made))
        never_more = analyzer.prove(expr.LE(total, made)) is True
        return never_more and not analyzer.prove_equal(total, made)


def _has_movable(call: Call) -> bool:
    return call.summary is not None and any(call.summary.movable)


def _why_no_rows(
    terms: expr.PrimExpr | None, u: Call, reader: Call, at: int, limits: FusionLimits
) -> str | None:
    """Return the reason why `reader` cannot make the rows of `u`, its argument number `at`, where
    it reads them, if they are sums of `terms` products. Up to 16 for each of 8192 elements
    read 512 KB again for each row, which stay in a core's cache."""
    widest = limits.row_bytes // 4
    assert u.tir is not None and reader.summary is not None
    if not isinstance(terms, expr.IntImm) or terms.value > limits.terms:
        return f"an element is a sum of {terms} products, not of {limits.terms} at most"
    rank = reader.summary.rows[at]
    if rank == 0:
        return f"{reader.callee} does not go through {u.callee} row by row"
    match (known_shape(u.tir.outs[0]) or ())[rank:]:
        case [expr.Var()]:  # the kernel has a version for rows that fit
            return None
        case width:
            row = product(width)
    if not isinstance(row, expr.IntImm) or row.value > widest:
        most = f"the {widest} elements that stay on a stack"
        return f"a row of {u.callee} may have more than {most}"
    return None


def _bytes_read(call: Call, ty: types.Type | None) -> expr.PrimExpr:
    """The bytes that a call reads of an argument: all, or, where it makes each element from single
    ones, one for each if these may be fewer."""
    whole = bytes_in(ty)
    assert call.tir is not None and isinstance(ty, types.TensorType) and ty.dtype is not None
    if call.kind > PatternKind.INJECTIVE:
        return whole
    shape = known_shape(call.tir.outs[0])
    assert shape is not None
    read = product(shape) * bytes_of(ty.dtype)
    return whole if Analyzer.for_shapes((whole, read)).prove(expr.LE(whole, read)) else read


def bytes_in(ty: types.Type | None) -> expr.PrimExpr:
    """The bytes of a tensor whose shape is known."""
    shape = known_shape(ty)
    assert shape is not None and isinstance(ty, types.TensorType) and ty.dtype is not None
    return product(shape) * bytes_of(ty.dtype)
