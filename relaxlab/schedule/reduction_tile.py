"""Tiles of a cascade of reductions: rows of an outer axis, and chunks of the shared axis."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar, cast

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.regions import access_regions
from relaxlab.ir import expr, loops
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    IterKind,
    IterVar,
    Nondecreasing,
    PrimFunc,
    Range,
    Stmt,
)
from relaxlab.ir.node import Node, replace, rewrite
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.cascade import Cascade, axes_of, loads_in
from relaxlab.schedule.ranges import ZERO, bind_stmt, shape_analyzer
from relaxlab.schedule.tree import TRUE
from relaxlab.schedule.visible_terms import visible_range

N = TypeVar("N", bound=Node)
Local = Mapping[Var, Var]
"""The axes of a block inside the tile, by those of the cascade."""
Load = Callable[[Buffer], PrimExpr]
"""The element of a private buffer at the axes of a block."""
Values = Callable[[Load], list[tuple[Buffer, PrimExpr]]]
"""Buffers and what is stored into them, in order."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes that `fuse_reductions` is given. `cuts`: an index function with the first row of
    each piece and the number of all rows; no tile has rows of two pieces."""

    rows: int
    chunk: int
    multiple: int
    width: int
    parts: int
    workers: int
    whole: bool
    cuts: Buffer | None = None


@dataclass(frozen=True, slots=True)
class Tile:
    """The place of a tile. `place`: the outer axes, `row` being the first row; `end`: the row
    behind the last one that the tile may have; `extents`: the number of each axis inside; `start`:
    the first point of the chunk of the shared axis, of which `exact` exist and are seen by some
    row, after `seen` of chunks before; `private`: the tile's buffers, by those of the function that
    they replace; `analyzer` knows the ranges of all axes outside. Where there are workers, the axis
    `worker` is the first of all blocks and buffers: each has a chunk and running results of its
    own. `whole`: reductions take all points of a chunk."""

    cascade: Cascade
    row: Var
    place: Mapping[Var, PrimExpr]
    end: PrimExpr
    extents: Mapping[Var, PrimExpr]
    start: PrimExpr
    seen: PrimExpr
    exact: PrimExpr
    private: Mapping[Buffer, Buffer]
    analyzer: Analyzer
    whole: bool
    worker: Var | None = None

    @property
    def workers(self) -> list[Var]:
        """The axis of the workers, if there are several."""
        return [] if self.worker is None else [self.worker]

    @property
    def _ends_early(self) -> bool:
        """True for a tile of a piece: the rows behind it may be another's."""
        return self.end is not self.cascade.extents[self.row]

    def inner(self, buffer: Buffer) -> list[Var]:
        """The axes of a private buffer: workers, rows, points of the shared axis, others."""
        dims = self.cascade.dims[buffer]
        first = [a for a in (self.row, self.cascade.axis) if a in dims]
        others = (a for a in dims if a not in (*first, *self.cascade.outer))
        return [*self.workers, *first, *others]

    def moved(self, s: N, local: Local, private: Mapping[Buffer, Buffer]) -> N:
        """Return a statement or value of a block for the tile's rows and the chunk's points. Rows
        past the end are computed from the last row."""
        values: dict[Var, PrimExpr] = {**self.place, **local}
        # Clamping instead of a guard on each row: guarded rows would keep the sums of the last
        # tile in memory (NOTES, *The last tile*). Their results are not stored.
        values[self.row] = expr.Min(self.place[self.row] + local[self.row], self.end - 1)
        if self.cascade.axis in local:
            start = self.start
            if self.worker is not None:
                start = start + local[self.worker] * self.extents[self.cascade.axis]
            values[self.cascade.axis] = start + local[self.cascade.axis]

        def visit(n: Node) -> Node | None:
            match n:
                case Var() if n in values:
                    return values[n]
                case BufferLoad(b) | BufferStore(b) if b in private:
                    at = tuple(local[a] for a in self.inner(b))
                    return replace(n, buffer=private[b], indices=at)
                case _:
                    return None

        return rewrite(s, visit)

    def is_stored(self, buffer: Buffer) -> bool:
        """True for a result that is used after the tile alone: it has no private buffer."""
        inside = {n.buffer for b in self.cascade.blocks for n in loads_in(b.body)}
        return buffer in self.cascade.shared and buffer not in inside

    def where_there(self, s: Stmt, block: Block, local: Local) -> Stmt:
        """A statement for the rows and features of a result that are there."""
        row, extents = self.place[self.row] + local[self.row], self.cascade.extents
        axes = [(local[a], extents[a]) for a in self.padded(block)]
        axes += [] if self._ends_early else [(row, self.end)]
        conditions: list[PrimExpr] = [expr.LT(at, extent) for at, extent in axes]
        return loops.IfThenElse(expr.all_of(conditions), s) if conditions else s

    def padded(self, block: Block) -> list[Var]:
        """The axes of the block that are rounded up, besides rows and the shared axis."""
        cut = (self.row, self.cascade.axis)
        known = self.cascade.extents
        return [a for a in axes_of(block) if a not in cut and self.extents[a] != known[a]]

    def block(
        self, name: str, kinds: Mapping[Var, IterKind],
        body: Callable[[Local], tuple[Stmt, Stmt | None]], *, exact: bool = False,
    ) -> Stmt:  # fmt: skip
        """A block over axes of the given kinds, in loops of its own. Of results with further axes,
        no rows are computed that are of another piece than the tile's."""
        extents = {**self.extents, self.cascade.axis: self.exact} if exact else self.extents
        if self._ends_early and any(a in kinds for a in self.cascade.further):
            there = expr.Min(extents[self.row], self.end - self.place[self.row])
            extents = {**extents, self.row: there}
        local = {a: Var(f"v{a.name.removeprefix('v')}") for a in kinds}
        axes = tuple(IterVar(local[a], Range(ZERO, extents[a]), kind) for a, kind in kinds.items())
        does, init = body(local)
        return nest_of(with_regions(Block(name, axes, (), (), does, init), self.analyzer))

    def step(
        self, block: Block, private: Mapping[Buffer, Buffer], name: str = "", *,
        exact: bool = False,
    ) -> Stmt:  # fmt: skip
        """Return a block of the function for one chunk; `private` has the buffers that it uses."""
        kinds: dict[Var, IterKind] = dict.fromkeys(self.workers, "spatial")
        kinds |= {
            it.var: it.kind for it in block.iter_vars
            if it.var == self.row or it.var not in self.cascade.outer
        }  # fmt: skip

        def body(local: Local) -> tuple[Stmt, Stmt | None]:
            init = None if block.init is None else self.moved(block.init, local, private)
            return self.moved(block.body, local, private), init

        return self.block(name or block.name, kinds, body, exact=exact)

    def stores(self, name: str, like: Buffer, values: Values) -> Stmt:
        """A block over the axes of the private buffer of `like` that stores values, in order;
        `values` gets a function that loads from buffers by as many of these axes."""
        kinds: dict[Var, IterKind] = dict.fromkeys(self.inner(like), "spatial")

        def body(local: Local) -> tuple[Stmt, None]:
            at = tuple(local.values())
            found = values(lambda b: BufferLoad(b, at[: b.ndim]))
            return loops.seq(*(BufferStore(b, v, at[: b.ndim]) for b, v in found)), None

        return self.block(name, kinds, body)


def with_regions(block: Block, an: Analyzer) -> Block:
    with an.scope():
        bind_stmt(an, block)
        reads, writes = access_regions(block, an)
    return replace(block, reads=reads, writes=writes)


def nest_of(block: Block) -> Stmt:
    """The block in loops over its axes."""
    values = {it.var: Var(it.var.name.removeprefix("v")) for it in block.iter_vars}
    nest: Stmt = BlockRealize(tuple(values.values()), TRUE, block)
    for it in reversed(block.iter_vars):
        extent = substitute(it.dom.extent, dict(values))
        nest = For(values[it.var], it.dom.min, extent, "serial", nest)
    return nest


def cuts_of(func: PrimFunc, rows: PrimExpr) -> list[Buffer]:
    """The index functions that rise from 0 to `rows`, as the first rows of sequences do."""
    return [b for b in func.buffers if any(
        isinstance(f, Nondecreasing) and (f.first, f.last) == (ZERO, rows) for f in b.facts
    )]  # fmt: skip


def _as_index(load: BufferLoad) -> PrimExpr:
    return load if load.dtype == "int64" else expr.Cast("int64", load)


def tiles_of(
    func: PrimFunc, cascade: Cascade, row: Var, sizes: Sizes
) -> tuple[Tile, tuple[IterVar, ...], IterVar]:
    """Return the tile, and the axes of the tiles and of its chunks."""
    rows, chunk, multiple = sizes.rows, sizes.chunk, sizes.multiple
    fresh = {a: Var("vtile" if a is row else a.name) for a in cascade.outer}
    piece, base, end = Var("vpiece"), ZERO, cascade.extents[row]
    if sizes.cuts is not None:
        base, end = (_as_index(BufferLoad(sizes.cuts, (at,))) for at in (piece, piece + 1))
    place: dict[Var, PrimExpr] = {**fresh, row: base + fresh[row] * rows}
    last_row = expr.Min(place[row] + (rows - 1), end - 1)
    first, stop = visible_range(cascade, row, place, last_row)
    if sizes.cuts is None:
        # Chunks start at a multiple, so that vectors of positions are loaded from whole blocks.
        first = first // multiple * multiple
    number, part = Var("vchunk"), Var("vpart")
    step = chunk * sizes.workers
    trips, turn = _ceildiv(stop - first, step), cast("PrimExpr", number)
    if sizes.parts > 1:
        trips, turn = _ceildiv(trips - part, sizes.parts), number * sizes.parts + part
    seen = turn * step
    start = first + seen
    exact = expr.Min(expr.const(chunk), stop - start)
    worker, count = None, exact
    if sizes.workers > 1:
        worker, count = Var("worker"), expr.const(chunk)
    elif multiple > 1:
        left = _ceildiv(stop - start, multiple)
        count = expr.Min(expr.const(chunk // multiple), left) * multiple
    extents = {**cascade.extents, row: expr.const(rows), cascade.axis: count}
    extents |= {a: _rounded_up(extents[a], sizes.width) for a in cascade.further[-1:]}
    an = shape_analyzer(func)
    most = ((a, e, an.upper_bound(e)) for a, e in extents.items())
    room = {a: e if bound is None else expr.const(bound) for a, e, bound in most}
    room[cascade.axis] = expr.const(chunk)
    if worker is not None:
        extents[worker] = room[worker] = expr.const(sizes.workers)
    outer: tuple[IterVar, ...] = ()
    for a in cascade.outer:
        if a is row and sizes.cuts is not None:
            pieces = an.simplify(sizes.cuts.shape[0] - 1)
            outer = (*outer, _axis(piece, pieces, "spatial"))
        tiles = _ceildiv(end - base, rows) if a is row else cascade.extents[a]
        outer = (*outer, _axis(fresh[a], tiles, "spatial"))
    if sizes.parts > 1:
        outer = (*outer, _axis(part, expr.const(sizes.parts), "spatial"))
    chunks = _axis(number, trips, "scan")
    for axis in (*outer, chunks):
        an.bind_range(axis.var, axis.dom)
    private: dict[Buffer, Buffer] = {}
    # One worker may be at the end before the others, and all do as many steps.
    whole = sizes.whole or worker is not None
    tile = Tile(cascade, row, place, end, extents, start, seen, exact, private, an, whole, worker)
    for b in cascade.dims:
        if not tile.is_stored(b):
            shape = tuple(room[a] for a in tile.inner(b))
            private[b] = Buffer(b.name, shape, b.dtype, scope="local")
    return tile, outer, chunks


def _ceildiv(a: PrimExpr, b: int) -> PrimExpr:
    return (a + (b - 1)) // b


def _rounded_up(count: PrimExpr, multiple: int) -> PrimExpr:
    if isinstance(count, expr.IntImm):
        return expr.const(-(-count.value // multiple) * multiple)
    return count if multiple == 1 else _ceildiv(count, multiple) * multiple


def _axis(var: Var, extent: PrimExpr, kind: IterKind) -> IterVar:
    return IterVar(var, Range(ZERO, extent), kind)


