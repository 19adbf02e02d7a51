"""A space of schedules for any kernel: multi-level tiles, orders of loops, places of producers and
consumers, vectors and threads, each a decision.

The parts are those of sketches of tensor programs (Zheng et al., *Ansor: Generating
High-Performance Tensor Programs for Deep Learning*, section 4.1): producers are inlined or stored;
the largest reduction is tiled in levels, its results collected in private memory and stored with
what is computed of them; what remains shares the rows of the last block, or has loops of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from relaxlab.analysis.index_map import IndexMap
from relaxlab.ir.expr import Call, IntImm, Var
from relaxlab.ir.loops import Block, BufferLoad, IterVar
from relaxlab.ir.node import walk
from relaxlab.ir.substitute import symbols_in
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.rules.base import (
    Space,
    axis_loops,
    block_loops,
    blocks_of,
    constant,
    extent_of,
    found_block,
    is_spatial,
    output_dtype,
    split_vector,
    vectorize_inner,
    where_allowed,
)
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.rules.fallback import schedule_alone
from relaxlab.schedule.rules.reductions import fuse_neighbours, reduce_along_rows
from relaxlab.schedule.schedule import BlockRV, LoopRV, Schedule

GENERIC = "generic"
"""The name of the space."""
SIZES = (1, 2, 3, 4, 6, 8, 12, 16)
"""Sizes of tiles of an axis of unknown extent."""
POWERS = (1, 2, 4, 8)
FLAG = (False, True)
DEEPEST = 256
"""Most terms of an inner tile along one axis."""
USUAL = 64
"""The extent that an unknown one counts as, where extents are compared."""


def generic_space(context: Context) -> Space:
    """The space for a kernel that is scheduled in a context."""
    return partial(_schedule, context=context)


def _schedule(sch: Schedule, context: Context) -> Schedule:
    _inline(sch)
    reductions = [b for b in blocks_of(sch.func) if not is_spatial(b) and _is_tileable(b)]
    largest = max(reductions, key=_iterations, default=None)
    tiled = largest is not None and sch.sample_categorical("tiled", FLAG, _reuses(largest))
    if largest is not None and tiled:
        done = _Tiled(sch, context, largest.name).schedule()
        for block in blocks_of(sch.func):
            if block.name not in done:
                _alone(sch, block.name, context)
    else:
        _rows(sch, context)
    sch.compact_buffers()
    where_allowed(sch.round_up_tails)
    where_allowed(sch.round_up_vectors)
    return sch


def _inline(sch: Schedule) -> None:
    """Compute producers where they are read, or store them."""
    for block in blocks_of(sch.func)[:-1]:
        if not is_spatial(block):
            continue
        rv, made = sch.get_block(block.name), block.writes[0].buffer
        readers = [b for b in blocks_of(sch.func) if any(r.buffer is made for r in b.reads)]
        again = max(map(_iterations, readers), default=0) > _iterations(block)
        again |= len(readers) > 1 and any(isinstance(n, Call) for n in walk(block.body))
        trial = sch.copy()
        try:
            trial.compute_inline(rv)
        except ScheduleError:
            continue
        if sch.sample_categorical(f"inline({block.name})", FLAG, not again):
            sch.compute_inline(rv)


def _alone(sch: Schedule, name: str, context: Context) -> None:
    """Schedule a block in loops of its own; it keeps those that it has where that is refused."""
    trial = sch.copy()
    try:
        schedule_alone(trial, found_block(trial, trial.get_block(name)), context)
    except ScheduleError:
        return
    sch._become(trial)


def _size(axis: IterVar) -> int:
    size = constant(axis.dom.extent)
    return USUAL if size is None else size


def _iterations(block: Block) -> int:
    return math.prod(map(_size, block.iter_vars))


def _loads(block: Block) -> list[BufferLoad]:
    written = {w.buffer for w in block.writes}
    return [n for n in walk(block.body) if isinstance(n, BufferLoad) and n.buffer not in written]


def _long(axes: Sequence[IterVar]) -> list[IterVar]:
    """The spatial axes with more than one iteration."""
    return [a for a in axes if a.kind == "spatial" and _size(a) > 1]


def _is_tileable(block: Block) -> bool:
    """True if there are results to tile, which are summed up in one place each."""
    return len(_long(block.iter_vars)) > 1 and len(block.writes) == 1


def _reuses(block: Block) -> bool:
    """True if several results read the same elements."""
    used = [set(symbols_in(load.indices)) for load in _loads(block)]
    return any(a.var not in u for a in _long(block.iter_vars) for u in used)


class _Tiled:
    """One reduction in tiles: `outer` tiles are shared out to threads, `middle` ones are for the
    caches, `inner` ones for registers, along each axis."""

    def __init__(self, sch: Schedule, context: Context, name: str) -> None:
        self.sch, self.context = sch, context
        self.block = sch.get_block(name)
        found = found_block(sch, self.block)
        self.name, self.axes = name, found.iter_vars
        names = [a.var.name for a in self.axes]
        self.names = [v if names.count(v) == 1 else f"{v}.{n}" for n, v in enumerate(names)]
        self.lanes = context.target.lanes(output_dtype(found))
        self.registers = context.target.facts.vector_registers
        self.done = {name}

    def schedule(self) -> set[str]:
        """Return the names of the blocks that have been scheduled."""
        sch = self.sch
        column = self._column()
        copies = self._packed(column)
        before = self._producers()
        store = self._store()
        self._columns_last(column)
        nest = axis_loops(sch, self.block)
        outer, middle, inner = self._spatial_tiles(nest, column)
        reduce_outer, reduce_inner = self._reduce_tiles(nest)
        blocked = sch.sample_categorical("order", ("SSRRS", "SRSRS"), "SSRRS") == "SRSRS"
        levels = (
            [*outer, *reduce_outer, *middle, *reduce_inner, *inner] if blocked
            else [*outer, *middle, *reduce_outer, *reduce_inner, *inner]
        )  # fmt: skip
        sch.reorder(*levels)
        places = {"tile": outer[-1]} if blocked else {"block": middle[-1], "tile": outer[-1]}
        at = sch.sample_categorical("store_at", tuple(places), next(iter(places)))
        sch.reverse_compute_at(store, places[at], preserve_unit_loops=True)
        self._place_producers(before, outer[-1], middle[-1])
        init = sch.decompose_reduction(self.block, reduce_outer[0])
        # The initialisation has no loops of one iteration.
        long = [loop for loop in inner if constant(extent_of(sch, loop)) != 1]
        for *rows, last in (sch.get_loops(init)[-len(long) :], inner):
            for loop in rows:
                sch.unroll(loop)
            split_vector(sch, last, self.lanes, unroll=True)
        self._unroll_reduction(reduce_inner[-1])
        self._schedule_store(store, len(nest) - len(reduce_outer), column)
        self._share_out(outer)
        for copy in copies:
            self._copy(copy)
        return self.done

    def _column(self) -> int:
        """The axis whose neighbours are the lanes of vectors."""
        found = found_block(self.sch, self.block)
        loads = _loads(found)
        spatial = [n for n, a in enumerate(self.axes) if a.kind == "spatial" and _size(a) > 1]

        def cost(n: int) -> tuple[bool, bool, bool, int]:
            var, size = self.axes[n].var, _size(self.axes[n])
            waste = -(-size // self.lanes) * self.lanes > 1.25 * size
            moving = [x.indices for x in loads if var in symbols_in(x.indices)]
            last = all(var in symbols_in(i[-1]) for i in moving)
            plain = all(isinstance(i, Var) for x in moving for i in x)
            return waste, not (last or plain), not plain, -n

        ranked = sorted(spatial, key=cost)
        usable = [n for n in ranked if not cost(n)[1]] or ranked
        names = tuple(self.names[n] for n in usable)
        chosen = self.sch.sample_categorical("vector_axis", names, names[0])
        return usable[names.index(chosen)]

    def _packed(self, column: int) -> list[BlockRV]:
        """Lay operands out so that neighbouring columns are neighbours in memory: a weight, or a
        copy, which is returned."""
        sch, var = self.sch, self.axes[column].var
        copies: list[BlockRV] = []
        for number, region in enumerate(found_block(sch, self.block).reads):
            indices = [r.min for r in region.region]
            if var not in indices or not all(isinstance(i, Var) for i in indices):
                continue
            is_last, buffer = var is indices[-1], region.buffer
            if not sch.sample_categorical(f"pack({buffer.name})", FLAG, not is_last):
                continue
            if buffer in sch.func.params and not self.context.is_weight(sch.func, buffer):
                copy = sch.cache_read(self.block, number, "global")
                copies.append(copy)
                self.done.add(found_block(sch, copy).name)
                buffer = found_block(sch, copy).writes[0].buffer
            at = indices.index(var)
            order = {a.var: n for n, a in enumerate(self.axes)}
            dims = [Var(f"i{d}") for d in range(len(indices))]
            width = self._vectors(column) * self.lanes
            reduced = [d for d, i in enumerate(indices) if self._is_reduced(i)]
            reduced.sort(key=lambda d: order.get(indices[d], 0))  # type: ignore[arg-type]
            others = [d for d in range(len(indices)) if d != at and d not in reduced]
            panel = (dims[at] // width, *(dims[d] for d in reduced), dims[at] % width)
            sch.transform_layout(
                self.block, buffer,
                IndexMap(tuple(dims), (*(dims[d] for d in others), *panel)),
            )  # fmt: skip
        return copies

    def _is_reduced(self, index: object) -> bool:
        return any(a.var is index and a.kind != "spatial" for a in self.axes)

    def _vectors(self, column: int) -> int:
        """The vectors of a tile along the columns."""
        size = constant(self.axes[column].dom.extent)
        most = 4 if size is None else max(1, -(-size // self.lanes))
        fitting = tuple(n for n in (1, 2, 3, 4) if n <= most)
        even = [n for n in fitting if (size or 0) % (n * self.lanes) == 0]
        # Each step loads a vector for each of the columns and an element for each of the rows.
        loads = {n: (n + rows) / (n * rows) for n in even for rows in [self._usual_rows(column, n)]}
        usual = min(loads, key=lambda n: loads[n], default=1)
        return self.sch.sample_categorical("vectors", fitting, usual)

    def _row(self, column: int) -> int | None:
        """The axis of the rows of a register tile: the last one along which results share loads."""
        rows = [n for n, a in enumerate(self.axes) if a.kind == "spatial" and n != column]
        loads = [set(symbols_in(x.indices)) for x in _loads(found_block(self.sch, self.block))]
        sharing = [n for n in rows if any(self.axes[n].var not in u for u in loads)] or rows
        return max(sharing, key=lambda n: (min(_size(self.axes[n]), 4), n), default=None)

    def _usual_rows(self, column: int, vectors: int) -> int:
        """The most rows whose sums have registers, beside a vector of each column and an element,
        and that divide their axis."""
        row = self._row(column)
        size = 1 if row is None else _size(self.axes[row])
        most = max(1, (self.registers - vectors - 1) // vectors)
        return max(d for d in range(1, min(most, size) + 1) if size % d == 0)

    def _producers(self) -> list[BlockRV]:
        """The blocks that make what the reduction reads, in loops of their own."""
        found = [p for p in self.sch.get_producers(self.block)]
        spatial = [p for p in found if is_spatial(found_block(self.sch, p))]
        return [p for p in spatial if found_block(self.sch, p).name not in self.done]

    def _store(self) -> BlockRV:
        """The block that stores results: what is computed of them, or a copy."""
        sch = self.sch
        made = found_block(sch, self.block).writes[0].buffer
        names = [b.name for b in blocks_of(sch.func)]
        after = names[names.index(self.name) + 1 :]
        if len(after) == 1 and made not in sch.func.params:
            last = found_block(sch, sch.get_block(after[0]))
            reads = [n for n in walk(last.body) if isinstance(n, BufferLoad) and n.buffer is made]
            axes = tuple(a.var for a in last.iter_vars)
            if is_spatial(last) and reads and all(n.indices == axes for n in reads):
                sch.set_scope(self.block, 0, "local")
                self.done.add(last.name)
                return sch.get_block(last.name)
        store = sch.cache_write(self.block, 0, "local")
        self.done.add(found_block(sch, store).name)
        return store

    def _columns_last(self, column: int) -> None:
        """Make the columns the last dimension of the sums, so that they are vectors."""
        buffer = found_block(self.sch, self.block).writes[0].buffer
        spatial = [n for n, a in enumerate(self.axes) if a.kind == "spatial"]
        at = spatial.index(column)
        if at != buffer.ndim - 1:
            dims = [Var(f"i{d}") for d in range(buffer.ndim)]
            finals = (*(v for d, v in enumerate(dims) if d != at), dims[at])
            self.sch.transform_layout(self.block, buffer, IndexMap(tuple(dims), finals))

    def _spatial_tiles(
        self, nest: Sequence[LoopRV], column: int
    ) -> tuple[list[LoopRV], list[LoopRV], list[LoopRV]]:
        """The loops of the three levels, columns last in each but the first if that is decided."""
        sch = self.sch
        spatial = [n for n, a in enumerate(self.axes) if a.kind == "spatial"]
        rows = [n for n in spatial if n != column]
        vectors = self._vectors(column)
        room = max(1, self.registers // vectors)
        row = self._row(column)
        levels: dict[int, list[LoopRV]] = {}
        for n in sorted(rows, key=lambda n: n != row):
            usual = self._usual_rows(column, vectors) if n == row else 1
            levels[n] = self._split(nest[n], n, room, usual)
            inner = constant(extent_of(sch, levels[n][2]))
            room = max(1, room // (inner or 1))
        blocks = sch.sample_categorical("column_blocks", POWERS, 1)
        levels[column] = sch.split(nest[column], factors=[None, blocks, vectors * self.lanes])
        order = [*rows, column]
        first = sch.sample_categorical("columns_first", FLAG, True)
        outer = [column, *rows] if first else order
        return (
            [levels[n][0] for n in outer], [levels[n][1] for n in order],
            [levels[n][2] for n in order],
        )  # fmt: skip

    def _split(self, loop: LoopRV, n: int, room: int, usual: int) -> list[LoopRV]:
        """Three loops of an axis of rows, by its number, the last of at most `room` iterations."""
        sch, name = self.sch, self.names[n]
        size = constant(self.axes[n].dom.extent)
        if size is not None:
            inner = max(d for d in range(1, min(usual, size, room) + 1) if size % d == 0)
            most = min(room, SIZES[-1])
            factors = sch.sample_perfect_tile(
                f"tile({name})", loop, 3, most, (size // inner, 1, inner)
            )
            return sch.split(loop, factors=factors)
        fitting = tuple(n for n in SIZES if n <= room)
        most = max(n for n in fitting if n <= usual)
        inner = sch.sample_categorical(f"tile({name})", fitting, most)
        middle = sch.sample_categorical(f"blocks({name})", POWERS, 1)
        return sch.split(loop, factors=[None, middle, inner])

    def _reduce_tiles(self, nest: Sequence[LoopRV]) -> tuple[list[LoopRV], list[LoopRV]]:
        """The outer and the inner loops over terms, in an order that is decided."""
        sch = self.sch
        reduce = [n for n, a in enumerate(self.axes) if a.kind != "spatial"]
        outer: list[LoopRV] = []
        inner: list[LoopRV] = []
        for n in reduce:
            name = self.names[n]
            size = constant(self.axes[n].dom.extent)
            if size is not None:
                usual = max(d for d in range(1, min(size, DEEPEST) + 1) if size % d == 0)
                factors = sch.sample_perfect_tile(
                    f"tile({name})", nest[n], 2, DEEPEST, (size // usual, usual)
                )
                a, b = sch.split(nest[n], factors=factors)
            else:
                terms = sch.sample_categorical(f"tile({name})", (8, 32, 128), 32)
                a, b = sch.split(nest[n], factors=[None, terms])
            outer.append(a)
            inner.append(b)
        turns = len(reduce)
        turn = sch.sample_categorical("reduce_order", tuple(range(turns)), 0) if turns > 1 else 0
        turned = inner[turn:] + inner[:turn]
        # Axes of one element are outermost, so that what is inside can be unrolled.
        return outer, sorted(turned, key=lambda loop: constant(extent_of(sch, loop)) != 1)

    def _place_producers(self, before: Sequence[BlockRV], tile: LoopRV, block: LoopRV) -> None:
        """Store producers whole, or only what a tile needs."""
        sch = self.sch
        for rv in before:
            name = found_block(sch, rv).name
            at = sch.sample_categorical(f"at({name})", ("root", "tile", "block"), "root")
            if at == "root":
                continue
            sch.compute_at(rv, tile if at == "tile" else block, preserve_unit_loops=True)
            sch.set_scope(rv, 0, "local")
            *_, last = sch.get_loops(rv)
            vectorize_inner(sch, last, self.lanes)
            self.done.add(name)

    def _unroll_reduction(self, loop: LoopRV) -> None:
        """Unroll the innermost loop over terms, or some of its steps."""
        sch = self.sch
        size = constant(extent_of(sch, loop))
        if size is None:
            return
        fitting = tuple(n for n in (*POWERS, size) if size % n == 0 and n <= SIZES[-1])
        fitting = tuple(sorted({*fitting}))
        steps = sch.sample_categorical("unroll", fitting, max(n for n in fitting if n <= 4))
        if steps == size and steps > 1:
            sch.unroll(loop)
        elif steps > 1:
            _, part = sch.split(loop, factors=[None, steps])
            sch.unroll(part)

    def _schedule_store(self, store: BlockRV, count: int, column: int) -> None:
        """Vectors along the columns, or along the last axis of the results."""
        sch = self.sch
        loops = sch.get_loops(store)[-count:]
        spatial = [n for n, a in enumerate(self.axes) if a.kind == "spatial"]
        at = spatial.index(column)
        if at != count - 1 and sch.sample_categorical("store_columns", FLAG, True):
            loops = [*loops[:at], *loops[at + 1 :], loops[at]]
            sch.reorder(*loops)
        size = constant(extent_of(sch, loops[-1]))
        if size is None or size > self.lanes:
            few = size is not None and size <= POWERS[-1] * self.lanes
            split_vector(sch, loops[-1], self.lanes, unroll=few)
        else:
            sch.vectorize(loops[-1])

    def _share_out(self, outer: Sequence[LoopRV]) -> None:
        """Share out tiles to threads, by the first loops over them or by all."""
        sch = self.sch
        long = [n for n, x in enumerate(outer, 1) if constant(extent_of(sch, x)) != 1]
        if not long:
            return
        fused = sch.sample_categorical("parallel_loops", tuple(long), long[-1])
        sch.parallel(sch.fuse(*outer[:fused]) if fused > 1 else outer[0])

    def _copy(self, copy: BlockRV) -> None:
        """Schedule the copy of an operand, in vectors and by all threads."""
        sch = self.sch
        nest = sch.get_loops(copy)
        outer = vectorize_inner(sch, nest[-1], self.lanes)
        sch.parallel(sch.fuse(*nest[:-1], outer) if len(nest) > 1 else outer)


def _rows(sch: Schedule, context: Context) -> None:
    """Blocks that share the first axes of the last one are computed row by row, others whole."""
    *before, last = blocks_of(sch.func)
    nest, _ = block_loops(sch, sch.get_block(last.name))
    most = len(nest) - is_spatial(last)
    shared = 0
    if before and most > 0:
        depths = tuple(range(most + 1))
        shared = sch.sample_categorical("shared_axes", depths, most)
    if not shared:
        for block in blocks_of(sch.func):
            _alone(sch, block.name, context)
        return
    row, inside = nest[shared - 1], [last.name]
    for block in reversed(before):
        rv = sch.get_block(block.name)
        with suppress(ScheduleError):
            sch.compute_at(rv, row, preserve_unit_loops=True)
            inside.insert(0, block.name)
    for name in inside:
        _in_row(sch, sch.get_block(name), context, shared)
    for name in [b.name for b in before if b.name not in inside]:
        _alone(sch, name, context)
    sch.parallel(sch.fuse(*nest[:shared]) if shared > 1 else nest[0])


def _in_row(sch: Schedule, rv: BlockRV, context: Context, shared: int) -> None:
    """Schedule a block inside the loops over rows."""
    block = found_block(sch, rv)
    made = block.writes[0].buffer
    if made not in sch.func.params and all(isinstance(d, IntImm) for d in made.shape):
        sch.set_scope(rv, 0, "local")
    lanes = context.target.lanes(output_dtype(block))
    own = sch.get_loops(rv)[shared:]
    if not is_spatial(block):
        _, reduce = block_loops(sch, rv)
        reduce = fuse_neighbours(sch, rv, reduce)
        vectors = sch.sample_categorical(f"partial_vectors({block.name})", POWERS, 4)
        reduce_along_rows(sch, rv, reduce, vectors * lanes)
    elif own and constant(extent_of(sch, own[-1])) != 1:
        vectors = sch.sample_categorical(f"vectors({block.name})", POWERS, 1)
        size = constant(extent_of(sch, own[-1]))
        if size is not None and size % (vectors * lanes):
            vectors = 1
        vectorize_inner(sch, own[-1], vectors * lanes)
