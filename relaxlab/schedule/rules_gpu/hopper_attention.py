"""Attention of many queries of 16-bit floats by the warpgroups of a Hopper GPU (`wgmma`).

A warpgroup works on 64 queries, which stay in its registers as left operand of the first product. A
warp of its own copies chunks of keys and values into shared memory, as boxes
(`codegen/gpu/warp_specialize.py`); both products read them there. Scores and weights stay in the
registers of the sums, as in `tensor_attention`, whose schedule this is but for the products
(FlashAttention-3, Shah et al., 2024).
"""

from __future__ import annotations

from dataclasses import dataclass

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.index_map import IndexMap
from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.expr import Var
from relaxlab.ir.facts import BOX_DIMENSIONS, Facts
from relaxlab.ir.loops import Block, Buffer
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.schedule.annotate import PIPELINE, WARP_SPECIALIZE
from relaxlab.schedule.cascade import axes_of
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.intrinsics.mma import SIZE
from relaxlab.schedule.intrinsics.wgmma import COLUMNS, LINE, ROWS
from relaxlab.schedule.rules.attention import Attention, find_attention
from relaxlab.schedule.rules.base import constant, found_block
from relaxlab.schedule.rules.decisions import POSITIONS, QUERY_STAGES, WARPGROUPS
from relaxlab.schedule.rules_gpu.hopper_matmul import ACCESS
from relaxlab.schedule.rules_gpu.tensor_attention import Operands, Tile, operands_of, read_of
from relaxlab.schedule.schedule import BlockRV, LoopRV, Schedule

CHUNK, STAGES = 128, 2
"""Positions of a chunk; chunks in shared memory: 500 TFLOP/s on an H200, others were not tried."""
REGISTERS = 200
"""Registers of a thread for fragments: 232 less those of rows, places and loops."""


def schedule_warpgroup_tiles(sch: Schedule, facts: Facts) -> None:
    """Schedule attention by warpgroups. Raises ScheduleError where it does not fit."""
    found = find_attention(sch.func)
    assert found is not None
    operands = _operands(sch, found, facts)
    if isinstance(operands, str):
        raise ScheduleError("schedule", "attention", f"warpgroups compute it; {operands}")
    both = (operands.depth + operands.features) * bytes_of(operands.dtype)
    room = facts.most_shared - 1024  # barriers, and the alignment of chunks
    groups = WARPGROUPS.of(sch, 2)
    chunk = POSITIONS.where(
        lambda n: n in COLUMNS and 2 * n * both <= room and _registers(operands, n) <= REGISTERS
    ).at_most(sch, CHUNK)
    stages = QUERY_STAGES.where(lambda n: n * chunk * both <= room).at_most(sch, STAGES)
    tile = found.fused(sch, groups * ROWS, chunk, chunk, 1, whole=True)
    _Tile(sch, found, operands, facts, groups * ROWS // SIZE, 1, stages, chunk).schedule(tile)
    sch.compact_buffers()


def _operands(sch: Schedule, found: Attention, facts: Facts) -> Operands | str:
    """The operands for warpgroups, or why these cannot multiply them."""
    operands = operands_of(found, facts)
    if not facts.warpgroups:
        return "the GPU has no tensor instructions of warpgroups"
    if isinstance(operands, str):
        return operands
    if not {operands.depth, operands.features} <= set(COLUMNS):
        return f"heads have {operands.depth} and {operands.features} features, not {COLUMNS}"
    (mix,) = (b for b in found.cascade.reductions if found.feature in axes_of(b))
    rows = ((found.dot, operands.key, found.depth), (mix, operands.value, found.feature))
    for block, buffer, feature in rows:
        if not _is_box(block, buffer, found.cascade.axis, feature):
            return f"chunks of {buffer.name} are no boxes of rows of features"
    computed = [b.name for b in (operands.key, operands.value) if b not in sch.func.params]
    if computed:
        return f"{computed[0]} is computed: boxes are of main memory"
    return operands


def _is_box(block: Block, buffer: Buffer, position: Var, feature: Var) -> bool:
    """True if a block reads neighbouring rows of features at neighbouring positions, up to the end
    of the array, beyond which boxes are zeros; and if rows begin at multiples of 16 bytes."""
    *outer, last = (r.min for r in block.reads[read_of(block, buffer)].region)
    along = [n for n, i in enumerate(outer) if position in symbols_in(i)]
    row, an = constant(buffer.shape[-1]), Analyzer()
    if buffer.ndim > BOX_DIMENSIONS or last != feature or len(along) != 1 or not row:
        return False
    at = outer[along[0]]
    (count,) = (it.dom.extent for it in block.iter_vars if it.var == position)
    return (
        row * bytes_of(buffer.dtype) % ACCESS == 0
        and an.prove_equal(substitute(at, {position: position + 1}), at + 1) is True
        and an.prove_equal(substitute(at, {position: count}), buffer.shape[along[0]]) is True
    )


def _registers(operands: Operands, chunk: int) -> int:
    """The registers that a thread has for fragments at a time: queries, sums of values and weights
    beside either scores or the chunk's sums of values."""
    sums, scores = operands.features // 2, chunk // 2
    return operands.depth // 4 + sums + scores // 2 + max(scores, sums)


@dataclass(frozen=True, slots=True)
class _Tile(Tile):
    """The blocks of a tile of warpgroups, four neighbouring warps each. `chunk`: its positions."""

    chunk: int

    def pipeline(self, chunks: LoopRV) -> None:
        self.sch.annotate(chunks, PIPELINE, self.stages)
        # Blocks that take tile after tile were slower on an H200: 413 TFLOP/s in place of 500.
        self.sch.annotate(chunks, WARP_SPECIALIZE, 0)

    def boxes(self, product: BlockRV, buffer: Buffer, axes: tuple[int, int]) -> None:
        """Copy what a product reads of a chunk as boxes: positions by blocks of 64 features."""
        sch = self.sch
        block = found_block(sch, product)
        at = tuple(it.var for it in block.iter_vars)
        place = IndexMap(at, tuple(at[a] for a in axes))
        copy = sch.reindex_cache_read(product, read_of(block, buffer), "shared", place)
        sch.unsafe_zero_beyond(copy)
        sch.transform_layout(copy, ("write", 0), lambda j, d: (d // LINE, j, d % LINE))
        *_, first, second = sch.get_loops(copy)
        position, feature = (first, second) if axes[0] < axes[1] else (second, first)
        feature, line = sch.split(feature, factors=[None, LINE])
        sch.reorder(feature, position, line)

    def multiply_chunk(self, product: BlockRV, intrinsic: str) -> None:
        """Make a product the tensor instructions of each warp."""
        sch = self.sch
        row, *others = sch.get_loops(product)[-3:]
        z, i = sch.split(row, factors=[None, SIZE])
        sch.reorder(z, i, *others)
        sch.tensorize(i, f"wgmma_{self.operands.dtype}_{intrinsic}_quads")
        sch.bind(z, "threadIdx.z")

    def scores(self, dot: BlockRV) -> None:
        """Products of queries, in registers, and a chunk of keys."""
        sch, depth = self.sch, self.operands.depth
        block = found_block(sch, dot)
        at = tuple(it.var for it in block.iter_vars)
        query = read_of(block, self.operands.query)
        rows = sch.reindex_cache_read(dot, query, "local", IndexMap(at, (at[0], at[2])))
        self.boxes(dot, self.operands.key, (1, 2))
        self.lay_out(rows, rows=True)
        self.lay_out(dot, rows=True)
        self.bind(found_block(sch, rows).name)
        self.multiply_chunk(dot, f"{self.chunk}_{depth}")

    def mix(self, mixed: BlockRV, grown: BlockRV) -> None:
        """Products of weights, in registers, and a chunk of values."""
        sch = self.sch
        self.boxes(mixed, self.operands.value, (2, 1))
        self.round_weights(mixed)
        sch.fuse_reduction_epilogue(mixed, grown)
        self.lay_out(mixed, rows=True)
        scaled = sch.decompose_reduction(mixed, sch.get_loops(mixed)[-3])
        self.bind(found_block(sch, scaled).name)
        self.multiply_chunk(mixed, f"{self.operands.features}_{self.chunk}_trans")
