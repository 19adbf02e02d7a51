"""Conditions under which the iterations of a loop may run in any order, or at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from itertools import combinations_with_replacement

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.intrinsics import has_unknown_effect
from relaxlab.ir.loops import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    For,
    LetStmt,
    Range,
    Stmt,
)
from relaxlab.ir.node import walk
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.determined import (
    are_never_equal,
    determines,
    in_common,
    with_fixed_loads,
)
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.exact_region import region_written
from relaxlab.schedule.ranges import (
    ONE,
    Span,
    analyzer_at,
    analyzer_in,
    axis_env,
    bind_stmt,
    binding_of,
    covers_inside,
    loop_env,
    span_of,
    spans_under,
)
from relaxlab.schedule.scope import read, written
from relaxlab.schedule.tree import (
    BlockPlace,
    LoopPlace,
    describe_block,
    describe_loop,
    path_to,
    realizes_under,
    vars_in,
    walk_stmts,
)


def require_order_free(
    primitive: str, place: LoopPlace, shared: tuple[str, ...] = ("global",)
) -> None:
    """Raise ScheduleError unless the iterations of the loop, which share the buffers of some
    scopes, may run in any order.

    They may when each block under it has only spatial and reduce axes, touches the elements it
    both reads and writes at one place (an accumulation) or in one iteration, leaves no element to
    the order in which iterations write it, and reads of other blocks under the loop only what they
    made before in the same iteration.
    """
    for s in walk_stmts(place.loop.body):
        if isinstance(s, BlockRealize):
            break
        if not realizes_under(s) and not isinstance(s, For | Block):
            raise ScheduleError(
                primitive, describe_loop(place.loop), "every statement under the loop is in a block"
            )
    blocks = realizes_under(place.loop.body)
    an = analyzer_at(place)
    for r in blocks:
        fault = _order_fault(place, r, an) or _overwriting_fault(place, r, shared, an)
        if fault is not None:
            raise ScheduleError(primitive, describe_loop(place.loop), fault, about=(r.block.name,))
    if len(blocks) > 1:
        _require_no_exchange(primitive, place, blocks)


def _order_fault(place: LoopPlace, realize: BlockRealize, an: Analyzer) -> str | None:
    block = realize.block
    for iv in block.iter_vars:
        if iv.kind not in ("spatial", "reduce"):
            return (
                f"all axes are spatial or reduce; axis {iv.var.name} of block {block.name!r} "
                f"is {iv.kind}"
            )
    effect = _effect_fault(block)
    if effect is not None:
        return effect
    changed = written(block)
    for iv, value in zip(block.iter_vars, realize.iter_values, strict=True):
        if any(isinstance(n, BufferLoad) and n.buffer in changed for n in walk(value)):
            return (
                f"no iteration depends on another; axis {iv.var.name} of block {block.name!r} is "
                f"bound to {value}, which the block changes"
            )
    for w in block.writes:
        for r in block.reads:
            if r.buffer is not w.buffer or same_region(r, w):
                continue
            if not (
                _share_none(place, (realize, w), (realize, r), an)
                or _reads_what_none_writes(place, realize, w, an)
            ):
                return (
                    f"no iteration depends on another; block {block.name!r} reads "
                    f"{w.buffer.name} elsewhere than where it writes it"
                )
    return None


def _reads_what_none_writes(
    place: LoopPlace, realize: BlockRealize, w: BufferRegion, an: Analyzer
) -> bool:
    """True if each load from a buffer that a block stores to is of the element that it stores to,
    or of one that it stores to in no iteration: before, or behind, all of these in one dimension,
    as the pivot row of an elimination is."""
    block = realize.block
    if block.match_buffers or realizes_under(block.body):
        return False
    stored = tuple(x.min for x in w.region)
    inside = [n for s in (block.init, block.body) if s is not None for n in walk(s)]
    loads = [n.indices for n in inside if isinstance(n, BufferLoad) and n.buffer is w.buffer]
    others = [indices for indices in loads if indices != stored]
    path = path_to(place.loop, lambda s: s is realize)
    if path is None or any(x.extent != ONE for x in w.region):
        return False
    loops = [s for s in path if isinstance(s, For)]
    binding = binding_of(realize)
    to = [substitute(i, binding) for i in stored]
    return all(
        are_never_equal([substitute(i, binding) for i in indices], to, loops, an)
        for indices in others
    )


def same_region(a: BufferRegion, b: BufferRegion) -> bool:
    """True if two regions are the same, expression by expression."""
    pairs = zip(a.region, b.region, strict=True)
    return a.buffer is b.buffer and all(x.min == y.min and x.extent == y.extent for x, y in pairs)


def require_own_elements(
    primitive: str, place: LoopPlace, scopes: tuple[str, ...] = ("global",)
) -> None:
    """Raise ScheduleError unless iterations that run at once write elements of their own, in the
    buffers of the given scopes, which they share.

    Two may store the same value to an element, as where compute_at has each make the neighbours
    that it reads: both run the same instance of a block (`require_order_free` sees to it). An
    element with several stages (an accumulation, a sort in place, or two blocks that write it)
    would be seen half made by the other iteration.
    """
    if place.loop.extent == ONE:
        return
    an = analyzer_at(place)
    writes: dict[Buffer, list[tuple[BlockRealize, BufferRegion]]] = {}
    for r in realizes_under(place.loop.body):
        for w in r.block.writes:
            if w.buffer.scope in scopes and not is_independent(r.block):
                writes.setdefault(w.buffer, []).append((r, w))
    for buffer, made in writes.items():
        staged = len(made) > 1 or any(_in_stages(r.block, buffer) for r, _ in made)
        if staged and not _own_elements(place, made, an):
            block = made[0][0].block
            raise ScheduleError(
                primitive, describe_loop(place.loop),
                f"each iteration provably writes elements of {buffer.name} that no other one "
                f"does; block {block.name!r} builds them up in several stores",
                suggestion=f"set_scope({block.name!r}, 0, 'local'), or run the loop serially",
                about=(block.name, buffer),
            )  # fmt: skip


def _accumulates(block: Block, buffer: Buffer) -> bool:
    return block.init is not None or buffer in read(block)


def _in_stages(block: Block, buffer: Buffer) -> bool:
    """True if an element of the buffer may have another value before the block is through: it has
    several stores, or reads what it stored, as a sort in place does."""
    body = list(walk(block.body))
    stores = sum(isinstance(n, BufferStore) and n.buffer is buffer for n in body)
    loads = any(isinstance(n, BufferLoad) and n.buffer is buffer for n in body)
    return _accumulates(block, buffer) or stores > 1 or loads


def _own_elements(
    place: LoopPlace, made: list[tuple[BlockRealize, BufferRegion]], an: Analyzer
) -> bool:
    """True if the element that one of the regions of a buffer has in common with another, or with
    itself in another instance of its block, determines the iteration of the loop."""
    pairs = combinations_with_replacement(made, 2)
    return all(_share_none(place, first, second, an) for first, second in pairs)


def _share_none(
    place: LoopPlace,
    first: tuple[BlockRealize, BufferRegion],
    second: tuple[BlockRealize, BufferRegion],
    an: Analyzer,
) -> bool:
    """True if no element of the first region is one of the second in another iteration."""
    with an.scope():
        bind_stmt(an, place.loop)
        loaded: dict[PrimExpr, Var] = {}
        (a, env), (b, other) = (_places(place, r, w, loaded, an) for r, w in (first, second))
        spans: dict[Var, Span | None] = {**env, **other}
        common = [in_common(x, y, spans, an) for x, y in zip(a, b, strict=True)]
        if determines(common, place.loop.loop_var, spans, an):
            return True
        # Axes keep to their domains, which the loops of tiles go beyond.
        told = _axes_told_by(*first, an) if first == second else []
        fixed = partial(with_fixed_loads, env=env, changing=_changing(place), loaded=loaded)
        common += [fixed(an.simplify(v)) for v in told]
        return bool(told) and determines(common, place.loop.loop_var, spans, an)


def _places(
    place: LoopPlace,
    realize: BlockRealize,
    region: BufferRegion,
    loaded: dict[PrimExpr, Var],
    an: Analyzer,
) -> tuple[list[PrimExpr], dict[Var, Span | None]]:
    """The index of an element of the region, and the spans of what varies in it."""
    path = path_to(place.loop, lambda s: s is realize)
    assert path is not None
    for s in path[1:-1]:
        bind_stmt(an, s)
    bound = {s.var: None for s in path if isinstance(s, LetStmt)}
    env = loop_env([s for s in path if isinstance(s, For)], an, bound)
    fixed = partial(with_fixed_loads, env=env, changing=_changing(place), loaded=loaded)
    return _index(substitute(region, binding_of(realize)), fixed, env, an), env


def _last_of(last: PrimExpr, env: Mapping[Var, Span | None], an: Analyzer) -> Span | None:
    """The span of the last place within a region: of a segment, the one that it has itself."""
    loads = [n for n in walk(last) if isinstance(n, BufferLoad)]
    if loads and all(n.buffer.facts for n in loads):
        return Span(last, last)
    return span_of(last, env, an)


def _changing(place: LoopPlace) -> set[Buffer]:
    """The buffers that the iterations of the loop write."""
    return {b for r in realizes_under(place.loop.body) for b in written(r.block)}


def _index(
    region: BufferRegion,
    fixed: Callable[[PrimExpr], PrimExpr],
    env: dict[Var, Span | None],
    an: Analyzer,
) -> list[PrimExpr]:
    """The index of an element of a region in terms of `env`, as `fixed` writes it: plus a variable,
    which joins `env`, where the region is longer than one element along a dimension."""
    result: list[PrimExpr] = []
    for r in region.region:
        index = fixed(an.simplify(r.min))
        if r.extent != ONE:
            within = Var("t", index.dtype)
            last = _last_of(an.simplify(r.extent - 1), env, an)
            env[within] = None if last is None else Span(expr.const(0, index.dtype), last.hi)
            if last is not None:
                an.bind_range(within, Range(expr.const(0, index.dtype), last.hi + 1))
            index = index + within
        result.append(index)
    return result


def _overwriting_fault(
    place: LoopPlace, realize: BlockRealize, shared: tuple[str, ...], an: Analyzer
) -> str | None:
    """Return a message if the last of several iterations decides the value of an element: if
    instances of a block that differ between iterations overwrite the same one."""
    block = realize.block
    for w in block.writes:
        if _accumulates(block, w.buffer) or w.buffer.scope not in shared or is_independent(block):
            continue
        axes = undetermined_axes(block, w, _loops_around(place, realize), an)
        if axes and not _own_elements(place, [(realize, w)], an):
            return (
                "the order of iterations does not matter; instances of block "
                f"{block.name!r} with different {axes[0].name} may write one element of "
                f"{w.buffer.name}"
            )
    return None


def _effect_fault(block: Block) -> str | None:
    for call in walk(block.body):
        if isinstance(call, expr.Call) and has_unknown_effect(call):
            return (
                f"no call does more than return a value; block {block.name!r} calls "
                f"{call.args[0]}, which may (T.call_pure_extern says that it does not)"
            )
    return None


def require_known_effects(primitive: str, place: BlockPlace) -> None:
    """Raise ScheduleError for a block whose calls may do more than return values: computed
    elsewhere, they would be made in another order or another number of times."""
    fault = _effect_fault(place.block)
    if fault is not None:
        raise ScheduleError(primitive, describe_block(place.block), fault)


def require_inputs_kept(
    primitive: str, place: BlockPlace, destinations: Iterable[Iterable[Stmt]]
) -> None:
    """Raise ScheduleError if a loop around a block, but not around the statements that it moves to,
    fills what the block reads anew in each iteration, such as a panel. `destinations` are these
    statements with those around them."""
    paths = [list(path) for path in destinations]
    for depth, loop in enumerate(place.path[:-1]):
        if not isinstance(loop, For) or all(any(s is loop for s in path) for path in paths):
            continue
        at = LoopPlace(place.func, place.path[: depth + 1])
        an = analyzer_at(at)
        for r in realizes_under(loop.body):
            for w in r.block.writes if r.block is not place.block else ():
                if w.buffer not in read(place.block):
                    continue
                anew = undetermined_axes(r.block, w, _loops_around(at, r), an)
                if anew and not _own_elements(at, [(r, w)], an):
                    raise ScheduleError(
                        primitive, describe_block(place.block),
                        f"what it reads stays until it is computed; {describe_loop(loop)} fills "
                        f"{w.buffer.name} anew in each iteration, in block {r.block.name!r}",
                        about=(r.block.name, w.buffer),
                    )  # fmt: skip


def _loops_around(place: LoopPlace, realize: BlockRealize) -> list[For]:
    """All loops around a block under the loop."""
    path = path_to(place.loop, lambda s: s is realize)
    assert path is not None
    return [s for s in (*place.path, *path[1:]) if isinstance(s, For)]


def undetermined_axes(
    block: Block, region: BufferRegion, loops: Iterable[For], an: Analyzer
) -> list[Var]:
    """The axes of the block, which is within the loops, in which two instances that write the same
    element may differ."""
    open_axes = [iv.var for iv in block.iter_vars if iv.dom.extent != ONE]
    told = _determined_axes(block, region, open_axes, an, loops)
    return [v for v in open_axes if v not in told]


def _determined_axes(
    block: Block, region: BufferRegion, axes: Iterable[Var], an: Analyzer,
    loops: Iterable[For] = (),
) -> list[Var]:  # fmt: skip
    """The axes in which no two instances of the block differ that touch the same element, in any
    iterations of the loops."""
    # A compacted buffer is indexed by where an axis is from its loop: by both.
    env = {**axis_env(block), **loop_env(loops, an)}
    with an.scope():
        bind_stmt(an, block)
        fixed = partial(with_fixed_loads, env=env, changing=written(block), loaded={})
        index = _index(region, fixed, env, an)
        return [v for v in axes if determines(index, v, env, an)]


def _axes_told_by(realize: BlockRealize, region: BufferRegion, an: Analyzer) -> list[PrimExpr]:
    """The values of the axes that an element of the region determines."""
    bound = binding_of(realize)
    told = _determined_axes(realize.block, region, bound, an)
    return [bound[v] for v in told if vars_in(bound[v])]


def is_independent(block: Block) -> bool:
    """True if the author of the block states that its instances write elements of their own: where
    data says which, no proof can."""
    return block.annotations.get("independent") is True


def _require_no_exchange(primitive: str, place: LoopPlace, blocks: list[BlockRealize]) -> None:
    """Raise ScheduleError if an iteration may read a value that another one writes."""
    an = analyzer_in(place)
    made_here = {b for r in blocks for b in written(r.block)}

    @cache
    def made(writer: int) -> list[tuple[Buffer, tuple[Span, ...]]]:
        """The buffers and regions that a block writes in full in one iteration."""
        r = blocks[writer]
        found = ((w.buffer, region_written(w, r, place, an)) for w in r.block.writes)
        return [(buffer, spans) for buffer, spans in found if spans is not None]

    for i, reader in enumerate(blocks):
        for buffer in dict.fromkeys(read(reader.block)):
            others = [r for r in blocks if r is not reader and buffer in written(r.block)]
            if buffer not in made_here or not others:
                continue
            earlier = [k for k, r in enumerate(blocks[:i]) if buffer in written(r.block)]
            regions = [spans for k in earlier for b, spans in made(k) if b is buffer]
            if not _made_before(buffer, reader, regions, place, an) and not all(
                _share_none(place, (r, w), (reader, x), an)
                for r in others for w in r.block.writes if w.buffer is buffer
                for x in reader.block.reads if x.buffer is buffer
            ):  # fmt: skip
                raise ScheduleError(
                    primitive, describe_loop(place.loop),
                    f"no iteration depends on another; what block {reader.block.name!r} reads of "
                    f"{buffer.name} is not all written before in the same iteration",
                    suggestion="compute_at the producer under the loop",
                    about=(reader.block.name, buffer),
                )  # fmt: skip


def _made_before(
    buffer: Buffer,
    reader: BlockRealize,
    regions: list[tuple[Span, ...]],
    place: LoopPlace,
    an: Analyzer,
) -> bool:
    """True if one of the regions has all that the reader needs in one iteration."""
    needed = [spans_under(x, reader, place, an) for x in reader.block.reads if x.buffer is buffer]
    return all(any(_covers_region(m, n, buffer, an) for m in regions) for n in needed)


def _covers_region(
    made: tuple[Span, ...], needed: tuple[Span, ...], buffer: Buffer, an: Analyzer
) -> bool:
    dims = zip(made, needed, buffer.shape, strict=True)
    return all(covers_inside(m, n, dim, an) for m, n, dim in dims)
