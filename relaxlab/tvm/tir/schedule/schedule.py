"""`Schedule` with TVM's primitives, their parameters and results, over the core's schedules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from relaxlab.analysis.index_map import IndexMap
from relaxlab.ir.expr import IntImm
from relaxlab.ir.loops import Block, Buffer, BufferRegion, For
from relaxlab.ir.node import walk
from relaxlab.schedule import state
from relaxlab.schedule.cache import buffer_of
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.layout import pads, region_number
from relaxlab.schedule.tree import describe_block
from relaxlab.tvm.tir.schedule.handles import BlockRV, Location, LoopRV
from relaxlab.tvm.tir.schedule.state import BlockLike, ModuleSchedule, expression, numbers

BufferLike = tuple[str, int] | str | Buffer
MapLike = IndexMap | Callable[..., Any]


class Schedule(ModuleSchedule):
    """Loop functions of a module being scheduled.

    Each primitive takes what TVM's does and makes the step of the core that the documentation of
    `relaxlab.Schedule` describes. Blocks are given by handles or by their names. Raises
    ScheduleError for a step whose conditions cannot be proved, which changes nothing.
    """

    # --- Finding blocks and loops

    def get_sblock(self, name: str, func_name: str | None = None) -> BlockRV:
        """The block of that name."""
        sch = self.of(func_name)
        return self.given(sch, sch.get_block(name))

    get_block = get_sblock

    def get_loops(self, block: BlockLike) -> list[LoopRV]:
        """The loops around the block, outermost first."""
        sch, rv = self.block(block)
        return self.given(sch, sch.get_loops(rv))

    def get_child_blocks(self, block_or_loop: BlockRV | LoopRV) -> list[BlockRV]:
        """The blocks directly inside a block or loop, in order."""
        sch, rv = self.handle(block_or_loop)
        return self.given(sch, sch.get_child_blocks(rv))

    def get_producers(self, block: BlockLike) -> list[BlockRV]:
        """The blocks of the same scope that write what the block reads, in the order of its
        reads."""
        sch, rv = self.block(block)
        reads = [r.buffer for r in _regions(sch.get(rv), "read")]

        def first_read(producer: state.BlockRV) -> int:
            written = {w.buffer for w in _regions(sch.get(producer), "write")}
            return next(i for i, buffer in enumerate(reads) if buffer in written)

        return self.given(sch, sorted(sch.get_producers(rv), key=first_read))

    def get_consumers(self, block: BlockLike) -> list[BlockRV]:
        """The blocks of the same scope that read what the block writes."""
        sch, rv = self.block(block)
        return self.given(sch, sch.get_consumers(rv))

    def get_output_blocks(self, scope_block: BlockLike) -> list[BlockRV]:
        """The blocks inside of `scope_block` that write parameters of the function."""
        sch, rv = self.block(scope_block)
        return self.given(sch, sch.get_output_blocks(rv))

    # --- Decisions

    def sample_categorical(
        self, candidates: Sequence[Any], probs: Sequence[float], decision: int | None = None
    ) -> int:
        """One of the candidates, by `decision` the one of that number; else all are equally
        likely."""
        sch = self.of(None)
        values = numbers(candidates)
        chosen = None if decision is None else values[int(decision)]
        return sch.sample_categorical(_name(sch, "categorical"), values, values[0], chosen)

    def sample_perfect_tile(
        self, loop: LoopRV, n: int, max_innermost_factor: int = 16,
        decision: Sequence[int] | None = None,
    ) -> list[int]:  # fmt: skip
        """`n` factors whose product is the loop's extent."""
        sch, rv = self.handle(loop)
        extent = _extent(sch.get(rv))
        most = extent if max_innermost_factor < 1 else max_innermost_factor
        default = [extent, *[1] * (n - 1)] if n > 1 or extent <= most else [extent]
        given = None if decision is None else numbers(decision)
        return sch.sample_perfect_tile(_name(sch, "tile"), rv, n, most, default, given)

    def sample_partitioned_tile(
        self, loop: LoopRV, n: int, partition_pos: int = 0, innerpart_factor: int = 1,
        decision: Sequence[int] | None = None,
    ) -> list[int]:  # fmt: skip
        """`n` factors whose product is the loop's extent, the last of them, from `partition_pos`
        on, a multiple of `innerpart_factor`."""
        sch, rv = self.handle(loop)
        extent = _extent(sch.get(rv))
        default = [extent if i == partition_pos else 1 for i in range(n)]
        given = None if decision is None else numbers(decision)
        return sch.sample_partitioned_tile(
            _name(sch, "tile"), rv, n, partition_pos, innerpart_factor, default, given
        )

    def sample_compute_location(self, block: BlockLike, decision: int | None = None) -> LoopRV:
        """A loop around the reader of a block, for `compute_at`: by `decision` the loop of that
        number, outermost 0; -1 for where the block is now, -2 for inside of its readers."""
        sch, rv = self.block(block)
        func = self.given(sch, rv).func
        decision = None if decision is None else int(decision)
        if decision in (Location.ROOT.value, Location.INLINE.value):
            return LoopRV(func, Location(decision))
        depth = None if decision is None else decision + 1
        loop = sch.sample_compute_location(_name(sch, "location"), rv, decision=depth)
        return LoopRV(func, loop or Location.ROOT)

    # --- Loops

    def fuse(self, *loops: LoopRV, preserve_unit_iters: bool = True) -> LoopRV:
        """Make one loop of perfectly nested ones."""
        if not loops:
            raise TypeError("fuse takes loops of the schedule")
        sch, _ = self.handle(loops[0])
        inner = [self.handle(v)[1] for v in loops]
        return self.given(sch, sch.fuse(*inner, preserve_unit_iters=preserve_unit_iters))

    def merge(self, *loops: LoopRV) -> LoopRV:
        """Make one loop of loops of one extent that follow each other."""
        if len(loops) < 2:
            raise TypeError("merge takes two loops of the schedule, or more")
        sch, _ = self.handle(loops[0])
        return self.given(sch, sch.merge(*(self.handle(v)[1] for v in loops)))

    def split(
        self, loop: LoopRV, factors: Sequence[Any], preserve_unit_iters: bool = True,
        disable_predication: bool = False,
    ) -> list[LoopRV]:  # fmt: skip
        """Split a loop into a nest; one factor may be None."""
        sch, rv = self.handle(loop)
        made = sch.split(
            rv, factors=numbers(factors), preserve_unit_iters=preserve_unit_iters
        )
        return self.given(sch, made)

    def loop_partition(
        self, loop: LoopRV, factors: Sequence[Any], preserve_unit_iters: bool = True
    ) -> list[LoopRV]:
        """Split a loop into consecutive loops of these numbers of iterations."""
        if not preserve_unit_iters:
            raise NotImplementedError(
                "loop_partition(preserve_unit_iters=False): a part of one iteration keeps its loop "
                "variable; leave the option out"
            )
        sch, rv = self.handle(loop)
        return self.given(sch, sch.loop_partition(rv, numbers(factors)))

    def reorder(self, *ordered_loops: LoopRV) -> None:
        """Permute the loops of a nest into the order given."""
        if ordered_loops:
            sch, _ = self.handle(ordered_loops[0])
            sch.reorder(*(self.handle(v)[1] for v in ordered_loops))

    def reorder_block_iter_var(self, block: BlockLike, new_order: Sequence[int]) -> None:
        """Permute the axes of a block."""
        sch, rv = self.block(block)
        sch.reorder_block_iter_var(rv, [int(i) for i in new_order])

    def add_unit_loop(self, block_or_loop: BlockRV | LoopRV) -> LoopRV:
        """Put a loop of extent 1 around a block or loop."""
        sch, rv = self.handle(block_or_loop)
        return self.given(sch, sch.add_unit_loop(rv))

    def parallel(self, loop: LoopRV) -> None:
        """Run the loop's iterations on several threads."""
        sch, rv = self.handle(loop)
        sch.parallel(rv)

    def vectorize(self, loop: LoopRV) -> None:
        """Run the loop's iterations as vector lanes."""
        sch, rv = self.handle(loop)
        sch.vectorize(rv)

    def bind(self, loop: LoopRV, thread_axis: str) -> None:
        """Bind the loop to a GPU thread axis."""
        sch, rv = self.handle(loop)
        sch.bind(rv, str(thread_axis))

    def unroll(self, loop: LoopRV) -> None:
        """Unroll the loop."""
        sch, rv = self.handle(loop)
        sch.unroll(rv)

    # --- Staging of data

    def cache_read(
        self, block: BlockLike, read_buffer_index: int | str | Buffer, storage_scope: str,
        consumer_blocks: Sequence[BlockLike] | None = None,
    ) -> BlockRV:  # fmt: skip
        """Stage a buffer that the block reads; returns the copying block."""
        sch, rv = self.block(block)
        index = self.region(sch, rv, "read", read_buffer_index)
        consumers = [self.block(b)[1] for b in consumer_blocks or ()]
        return self.given(sch, sch.cache_read(rv, index, storage_scope, consumers))

    def cache_write(
        self, block: BlockLike, write_buffer_index: int | str | Buffer, storage_scope: str,
        consumer_blocks: Sequence[BlockLike] | None = None,
    ) -> BlockRV:  # fmt: skip
        """Stage a buffer that the block writes; returns the copying block."""
        sch, rv = self.block(block)
        index = self.region(sch, rv, "write", write_buffer_index)
        consumers = [self.block(b)[1] for b in consumer_blocks or ()]
        return self.given(sch, sch.cache_write(rv, index, storage_scope, consumers))

    def cache_inplace(
        self, block: BlockLike, read_buffer_index: int | str | Buffer, storage_scope: str
    ) -> list[BlockRV]:
        """Stage a buffer that the block updates; returns the blocks that copy it and back."""
        sch, rv = self.block(block)
        index = self.region(sch, rv, "read", read_buffer_index)
        return self.given(sch, sch.cache_inplace(rv, index, storage_scope))

    def cache_index(
        self, block: BlockLike, storage_scope: str, cse_thresh: int = 0
    ) -> list[BlockRV]:
        """Keep computed indices of the block in tables; returns the blocks that fill them."""
        sch, rv = self.block(block)
        return self.given(sch, sch.cache_index(rv, storage_scope, cse_thresh))

    def read_at(
        self, loop: LoopRV, block: BlockLike, read_buffer_index: int, storage_scope: str
    ) -> BlockRV:
        """Stage what one iteration of the loop reads of a buffer; returns the copying block."""
        sch, rv = self.block(block)
        made = sch.read_at(self.handle(loop)[1], rv, read_buffer_index, storage_scope)
        return self.given(sch, made)

    def write_at(
        self, loop: LoopRV, block: BlockLike, write_buffer_index: int, storage_scope: str
    ) -> BlockRV:
        """Stage what one iteration of the loop writes to a buffer; returns the copying block."""
        sch, rv = self.block(block)
        made = sch.write_at(self.handle(loop)[1], rv, write_buffer_index, storage_scope)
        return self.given(sch, made)

    def reindex_cache_read(
        self, block: BlockLike, read_buffer_index: int, storage_scope: str, index_map: MapLike
    ) -> BlockRV:
        """Stage a buffer that the block reads, in an order of the block's axes."""
        sch, rv = self.block(block)
        made = sch.reindex_cache_read(rv, read_buffer_index, storage_scope, index_map)
        return self.given(sch, made)

    def reindex_cache_write(
        self, block: BlockLike, write_buffer_index: int, storage_scope: str, index_map: MapLike
    ) -> BlockRV:
        """Stage a buffer that the block writes, in an order of the block's axes."""
        sch, rv = self.block(block)
        made = sch.reindex_cache_write(rv, write_buffer_index, storage_scope, index_map)
        return self.given(sch, made)

    def reindex(self, block: BlockLike, buffer: BufferLike) -> BlockRV:
        """Stage a buffer of the block in the order of the block's axes."""
        sch, rv = self.block(block)
        return self.given(sch, sch.reindex(rv, buffer))

    def set_scope(
        self, block: BlockLike, buffer_index: int | str | Buffer, storage_scope: str
    ) -> None:
        """Change the scope of an intermediate buffer that the block writes."""
        sch, rv = self.block(block)
        if storage_scope.partition(".")[0] not in SCOPES:
            known = ", ".join(SCOPES)
            raise _refused("set_scope", sch.get(rv), f"a scope is one of {known}")
        sch.set_scope(rv, self.region(sch, rv, "write", buffer_index), storage_scope)

    def storage_align(
        self, block: BlockLike, buffer_index: int, axis: int, factor: int, offset: int
    ) -> None:
        """Ask for an aligned stride of a buffer that the block writes."""
        sch, rv = self.block(block)
        sch.storage_align(rv, buffer_index, axis, factor, offset)

    def rolling_buffer(self, block: BlockLike, write_buffer_index: int) -> None:
        """Keep of a buffer that the block writes what one iteration touches."""
        sch, rv = self.block(block)
        sch.rolling_buffer(rv, write_buffer_index)

    def annotate_buffer_access(
        self, block: BlockLike, buffer_index: int, buf_type: str,
        gen_new_ranges: Callable[..., Sequence[Any]],
    ) -> None:  # fmt: skip
        """State the region that the block accesses: an index, or a pair (begin, end), for each
        dimension."""
        sch, rv = self.block(block)
        block_now = sch.get(rv)
        assert isinstance(block_now, Block)
        axes = tuple(iv.var for iv in block_now.iter_vars)
        ranges = [r if isinstance(r, tuple | list) else (r, r + 1) for r in gen_new_ranges(*axes)]
        begin, end = (
            IndexMap(axes, tuple(expression(r[side]) for r in ranges)) for side in (0, 1)
        )
        sch.annotate_buffer_access(rv, (buf_type, buffer_index), begin, end)

    def unsafe_hide_buffer_access(
        self, block: BlockLike, buf_type: str, buf_index_array: Sequence[int]
    ) -> None:
        """Leave regions out of those that the block declares."""
        sch, rv = self.block(block)
        sch.unsafe_hide_buffer_access(rv, buf_type, numbers(buf_index_array))

    def unsafe_set_dtype(self, block: BlockLike, buffer_index: int, dtype: str) -> None:
        """Give an intermediate buffer that the block writes another dtype."""
        sch, rv = self.block(block)
        sch.unsafe_set_dtype(rv, buffer_index, dtype)

    # --- Places of computations

    def compute_at(
        self, block: BlockLike, loop: LoopRV, preserve_unit_loops: bool = False, index: int = -1
    ) -> None:
        """Move a producer under a consumer's loop, or to a location that was sampled."""
        sch, rv = self.block(block)
        match self.handle(loop)[1]:
            case Location.ROOT:
                pass
            case Location.INLINE:
                sch.compute_inline(rv)
            case target:
                sch.compute_at(rv, target, preserve_unit_loops, index)

    def reverse_compute_at(
        self, block: BlockLike, loop: LoopRV, preserve_unit_loops: bool = False, index: int = -1
    ) -> None:
        """Move a consumer under a producer's loop, or to a location that was sampled."""
        sch, rv = self.block(block)
        match self.handle(loop)[1]:
            case Location.ROOT:
                pass
            case Location.INLINE:
                sch.reverse_compute_inline(rv)
            case target:
                inside = {*map(id, walk(sch.get(target)))}
                if not all(id(sch.get(p)) in inside for p in sch.get_producers(rv)):
                    condition = "all blocks that the block reads from are inside of the loop"
                    raise _refused("reverse_compute_at", sch.get(rv), condition)
                sch.reverse_compute_at(rv, target, preserve_unit_loops, index)

    def compute_inline(self, block: BlockLike) -> None:
        """Compute the block's value at each place that reads it."""
        sch, rv = self.block(block)
        sch.compute_inline(rv)

    def reverse_compute_inline(self, block: BlockLike) -> None:
        """Apply the block, which reads one buffer, where its producer computes each value."""
        sch, rv = self.block(block)
        if len(_regions(sch.get(rv), "read")) != 1:
            raise _refused("reverse_compute_inline", sch.get(rv), "the block reads one buffer")
        sch.reverse_compute_inline(rv)

    # --- Reductions

    def decompose_reduction(self, block: BlockLike, loop: LoopRV) -> BlockRV:
        """Initialise before the loop; returns the initialising block."""
        sch, rv = self.block(block)
        return self.given(sch, sch.decompose_reduction(rv, self.handle(loop)[1]))

    def decompose_padding(self, block: BlockLike, loop: LoopRV) -> BlockRV:
        """Fill what a block that pads writes before the loop; returns the block that fills."""
        sch, rv = self.block(block)
        return self.given(sch, sch.decompose_padding(rv, self.handle(loop)[1]))

    def can_decompose_padding(self, block: BlockLike, loop: LoopRV) -> bool:
        """True if `decompose_padding` would take the block and the loop."""
        sch, rv = self.block(block)
        try:
            sch.copy().decompose_padding(rv, self.handle(loop)[1])
        except ScheduleError:
            return False
        return True

    def fuse_reduction_epilogue(
        self, reduction_block: BlockLike, epilogue_block: BlockLike
    ) -> None:
        """Start a reduction at the value that the block behind it combines with each result."""
        sch, rv = self.block(reduction_block)
        sch.fuse_reduction_epilogue(rv, self.block(epilogue_block)[1])

    def rfactor(self, loop: LoopRV, factor_axis: int) -> BlockRV:
        """Reduce per iteration of a reduce loop, then reduce the results; returns the first."""
        sch, rv = self.handle(loop)
        return self.given(sch, sch.rfactor(rv, int(factor_axis)))

    def pad_einsum(self, block: BlockLike, padding: Sequence[int]) -> None:
        """Round the extents of the block's axes up to multiples of `padding`."""
        sch, rv = self.block(block)
        sch.pad_einsum(rv, numbers(padding))

    # --- Blocks

    def blockize(
        self, target: LoopRV | Sequence[BlockRV], preserve_unit_iters: bool = True
    ) -> BlockRV:
        """Make a block of the loop and what is inside it."""
        sch, rv = self.handle(target)  # pyright: ignore[reportArgumentType]
        return self.given(sch, sch.blockize(rv, True, preserve_unit_iters))

    def tensorize(
        self, block_or_loop: BlockRV | LoopRV, tensor_intrin: str,
        preserve_unit_iters: bool = True,
    ) -> None:  # fmt: skip
        """Replace a block, or what is inside a loop, by a registered tensor intrinsic."""
        sch, rv = self.handle(block_or_loop)
        sch.tensorize(rv, tensor_intrin)

    def annotate(self, block_or_loop: BlockRV | LoopRV, ann_key: str, ann_val: Any) -> None:
        """Set an annotation of a block or loop."""
        sch, rv = self.handle(block_or_loop)
        sch.annotate(rv, ann_key, ann_val)

    def unannotate(self, block_or_loop: BlockRV | LoopRV, ann_key: str) -> None:
        """Remove an annotation of a block or loop."""
        sch, rv = self.handle(block_or_loop)
        sch.unannotate(rv, ann_key)

    # --- Layouts

    def transform_layout(
        self, block: BlockLike, buffer: BufferLike, index_map: MapLike, pad_value: Any = None,
        *, assume_injective_transform: bool = False,
    ) -> None:  # fmt: skip
        """Store a buffer in another order, in which there is no padding without `pad_value` unless
        `assume_injective_transform` takes it as none."""
        sch, rv = self.block(block)
        if pad_value is None and not assume_injective_transform:
            found = sch.get(rv)
            assert isinstance(found, Block)
            kind, index = region_number(found, buffer)
            if pads(sch.func, buffer_of(found, kind, index, "transform_layout"), index_map):
                condition = "the layout has no padding: state a pad_value for it"
                raise _refused("transform_layout", found, condition)
        sch.transform_layout(rv, buffer, index_map, pad_value)

    def transform_block_layout(self, block: BlockLike, index_map: MapLike) -> None:
        """Run the block's loops over the axes that the index map makes of its own."""
        sch, rv = self.block(block)
        sch.transform_block_layout(rv, index_map)

    def enter_postproc(self) -> None:
        """Do nothing: all steps are kept in a trace."""


def _name(sch: Any, kind: str) -> str:
    """A name for the next decision of a schedule."""
    return next(n for i in count() if (n := f"{kind}_{i}") not in sch.decisions)


SCOPES = ("global", "shared", "local", "warp", "wmma", "m16n8k8", "metal", "texture")
"""The storage scopes, up to a point."""


def _refused(primitive: str, block: Block | For, condition: str) -> ScheduleError:
    place = describe_block(block) if isinstance(block, Block) else str(block.loop_var)
    return ScheduleError(primitive, place, condition)


def _regions(block: Block | For, kind: str) -> tuple[BufferRegion, ...]:
    assert isinstance(block, Block)
    return block.reads if kind == "read" else block.writes


def _extent(loop: Block | For) -> int:
    """The extent of a loop. Raises ValueError if it is no constant."""
    assert isinstance(loop, For)
    if not isinstance(loop.extent, IntImm):
        raise ValueError(f"the extent of the loop is no constant: {loop.extent}")
    return loop.extent.value
