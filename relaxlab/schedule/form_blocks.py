"""Make blocks of plain loop nests, so that rules can schedule them.

A loop function may be written as loops around stores, without blocks. A store whose indices are
loop variables becomes a block with those as spatial axes and the other loops' as reduce axes, in
loops of its own (loop distribution; Kennedy and Allen, *Optimizing Compilers for Modern
Architectures*, section 2.4), spatial loops in the order of the dimensions. A store right before a
reduction to the same place becomes its `init`. A buffer that each iteration fills before it reads
it gets an element for each iteration first (scalar expansion, section 5.3).

Where loops are not equally long, those that the place of the store determines are its axes, as they
are: a row `starts[i] + j` determines the sequence i and j.

A sum onto what is there already is one of its own, which is added then: rules know how to schedule
what begins at zero.

Loops that cannot be distributed become one block: its axes are the outer ones whose iterations
share no element that one of them writes, its body is the rest. Where there is no such loop, as in
steps of time or of an elimination, the outermost one stays as it is, around blocks of what is in
it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, TypeVar, cast

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.regions import access_regions
from relaxlab.ir import expr
from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.expr import IntImm, PrimExpr, Var
from relaxlab.ir.loops import (
    AssertStmt,
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    IterVar,
    LetStmt,
    PrimFunc,
    Range,
    SeqStmt,
    Stmt,
    While,
    nested,
    seq,
)
from relaxlab.ir.names import UniqueNames
from relaxlab.ir.node import Node, map_children, replace, rewrite, walk
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.schedule.apart import bound_to_axes
from relaxlab.schedule.canonical_reduction import canonical_store
from relaxlab.schedule.compact import loops_around_uses
from relaxlab.schedule.determined import are_never_equal
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.order import KEEP_ORDER
from relaxlab.schedule.own_elements import are_apart, buffers_in, has_own_elements, written
from relaxlab.schedule.ranges import ZERO, bind_stmt, by_data, shape_analyzer
from relaxlab.schedule.recurrences import with_recurrences_last
from relaxlab.schedule.regions import rewrite_accesses
from relaxlab.schedule.rfactor import reduction_of
from relaxlab.schedule.scalar_replacement import with_private_elements
from relaxlab.schedule.split_index_sets import split_index_sets
from relaxlab.schedule.split_live_ranges import split_live_ranges
from relaxlab.schedule.store_nests import (
    Nest,
    are_fixed,
    depend_on,
    plain_block,
    reduction_of_nest,
    spatial_loops,
    summed_apart,
    terms_are_free,
)
from relaxlab.schedule.tree import TRUE, describe_block
from relaxlab.schedule.vector_loops import interleaves, with_vector_loops

STACK_BYTES = 1 << 14
"""Largest buffer that an iteration has for itself on its thread's stack: half of a first-level
cache. Larger ones are in main memory, one for each iteration."""

MOST_SHORT = 64
"""Iterations at most of all loops in the term of a sum that vectors of sums compute."""

Private = Mapping[Buffer, tuple[For, ...]]
"""Buffers of the function's own, with the loops, outermost first, in each iteration of which they
are filled before they are read."""


@dataclass(frozen=True, slots=True)
class _Whole:
    """A statement that becomes one block: inside loops, outermost first, with buffers of its own
    for each of their iterations."""

    loops: tuple[For, ...]
    body: Stmt
    local: tuple[Buffer, ...]


@dataclass(frozen=True, slots=True)
class _Serial:
    """A loop that stays around blocks."""

    loop: For
    parts: tuple[_Part, ...]


_Part = Nest | _Whole | _Serial
N = TypeVar("N", bound=_Part)
Formed = tuple[list[_Part], list[Buffer]]
"""The blocks of a statement, and buffers in main memory that they use."""


def form_blocks(func: PrimFunc) -> PrimFunc:
    """Return the function with its statements in blocks, each store in loops of its own where that
    is allowed; with its sums in another order alone, where no two iterations of its loops are
    independent. Raises ScheduleError where it has blocks already, or neither changes anything."""
    root = func.body if isinstance(func.body, BlockRealize) else None
    body = func.body if root is None else root.block.body
    other = Block | BlockRealize | Evaluate | AssertStmt
    if root is not None and (root.iter_values or root.block.init or root.block.match_buffers):
        raise ScheduleError(
            "form_blocks", describe_block(root.block), "the root block only allocates buffers"
        )
    if any(isinstance(n, other) or (isinstance(n, For) and not _is_plain(n)) for n in walk(body)):
        raise ScheduleError(
            "form_blocks", "the function", "it consists of plain serial loops and stores"
        )
    owned = () if root is None else root.block.alloc_buffers
    given = func.body
    if not func.attrs.get(KEEP_ORDER):
        func = replace(func, body=with_recurrences_last(given))
    plain, owned = split_live_ranges(replace(func, body=_from_zero(func.body)), owned)
    uses = {b: loops_around_uses(plain, b) for b in owned}
    ranges = split_index_sets(plain.body, plain, lambda x: not _is_independent(x, x, uses))
    plain = replace(plain, body=ranges)
    plain = replace(plain, body=_canonical(plain.body, (), plain))
    private = {b: loops_around_uses(plain, b) for b in owned}
    body = plain.body.block.body if isinstance(plain.body, BlockRealize) else plain.body
    parts, made = _formed(body, private, (), func)
    names: dict[str, int] = {}
    formed = seq(*(_blocked(part, names) for part in parts))
    if not any(isinstance(n, Block) and n.iter_vars for n in walk(formed)):
        if func.body is not given:
            return func
        raise ScheduleError("form_blocks", "the function", "iterations of a loop are independent")
    # Annotations mention buffers by name, and two sums onto parts of one buffer each make one.
    free = UniqueNames(b.name for b in {*func.buffers, *buffers_in(formed)} - {*made})
    named = {b: replace(b, name=free(b.name)) for b in made}
    formed, made = substitute(formed, buffers=named), list(named.values())
    own = {b for n in walk(formed) if isinstance(n, Block) for b in n.alloc_buffers}
    used = buffers_in(formed) - own
    kept = tuple(b for b in owned if b in used)
    if root is None and not made:
        return replace(func, body=formed)
    block = Block("root", (), (), (), formed) if root is None else replace(root.block, body=formed)
    block = replace(block, alloc_buffers=(*kept, *made))
    return replace(func, body=BlockRealize((), expr.const(True), block))


def _canonical(n: Node, loops: tuple[For, ...], func: PrimFunc) -> Any:
    """The statements of a function with stores that loops repeat in the form of
    `canonical_store`."""

    def is_inside(load: BufferLoad) -> bool:
        an = shape_analyzer(func)
        for loop in loops:
            bind_stmt(an, loop)
        pairs = zip(load.indices, load.buffer.shape, strict=True)
        return all(an.prove(expr.GE(i, ZERO)) and an.prove(expr.LT(i, dim)) for i, dim in pairs)

    if isinstance(n, BufferStore | IfThenElse | LetStmt):
        store = canonical_store(n, is_inside, keep_order=bool(func.attrs.get(KEEP_ORDER)))
        if store is not None and {s.loop_var for s in loops}.difference(symbols_in(store.indices)):
            return store
    inside = (*loops, n) if isinstance(n, For) else loops
    return map_children(n, lambda child: _canonical(child, inside, func))


def _formed(s: Stmt, private: Private, around: tuple[For, ...], func: PrimFunc) -> Formed:
    """Return the blocks of a statement of a function, inside serial loops."""
    parts: list[_Part] = []
    made: list[Buffer] = []
    for part in s.stmts if isinstance(s, SeqStmt) else (s,):
        used = buffers_in(part)
        mine = {b: loops for b, loops in private.items() if loops and b in used}
        found, buffers = (
            _distributed_apart(part, mine, around)
            or _under_serial(part, mine, around, func)
            or _in_one_block(part, mine, around, func)
        )
        parts += found
        made += buffers
    parts = _with_fills(_with_inits(parts, 0))
    if not func.attrs.get(KEEP_ORDER):
        whole, parts = parts, []
        for part in whole:
            if isinstance(part, Nest):
                sums, buffers = summed_apart(part, func)
                parts += sums
                made += buffers
            else:
                parts.append(part)
    return parts, made


def _is_plain(loop: For) -> bool:
    return loop.kind == "serial" and not loop.annotations and not by_data(loop.min)


def _from_zero(s: Stmt) -> Stmt:
    """The statement with all loops from zero on."""

    def visit(n: Node) -> Node | None:
        if isinstance(n, For) and n.min != ZERO:
            start = {n.loop_var: n.loop_var + n.min}
            return replace(n, min=ZERO, body=substitute(n.body, start))
        return None

    return rewrite(s, visit)


# --- Each store in loops of its own -----------------------------------------------------------


def _distributed_apart(
    part: Stmt, private: Private, around: tuple[For, ...]
) -> tuple[list[Nest], list[Buffer]] | None:
    """Return the stores of a statement, each in loops of its own, and the buffers that its private
    ones become; None where loops cannot be distributed or stores are not independent."""
    made: list[Buffer] = []
    if any(_are_sums_of_terms(part, buffer, loops, private) for buffer, loops in private.items()):
        return None
    for buffer, loops in private.items():
        if not are_fixed(loops) or depend_on(loops, around):
            return None
        part, wide = _expanded(part, buffer, loops)
        made.append(wide)
    nests = _distributed(part, (), around)
    return _renamed(nests, made) if nests is not None and all(map(_is_block, nests)) else None


def _are_sums_of_terms(
    part: Stmt, buffer: Buffer, loops: Sequence[For], private: Private
) -> bool:
    """True if a buffer that is stored to several times, in short loops, is one for each term of a
    sum: then registers serve better than an array of all terms. Of distances between bodies this
    would have 196,608 elements for 768 coordinates (NOTES, *Variables
    of loops written by hand*)."""
    inside = list(walk(part))
    stores = [n for n in inside if isinstance(n, BufferStore)]
    kept = [set(symbols_in(n.indices)) for n in stores if n.buffer not in private]
    over_terms = any(loop.loop_var not in axes for loop in loops for axes in kept)
    short = math.prod(
        n.extent.value if isinstance(n.extent, IntImm) else MOST_SHORT + 1
        for n in walk(loops[-1].body)
        if isinstance(n, For)
    )
    return over_terms and short <= MOST_SHORT and sum(n.buffer is buffer for n in stores) > 1


def _renamed(nests: Sequence[Nest], owned: Sequence[Buffer]) -> tuple[list[Nest], list[Buffer]]:
    """Return the nests with a buffer of its own for each that overwrites all of an owned one, and
    these buffers: rules schedule what is made by one block (array renaming; section 5.4)."""
    found: list[Nest] = []
    made: dict[Buffer, list[Buffer]] = {buffer: [] for buffer in owned}
    now: dict[Buffer, Buffer] = {}
    for nest in nests:
        old, before = nest.store, dict(now)
        versions = made.get(old.buffer)
        if versions is not None and (not versions or _overwrites(nest)):
            name = old.buffer.name + (f"_{len(versions) + 1}" if versions else "")
            now[old.buffer] = replace(old.buffer, name=name)
            versions.append(now[old.buffer])
        # A reduction reads its own results, any other store what was there before.
        accumulates = len(spatial_loops(nest)) < len(nest.loops)
        store = substitute(old, buffers=now if accumulates else before)
        store = replace(store, buffer=now.get(old.buffer, old.buffer))
        init = nest.init and substitute(nest.init, buffers=now)
        found.append(dataclasses.replace(nest, store=store, init=init))
    return found, [version for versions in made.values() for version in versions]


def _overwrites(nest: Nest) -> bool:
    """True if the nest stores to each element of its buffer, whatever was there."""
    spatial = spatial_loops(nest)
    shape, indices = nest.store.buffer.shape, nest.store.indices
    is_whole = indices == tuple(loop.loop_var for loop in spatial)
    same = is_whole and shape == tuple(loop.extent for loop in spatial)
    return same and (nest.init is not None or len(spatial) == len(nest.loops))


def _is_by_place(extent: PrimExpr) -> bool:
    """True if all that an extent loads are elements of index functions, which nothing writes."""
    return all(n.buffer.facts for n in walk(extent) if isinstance(n, BufferLoad))


def _expanded(s: Stmt, buffer: Buffer, loops: Sequence[For]) -> tuple[Stmt, Buffer]:
    """Return the statement with a buffer for each iteration of the loops, as one of more
    dimensions, and that buffer. Dimensions that are always at zero are left out."""
    axes = tuple(loop.loop_var for loop in loops)
    accesses = [n for n in walk(s) if isinstance(n, BufferLoad | BufferStore)]
    places = [n.indices for n in accesses if n.buffer is buffer]
    kept = [d for d in range(buffer.ndim) if any(i[d] != ZERO for i in places)]
    shape = (*(loop.extent for loop in loops), *(buffer.shape[d] for d in kept))
    wide = Buffer(buffer.name, shape, buffer.dtype, span=buffer.span)

    def index(indices: Sequence[PrimExpr]) -> tuple[PrimExpr, ...]:
        return (*axes, *(indices[d] for d in kept))

    return rewrite_accesses(s, buffer, wide, index, lambda region: region), wide


def _distributed(s: Stmt, loops: tuple[For, ...], around: tuple[For, ...]) -> list[Nest] | None:
    """Return the stores of a statement in the given loops, each in loops of its own. None where
    there is anything but stores and loops whose extents depend on no memory but index functions, or
    where distributing the loops might change the order of dependent accesses."""
    match s:
        case BufferStore():
            return [Nest(loops, s, around=around)]
        case LetStmt(var, value, body) if isinstance(body, BufferStore) or not _changes(
            body, value
        ):
            return _distributed(substitute(body, {var: value}), loops, around)
        case For():
            if not _is_by_place(s.extent):
                return None
            return _distributed(s.body, (*loops, s), around)
        case SeqStmt(stmts):
            parts = [_distributed(part, loops, around) for part in stmts]
            if not are_apart(stmts, loops) or interleaves(stmts):
                return None
            nests = [nest for part in parts if part is not None for nest in part]
            return None if None in parts else _with_inits(nests, len(loops))
        case _:
            return None


def _changes(body: Stmt, value: PrimExpr) -> bool:
    """True if the statement stores to what the value loads from."""
    loaded = {n.buffer for n in walk(value) if isinstance(n, BufferLoad)}
    return any(isinstance(n, BufferStore) and n.buffer in loaded for n in walk(body))


def _with_inits(nests: Sequence[N], depth: int) -> list[N]:
    """Join each reduction with the store of its initial value in front of it, `depth` loops around
    both."""
    found: list[N] = []
    for nest in nests:
        before = found[-1] if found else None
        joined = None
        if isinstance(before, Nest) and isinstance(nest, Nest):
            joined = _with_init(before, nest, depth)
        if joined is None:
            found.append(nest)
        else:
            found[-1] = cast("N", joined)
    return found


def _with_init(before: Nest, nest: Nest, depth: int) -> Nest | None:
    """Return a reduction with the store before it as its init; None where that is not its initial
    value: in the same place, outside of the loops over its terms, and of other buffers."""
    if len(before.loops) != depth:
        return None
    reduced = {loop.loop_var for loop in nest.loops[depth:]}
    a, b = before.store, nest.store
    same = (a.buffer, a.indices) == (b.buffer, b.indices)
    if not same or not reduced or nest.init is not None or before.init is not None:
        return None
    own = any(isinstance(n, BufferLoad) and n.buffer is a.buffer for n in walk(a.value))
    is_reduction = reduction_of(plain_block(nest)) is not None
    fits = is_reduction and not own and not reduced & set(symbols_in(b.indices))
    return dataclasses.replace(nest, init=a) if fits else None


def _with_fills(parts: Sequence[_Part]) -> list[_Part]:
    """Join each reduction with an earlier nest that fills its elements with a value that loads
    nothing, where no part between them uses these."""
    found: list[_Part] = []
    for part in parts:
        uses = (i for i in reversed(range(len(found))) if _stored_by(part) & _used_by(found[i]))
        last = next(uses, None)
        joined = None if last is None else _with_fill(found[last], part)
        if last is not None and joined is not None:
            del found[last]
        found.append(joined or part)
    return found


def _with_fill(before: _Part, nest: _Part) -> Nest | None:
    if not isinstance(before, Nest) or not isinstance(nest, Nest) or not before.loops:
        return None
    spatial, filled = spatial_loops(nest), spatial_loops(before)
    pairs = list(zip(filled, spatial, strict=False))
    is_whole = len(before.loops) == len(filled) == len(spatial) < len(nest.loops)
    a = substitute(before.store, {x.loop_var: y.loop_var for x, y in pairs})
    same = is_whole and all(x.extent == y.extent for x, y in pairs)
    same = same and a.indices == nest.store.indices and nest.init is None and before.init is None
    loads = by_data(a.value)
    fits = same and not loads and reduction_of(plain_block(nest)) is not None
    return dataclasses.replace(nest, init=a) if fits else None


def _used_by(part: _Part) -> set[Buffer]:
    match part:
        case _Serial(loop):
            return buffers_in(loop)
        case _Whole(_, body):
            return buffers_in(body)
        case Nest(_, store, init):
            return buffers_in(store) | (set() if init is None else buffers_in(init))


def _stored_by(part: _Part) -> set[Buffer]:
    return {part.store.buffer} if isinstance(part, Nest) else set()


def _is_block(nest: Nest) -> bool:
    """True if iterations with different indices are independent, and the others a reduction."""
    store = nest.store
    spatial = {loop.loop_var for loop in spatial_loops(nest)}
    others = {loop.loop_var for loop in nest.loops} - spatial
    extents = symbols_in(tuple(x.extent for x in nest.loops if x.loop_var in spatial))
    if others & {*symbols_in(store.indices), *extents} or not store.indices:
        return False
    reads = _other_reads(nest)
    shapes = symbols_in((store.buffer.shape, tuple(loop.extent for loop in nest.loops)))
    inner = {loop.loop_var for loop in (*nest.around, *nest.loops)}
    an = Analyzer.for_shapes(*(v for v in shapes if v not in inner))
    for loop in nest.around:
        bind_stmt(an, loop)
    if not all(are_never_equal(n.indices, store.indices, nest.loops, an) for n in reads):
        return False
    return not others or (reduction_of_nest(nest) is not None and terms_are_free(nest))


def _other_reads(nest: Nest) -> list[BufferLoad]:
    """The loads from the buffer that is stored to, but for those of the element itself."""
    loads = [n for n in walk(nest.store.value) if isinstance(n, BufferLoad)]
    store = nest.store
    return [n for n in loads if n.buffer is store.buffer and n.indices != store.indices]


# --- Loops that stay around blocks -------------------------------------------------------------


def _under_serial(
    part: Stmt, private: Private, around: tuple[For, ...], func: PrimFunc
) -> Formed | None:
    """Return a loop whose iterations depend on each other as it is, around the blocks of its body;
    None where its iterations are independent, or those of nothing in it are."""
    if not isinstance(part, For) or by_data(part.extent) or _is_independent(part, part, private):
        return None
    inside = {b: loops[loops[0] is part :] for b, loops in private.items()}
    found, made = _formed(part.body, inside, (*around, part), func)
    # Nothing allocates anew in each step.
    grows = any(part.loop_var in symbols_in(buffer.shape) for buffer in made)
    if grows or not any(map(_has_axes, found)):
        return None
    return [_Serial(part, tuple(found))], made


def _has_axes(part: _Part) -> bool:
    if isinstance(part, _Serial):
        return any(map(_has_axes, part.parts))
    return bool(part.loops)


# --- Loops that stay together -----------------------------------------------------------------


def _in_one_block(
    part: Stmt, private: Private, around: tuple[For, ...], func: PrimFunc
) -> tuple[list[_Whole], list[Buffer]]:
    """Return a statement as one block, its outer independent loops as axes, and the buffers in main
    memory that its private ones become."""
    nest: list[For] = []
    body = part
    while isinstance(body, For):
        nest.append(body)
        body = body.body
    outside = [*takewhile(lambda loop: _is_independent(loop, part, private), nest)]
    # Tests of the place alone are predicted well, and between them LLVM makes vectors of the inner
    # loop: as masked lanes of vectors a stencil with tests for the border took 7 ms, not 2.
    tests = [n.condition for n in walk(body) if isinstance(n, IfThenElse)]
    repeats = any(isinstance(n, For | While) for n in walk(body))
    if len(outside) == len(nest) > 1 and not repeats and not any(map(by_data, tests)):
        outside.pop()
    body = nested(nest[len(outside) :], body)
    local: list[Buffer] = []
    made: list[Buffer] = []
    for buffer, loops in private.items():
        if not any(loop in outside for loop in loops):
            made.append(buffer)
        elif _bytes(buffer) <= STACK_BYTES:
            local.append(replace(buffer, scope="local"))
            body = substitute(body, buffers={buffer: local[-1]})
        else:
            body, wide = _expanded(body, buffer, outside)
            made.append(wide)
    an = shape_analyzer(func)
    for loop in (*around, *outside):
        bind_stmt(an, loop)
    shared = sorted(written([body]) - {*local, *made}, key=lambda b: b.name)
    body, own = with_private_elements(body, shared, an)
    own = [*local, *own]
    body = with_vector_loops(body, own, bool(func.attrs.get(KEEP_ORDER)))
    return [_Whole(tuple(outside), body, tuple(own))], made


def _is_independent(loop: For, part: Stmt, private: Private) -> bool:
    """True if iterations of a loop around all of a statement share no element that one of them
    writes, and how many there are depends on nothing in it."""
    bound = {n.loop_var for n in walk(part) if isinstance(n, For)}
    if by_data(loop.extent) or not bound.isdisjoint(symbols_in(loop.extent)):
        return False
    return all(
        loop in private.get(buffer, ()) or has_own_elements([part], buffer, loop, ())
        for buffer in written([part])
    )


def _bytes(buffer: Buffer) -> float:
    sizes = [d.value if isinstance(d, expr.IntImm) else math.inf for d in buffer.shape]
    return bytes_of(buffer.dtype) * math.prod(sizes)


# --- Blocks -----------------------------------------------------------------------------------


def _blocked(nest: _Part, names: dict[str, int]) -> Stmt:
    """The block in its loops."""
    if isinstance(nest, _Serial):
        inside = seq(*(_blocked(part, names) for part in nest.parts))
        return replace(nest.loop, body=bound_to_axes(inside, [nest.loop]))
    if isinstance(nest, Nest):
        spatial, inside, init, local = spatial_loops(nest), nest.store, nest.init, ()
    else:
        spatial, inside, init, local = nest.loops, nest.body, None, nest.local
    reduce = [loop for loop in nest.loops if loop not in spatial]
    axes: dict[Var, PrimExpr] = {}
    iter_vars: list[IterVar] = []
    for loop in (*spatial, *reduce):
        axis = Var(f"v{loop.loop_var.name}", loop.loop_var.dtype)
        axes[loop.loop_var] = axis
        kind = "spatial" if loop in spatial else "reduce"
        iter_vars.append(IterVar(axis, substitute(Range(loop.min, loop.extent), axes), kind))
    block = Block(
        _name(inside, names), tuple(iter_vars), (), (), substitute(inside, axes),
        None if init is None else substitute(init, axes), local, span=inside.span,
    )  # fmt: skip
    reads, writes = access_regions(block)
    block = replace(block, reads=reads, writes=writes)
    values = tuple(loop.loop_var for loop in (*spatial, *reduce))
    where = nest.where if isinstance(nest, Nest) else TRUE
    body = nested((*spatial, *reduce), BlockRealize(values, where, block, span=inside.span))
    # Distributed loops come from one, and a variable is bound once.
    return substitute(body, {v: Var(v.name, v.dtype) for v in values})


def _name(inside: Stmt, names: dict[str, int]) -> str:
    """A name for the block of a statement: of the buffer that it stores to last."""
    *_, name = ("nothing", *(n.buffer.name for n in walk(inside) if isinstance(n, BufferStore)))
    count = names[name] = names.get(name, 0) + 1
    return name + (f"_{count}" if count > 1 else "")
