"""The pattern of a loop function's writes and reads (Algorithm 1 of the Relax paper, §4.2).

The kind comes from the loops alone, so a user's own function (decoding of quantised weights) is
understood like an operator's. Fusion reads the kinds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.index_map import NotAnIterMap, detect_iter_map
from relaxlab.ir import expr, loops
from relaxlab.ir.arguments import names_arguments
from relaxlab.ir.errors import expect
from relaxlab.ir.intrinsics import INTRINSICS
from relaxlab.ir.loops import Buffer, BufferLoad, BufferStore, IterVar, Range
from relaxlab.ir.node import walk
from relaxlab.ir.substitute import substitute, symbols_in

Indices = tuple[expr.PrimExpr, ...]


class PatternKind(IntEnum):
    """The relation of elements written to elements read; TVM's names and numbers."""

    ELEMENTWISE = 0
    """Each element is made from elements at the same indices."""
    BROADCAST = 1
    """… at a subsequence of its indices, in order."""
    INJECTIVE = 2
    """… at single places that are a function of its indices (transpose, reshape, decode)."""
    REDUCTION = 3
    """Each element combines many elements."""
    OUT_EWISE_FUSIBLE = 4
    """A sum of products (matmul, convolution), or a reduction whose result is applied back to
    whole rows (softmax): element-wise work can follow in the same kernel."""
    TUPLE = 7
    """Not a loop function: makes or takes apart tuples."""
    OPAQUE = 8
    """Nothing is known."""


def pattern_kind_of(func: loops.PrimFunc) -> PatternKind:
    """The kind of a loop function."""
    return pattern_kind_with_reason(func)[0]


@names_arguments
def pattern_kind_with_reason(func: loops.PrimFunc) -> tuple[PatternKind, str]:
    """Return the kind and a sentence about the access that decided it."""
    expect(func, loops.PrimFunc, "a pattern kind is that of a loop function")
    an = Analyzer.for_shapes(tuple(b.shape for b in func.buffers))
    stated = next((b for b in func.buffers if b.facts), None)
    if stated is not None:
        # Merged with others, it might be given an array that nothing has checked.
        reason = f"its index function {stated.name} has facts, which are checked before it runs"
        return PatternKind.OPAQUE, reason
    try:
        sites = list(_sites(func.body, ()))
        if not sites:
            raise _Opaque("nothing is stored")
        _one_output(func, sites)
        kind, reason = _kind_of_site(sites[0], an)
        reduced = _reduced_buffers(sites[0], kind)
        for site in sites[1:]:
            kind, reason = _combine((kind, reason), _kind_of_site(site, an), site, reduced)
            reduced |= _reduced_buffers(site, kind)
    except _Opaque as e:
        return PatternKind.OPAQUE, str(e)
    return kind, reason


MOST_NODES = 1000
"""Nodes of a variable's value, earlier ones put in their places, up to which it is looked through:
in a chain, each of which reads the one before twice, it doubles at every step."""


class _Opaque(Exception):
    """The function follows no pattern; the message has the reason."""


@dataclass(frozen=True, slots=True)
class _Site:
    """Stores that happen together, under `axes`; `where` names the block."""

    where: str
    axes: tuple[IterVar, ...]
    stores: tuple[BufferStore, ...]

    @property
    def outputs(self) -> frozenset[Buffer]:
        return frozenset(s.buffer for s in self.stores)


def _sites(s: loops.Stmt, axes: tuple[IterVar, ...], where: str = "the body") -> Iterator[_Site]:
    """The stores of a statement, in order. Loops inside a block count as axes of their own."""
    match s:
        case loops.BlockRealize(_, _, block):
            nested = any(isinstance(n, loops.BlockRealize) for n in walk(block.body))
            if block.alloc_buffers and not nested:
                raise _Opaque(f"block {block.name!r} keeps scratch memory")
            if block.match_buffers:
                raise _Opaque(f"block {block.name!r} works on views of buffers")
            inner = (*axes, *block.iter_vars) if nested else block.iter_vars
            yield from _sites(block.body, inner, f"block {block.name!r}")
        case loops.For(var, low, extent, _, body):
            axis = IterVar(var, Range(low, extent), "opaque")
            known = any(isinstance(n, loops.BlockRealize) for n in walk(body))
            yield from _sites(body, axes if known else (*axes, axis), where)
        case BufferStore():
            yield _Site(where, axes, (s,))
        case loops.SeqStmt(stmts) if stmts and all(isinstance(x, BufferStore) for x in stmts):
            yield _Site(where, axes, stmts)  # type: ignore[arg-type]
        case loops.SeqStmt(stmts):
            for one in stmts:
                yield from _sites(one, axes, where)
        case loops.LetStmt(var, value, body):
            if sum(1 for _ in walk(value)) > MOST_NODES:
                raise _Opaque(f"{where} computes {var.name} by too large an expression")
            yield from _sites(substitute(body, {var: value}), axes, where)
        case _:
            raise _Opaque(f"{where} has a statement that is no store: {type(s).__name__}")


def _one_output(func: loops.PrimFunc, sites: list[_Site]) -> None:
    """Refuse functions whose outputs are written by unrelated blocks."""
    written: dict[Buffer, frozenset[Buffer]] = {}
    for site in sites:
        for b in site.outputs & set(func.buffers):
            written[b] = site.outputs
    if len(set(written.values())) > 1:
        names = ", ".join(b.name for b in written)
        raise _Opaque(f"the outputs {names} are written by different blocks")


def _kind_of_site(site: _Site, an: Analyzer) -> tuple[PatternKind, str]:
    with an.scope():
        for axis in site.axes:
            an.bind_range(axis.var, axis.dom)
        written = _write_indices(site, an)
        reads = _reads(site, written, an)
        if any(_is_reduced(site, load.indices, written) for load in reads) or _updates(site):
            return _reduction_kind(site, written, an)
        _check_write(site, written, an)
        return _spatial_kind(site, written, reads, an)


def _write_indices(site: _Site, an: Analyzer) -> Indices:
    every = {tuple(an.simplify(i) for i in s.indices) for s in site.stores}
    if len(every) > 1:
        raise _Opaque(f"{site.where} writes at different indices")
    return every.pop()


def _reads(site: _Site, written: Indices, an: Analyzer) -> list[BufferLoad]:
    """The loads, with simplified indices, but for an output's own element."""
    found: list[BufferLoad] = []
    for store in site.stores:
        if any(isinstance(n, BufferLoad) for i in store.indices for n in walk(i)):
            raise _Opaque(f"{site.where} writes where data say")
        for n in walk(store.value):
            if isinstance(n, expr.Call) and not _is_pure(n):
                raise _Opaque(f"{site.where} calls {n.args[0] if n.args else n.op}")
            if isinstance(n, BufferLoad):
                load = BufferLoad(n.buffer, tuple(an.simplify(i) for i in n.indices))
                if load.buffer in site.outputs:
                    if load.indices != written:
                        raise _Opaque(f"{site.where} reads other elements of what it writes")
                else:
                    found.append(load)
    return found


def _is_pure(call: expr.Call) -> bool:
    row = INTRINSICS.get(call.op)
    return row is not None and row.pure and call.op != "llvm_intrin"


def _is_reduced(site: _Site, indices: Indices, written: Indices) -> bool:
    """True if an index runs over an axis that the write does not."""
    written_axes = set(symbols_in(written))
    axes = {a.var for a in site.axes if a.kind == "reduce" or a.kind == "opaque"}
    return any(v in axes and v not in written_axes for v in symbols_in(indices))


def _updates(site: _Site) -> bool:
    """True if the site reads its own output: it accumulates."""
    return any(
        isinstance(n, BufferLoad) and n.buffer in site.outputs
        for s in site.stores
        for n in walk(s.value)
    )


def _reduction_kind(site: _Site, written: Indices, an: Analyzer) -> tuple[PatternKind, str]:
    if not _updates(site):
        raise _Opaque(f"{site.where} overwrites its result along an axis")
    written_axes = set(symbols_in(written))
    extra = [
        a
        for a in site.axes
        if a.var not in written_axes and (a.kind == "reduce" or not an.prove_equal(a.dom.extent, 1))
    ]
    if not extra:
        raise _Opaque(f"{site.where} updates its output in place")
    names = ", ".join(a.var.name for a in extra)
    if len(site.stores) == 1 and _is_multiply_add(site.stores[0]):
        reason = f"{site.where} sums products over {names}"
        return PatternKind.OUT_EWISE_FUSIBLE, reason
    return PatternKind.REDUCTION, f"{site.where} reduces over {names}"


def _is_multiply_add(store: BufferStore) -> bool:
    """C += a * b + ..., where the factors of each product load different elements; conversions do
    not matter."""
    terms = _terms(store.value)
    own = [t for t in terms if isinstance(t, BufferLoad) and t.buffer is store.buffer]
    rest = [t for t in terms if t not in own]
    return len(own) == 1 and bool(rest) and all(map(_is_product, rest))


def _terms(e: expr.PrimExpr) -> list[expr.PrimExpr]:
    e = _uncast(e)
    return [*_terms(e.a), *_terms(e.b)] if isinstance(e, expr.Add) else [e]


def _is_product(e: expr.PrimExpr) -> bool:
    if not isinstance(e, expr.Mul):
        return False
    a, b = _loads(e.a), _loads(e.b)
    return bool(a) and bool(b) and a != b


def _uncast(e: expr.PrimExpr) -> expr.PrimExpr:
    while isinstance(e, expr.Cast):
        e = e.value
    return e


def _loads(e: expr.PrimExpr) -> set[BufferLoad]:
    return {n for n in walk(e) if isinstance(n, BufferLoad)}


def _check_write(site: _Site, written: Indices, an: Analyzer) -> None:
    """Refuse sites that do not write every element of their output, each once."""
    ranges = {a.var: a.dom for a in site.axes}
    buffer = site.stores[0].buffer
    try:
        found = detect_iter_map(written, ranges, None, an)
    except NotAnIterMap as e:
        raise _Opaque(f"{site.where} writes {buffer.name} irregularly: {e}") from e
    zero = expr.IntImm(0)
    whole = all(
        an.prove_equal(base, zero) and an.prove_equal(extent, dim)
        for base, extent, dim in zip(found.bases, found.extents, buffer.shape, strict=True)
    )
    if not (whole and found.bijective):
        raise _Opaque(f"{site.where} does not write each element of {buffer.name} once")


def _spatial_kind(
    site: _Site, written: Indices, reads: list[BufferLoad], an: Analyzer
) -> tuple[PatternKind, str]:
    axes = {a.var for a in site.axes}
    worst, reason = PatternKind.ELEMENTWISE, f"{site.where} reads where it writes"
    same = False
    for load in reads:
        kind = _kind_of_read(load, written, axes)
        if kind is not None and not _reads_all(load, kind, site, written, an):
            kind = PatternKind.INJECTIVE
        text = f"{load.buffer.name}[{', '.join(map(str, load.indices))}]"
        at = ", ".join(map(str, written))
        if kind is None:
            raise _Opaque(f"{site.where} reads {text}: where is decided by data")
        same = same or kind is PatternKind.ELEMENTWISE
        if kind > worst:
            how = "a subsequence of" if kind is PatternKind.BROADCAST else "a function of"
            worst, reason = kind, f"{site.where} reads {text}, {how} [{at}]"
    if worst is PatternKind.BROADCAST and same:
        return PatternKind.ELEMENTWISE, f"{reason}, and others where it writes"
    return worst, reason if reads else f"{site.where} reads nothing"


def _reads_all(
    load: BufferLoad, kind: PatternKind, site: _Site, written: Indices, an: Analyzer
) -> bool:
    """True if the dimensions read have the extents of those written, so that no element is cut
    off."""
    out = site.stores[0].buffer
    extents = dict(zip(written, out.shape, strict=True))
    return all(
        an.prove_equal(dim, extents.get(i, 1))
        for i, dim in zip(load.indices, load.buffer.shape, strict=True)
        if kind is not PatternKind.INJECTIVE
    )


def _kind_of_read(load: BufferLoad, written: Indices, axes: set[expr.Var]) -> PatternKind | None:
    indices = load.indices
    if indices == written:
        return PatternKind.ELEMENTWISE
    if any(isinstance(n, BufferLoad | expr.Call) for i in indices for n in walk(i)):
        return None
    rest = iter(w for w in written if not isinstance(w, expr.IntImm))
    moving = [i for i in indices if any(v in axes for v in symbols_in(i))]
    if len(moving) == len([i for i in indices if i != expr.const(0, i.dtype)]) and all(
        any(i == w for w in rest) for i in moving
    ):
        return PatternKind.BROADCAST
    return PatternKind.INJECTIVE


def _reduced_buffers(site: _Site, kind: PatternKind) -> set[Buffer]:
    """Return the buffers that a reducing site writes."""
    if kind in (PatternKind.REDUCTION, PatternKind.OUT_EWISE_FUSIBLE):
        return set(site.outputs)
    return set()


def _combine(
    before: tuple[PatternKind, str],
    after: tuple[PatternKind, str],
    site: _Site,
    reduced: set[Buffer],
) -> tuple[PatternKind, str]:
    """The kind of two stages. A reduction applied back to rows becomes OUT_EWISE_FUSIBLE."""
    if before[0] is PatternKind.REDUCTION and after[0] <= PatternKind.INJECTIVE:
        loads = [n for s in site.stores for n in walk(s.value) if isinstance(n, BufferLoad)]
        back = [n for n in loads if n.buffer in reduced and n.indices != site.stores[0].indices]
        if back:
            reason = f"{before[1]}, then {site.where} applies {back[0].buffer.name} to whole rows"
            return PatternKind.OUT_EWISE_FUSIBLE, reason
    if after[0] > before[0]:
        return after
    return before
