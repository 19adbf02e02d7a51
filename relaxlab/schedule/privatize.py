"""privatize: results of a reduction accumulate in private memory, and are stored when complete.

`cache_write` copies whole regions of a buffer. Where sequences lie behind each other, the elements
that a tile makes are no region: rows of a matrix of `n[i]` columns are at `z[i] + r*n[i] + c`. The
private buffer has the shape of the tile instead, an index for each of its loops.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from relaxlab.ir import expr, loops
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    IterVar,
    PrimFunc,
    Range,
    Stmt,
    nested,
)
from relaxlab.ir.node import Node, replace, rewrite
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.annotate import require_in_turn
from relaxlab.schedule.dependence import require_own_elements
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.exact_region import beyond_domain
from relaxlab.schedule.order import require_reassociable
from relaxlab.schedule.ranges import ONE, ZERO, analyzer_at, require_constant_extents
from relaxlab.schedule.regions import refreshed, with_alloc
from relaxlab.schedule.rfactor import Reduction, reduction_of
from relaxlab.schedule.scope import axis_kinds, is_reduction
from relaxlab.schedule.tree import (
    BlockPlace,
    conjuncts,
    describe_block,
    describe_loop,
    find_block,
    find_loop,
    fresh_block_name,
    fresh_buffer_name,
    vars_in,
    with_fresh_binders,
)


def privatize(
    func: PrimFunc, name: str, var: Var, lane: Var | None
) -> tuple[PrimFunc, str, tuple[str, ...]]:
    """Accumulate what a block makes in one iteration of a loop in a private buffer.

    The loops inside that are over results have constant extents. Where loops over terms are around
    `var`, the results are initialised before these, and each iteration goes on from what they are.
    `lane`: a loop over terms inside, each of whose iterations gets a partial result; all loops over
    terms are inside then. Returns the function and the names of the block that accumulates
    (`X_update`) and of the others: those that initialise (`X_init`), load where that is needed
    (`X_load`), and store (`X_store`).
    """
    place = find_block(func, name, "privatize")
    tile = _tile(place, find_loop(func, var, "privatize").loop, lane)
    buffer = tile.reduction.buffer
    private = Buffer(
        fresh_buffer_name(func, f"{buffer.name}_private"),
        tuple(loop.extent for loop in tile.kept) or (ONE,), buffer.dtype, scope="local",
    )  # fmt: skip
    around = place.loops[: place.loops.index(tile.around) + 1]
    require_in_turn("privatize", around, private.name)
    init, load, update, store = (
        fresh_block_name(func, f"{name}_{what}") for what in ("init", "load", "update", "store")
    )
    first = (_initialised if tile.terms is None else _loaded)(
        tile, private, init if tile.terms is None else load
    )
    parts = (first, _accumulated(tile, private, update), _stored(tile, private, store))
    changed = place.replaced(loops.seq(*parts), place.path.index(tile.around) + 1)
    if tile.terms is not None:
        terms = find_loop(changed, tile.terms.loop_var)
        changed = terms.replaced(loops.seq(_before_terms(tile, tile.terms, init), terms.loop))
    names = (init, store) if tile.terms is None else (init, load, store)
    return with_alloc(changed, place.scope.name, private), update, names


Bound: TypeAlias = tuple[IterVar, PrimExpr]
"""An axis of a block and its value."""


@dataclass(frozen=True, slots=True)
class _Tile:
    """The loops inside `around`, and the block in them. kept: those with an element of the private
    buffer for each iteration; results: those of them that are not `lane`. terms: the outermost loop
    over terms around, if there is one."""

    place: BlockPlace
    around: For
    inner: tuple[For, ...]
    kept: tuple[For, ...]
    results: tuple[For, ...]
    lane: For | None
    reduction: Reduction
    terms: For | None

    def nest(self, loops_: tuple[For, ...], body: Stmt) -> Stmt:
        """The body in copies of some of the loops."""
        return with_fresh_binders(nested(loops_, body))

    def with_axes(self, pairs: list[Bound]) -> tuple[list[Bound], tuple[PrimExpr, ...]]:
        """Axes and their values, with one that is bound to each of the kept loops; and the element
        of the private buffer in terms of these."""
        bound = {value: iv.var for iv, value in pairs if isinstance(value, Var)}
        new = {
            s.loop_var: IterVar(Var(f"v{s.loop_var.name}"), Range(ZERO, s.extent), "spatial")
            for s in self.kept if s.loop_var not in bound
        }  # fmt: skip
        of_loop = {**bound, **{v: iv.var for v, iv in new.items()}}
        at = tuple(of_loop[s.loop_var] for s in self.kept) or (ZERO,)
        return [*pairs, *((iv, v) for v, iv in new.items())], at


def _tile(place: BlockPlace, around: For, lane: Var | None) -> _Tile:
    """Raise ScheduleError unless the loops inside of `around` are those of a tile."""
    block, what = place.block, describe_block(place.block)
    found = reduction_of(block)
    if found is None or not isinstance(block.init, BufferStore) or not is_reduction(
        block, place.scope
    ):  # fmt: skip
        raise ScheduleError(
            "privatize", what,
            "the block is a reduction with its initialisation, one store X[…] = X[…] op value with "
            "op one of +, *, min, max",
        )  # fmt: skip
    if not any(loop is around for loop in place.loops):
        raise ScheduleError(
            "privatize", describe_loop(around), f"the loop is around block {block.name!r}",
            about=(around.loop_var,),
        )  # fmt: skip
    inner = place.loops[place.loops.index(around) + 1 :]
    if place.path[place.path.index(around) + 1 : -1] != inner:
        raise ScheduleError(
            "privatize", describe_loop(around), "nothing but loops is between it and the block",
            about=(around.loop_var,),
        )  # fmt: skip
    kinds = {loop.loop_var: axis_kinds(place.realize, loop.loop_var) for loop in place.loops}
    outside = [s for s in place.loops if s not in inner and "reduce" in kinds[s.loop_var]]
    terms = outside[0] if outside else None
    tiled = inner if terms is None else place.loops[place.loops.index(terms) :]
    mixed = [s for s in tiled if len(kinds[s.loop_var]) != 1 and s.extent != ONE]
    for loop in (*(outside if lane is not None else ()), *mixed):
        raise ScheduleError(
            "privatize", describe_loop(loop),
            f"each loop from the outermost one over terms is over results or over terms, and with "
            f"a lane all of them are inside {describe_loop(around)}",
            about=(loop.loop_var,),
        )  # fmt: skip
    results = tuple(s for s in inner if kinds[s.loop_var] == {"spatial"})
    partial = next((s for s in inner if s.loop_var is lane), None)
    if lane is not None:
        require_reassociable("privatize", place.func, block)
        if partial is None or partial in results:
            raise ScheduleError(
                "privatize", f"loop {lane.name}", "the lane is a loop over terms inside",
                about=(lane,),
            )  # fmt: skip
    kept = tuple(s for s in inner if s in results or s is partial)
    _require_tile(place, kept, results)
    if terms is not None:
        _require_begun(place, terms, tuple(s for s in tiled if kinds[s.loop_var] == {"spatial"}))
    return _Tile(place, around, inner, kept, results, partial, found, terms)


def _require_begun(place: BlockPlace, terms: For, results: tuple[For, ...]) -> None:
    """Raise ScheduleError unless all results of the loops inside of `terms` can be initialised
    before it, each once."""
    path = place.path[place.path.index(terms) :]
    if not all(isinstance(s, For) for s in path[:-1]):
        raise ScheduleError(
            "privatize", describe_loop(terms), "nothing but loops is between it and the block",
            about=(terms.loop_var,),
        )  # fmt: skip
    inside = {s.loop_var for s in path[:-1] if isinstance(s, For)} - {s.loop_var for s in results}
    for loop in results:
        require_own_elements("privatize", find_loop(place.func, loop.loop_var))
        if (vars_in(loop.min) | vars_in(loop.extent)) & inside:
            raise ScheduleError(
                "privatize", describe_loop(loop), "no loop over results is as long as one over "
                "terms says", about=(loop.loop_var,),
            )  # fmt: skip


def _require_tile(
    place: BlockPlace, kept: tuple[For, ...], results: tuple[For, ...]
) -> None:
    """Raise ScheduleError unless the private buffer has a constant size, each iteration over
    results a result of its own, and each result a value that no condition on terms decides."""
    require_constant_extents("privatize", kept)
    for loop in results:
        require_own_elements("privatize", find_loop(place.func, loop.loop_var))
    terms = {s.loop_var for s in place.loops if "reduce" in axis_kinds(place.realize, s.loop_var)}
    for c in beyond_domain(place.realize, analyzer_at(place)):
        if vars_in(c) & terms:
            raise ScheduleError(
                "privatize", describe_block(place.block),
                f"conditions on terms only keep axes in their domains; {c} leaves others out",
            )  # fmt: skip


def _initialised(tile: _Tile, private: Buffer, name: str) -> Stmt:
    block = tile.place.block
    assert isinstance(block.init, BufferStore)
    value = block.init.value if tile.lane is None else tile.reduction.identity
    if vars_in(value) & {iv.var for iv in block.iter_vars}:
        raise ScheduleError(
            "privatize", describe_block(block), "all results have the same initial value",
        )  # fmt: skip
    # A leaf block keeps one axis, which tells it from the root.
    pairs, at = tile.with_axes([])
    pairs = pairs or [(IterVar(Var("v"), Range(ZERO, ONE), "spatial"), ZERO)]
    axes = tuple(iv for iv, _ in pairs)
    store = BufferStore(private, value, at)
    made = refreshed(Block(name, axes, (), (), store, span=block.span))
    return tile.nest(tile.kept, BlockRealize(tuple(v for _, v in pairs), expr.const(True), made))


def _before_terms(tile: _Tile, terms: For, name: str) -> Stmt:
    """The nest that initialises the results, for the loops over results from `terms` on."""
    place, block = tile.place, tile.place.block
    assert isinstance(block.init, BufferStore)
    around = tuple(
        s for s in place.loops[place.loops.index(terms) :]
        if axis_kinds(place.realize, s.loop_var) == {"spatial"}
    )  # fmt: skip
    pairs, conditions = _of_results(tile)
    axes, values = tuple(iv for iv, _ in pairs), tuple(v for _, v in pairs)
    made = refreshed(Block(name, axes, (), (), block.init, span=block.span))
    return tile.nest(around, BlockRealize(values, expr.all_of(conditions), made))


def _of_results(tile: _Tile) -> tuple[list[Bound], list[PrimExpr]]:
    """The axes that are over results with their values, and the conditions on them alone."""
    place = tile.place
    pairs = [
        (iv, value)
        for iv, value in zip(place.block.iter_vars, place.realize.iter_values, strict=True)
        if iv.kind == "spatial"
    ]
    terms = {s.loop_var for s in place.loops if "reduce" in axis_kinds(place.realize, s.loop_var)}
    conditions = [c for c in conjuncts(place.realize.predicate) if not vars_in(c) & terms]
    return pairs, conditions


def _loaded(tile: _Tile, private: Buffer, name: str) -> Stmt:
    """The block that goes on from the results of earlier terms."""
    pairs, conditions = _of_results(tile)
    pairs, at = tile.with_axes(pairs)
    value = BufferLoad(tile.reduction.buffer, tile.reduction.indices)
    axes, values = tuple(iv for iv, _ in pairs), tuple(v for _, v in pairs)
    store = BufferStore(private, value, at)
    made = refreshed(Block(name, axes, (), (), store, span=tile.place.block.span))
    return tile.nest(tile.kept, BlockRealize(values, expr.all_of(conditions), made))


def _accumulated(tile: _Tile, private: Buffer, name: str) -> Stmt:
    buffer, block, realize = tile.reduction.buffer, tile.place.block, tile.place.realize
    pairs = list(zip(block.iter_vars, realize.iter_values, strict=True))
    pairs, table = _without_lane(pairs, tile) if tile.lane is not None else (pairs, {})
    pairs, at = tile.with_axes(pairs)

    def visit(n: Node) -> Node | None:
        match n:
            case BufferLoad(b) if b is buffer:
                return BufferLoad(private, at)
            case BufferStore(b, value) if b is buffer:
                return BufferStore(private, value, at)
            case _:
                return None

    body = substitute(rewrite(block.body, visit), table)
    axes = tuple(iv for iv, _ in pairs)
    update = refreshed(replace(block, name=name, iter_vars=axes, init=None, body=body))
    values = tuple(v for _, v in pairs)
    return nested(tile.inner, replace(realize, iter_values=values, block=update))


def _without_lane(pairs: list[Bound], tile: _Tile) -> tuple[list[Bound], dict[Var, PrimExpr]]:
    """Axes and their values, with loops as axes instead of a reduce axis that the lane is part of,
    of which the lane's is spatial; and what that axis is in terms of these."""
    assert tile.lane is not None
    ranges = {s.loop_var: Range(s.min, s.extent) for s in tile.inner}
    kept, table = list[Bound](), dict[Var, PrimExpr]()
    of_loop: dict[Var, PrimExpr] = {v: iv.var for iv, v in pairs if isinstance(v, Var)}
    for iv, value in pairs:
        if tile.lane.loop_var not in vars_in(value):
            kept.append((iv, value))
            continue
        for v in sorted(vars_in(value) & ranges.keys(), key=lambda v: v.name):
            dom = substitute(ranges[v], of_loop)
            if vars_in(dom) & {s.loop_var for s in tile.place.loops}:
                raise ScheduleError(
                    "privatize", f"loop {v.name}",
                    "its extent depends on loops that are one axis of the block each",
                    suggestion="privatize before splitting those", about=(v,),
                )  # fmt: skip
            kind = "spatial" if v is tile.lane.loop_var else "reduce"
            axis = IterVar(Var(f"v{v.name}"), dom, kind)
            kept.append((axis, v))
            of_loop[v] = axis.var
        table[iv.var] = substitute(value, of_loop)
    return kept, table


def _stored(tile: _Tile, private: Buffer, name: str) -> Stmt:
    """The block that stores the results, or combines their partial results."""
    place, reduction = tile.place, tile.reduction
    pairs, conditions = _of_results(tile)
    pairs, at = tile.with_axes(pairs)
    pairs = [
        (replace(iv, kind="reduce") if tile.lane and v is tile.lane.loop_var else iv, v)
        for iv, v in pairs
    ]
    target = BufferLoad(reduction.buffer, reduction.indices)
    value: PrimExpr = BufferLoad(private, at)
    init: Stmt | None = None
    if tile.lane is not None:
        value = reduction.combined(target, value)
        init = BufferStore(target.buffer, reduction.identity, target.indices)
    store = BufferStore(target.buffer, value, target.indices)
    axes = tuple(iv for iv, _ in pairs)
    block = refreshed(Block(name, axes, (), (), store, init, span=place.block.span))
    values = tuple(v for _, v in pairs)
    return tile.nest(tile.kept, BlockRealize(values, expr.all_of(conditions), block))
