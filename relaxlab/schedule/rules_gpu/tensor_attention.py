"""Attention of many queries of 16-bit floats by tensor cores, with scores in registers.

A warp works on one or two times 16 queries, a block of warps on neighbouring ones. Chunks of keys
and values are copied into shared memory ahead of their use (`software_pipeline`). The products of
queries and keys stay in the accumulators of tensor instructions, where scores and weights are made
of them, by the running maximum of `fuse_reductions`. Rounded to 16 bits, weights lie in the very
registers that the second product wants its left operand in: nothing goes back to shared memory
(FlashAttention-2, Dao, 2023). The weights that are summed up are not rounded. Keys are rows of
features, or lie feature by feature, as in a KV cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from relaxlab.analysis.index_map import IndexMap
from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.expr import Var
from relaxlab.ir.facts import Facts
from relaxlab.ir.loops import Block, Buffer
from relaxlab.ir.substitute import symbols_in
from relaxlab.schedule.annotate import PIPELINE
from relaxlab.schedule.cascade import axes_of, written
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.intrinsics.mma import DTYPES, SIZE, columns_fragment, rows_fragment
from relaxlab.schedule.rules.attention import Attention, find_attention
from relaxlab.schedule.rules.base import (
    block_loops,
    blocks_behind,
    blocks_of,
    constant,
    found_block,
    loops_inside,
    sum_of_products,
)
from relaxlab.schedule.rules.decisions import (
    POSITION_PARTS,
    POSITIONS,
    QUERY_ROWS,
    QUERY_STAGES,
    WARP_QUERIES,
)
from relaxlab.schedule.rules_gpu.base import fused, swizzle_rows, unroll_all
from relaxlab.schedule.rules_gpu.decode_attention import combine_parts
from relaxlab.schedule.schedule import BlockRV, LoopRV, Schedule

ROWS, WARP_ROWS, CHUNK, STAGES = 128, 32, 64, 2
"""Queries of a tile and of a warp; positions of a chunk; chunks in shared memory, one of which is
under way. Not measured."""
FEW_TILES = 512
"""Blocks of threads that few queries of all heads have at least. 8 queries of 32 heads over 16384
positions of 8 heads of keys are predicted to take 41 us in 256 blocks on an H100, 44 in 512, 43 in
1024 and 137 in 32. Not measured."""
REGISTERS = 200
"""Registers of a thread that a warp's sums, scores and weights take by default, of 255. With 208,
for 32 queries and 32 positions of 128 features, NVIDIA's compiler put some of a thread in local
memory where the mask is asked in a loop of its own, none over a KV cache."""


@dataclass(frozen=True, slots=True)
class Operands:
    """The queries, keys and values, their dtype, and how many features queries and values have."""

    query: Buffer
    key: Buffer
    value: Buffer
    dtype: str
    depth: int
    features: int


def operands_of(found: Attention, facts: Facts) -> Operands | str:
    """Return the operands for tensor cores, or why these cannot multiply them."""
    mixes = [b for b in found.cascade.reductions if found.feature in axes_of(b)]
    if not facts.tensor_cores:
        return "the GPU has no tensor cores"
    if len(mixes) != 1 or len(found.cascade.further) != 1:
        return "there is more than one mix of values"
    pairs = sum_of_products(found.dot), sum_of_products(mixes[0])
    if pairs[0] is None or pairs[1] is None:
        return f"{found.dot.name} and {mixes[0].name} are not sums of products of two loads"
    (query, key), (weight, value) = ([n.buffer for n in pair] for pair in (pairs[0], pairs[1]))
    dtype = query.dtype
    if dtype not in DTYPES or {key.dtype, value.dtype} != {dtype}:
        return f"its operands are not all {' or all '.join(DTYPES)}"
    if {written(found.dot).dtype, weight.dtype, written(mixes[0]).dtype} != {"float32"}:
        return "it is not computed in float32"
    depth, features = (constant(found.extent(a)) for a in (found.depth, found.feature))
    if depth is None or features is None or depth % SIZE or features % SIZE:
        return f"its features are no multiples of {SIZE}"
    return Operands(query, key, value, dtype, depth, features)


def schedule_tensor_tiles(sch: Schedule, facts: Facts, few: int | None = None) -> None:
    """Schedule attention by tensor cores. Of at most `few` queries, where that is given, blocks of
    threads share the positions. Raises ScheduleError where it does not fit."""
    found = find_attention(sch.func)
    assert found is not None
    operands = operands_of(found, facts)
    if isinstance(operands, str):
        raise ScheduleError("schedule", "attention", f"tensor cores compute it; {operands}")
    size = bytes_of(operands.dtype)

    def room(rows: int, chunk: int, stages: int) -> int:
        """Bytes of queries, keys and values in shared memory."""
        both = operands.depth + operands.features
        return (rows * operands.depth + stages * chunk * both) * size

    def registers(rows: int, chunk: int) -> int:
        """Registers of a thread for a warp's sums, scores, weights of 32 bits and of 16."""
        return rows * (2 * operands.features + 5 * chunk) // (2 * facts.warp)

    most, least = facts.most_shared, min(POSITIONS.candidates)
    # Keys and values are loaded from shared memory once for all queries of a warp.
    shared_by = WARP_QUERIES.at_most(
        sch, WARP_ROWS if registers(WARP_ROWS, 32) <= REGISTERS else SIZE
    )
    # Queries of one warp have a block with one: in others its sums would be in registers of all.
    queries = constant(found.extent(found.row)) or few
    warps = 1 if queries is not None and queries <= shared_by else facts.block_threads // facts.warp
    rows = QUERY_ROWS.where(
        lambda n: n % shared_by == 0 and n // shared_by <= warps and room(n, least, 2) <= most
    ).at_most(sch, ROWS)
    fitting = POSITIONS.where(lambda n: room(rows, n, 2) <= most)
    small = (n for n in fitting.candidates if registers(shared_by, n) <= REGISTERS)
    chunk = fitting.at_most(sch, min(CHUNK, max(small, default=least)))
    stages = QUERY_STAGES.where(lambda n: room(rows, chunk, n) <= most).at_most(sch, STAGES)
    parts = POSITION_PARTS.at_most(sch, 1 if few is None else _parts(found, chunk))
    block = found.fused(sch, rows, chunk, chunk, 1, parts, whole=True)
    tile = Tile(sch, found, operands, facts, rows // shared_by, shared_by // SIZE, stages)
    tile.schedule(block)
    if parts > 1:
        combine_parts(sch, block, facts.warp)
    sch.compact_buffers()


def _parts(found: Attention, chunk: int) -> int:
    """The parts of the positions, of two chunks at least, that make enough blocks of threads where
    rows are one tile: one where other axes have unknown extents, by which the memory for the
    results of parts would grow in calls of any number of rows."""
    others = [constant(found.extent(a)) or 0 for a in found.cascade.outer if a is not found.row]
    positions = constant(found.extent(found.cascade.axis))
    most = FEW_TILES if positions is None else positions // (2 * chunk)
    return min(most, -(-FEW_TILES // (prod(others) or FEW_TILES)))


@dataclass(frozen=True, slots=True)
class Tile:
    """The blocks of a tile of `warps` warps, whose threads are along z; those of a warp are 8 along
    y, with a row each and the one 8 below it, of 4 along x. A warp has `turns` times 16 rows."""

    sch: Schedule
    found: Attention
    operands: Operands
    facts: Facts
    warps: int
    turns: int
    stages: int

    def schedule(self, tile: BlockRV) -> None:
        """Spread the tiles over blocks of threads, and what is inside over threads."""
        sch, found = self.sch, self.found
        (mix,) = (b for b in found.cascade.reductions if found.feature in axes_of(b))
        chunk = next(b for b in sch.get_child_blocks(tile) if sch.get_child_blocks(b))
        dot, mixed = sch.get_block(found.dot.name), sch.get_block(f"new_{written(mix).name}")
        behind = {found_block(sch, b).name for b in blocks_behind(sch, tile)}
        names = [b.name for b in blocks_of(sch.func) if b.name not in behind]
        grown = sch.get_block(mix.name)
        products = {found_block(sch, b).name for b in (dot, mixed, grown)}
        self.scores(dot)
        self.mix(mixed, grown)
        for name in names:
            if name not in products:
                self.bind(name)
                sch.unsafe_fast_math(sch.get_block(name))
        self.pipeline(sch.get_loops(chunk)[-1])
        sch.bind(fused(sch, sch.get_loops(tile)), "blockIdx.x")

    def pipeline(self, chunks: LoopRV) -> None:
        """Copy chunks ahead of their use."""
        self.sch.annotate(chunks, PIPELINE, self.stages)

    def shared(self, product: BlockRV, buffer: Buffer, axes: tuple[int, int]) -> BlockRV:
        """Copy what a product reads into shared memory, indexed by two of its axes, and from there
        into registers; returns the block that fills these."""
        sch = self.sch
        block = found_block(sch, product)
        at = tuple(it.var for it in block.iter_vars)
        place = IndexMap(at, tuple(at[a] for a in axes))
        copy = sch.reindex_cache_read(product, read_of(block, buffer), "shared", place)
        tile = found_block(sch, copy).writes[0].buffer
        fragment = sch.cache_read(product, read_of(found_block(sch, product), tile), "local")
        width = self.facts.vector_bits // 8 // bytes_of(buffer.dtype)
        row = constant(tile.shape[-1]) or 0
        swizzle_rows(sch, copy, row, self.facts)
        *_, first, second = sch.get_loops(copy)
        if axes[0] > axes[1]:
            sch.reorder(second, first)
        loop = fused(sch, sch.get_loops(copy))
        _, z, y, x, lane = sch.split(loop, factors=[None, self.warps, 8, 4, width])
        self.threads(z, y, x)
        sch.vectorize(lane)
        return fragment

    def threads(self, z: LoopRV, y: LoopRV, x: LoopRV) -> None:
        for loop, axis in ((z, "z"), (y, "y"), (x, "x")):
            self.sch.bind(loop, f"threadIdx.{axis}")

    def lay_out(self, block: BlockRV, rows: bool, swapped: bool = False) -> None:
        """Store a tile as it lies in the registers of a warp."""
        at = Var("i"), Var("j")
        place = rows_fragment if rows else columns_fragment
        lane, register = place(*(reversed(at) if swapped else at))
        finals = (at[0] // SIZE, at[1] // SIZE, lane, register)
        self.sch.transform_layout(block, ("write", 0), IndexMap(at, finals))

    def load(self, fragment: BlockRV, side: str, trans: str = "") -> None:
        """Load tiles from shared memory by a tensor instruction."""
        sch = self.sch
        *_, first, second = sch.get_loops(fragment)
        first, inner = sch.split(first, factors=[None, SIZE])
        second, last = sch.split(second, factors=[None, SIZE])
        sch.reorder(first, second, inner, last)
        unroll_all(sch, first, second)
        sch.tensorize(inner, f"mma_{side}_{self.operands.dtype}{trans}_quads")

    def scores(self, dot: BlockRV) -> None:
        """Products of queries and keys: rows of tiles of 16 x 16 for each warp."""
        sch = self.sch
        queries = self.shared(dot, self.operands.query, (0, 2))
        # Keys that lie feature by feature are transposed as they are loaded, as values are.
        block = found_block(sch, dot)
        *_, last = block.reads[read_of(block, self.operands.key)].region
        turned = block.iter_vars[1].var in symbols_in(last.min)
        keys = self.shared(dot, self.operands.key, (2, 1) if turned else (1, 2))
        self.lay_out(queries, rows=True)
        self.lay_out(keys, rows=False, swapped=turned)
        self.lay_out(dot, rows=True)
        (row, position), (depth,) = block_loops(sch, dot)
        z, turn, i = sch.split(row, factors=[None, self.turns, SIZE])
        j, j1 = sch.split(position, factors=[None, SIZE])
        k, k1 = sch.split(depth, factors=[None, SIZE])
        sch.reorder(z, k, turn, j, i, j1, k1)
        for fragment in (queries, keys):
            sch.compute_at(fragment, k, preserve_unit_loops=True)
        self.multiply(dot, z, k, i)
        unroll_all(sch, turn, j)
        self.load(queries, "rows")
        self.load(keys, "columns", "_trans" if turned else "")
        sch.bind(z, "threadIdx.z")

    def multiply(self, product: BlockRV, outside: LoopRV, terms: LoopRV, tile: LoopRV) -> None:
        """Make the tile of a product a tensor instruction, from zeros in front of its terms inside
        of a loop."""
        sch = self.sch
        init = sch.decompose_reduction(product, terms)
        *tiles, first, _ = loops_inside(sch, init, outside)
        sch.tensorize(first, "mma_fill_quads")
        unroll_all(sch, *tiles, terms)
        sch.tensorize(tile, f"mma_{self.operands.dtype}_quads")

    def mix(self, mixed: BlockRV, grown: BlockRV) -> None:
        """The chunk's part of 16 features is made right where the running sums take it."""
        sch = self.sch
        values = self.shared(mixed, self.operands.value, (2, 1))
        self.lay_out(values, rows=False, swapped=True)
        self.round_weights(mixed)
        self.lay_out(mixed, rows=True)
        _, e, pair = self.elements(sch.get_loops(grown))
        sch.unroll(pair)
        sch.compute_at(mixed, e, preserve_unit_loops=True)
        (*_, row, feature), (position,) = block_loops(sch, mixed)
        turn, i = sch.split(row, factors=[None, SIZE])
        j, j1 = sch.split(position, factors=[None, SIZE])
        sch.reorder(j, turn, i, feature, j1)
        sch.compute_at(values, j, preserve_unit_loops=True)
        self.multiply(mixed, e, j, i)
        sch.unroll(turn)
        self.load(values, "columns", "_trans")

    def round_weights(self, mixed: BlockRV) -> None:
        """Round the weights to the dtype of the values, in the registers of the left operand."""
        sch, block = self.sch, found_block(self.sch, mixed)
        weights = next(n for n, r in enumerate(block.reads)
                       if r.buffer.scope == "local" and r.buffer.dtype == "float32"
                       and r.buffer not in {w.buffer for w in block.writes})  # fmt: skip
        rounded = sch.cache_read(mixed, weights, "local", consumer_blocks=[mixed])
        sch.unsafe_set_dtype(rounded, 0, self.operands.dtype)
        self.lay_out(rounded, rows=True)
        self.bind(found_block(sch, rounded).name)

    def bind(self, name: str) -> None:
        """Spread a block over the threads."""
        sch = self.sch
        rv = sch.get_block(name)
        spatial, reduce = block_loops(sch, rv)
        if len(spatial) == 2 and not reduce:
            *_, pair = self.elements(spatial)
            block = found_block(sch, rv)
            wide = any(r.buffer.scope == "global" for r in (*block.reads, *block.writes))
            (sch.vectorize if wide else sch.unroll)(pair)
        elif len(spatial) == 1:
            self.rows(rv, spatial[0], reduce)
        else:
            raise ScheduleError("schedule", f"block {name}", "it is over rows, or rows and columns")

    def elements(self, spatial: list[LoopRV]) -> list[LoopRV]:
        """Give threads what they have of the tiles of products: of two rows 8 apart pairs of
        columns. Returns the loops of the warps, of tiles and of pairs."""
        sch = self.sch
        z, turn, half, y = self.own_rows(spatial[0])
        tile, part, x, pair = self.own_columns(spatial[1])
        sch.reorder(z, tile, turn, half, part, y, x, pair)
        self.threads(z, y, x)
        unroll_all(sch, tile, turn, half, part)
        return [z, tile, pair]

    def own_rows(self, row: LoopRV) -> list[LoopRV]:
        return self.sch.split(row, factors=[None, self.turns, 2, 8])

    def own_columns(self, column: LoopRV) -> list[LoopRV]:
        return self.sch.split(column, factors=[None, 2, 4, 2])

    def rows(self, rv: BlockRV, row: LoopRV, reduce: list[LoopRV]) -> None:
        """All four threads of a row have its values in registers; each adds up its own terms, which
        are then exchanged."""
        sch = self.sch
        if not reduce:
            z, turn, half, y = self.own_rows(row)
            sch.bind(z, "threadIdx.z")
            sch.bind(y, "threadIdx.y")
            unroll_all(sch, turn, half)
            return
        _, _, x, _ = self.own_columns(reduce[0])
        partial = sch.rfactor(x, found_block(sch, rv).writes[0].buffer.ndim)
        sch.set_scope(partial, 0, "local")
        # A loop of one iteration binds no axis, and counts as spatial.
        (row, *single, x), own = block_loops(sch, partial)
        z, turn, half, y = self.own_rows(row)
        sch.reorder(z, y, x, turn, half, *single, *own)
        self.threads(z, y, x)
        unroll_all(sch, turn, half, *own)
        (row, *single), (x,) = block_loops(sch, rv)
        z, turn, half, y = self.own_rows(row)
        sch.reorder(z, y, turn, half, *single, x)
        self.threads(z, y, x)
        unroll_all(sch, turn, half)


def read_of(block: Block, buffer: Buffer) -> int:
    """The number of the region that a block reads of a buffer."""
    return next(n for n, r in enumerate(block.reads) if r.buffer is buffer)
