"""Attention of one query over many positions, as of a token that is decoded: at memory's speed.

A group of threads, 16 by default, is a worker (`fuse_reductions`): it takes a vector of positions
at a time, with a running maximum, sum and mix of its own, for several heads that read the same
keys. Its threads share the products with a key, and then the features of the values. No worker
waits for another before the end, where those of a block combine their results through shared
memory. Blocks of threads share the positions of a head of keys; a second kernel combines what they
found (Flash-Decoding, 2023).

All loads of keys and values are of 16 bytes, and those of a warp side by side: keys lie in blocks
of positions, feature by feature, values in rows of features.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from relaxlab.ir import expr
from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.loops import Buffer
from relaxlab.ir.substitute import symbols_in
from relaxlab.schedule.cascade import loads_in
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.rules.attention import Attention, find_attention
from relaxlab.schedule.rules.base import (
    block_loops,
    blocks_behind,
    constant,
    extent_of,
    found_block,
    inline_producers,
    loops_inside,
)
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.rules.decisions import POSITION_PARTS, THREADS_PER_BLOCK, THREADS_PER_KEY
from relaxlab.schedule.rules_gpu.base import fits_a_block, fused, unroll_all
from relaxlab.schedule.schedule import BlockRV, LoopRV, Schedule

THREADS = 128
"""Threads of a block: 4 warps, each with blocks of 16 keys of its own. Not measured."""
PARTS = 32
"""Blocks of threads per head of keys: with 8 of these heads two for each SM of an H100. With 8
threads per key and 4 heads per tile, 16 were faster up to 1024 positions, 8 % slower at 4095, 27 %
slower at 16383."""
BLOCKS = 1024
"""Blocks of threads from which on heads of keys have fewer parts: eight for each SM."""
LANES, HEADS = 16, 2
"""Threads per key, and most heads per tile. On an H100, 32 heads over 8 of bfloat16 keys took 8.3,
10.2, 14.4 and 36.4 microseconds at 128, 1024, 4096 and 16384 positions; with 8 threads and 4 heads,
which fill the registers of two blocks, 11.7, 12.2, 14.9 and 36.0."""


def schedule_query(sch: Schedule, context: Context) -> Schedule:
    """Schedule attention with one row. Raises ScheduleError where it does not fit."""
    facts = context.target.facts
    # Blocks in front of the attention, such as a transpose of the keys, are inlined into it: it
    # then reads their operands in place.
    attention = find_attention(sch.func)
    inline_producers(sch, [] if attention is None else [b.name for b in attention.cascade.blocks])
    found = find_attention(sch.func)
    if found is None or not facts.shuffles:
        what = "it is a product, a softmax and a product, and threads exchange registers"
        raise ScheduleError("schedule", "attention", what)
    key, value = _operands(found)
    vector = _vector(found, key, value, facts.vector_bits // 8)
    found, rows = found.over_heads(sch, 1, HEADS)
    lanes, wide = _lanes(sch, found, facts.vector_bits // 8 // bytes_of(value.dtype))
    # Each worker leaves a mix of the values for each head, and a few values more.
    features = constant(found.extent(found.feature)) or 1
    size = rows * (features + 3) * bytes_of("float32") + facts.vector_bits // 8
    threads = THREADS_PER_BLOCK.where(
        lambda n: fits_a_block(n, facts) and (n // lanes + 1) * size <= facts.shared
    ).at_most(sch, THREADS)
    tiles = prod(constant(found.extent(a)) or 1 for a in found.cascade.outer) // rows
    parts = POSITION_PARTS.at_most(sch, min(PARTS, max(1, BLOCKS // tiles)))
    workers = threads // lanes
    tile = found.fused(sch, rows, vector, _block_of_keys(found, key), 1, parts, workers)
    _Query(sch, found, (threads // facts.warp, facts.warp // lanes, lanes), wide).bind(tile)
    if parts > 1:
        combine_parts(sch, tile, facts.warp)
    sch.compact_buffers()
    return sch


def _operands(found: Attention) -> tuple[Buffer, Buffer]:
    """The keys and the values. Raises ScheduleError where there is not one of each."""
    cascade = found.cascade
    keys, values = (
        {n.buffer for b in blocks for n in loads_in(b.body)
         if n.buffer not in cascade.dims and cascade.axis in symbols_in(n.indices)}
        for blocks in ((found.dot,), cascade.reductions)
    )  # fmt: skip
    if len(keys) != 1 or len(values) != 1 or len(cascade.further) != 1:
        raise ScheduleError(
            "schedule", f"block {found.dot.name}", "there is one array of keys, and one of values"
        )
    return keys.pop(), values.pop()


def _block_of_keys(found: Attention, keys: Buffer) -> int:
    """The positions whose keys lie side by side, feature by feature; 1 where keys are rows."""
    load = next(n for n in loads_in(found.dot.body) if n.buffer is keys)
    match load.indices[-1]:
        case expr.FloorMod(at, expr.IntImm(size)) if at == found.cascade.axis:
            return size
        case _:
            return 1


def _vector(found: Attention, keys: Buffer, values: Buffer, access: int) -> int:
    """The positions that a worker takes at a time: as many keys as are loaded together."""
    block = _block_of_keys(found, keys)
    return min(block, access // bytes_of(keys.dtype)) if block > 1 else access // 4


def _lanes(sch: Schedule, found: Attention, most: int) -> tuple[int, int]:
    """The threads per key, and the features of a value that each loads together: as many as an
    access has, or fewer where these do not divide the features."""
    depth, features = (constant(found.extent(a)) for a in (found.depth, found.feature))
    if depth is None or features is None:
        raise ScheduleError("schedule", "attention", "heads have a constant number of features")

    def fits(lanes: int, wide: int) -> bool:
        return depth % lanes == 0 and features % (lanes * wide) == 0

    widths = (most >> shift for shift in range(most.bit_length()))
    wide = next((w for w in widths if any(fits(n, w) for n in THREADS_PER_KEY.candidates)), 1)
    return THREADS_PER_KEY.where(lambda n: fits(n, wide)).at_most(sch, LANES), wide


@dataclass(frozen=True, slots=True)
class _Query:
    """The blocks of a tile. `shape`: threads along z and y, which are workers together, and along
    x, which share one; `wide`: features that are loaded together."""

    sch: Schedule
    found: Attention
    shape: tuple[int, int, int]
    wide: int

    def bind(self, tile: BlockRV) -> None:
        """Spread the tiles over blocks of threads, and what is inside over threads."""
        sch = self.sch
        children = [found_block(sch, b).name for b in sch.get_child_blocks(tile)]
        chunk = next(n for n in children if sch.get_child_blocks(sch.get_block(n)))
        steps = [found_block(sch, b).name for b in sch.get_child_blocks(sch.get_block(chunk))]
        behind = children[children.index(chunk) + 1 :]
        merging = next(n for n, name in enumerate(behind) if self.reduces(name))
        for name in children[: children.index(chunk)]:
            self.registers(name)
        for name in steps:
            if name == self.found.dot.name:
                self.products(name)
            elif self.has_features(name) and self.reduces(name):
                self.mix(name)
            else:
                self.registers(name)
        for name in behind[:merging]:
            sch.set_scope(sch.get_block(name), 0, "shared")
            self.registers(name)
        for name in behind[merging:]:
            self.together(name)
        sch.bind(fused(sch, sch.get_loops(tile)), "blockIdx.x")

    def reduces(self, name: str) -> bool:
        """True for a reduction."""
        return bool(block_loops(self.sch, self.sch.get_block(name))[1])

    def has_features(self, name: str) -> bool:
        """True for a block over workers, rows and features."""
        spatial, _ = block_loops(self.sch, self.sch.get_block(name))
        return len(spatial) == 3 and name not in [b.name for b in self.found.cascade.inside]

    def of_workers(self, worker: LoopRV) -> list[LoopRV]:
        """The loops of the threads that are workers."""
        z, y, _ = self.shape
        return self.sch.split(worker, factors=[z, y])

    def features(self, loop: LoopRV) -> list[LoopRV]:
        """A loop over features as turns, threads, and a vector."""
        return self.sch.split(loop, factors=[None, self.shape[2], self.wide])

    def threads(self, *loops: LoopRV) -> None:
        """Bind loops to z, y and x."""
        for loop, axis in zip(loops, "zyx", strict=False):
            self.sch.bind(loop, f"threadIdx.{axis}")

    def registers(self, name: str) -> None:
        """A worker's scores, and what it has per row, are in registers of all its threads; of
        features each thread has its own."""
        sch = self.sch
        rv = sch.get_block(name)
        (worker, row, *rest), reduce = block_loops(sch, rv)
        has_features = self.has_features(name)
        z, y = self.of_workers(worker)
        if not has_features:
            self.threads(z, y)
            unroll_all(sch, row, *rest, *reduce)
            return
        turn, x, lane = self.features(rest[0])
        sch.reorder(z, y, x, row, turn, lane)
        self.threads(z, y, x)
        unroll_all(sch, row, turn, lane)

    def products(self, name: str) -> None:
        """Each of the `lanes` threads of a worker has every `lanes`-th feature of the keys; all get
        the sums."""
        sch = self.sch
        product = sch.get_block(name)
        _, (depth,) = block_loops(sch, product)
        _, x = sch.split(depth, factors=[None, self.shape[2]])
        partial = sch.rfactor(x, found_block(sch, product).writes[0].buffer.ndim)
        sch.set_scope(partial, 0, "local")
        (worker, row, position, x), turns = block_loops(sch, partial)
        z, y = self.of_workers(worker)
        sch.reorder(z, y, x, *turns, row, position)
        if turns:
            first = sch.decompose_reduction(partial, turns[0])
            unroll_all(sch, *loops_inside(sch, first, x), *turns)
        self.threads(z, y, x)
        sch.unroll(row)
        sch.vectorize(position)
        (worker, row, position), (x,) = block_loops(sch, product)
        z, y = self.of_workers(worker)
        self.threads(z, y, x)
        unroll_all(sch, row, position)

    def mix(self, name: str) -> None:
        """A vector of features of each row is loaded and added up at a time."""
        sch = self.sch
        rv = sch.get_block(name)
        (worker, row, feature), (position,) = block_loops(sch, rv)
        z, y = self.of_workers(worker)
        turn, x, lane = self.features(feature)
        sch.reorder(z, y, x, turn, position, row, lane)
        first = sch.decompose_reduction(rv, position)
        self.threads(z, y, x)
        unroll_all(sch, turn, position, row)
        sch.vectorize(lane)
        unroll_all(sch, *loops_inside(sch, first, turn))

    def together(self, name: str) -> None:
        """All threads share the results of a tile; each has what there is per row."""
        sch = self.sch
        rv = sch.get_block(name)
        spatial, reduce = block_loops(sch, rv)
        unroll_all(sch, *reduce)
        if len(spatial) == 1:
            unroll_all(sch, *spatial)
            return
        # Whoever has a feature of one row has it of all, and a register for each; else threads read
        # what others have made.
        own = (constant(extent_of(sch, spatial[-1])) or 1) % prod(self.shape) == 0
        if not own and found_block(sch, rv).writes[0].buffer.scope == "local":
            sch.set_scope(rv, 0, "shared")
        turn, *threads = sch.split(fused(sch, spatial), factors=[None, *self.shape])
        self.threads(*threads)
        sch.unroll(turn)


def combine_parts(sch: Schedule, tile: BlockRV, warp: int) -> None:
    """The kernel behind the tiles: a block of threads for each row, a thread for each feature."""
    *makers, last = blocks_behind(sch, tile)
    *rows, feature = sch.get_loops(last)
    threads = -(-(constant(extent_of(sch, feature)) or warp) // warp) * warp
    for rv in reversed(makers):
        sch.compute_at(rv, rows[-1], preserve_unit_loops=True)
        sch.set_scope(rv, 0, "local")
        _, parts = block_loops(sch, rv)
        *_, own, _ = sch.get_loops(rv)
        if constant(extent_of(sch, own)) != 1:
            sch.bind(sch.split(own, factors=[None, threads])[1], "threadIdx.x")
        unroll_all(sch, *parts)
    sch.bind(sch.split(feature, factors=[None, threads])[1], "threadIdx.x")
    sch.bind(fused(sch, rows), "blockIdx.x")
